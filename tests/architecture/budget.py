"""The weight of the product in tokens, and the share of its lines that hold too much.

Tokens are counted without imports, comments, docstrings and trailing commas, so layout cannot change
the number.  The limits are lowered by hand at a release.  A fix may add lines; it does not have to
pay for them elsewhere.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest

from attrs import frozen

from tests.architecture.house import LAYOUT, docstrings, lines_of
from tests.architecture.sources import LAYERS, Source, sources

PRODUCT_TOKENS = 360_000
CLOSING = (")", "]", "}")
DENSE = 30
"""A line with as many tokens is dense: it holds more than one idea."""

PRODUCT_SHARE = 0.013
TESTS_SHARE = 0.051
"""The largest share of dense lines among the lines of code."""


@frozen
class Density:
    """How many tokens some files have, on how many lines of code, and how many of these lines are dense."""

    tokens: int
    lines: int
    dense: int

    @property
    def share(self) -> float:
        """The share of dense lines."""
        return self.dense / self.lines


def tokens_by_line(source: Source) -> Counter[int]:
    """Count the tokens of each line of code, by line number."""
    imported = (
        node for node in ast.walk(source.tree) if isinstance(node, ast.Import | ast.ImportFrom)
    )
    left_out = lines_of(docstrings(source.tree)) | lines_of(imported)
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    written = [token for token in tokens if token.type not in LAYOUT]
    counts = Counter[int]()
    for token, following in zip_longest(written, written[1:]):
        # A comma before a closing bracket is layout.
        is_trailing = token.string == "," and following.string in CLOSING
        if not is_trailing and token.start[0] not in left_out:
            counts[token.start[0]] += 1
    return counts


@cache
def density(files: tuple[Source, ...]) -> Density:
    """Count the tokens and the dense lines of some files."""
    counts = [count for source in files for count in tokens_by_line(source).values()]
    return Density(sum(counts), len(counts), sum(count >= DENSE for count in counts))


def report(product: Density, tests: Density) -> Iterator[str]:
    """Iterate over lines that compare the numbers with their limits."""
    yield f"product: {product.tokens:,} tokens of at most {PRODUCT_TOKENS:,}"
    rows = ("product", product, PRODUCT_SHARE), ("tests", tests, TESTS_SHARE)
    for title, found, limit in rows:
        yield f"{title}: {found.tokens / found.lines:.1f} tokens a line of code"
        yield f"{title}: {found.share:.1%} of the lines with {DENSE} tokens or more, at most {limit:.1%}"


if __name__ == "__main__":
    lines = report(density(sources(*LAYERS)), density(sources("tests")))
    sys.stdout.write("\n".join(lines) + "\n")
