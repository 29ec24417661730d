"""``report``: the table of mutants by file, and those that survived without a written reason."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

ENOUGH = 0.9
"""The share of the mutants of transforms/ that must be found."""


@frozen
class Result:
    """What became of one mutant."""

    file: str
    function: str
    old: str
    new: str
    verdict: str


@frozen
class Same:
    """Mutants that mean the same as the original, and why."""

    file: str
    function: str
    reason: str
    old: str = ""
    """The lines that are gone; left out where the reason holds for any change of the function that has these new ones."""
    new: str = ""
    """The lines that stand there instead; left out where the reason holds whatever they are."""

    def fits(self, result: Result) -> bool:
        """Say whether the reason speaks of a mutant."""
        here = (self.file, self.function) == (result.file, result.function)
        return here and self.old in ("", result.old) and self.new in ("", result.new)


def read(tree: Path, root: Path) -> tuple[list[Result], list[Same], list[str]]:
    """Return the results of the last run, the written reasons, and the tests that failed without any mutant."""
    verdicts = dict(line.split("\t")[::-1] for line in (tree / "verdicts").read_text().splitlines())
    fields = ("file", "function", "old", "new")
    mutants = [
        mutant
        for mutant in json.loads((tree / "mutants.json").read_text())
        if mutant["name"] in verdicts
    ]
    results = [
        Result(**{field: mutant[field] for field in fields}, verdict=verdicts[mutant["name"]])
        for mutant in mutants
    ]
    same = same_ones((root / "tests" / "mutants" / "equivalent.toml").read_text())
    return results, same, json.loads((tree / "broken.json").read_text())


def same_ones(text: str) -> list[Same]:
    """Return the written reasons: tables ``[[same]]`` of a TOML file."""
    tables: list[Mapping[str, Any]] = tomllib.loads(text).get("same", [])
    return [Same(**table) for table in tables]


def report(results: Sequence[Result], same: Sequence[Same], broken: Sequence[str]) -> int:
    """Print the table; return 1 where too few mutants of transforms/ are found."""
    unknown = left(results, same)
    for result in unknown:
        print(
            f"{result.file}, {result.function}, {result.verdict}:\n{_shown('-', result.old)}\n{_shown('+', result.new)}"
        )
    for test in broken:
        print(f"{test} fails without any mutant, and was left out")
    for one in stale(results, same):
        print(
            f"equivalent.toml: no mutant that survived fits ({one.file}, {one.function}): {one.reason}"
        )
    print("\n".join(table(results, unknown)))
    shares = [share(results, unknown, "transforms/")]
    return int(any(part < ENOUGH for part in shares) or bool(broken))


def _shown(sign: str, lines: str) -> str:
    return "\n".join(f"  {sign} {line}" for line in lines.splitlines())


def stale(results: Sequence[Result], same: Sequence[Same]) -> list[Same]:
    """Return the reasons that speak of a file which was asked about, and fit no survivor in it."""
    asked = {result.file for result in results}
    return [
        one
        for one in same
        if one.file in asked and not any(one.fits(result) for result in _survivors(results))
    ]


def left(results: Iterable[Result], same: Sequence[Same]) -> list[Result]:
    """Return the mutants that survived without a written reason."""
    return [result for result in _survivors(results) if not any(one.fits(result) for one in same)]


def _survivors(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.verdict in ("survived", "no test")]


def share(results: Iterable[Result], unknown: Sequence[Result], prefix: str) -> float:
    """Return the share of the mutants below a folder that are found, those that mean the same left out."""
    mine = [result for result in results if result.file.startswith(prefix)]
    killed = sum(result.verdict in ("killed", "stopped") for result in mine)
    counted = killed + sum(result.file.startswith(prefix) for result in unknown)
    return killed / counted if counted else 1.0


def table(results: Sequence[Result], unknown: Sequence[Result]) -> list[str]:
    """Return one line for each file and folder: how many mutants, what became of them, which share was found."""
    folders = dict.fromkeys(result.file.split("/")[0] + "/" for result in results)
    lines = [
        f"{'':40} {'mutants':>8} {'killed':>8} {'stopped':>8} {'same':>8} {'survived':>9} {'found':>7}"
    ]
    for prefix in (*dict.fromkeys(result.file for result in results), *folders):
        mine = [result for result in results if result.file.startswith(prefix)]
        counts = Counter(result.verdict for result in mine)
        left = sum(result.file.startswith(prefix) for result in unknown)
        same = counts["survived"] + counts["no test"] - left
        cells = f"{len(mine):8} {counts['killed']:8} {counts['stopped']:8} {same:8} {left:9}"
        lines.append(f"{prefix:40} {cells} {share(results, unknown, prefix):7.1%}")
    return lines
