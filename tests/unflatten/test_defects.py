"""The table of ``docs/unflatten.md`` is what ``bench/defects.py`` finds.

One idea: every row is made again; ours is eager's, the peer's is not, and the documented rows are these.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.defects import EXPERIMENTS, outcome, rows

DOCS = Path(__file__).parents[2] / "docs" / "unflatten.md"


def test_the_documented_cases_are_those_of_the_script() -> None:
    table = re.findall(r"^\| (.*?) \|", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert table[1:] == list(EXPERIMENTS)


@pytest.mark.slow
def test_ours_is_eager_and_the_peer_is_not() -> None:
    for row in rows():
        assert row.ours == row.eager, row
        assert "Error" not in row.eager, row
        assert row.torch != row.eager, f"the peer is right now, take this case out: {row}"


def test_an_error_is_an_outcome() -> None:
    assert outcome(lambda _: 1 // 0, None) == "ZeroDivisionError: integer division or modulo by zero"
