"""Edits of edited programs, some of them invalid: all answers are those about the same program made from nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import attrs
import pytest
from attrs import evolve

import purefx as px
from bench.edits import anew
from purefx.ir.arguments import Ref
from purefx.ir.graph import Call, Frame, Get, Graph, Node, Op
from purefx.ir.inference.results import agrees
from purefx.ir.persistent import PMap
from purefx.ir.program import Program
from purefx.ir.verify import findings, verifier
from purefx.laws.strategies import STAGES, Stage
from purefx.laws.tiers import share
from tests.laws.corruptions import CORRUPTORS
from tests.programs import drawn
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
    return {path: str(getattr(module, "code", "")) for path, module in px.lower(program, state="share").named_modules()}


def valued(program: Program) -> Program:
    """Return a program with all values."""
    return px.infer(program)


ASKED: dict[str, Callable[[Program], Any]] = {
    "order": lambda program: program.order, "bottom_up": lambda program: program.bottom_up, "digest": px.digest,
    "infer": valued, "deduplicate": px.deduplicate, "remove_effect_tokens": px.remove_effect_tokens, "lower": lowered,
}  # fmt: skip
"""What is asked of valid programs."""


def differences(program: Program) -> list[str]:
    """Return where answers about a program are not those about a copy of new graphs and state."""
    copy = anew(program)
    mine, theirs = px.verify(program), px.verify(copy)
    if mine != theirs or theirs:
        return [] if mine == theirs else [f"verify: {[*map(str, mine)]}, from nothing {[*map(str, theirs)]}"]
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
            if ("val" in ours[value]) != ("val" in meta) or ("val" in meta and not agrees(ours[value]["val"], meta["val"])):
                return False
    return True


def can_be_edited(program: Any) -> bool:
    """Return whether a program, maybe an invalid one, is made of nodes that the edits here can edit."""
    kinds = (type(program.graphs), type(program.root), *map(type, program.graphs.values()))
    if kinds[:2] != (PMap, str) or {*kinds[2:]} != {Graph} or not program.order:
        return False
    parts: list[Any] = [node for graph in program.graphs.values() for node in graph.nodes]
    return all(type(node) is Node and type(node.args) is tuple and type(node.do) in (Op, Call, Get) for node in parts)


def _places(program: Program, fits: Callable[[Node], bool]) -> list[tuple[str, int]]:
    return [(name, at) for name in program.order for at, node in enumerate(program.graphs[name].nodes) if fits(node)]


def _with_node(program: Program, place: tuple[str, int], *nodes: Node) -> Program:
    name, at = place
    graph = program.graphs[name]
    made = (*graph.nodes[:at], *nodes, *graph.nodes[at + 1 :])
    return program.evolve(graphs=program.graphs.set(name, attrs.evolve(graph, nodes=made)))


def _chosen(program: Program, rand: random.Random, fits: Callable[[Node], bool]) -> tuple[tuple[str, int], Node] | None:
    places = _places(program, fits)
    if not places:
        return None
    name, at = rand.choice(places)
    return (name, at), program.graphs[name].nodes[at]


def _literal(program: Program, rand: random.Random) -> Program | None:
    found = _chosen(program, rand, lambda node: any(type(arg) in (int, float) for arg in node.args))
    if found is None:
        return None
    place, node = found
    args = [type(arg)(rand.randrange(5)) if type(arg) in (int, float) else arg for arg in node.args]
    return _with_node(program, place, node.evolve(args=tuple(args)))


def _operand(program: Program, rand: random.Random) -> Program | None:
    found = _chosen(program, rand, lambda node: any(type(arg) is Ref for arg in node.args))
    if found is None:
        return None
    (name, at), node = found
    graph = program.graphs[name]
    before = [part.name for part in (*graph.inputs, *graph.nodes[:at])]
    args = [Ref(rand.choice(before)) if type(arg) is Ref and before else arg for arg in node.args]
    return _with_node(program, (name, at), node.evolve(args=tuple(args)))


def _operator(program: Program, rand: random.Random) -> Program | None:
    found, other = (_chosen(program, rand, lambda node: type(node.do) is Op) for _ in range(2))
    return None if found is None or other is None else _with_node(program, found[0], found[1].evolve(do=other[1].do))


def _dropped(program: Program, rand: random.Random) -> Program | None:
    found = _chosen(program, rand, lambda node: bool(node.args) and type(node.args[0]) is Ref)
    if found is None:
        return None
    (name, at), node = found
    graph = program.graphs[name]
    known = {node.name: node.args[0]}
    nodes = [each.using(known) for each in graph.nodes[at + 1 :]]
    output = Node("output", Op("output"), (graph.output,)).using(known).args[0]
    made = Graph(graph.inputs, (*graph.nodes[:at], *nodes), output)
    return program.evolve(graphs=program.graphs.set(name, made))


def _exchanged(program: Program, rand: random.Random) -> Program | None:
    one, other = (rand.choice(program.order) for _ in range(2))
    return program.evolve(graphs=program.graphs.set(one, program.graphs[other]))


def _called(program: Program, rand: random.Random) -> Program | None:
    found = _chosen(program, rand, lambda node: type(node.do) is Call)
    if found is None or type(do := found[1].do) is not Call:
        return None
    frame = rand.choice([do.instance, Frame("elsewhere"), Frame(do.instance.path, do.instance.call + 1)])
    return _with_node(program, found[0], found[1].evolve(do=Call(frame, rand.choice(program.order))))


def _made_again(program: Program, rand: random.Random) -> Program | None:
    name = rand.choice(program.order)
    return program.evolve(graphs=program.graphs.set(name, attrs.evolve(program.graphs[name])))


EDITS: tuple[Edited, ...] = (_literal, _operand, _operator, _dropped, _exchanged, _called, _made_again)
"""Edits of one graph, or of what is said of a program; some leave it valid, some do not."""


# -- edits -----------------------------------------------------------------------------------------------------------------------


def corrupted(program: px.Program, rand: random.Random) -> px.Program | None:
    """Make some field of a valid program wrong."""
    return None if px.verify(program) else rand.choice(CORRUPTORS).apply(program, rand.randrange(1000))


ALL: Sequence[Edited] = (*EDITS, *[corrupted] * 4)


def faults(program: px.Program, seed: int, length: int = 6) -> list[str]:
    """Return where the law does not hold of a chain of edits of a program, asked of each or not."""
    rand = random.Random(seed)
    versions = [program]
    found = differences(program) if rand.random() < 0.7 else []
    for _ in range(length):
        edit = rand.choice(ALL)
        after = edit(versions[-1] if rand.random() < 0.7 else rand.choice(versions), rand)
        if after is None:
            continue
        if rand.random() < 0.7:
            found += [f"after {getattr(edit, '__name__', edit)}: {line}" for line in differences(after)]
        if can_be_edited(after):
            versions.append(after)
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_edited_programs_are_as_made_from_nothing(stage: Stage) -> None:
    for program, seed in drawn(stage, share(20)):
        assert faults(program, seed) == []


def test_edited_real_programs_are_as_made_from_nothing() -> None:
    for seed, program in enumerate(imported()):
        assert faults(program, seed, length=4) == []


def found() -> bool:
    """Return whether the law finds something wrong, or an answer fails."""
    try:
        return any(faults(program, seed) for program, seed in (*drawn("deduplicated", 40), *drawn("tree", 40)))
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
    def is_known(program: px.Program) -> bool:
        return findings.frame_of in program.state.derived

    with patch.object(verifier, "is_known_frame", is_known), patch.object(findings, "is_known_frame", is_known):
        assert found()
