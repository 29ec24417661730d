"""Replay: what every transformation made of recorded programs, compared with what it makes of them now.

A change of structure changes no result.  ``record`` draws programs of all tiers at the stages of the registry, writes
them to files and keeps the text of every result; ``compare`` reads the files with the sources as they are and shows the first
lines that differ.  Files and not seeds, because what hypothesis draws depends on the sources.  It finds differences and does
not say which side is right.

    python -m tests.replay record build/replay        before the change
    python -m tests.replay compare build/replay       after it; the status is 1 where something differs
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import purefx as px
from purefx.laws.tiers import Tier, drawn_cases, stages_of
from tests.laws.registry import REGISTRY, Entry

AT_ONCE: dict[Tier, int] = {"toy": 100, "aten": 40, "modules": 8}
"""Programs of a tier that are drawn with one seed."""

ENTRIES = {
    f"{entry.transformation.name} at {stage}": entry for entry in REGISTRY for stage in entry.stages
}


def stored(program: px.Program, folder: Path) -> Path | None:
    """Write a program to a file that is called after its text; None where a file cannot hold it.

    Programs of toy operators, which no registry has, are written as text.
    """
    text = program.text()
    path = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    if "toy." in text:
        path.with_suffix(".txt").write_text(text)
        return path.with_suffix(".txt")
    try:
        px.save(program, path.with_suffix(".purefx"), allow=program.foreign_operators)
    except px.PurefxError:
        return None
    return path.with_suffix(".purefx")


def result(entry: Entry, path: Path) -> str | None:
    """Return what a transformation makes of a stored program, or what it raises, as text; None where the file cannot be read."""
    try:
        program = px.parse(path.read_text()) if path.suffix == ".txt" else px.load(path)
    except px.PurefxError:
        return None
    try:
        return entry.transformation(program).text()
    except px.PurefxError as error:
        return f"{type(error).__name__}: {error}"


def drawn(seeds: int) -> Iterator[tuple[str, px.Program]]:
    """Iterate over the keys of ``ENTRIES``, each with programs of its stage in every tier that has it."""
    for key in ENTRIES:
        stage = key.rpartition(" at ")[2]
        for tier, examples in AT_ONCE.items():
            if stage in stages_of(tier):
                for seed in range(seeds):
                    yield from (
                        (key, case.program) for case in drawn_cases(tier, stage, examples, seed)
                    )


def record(folder: Path, seeds: int) -> Counter[str]:
    """Draw programs, and write them and the results to a folder; return how many results there are and what was left out."""
    programs = folder / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, str]] = {key: {} for key in ENTRIES}
    counts = Counter[str]()
    for key, program in drawn(seeds):
        path = stored(program, programs)
        text = result(ENTRIES[key], path) if path else None
        counts["results" if text is not None else "not stored"] += 1
        if path and text is not None:
            found[key][path.name] = text
    (folder / "results.json").write_text(json.dumps(found, indent=0))
    return counts


def differences(folder: Path) -> Iterator[str]:
    """Iterate over the results that are others now, each with the first lines that differ."""
    for key, texts in json.loads((folder / "results.json").read_text()).items():
        for name, before in texts.items():
            now = (
                result(ENTRIES[key], folder / "programs" / name)
                if key in ENTRIES
                else "it is not registered"
            )
            if now != before:
                lines = difflib.unified_diff(
                    before.splitlines(), str(now).splitlines(), "before", "now", lineterm="", n=1
                )
                yield "\n".join((f"{key}, {name}:", *islice(lines, 20)))


def main() -> int:
    """Record or compare; return the status of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.replay",
        description="Compare what transformations make of recorded programs.",
    )
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--seeds", type=int, default=3, help="how many draws of each tier to record"
    )
    told = parser.parse_args()
    if told.what == "record":
        sys.stdout.write(f"{dict(record(told.folder, told.seeds))}\n")
        return 0
    found = list(differences(told.folder))
    sys.stdout.write("\n\n".join((*found, f"{len(found)} results differ\n")))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
