"""What is imported from a part of any lowered tree is a valid program of that part."""

from __future__ import annotations

import random

import pytest

from purefx.laws.strategies import module_trees
from purefx.laws.tiers import examples_of, share
from tests.laws.imported_parts import (
    AFTER,
    BEFORE,
    applied,
    exported_program,
    named,
    parts_of,
    wrong_with,
)

TREES = share(1)
"""The number of generated modules for each pipeline before the tree is lowered."""

PARTS = 3
"""The number of parts of a tree that are imported."""


@pytest.mark.parametrize("before", BEFORE)
def test_a_part_of_a_tree_is_a_program_of_its_own(before: str) -> None:
    number = 1000 * list(BEFORE).index(before) + 3  # so that each has parts
    reached: set[str] = set()
    calling = module_trees().filter(lambda tree: any(tree.build().children()))
    for tree in examples_of(calling, TREES, number):
        draw = random.Random(number)
        number += 1
        program = exported_program(tree, draw)
        if program is None:
            continue
        program, wrong = applied(program, BEFORE[before])
        assert wrong == [], tree
        found = list(parts_of(program, tree.calls[0]))
        for part in draw.sample(found, min(PARTS, len(found))):
            steps = draw.sample(AFTER, draw.randrange(5))
            wrong = wrong_with(part, steps, reached)
            assert wrong == [], f"{part.path}, {named(steps)}, of {tree}"
    assert reached, "no part was imported"
