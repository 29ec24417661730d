"""Edits of edited programs, some of them invalid: all answers are those about the same program made from nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from attrs import evolve

import purefx as px
from bench.edits import anew
from purefx.ir.arguments import Ref
from purefx.ir.graph import Op
from purefx.ir.inference.results import agrees
from purefx.ir.program import Program
from purefx.ir.verify import findings, verifier
from purefx.laws.strategies import STAGES, Stage
from purefx.laws.tiers import share
from tests.laws.corruptions import CORRUPTORS
from tests.models import drawn
from tests.verify.test_corruptions import imported

Edited = Callable[[Program, random.Random], Program | None]
"""An edit; None where the program has no place for it."""


def answer(ask: Callable[[Program], Any], program: Program) -> Any:
    """Return what a function returns for a program, or its refusal."""
    try:
        return ask(program)
    except px.errors.PurefxError as error:
        return f"{type(error).__name__}: {error}"


def lowered(program: Program) -> dict[str, str]:
    """Return the code of all modules that a program is lowered to."""
    return {
        path: str(getattr(module, "code", ""))
        for path, module in px.lower(program, state="share").named_modules()
    }


ASKED: dict[str, Callable[[Program], Any]] = {
    "order": lambda program: program.order, "bottom_up": lambda program: program.bottom_up, "digest": px.digest,
    "infer": px.infer, "deduplicate": px.deduplicate, "remove_effect_tokens": px.remove_effect_tokens, "lower": lowered,
}  # fmt: skip
"""What is asked of valid programs."""


def differences(program: Program) -> list[str]:
    """Return where answers about a program are not those about a copy of new graphs and state."""
    copy = anew(program)
    mine, theirs = px.verify(program), px.verify(copy)
    if mine != theirs or theirs:
        return (
            []
            if mine == theirs
            else [f"verify: {[*map(str, mine)]}, from nothing {[*map(str, theirs)]}"]
        )
    found: list[str] = []
    for name, ask in ASKED.items():
        given, expected = answer(ask, program), answer(ask, copy)
        if not same(given, expected) or (given is program) is not (expected is copy):
            found.append(f"{name}:\n{given}\nfrom nothing\n{expected}")
    return found


def same(given: Any, expected: Any) -> bool:
    """Return whether two answers are equal; of programs, names of graphs in order and values too."""
    if given != expected or not isinstance(expected, Program):
        return bool(given == expected)
    if list(given.graphs) != list(expected.graphs):
        return False
    for name in expected.order:
        ours, theirs = given.graphs[name].metas, expected.graphs[name].metas
        for value, meta in theirs.items():
            if ("val" in ours[value]) != ("val" in meta) or (
                "val" in meta and not agrees(ours[value]["val"], meta["val"])
            ):
                return False
    return True


def other_operands(program: Program, rand: random.Random) -> Program | None:
    """Replace the operands of a node by other values and numbers."""
    places = [
        (name, at, node)
        for name in program.order
        for at, node in enumerate(program.graphs[name].nodes)
        if type(node.do) is Op and node.args
    ]
    if not places:
        return None
    name, at, node = rand.choice(places)
    graph = program.graphs[name]
    before = [part.name for part in (*graph.inputs, *graph.nodes[:at])]
    args = [
        Ref(rand.choice(before))
        if type(arg) is Ref and before
        else rand.randrange(5)
        if type(arg) is int
        else arg
        for arg in node.args
    ]
    nodes = (*graph.nodes[:at], node.evolve(args=tuple(args)), *graph.nodes[at + 1 :])
    return program.evolve(graphs=program.graphs.set(name, graph.with_nodes(nodes)))


def copied_graph(program: Program, rand: random.Random) -> Program:
    """Put a copy of one graph in the place of another or of itself."""
    one, other = (rand.choice(program.order) for _ in range(2))
    return program.evolve(graphs=program.graphs.set(one, evolve(program.graphs[other])))


def corrupted(program: Program, rand: random.Random) -> Program | None:
    """Make some field of a valid program wrong."""
    return (
        None if px.verify(program) else rand.choice(CORRUPTORS).apply(program, rand.randrange(1000))
    )


EDITS: tuple[Edited, ...] = (other_operands, copied_graph, *[corrupted] * 4)
"""Edits of one graph; some leave the program valid, some do not."""


def faults(program: px.Program, seed: int, length: int = 6) -> list[str]:
    """Return where the law does not hold of a chain of edits of a program, asked of each or not."""
    rand = random.Random(seed)
    versions = [program]
    found = differences(program) if rand.random() < 0.7 else []
    for _ in range(length):
        edit = rand.choice(EDITS)
        after = edit(versions[-1] if rand.random() < 0.7 else rand.choice(versions), rand)
        if after is None:
            continue
        if rand.random() < 0.7:
            found += [
                f"after {getattr(edit, '__name__', edit)}: {line}" for line in differences(after)
            ]
        if not px.verify(after) or edit is not corrupted:
            versions.append(after)
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_edited_programs_are_as_made_from_nothing(stage: Stage) -> None:
    for program, seed in drawn(stage, share(8)):
        assert faults(program, seed) == []


def test_edited_real_programs_are_as_made_from_nothing() -> None:
    for seed, program in enumerate(imported()):
        assert faults(program, seed, length=4) == []


def found() -> bool:
    """Return whether the law finds something wrong, or an answer fails."""
    try:
        return any(
            faults(program, seed)
            for program, seed in (*drawn("deduplicated", 40), *drawn("tree", 40))
        )
    except (KeyError, IndexError, ValueError):
        return True


def test_an_order_that_is_carried_over_an_edit_is_found() -> None:
    def evolved(program: px.Program, **changes: Any) -> px.Program:
        made = evolve(program, **changes)
        object.__setattr__(made, "bottom_up", program.bottom_up)
        return made

    with patch.object(px.Program, "evolve", evolved):
        assert found()


def test_what_was_right_of_other_modules_is_found() -> None:
    def known(program: px.Program) -> frozenset[str]:
        return findings.FRAME if findings.frame_of in program.state.derived else frozenset()

    with patch.object(verifier, "known_names", known), patch.object(findings, "known_names", known):
        assert found()
