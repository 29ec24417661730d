"""The code of README and docs runs, and prints what they say it prints.

The ``python`` blocks are one program; the ``text`` block after one is what it prints.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

BLOCK = re.compile(r"^```(python|text|mermaid)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


PAGES = {
    "CONTRIBUTING.md": 4,
    "README.md": 3,
    "docs/format.md": 0,
    "docs/import.md": 2,
    "docs/laws.md": 1,
    "docs/minimize.md": 3,
    "docs/partition.md": 4,
    "docs/passes.md": 0,
    "docs/rules.md": 4,
    "docs/provenance.md": 2,
    "docs/stages.md": 1,
    "docs/swap.md": 0,
    "docs/tour.md": 8,
}
"""The texts that each page prints."""


@pytest.mark.parametrize(("page", "printed_texts"), PAGES.items())
def test_the_code_of_a_page_runs(page: str, printed_texts: int) -> None:
    """Every block, in order, in one namespace; every printed text is compared."""
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks].count("text") >= printed_texts
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
