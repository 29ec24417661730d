"""The code of README and docs runs, and prints what they say it prints.

The ``python`` blocks of a page are one program; the ``text`` block after one is what it prints.  Every block of every page has a
language, and one that is ``python no-run`` has a reason.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

BLOCK = re.compile(r"^```(python|text|mermaid)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

ALL = sorted(
    page
    for folder, pattern in ((ROOT, "*.md"), (ROOT / "docs", "**/*.md"))
    for page in folder.glob(pattern)
)

TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in ALL}

LANGUAGES = {
    "python",
    "python no-run",
    "text",
    "mermaid",
    "console",
    "purefx",
    "diff",
    "{toctree}",
    "{eval-rst}",
}
"""Those of ``console`` run in ``tests/command``, those of ``purefx`` in ``test_laws_doc.py``."""

NOT_RUN = {
    "docs/split.md": "what one rank of several does; the block after it runs with one process",
    "docs/passes.md": "needs a compiler: run below where one is",
    "docs/export.md": "needs a compiler or packages: run below where they are",
    "docs/gallery.md": "what examples/rewrites has, which tests/real/test_rewrites.py runs and compares",
}

PRINTED = {
    "CONTRIBUTING.md": 1,
    "README.md": 3,
    "docs/caches.md": 1,
    "docs/effects.md": 2,
    "docs/import.md": 3,
    "docs/laws.md": 2,
    "docs/minimize.md": 2,
    "docs/provenance.md": 1,
    "docs/rules.md": 4,
    "docs/simplify.md": 1,
    "docs/split.md": 2,
    "docs/tour.md": 4,
    "docs/training.md": 3,
    "docs/transformations.md": 3,
}
"""How many texts a page prints at least."""

PAGES = [page for page, text in TEXTS.items() if "\n```python\n" in text]


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str) -> None:
    """Every block, in order, in one namespace; every printed text is compared."""
    blocks = BLOCK.findall(TEXTS[page])
    assert [kind for kind, _ in blocks].count("text") >= PRINTED.get(page, 0)
    namespace: dict[str, Any] = {"__name__": "__main__"}  # classes print as those of a script do
    printed = ""
    for kind, text in blocks:
        if kind == "python":
            assert not printed.strip(), "a block printed something that the page does not show"
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, page, "exec"), namespace)
            printed = output.getvalue()
        else:
            assert printed == text
            printed = ""
    assert not printed


def test_every_block_runs_or_says_why_not() -> None:
    without = {page for page, text in TEXTS.items() if "\n```python no-run\n" in text}
    assert without == {page for page in NOT_RUN if page in TEXTS}
    fences = {
        (page, tag)
        for page, text in TEXTS.items()
        for tag in re.findall(r"^```(.+)$", text, re.MULTILINE)
    }
    assert [(page, tag) for page, tag in sorted(fences) if tag not in LANGUAGES] == []
    for page, text in TEXTS.items():
        assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(
            re.findall(r"^```.+$", text, re.MULTILINE)
        ), page


PYTHON = re.compile(
    r"^    .*(?:\bpx\.\w+\(|\bcheck_\w+\()|^    (?:def|import|from|@)\b", re.MULTILINE
)


def test_what_is_indented_is_no_python() -> None:
    prose = {
        page: re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        for page, text in TEXTS.items()
    }
    assert [(page, found) for page, text in prose.items() for found in PYTHON.findall(text)] == []


def test_every_named_page_is_there() -> None:
    assert set(PRINTED) <= set(PAGES)


NEEDED = {
    ("docs/passes.md", "post_grad_custom_pre_pass"): "g++",
    ("docs/export.md", "aoti_compile_and_package"): "g++",
    ("docs/export.md", "torch.onnx.export"): "onnxscript",
    ("docs/export.md", "torchao"): "torchao",
}
"""What a block that is not run above needs, by its page and a text in it."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.deep
@pytest.mark.parametrize(("page", "text"), NEEDED)
def test_a_block_that_needs_a_tool_runs(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = NEEDED[page, text]
    if not (shutil.which(tool) or (tool != "g++" and importlib.util.find_spec(tool))):
        pytest.skip(f"needs {tool}")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    blocks = re.findall(
        r"^```(python(?: no-run)?)\n(.*?)^```$", TEXTS[page], re.MULTILINE | re.DOTALL
    )
    [block] = [code for kind, code in blocks if kind == "python no-run" and text in code]
    if "import purefx" not in block:
        exec(next(code for kind, code in blocks if kind == "python"), namespace)
    exec(block, namespace)
