"""What import does not look at again, since the reader saw it, is what full verification finds nothing in.

Asked of generated exported programs, and of such that were edited by hand into something that is wrong or odd.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
import torch
from attrs import evolve
from torch.export import ExportedProgram

import purefx as px
from purefx.ir.analysis.versions import tracked
from purefx.ir.arguments import children_of
from purefx.ir.importing import nodes, stacks, state
from purefx.ir.importing.exported import _read
from purefx.ir.verify.survey import Survey
from purefx.ir.verify.verifier import _asked
from purefx.ir.verify.witness import Witness
from purefx.laws.draws import examples_of
from purefx.laws.strategies import exported_programs
from purefx.laws.tiers import share
from tests.importing.corrupted_exports import EDITS, calls
from tests.programs import Shared, Tower, exported

REFUSED = (px.PurefxError, AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError, RecursionError)
"""What import says of what it cannot even read."""


def read(ep: ExportedProgram) -> tuple[px.Program, Any]:
    """Return a program as import has it before it is verified, with what its reader saw."""
    return _read(ep, None, {}, provenance=True)


def is_wrong(program: px.Program, seen: Any = None) -> bool:
    """Say whether rules find something; without what was seen, all of them look at everything."""
    if seen is not None:
        return bool(_asked(Survey(program, seen), infer=False))
    return bool(_asked(Survey(program.evolve(state=evolve(program.state))), infer=False))


def kinds(arg: Any) -> Any:
    """Return the types of an argument and of what is in it, however often."""
    parts = children_of(arg)
    return (type(arg), *([frozenset(map(kinds, parts))] if parts else []))


def form(node: px.Node) -> Any:
    """Return what a node calls, with arguments of which types."""
    return id(node.do), tuple(map(kinds, node.args)), tuple([(key, kinds(arg)) for key, arg in node.kwargs])


def believed(program: px.Program, seen: Any) -> list[str]:
    """Return the graphs whose witnesses are believed, and check that what they say is so."""
    full, fast = Survey(program), Survey(program, seen)
    found = [name for name, census in fast.censuses.items() if census.asked is not None]
    for name in found:
        mine, other = fast.censuses[name], full.censuses[name]
        assert (mine.projections, mine.bodies, mine.callees) == (other.projections, other.bodies, other.callees)
        asked = {form(mine.graph.nodes[index]) for index in mine.asked or ()}
        assert asked == {form(node) for node in mine.graph.nodes}
        assert mine.stacks in ([], other.stacks)
    assert {key: op for key, (op, _, _) in fast.ops.items()} == {key: op for key, (op, _, _) in full.ops.items()}
    return found


@cache
def drawn(seed: int, count: int) -> tuple[ExportedProgram, ...]:
    """Return generated programs, new ones for each seed."""
    return tuple([case.ep for case in examples_of(exported_programs(), count, seed)])


def missed(name: str, count: int) -> Counter[str]:
    """Return what became of programs that were edited in one way; ``missed`` are those whose mistakes import does not see."""
    found: Counter[str] = Counter()
    for number, ep in enumerate(examples_of(exported_programs(), count, sum(map(ord, name)))):
        if not calls(ep.ep):
            continue
        EDITS[name](ep.ep, Random(number))
        try:
            program, seen = read(ep.ep)
        except REFUSED:
            found["refused"] += 1
            continue
        wrong, said = is_wrong(program), is_wrong(program, seen)
        found["missed" if wrong and not said else "found" if wrong else "right"] += 1
    return found


@pytest.mark.parametrize("name", EDITS)
def test_what_verification_finds_import_finds(name: str) -> None:
    found = missed(name, share(40))
    assert found["missed"] == 0, found
    assert name == "nothing" or found["right"] < found.total(), "the edit makes nothing wrong"


def test_what_was_seen_is_so() -> None:
    graphs = whole = 0
    for ep in drawn(0, share(100)):
        program, seen = read(ep)
        found = believed(program, seen)
        assert tracked(program) is program
        graphs, whole = graphs + len(program.graphs), whole + len(found)
    assert whole > 0.7 * graphs


@pytest.mark.parametrize("model", [Tower(2), Shared()], ids=lambda model: type(model).__name__)
def test_the_reader_saw_all_of_a_real_program(model: torch.nn.Module) -> None:
    program, seen = read(exported(model, torch.ones(3, 4)))
    assert believed(program, seen) == [""]
    assert tracked(program) is program
    assert program.state.checked
    assert not is_wrong(program)


def test_what_differs_in_stacks_alone_is_spoken_of() -> None:
    program, seen = read(exported(Tower(2), torch.ones(3, 4)))
    witness: Witness = seen[""]
    main = program.main
    assert witness.speaks_of(main.with_nodes([node.evolve(stack=()) for node in main.nodes]))
    assert not witness.speaks_of(main.with_nodes([node.evolve(name=f"{node.name}_") for node in main.nodes]))
    assert not witness.speaks_of(main.with_nodes(main.nodes[:-1]))
    assert not witness.speaks_of(evolve(main, output=(1,)))


FORGOTTEN: dict[str, tuple[Any, str, Any, str]] = {
    "values": (nodes, "meta_faults", lambda _: [], "another_value"),
    "arguments": (nodes, "_form", lambda arg: 7, "another_argument"),
    "outputs": (nodes, "_are_plain", lambda output: True, "another_output"),
    "state": (state, "_are_plain", lambda slots: True, "another_state"),
    "names": (nodes, "TEXTS", frozenset({str, int}), "another_name"),
    "definitions": (nodes._Known, "__missing__", lambda self, node: px.Ref(node.name), "another_order"),
    "modules": (
        stacks.StackReader,
        "sound",
        lambda self, paths: stacks.SoundStacks(tuple(self._known.values())),
        "another_stack",
    ),
}


@pytest.mark.parametrize("forgotten", FORGOTTEN)
def test_a_condition_that_is_forgotten_is_found(forgotten: str) -> None:
    owner, name, value, edit = FORGOTTEN[forgotten]
    with patch.object(owner, name, value):
        assert missed(edit, 60)["missed"], f"nothing is missed without {name}"
