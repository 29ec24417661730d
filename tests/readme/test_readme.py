"""The README's code runs, and prints what the README says it prints.

One idea: the ``python`` blocks are one program; the ``text`` block after one is what it prints.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[2] / "README.md"

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_code_of_the_readme_runs() -> None:
    """Every block, in order, in one namespace; every printed text is compared."""
    blocks = BLOCK.findall(README.read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks].count("text") >= 3
    namespace: dict[str, Any] = {"__name__": "readme"}
    printed = ""
    for kind, text in blocks:
        if kind == "python":
            assert not printed.strip(), "a block printed something that the README does not show"
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, str(README), "exec"), namespace)
            printed = output.getvalue()
        else:
            assert printed == text
            printed = ""
    assert not printed
