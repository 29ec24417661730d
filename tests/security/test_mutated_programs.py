"""Mutants of saved programs and of program texts: each is refused, or every door takes it.

A program that ``verify`` accepts raises nothing but errors of ours, whatever is done with it, and a file runs nothing.
A process of its own (``trying.py``) bounds time and memory; this file starts it and reads what it found.
``PUREFX_MUTANTS=seed,count,seconds`` makes a longer run of it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.security.mutating import mutated_bytes, mutated_json, mutated_text

BUDGET = "0,4000,10"
"""Seed, number of mutants, seconds: what comes first ends it; `make deep` goes on for two minutes."""


def run(folder: Path, budget: str) -> list[dict[str, Any]]:
    seed, count, seconds = budget.split(",")
    command = [
        sys.executable,
        "-m",
        "tests.security.trying",
        str(folder),
        seed,
        "0",
        count,
        seconds,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=float(seconds) + 400, check=False
    )
    number = folder / "number"
    at = number.read_text() if number.exists() else "none"
    assert done.returncode == 0, (
        f"the process ended with {done.returncode} at mutant {at}: {done.stderr[-2000:]}"
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.deep
@pytest.mark.timeout(0)
def test_a_mutant_is_refused_or_taken_at_every_door(tmp_path: Path) -> None:
    *found, told = run(tmp_path, os.environ.get("PUREFX_MUTANTS", BUDGET))
    assert found == []
    assert told["tried"] >= 50
    assert told["accepted"] >= told["tried"] // 20
    assert min(told[kind] for kind in ("texts", "programs", "structures", "bytes", "headers")) > 0


def test_mutants_are_drawn_from_numbers_and_differ() -> None:
    text = 'program {\n  graph @""(x) {\n    y = aten.add.Tensor(x, 1)\n    return (y,)\n  }\n}\n'
    structure = {"program": text, "meta": {"values": [1, "a"]}}
    mutants: list[Any] = []
    for number in range(50):
        made = [
            (
                mutated_text(text, draw),
                mutated_json(structure, draw),
                mutated_bytes(text.encode(), draw),
            )
            for draw in (random.Random(number), random.Random(number))
        ]
        assert repr(made[0]) == repr(made[1])
        mutants += made[:1]
    assert structure == {"program": text, "meta": {"values": [1, "a"]}}
    assert sum(mutant[0] != text for mutant in mutants) > 30
    assert sum(mutant[1] != structure for mutant in mutants) > 30
    assert sum(mutant[2] != text.encode() for mutant in mutants) > 30
