"""The budget of lines of code: how much each folder may have, and how much it should have in the end.

``budget.toml`` has one line for each folder of the product (lines of code, files) and one for all tests (lines, files).
The total of the product is the sum of its folders.  Numbers only go down: who needs more in one folder takes it from another
in the same commit.  ``python -m tests.architecture.budget lower`` lowers each number to what is there; use it after removing
code, and after a merge that kept either side of the file.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import frozen

from tests.architecture.house import Weight, by_folder, weight
from tests.architecture.sources import LAYERS, Source, sources

FILE = Path(__file__).with_name("budget.toml")

Numbers = dict[str, tuple[int, int]]
"""For each folder the lines and the number of files."""


@frozen
class Budget:
    """What ``budget.toml`` says: limits by folder, and goals for groups of folders, which are written with blanks between."""

    limits: Numbers
    goals: dict[str, int]
    total_goal: tuple[int, int]
    tests_goal: int


def read(text: str) -> Budget:
    """Read the text of ``budget.toml``."""
    found = tomllib.loads(text)
    limits = {name: (lines, files) for name, (lines, files) in found["limits"].items()}
    goals = found["goals"]
    return Budget(limits, goals["folders"], tuple(goals["product"]), goals["tests"])


def present(product: Iterable[Source], tests: Iterable[Source]) -> Numbers:
    """Count lines of code and files by folder of the product, and all lines and files of the tests."""
    found = {name: (one.code, one.files) for name, one in by_folder(product).items()}
    every = sum((weight(source) for source in tests), Weight())
    return found | {"tests": (every.lines, every.files)}


def above(now: Numbers, limits: Numbers) -> list[str]:
    """Return the folders that have more than their number."""
    return [
        f"{name}: {lines} lines in {files} files, at most {limits.get(name, (0, 0))[0]} in {limits.get(name, (0, 0))[1]}"
        for name, (lines, files) in sorted(now.items())
        if lines > limits.get(name, (0, 0))[0] or files > limits.get(name, (0, 0))[1]
    ]


def lowered(text: str, now: Numbers) -> str:
    """Return the text of ``budget.toml`` with each number at most what is there; folders that are gone have no line."""

    def line(found: re.Match[str]) -> str:
        lines, files = now.get(found[1], (0, 0))
        return f'"{found[1]}" = [{min(lines, int(found[2]))}, {min(files, int(found[3]))}]\n' if files else ""

    return re.sub(r'^"(.+)" = \[(\d+), (\d+)\]\n', line, text, flags=re.MULTILINE)


def report(now: Numbers, budget: Budget) -> Iterator[str]:
    """Iterate over lines that compare what is there, the limits and the goals."""
    limits = budget.limits
    product = [*{*now, *limits} - {"tests"}]
    yield f"{'now':>8}{'limit':>8}{'goal':>8}"
    rows = [(group, group.split(), 0, goal) for group, goal in budget.goals.items()]
    rows += [("product, lines of code", product, 0, budget.total_goal[0])]
    rows += [("product, files", product, 1, budget.total_goal[1])]
    rows += [("tests, all lines", ["tests"], 0, budget.tests_goal)]
    for title, folders, place, goal in rows:
        count, limit = (sum(numbers.get(name, (0, 0))[place] for name in folders) for numbers in (now, limits))
        yield f"{count:>8}{limit:>8}{goal:>8}  {title}"


if __name__ == "__main__":
    text, now = FILE.read_text("utf-8"), present(sources(*LAYERS), sources("tests"))
    if sys.argv[1:] == ["lower"]:
        FILE.write_text(lowered(text, now), "utf-8")
    else:
        sys.stdout.write("\n".join(report(now, read(text))) + "\n")
