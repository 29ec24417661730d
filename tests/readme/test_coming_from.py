"""Every call of the tables of ``docs/coming_from.md`` runs, that of torch and ours."""

from __future__ import annotations

import copy
import importlib
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import purefx

TEXT = (Path(__file__).parents[2] / "docs" / "coming_from.md").read_text(encoding="utf-8")

ROWS = re.findall(r"^\| (`.+?`|—) \| (`.+?`) \| .+ \|$", TEXT, re.MULTILINE)

CALLS = [call for row in ROWS for cell in row for call in re.findall(r"`([^`]+)`", cell)]

BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)

NEEDS = {"FxGraphDrawer": "pydot"}
"""What of torch asks for a package that is not installed."""


@pytest.fixture(scope="module")
def given() -> dict[str, Any]:
    """What the blocks of the page define."""
    names: dict[str, Any] = {"purefx": purefx}
    for block in BLOCKS:
        exec(block, names)
    return names


def import_modules(call: str) -> None:
    """Import the modules that a call names by their paths."""
    for path in re.findall(r"\b(?:torch|purefx)(?:\.\w+)+", call):
        parts = path.split(".")
        for length in range(2, len(parts)):
            if not hasattr(
                importlib.import_module(".".join(parts[: length - 1])), parts[length - 1]
            ):
                importlib.import_module(".".join(parts[:length]))


@pytest.mark.parametrize("call", CALLS)
def test_calls_run(given: dict[str, Any], call: str) -> None:
    names = {**given, **{name: copy.deepcopy(given[name]) for name in ("gm", "model")}}
    if re.search(
        r"\bep\b", call
    ):  # a deep copy of an exported program has other names in its graph than in its signature
        exec(BLOCKS[0], names)
    needs = next((package for word, package in NEEDS.items() if word in call), None)
    with warnings.catch_warnings():
        if call.startswith(("torch.", "gm.", "ep.")):
            warnings.simplefilter("ignore")  # torch warns of what it does itself
        import_modules(call)
        if needs:
            with pytest.raises(RuntimeError, match=needs):
                eval(call, names)
        else:
            eval(call, names)


def test_all_rows_are_read() -> None:
    rows = [
        line for line in TEXT.splitlines() if line.startswith("| ") and "| purefx |" not in line
    ]
    assert len(rows) == len(ROWS) > 30
