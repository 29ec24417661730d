"""The product stays within its tokens, and most lines hold one idea."""

from __future__ import annotations

from tests.architecture import budget
from tests.architecture.sources import LAYERS, Source, sources


def test_imports_comments_docstrings_and_layout_have_no_tokens() -> None:
    text = (
        '"""Doc."""\nimport os\n\n\ndef f(\n    a,\n):\n    """Doc."""\n    return a + 1  # why\n'
    )
    found = budget.tokens_by_line(Source("a.py", text))
    assert found == {5: 3, 6: 1, 7: 2, 9: 4}


def test_the_product_is_within_its_tokens() -> None:
    found = budget.density(sources(*LAYERS))
    assert found.tokens <= budget.PRODUCT_TOKENS


def test_few_lines_are_dense() -> None:
    product, tests = budget.density(sources(*LAYERS)), budget.density(sources("tests"))
    assert product.share <= budget.PRODUCT_SHARE, f"{product.dense} of {product.lines} lines"
    assert tests.share <= budget.TESTS_SHARE, f"{tests.dense} of {tests.lines} lines"
