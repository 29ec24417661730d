"""Simpler inputs: state becomes an input, and inputs of one type become one.

Each function takes the search and proposes candidates.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ...ir.arguments import Ref
from ...ir.graph import Get, Input
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.signature import ArgumentType, InputMutation, OutputSpec, StateInput, StateMutation, UserInput, UserOutput
from .cutting import type_of, with_interface, without_unused
from .dropping import drop
from .search import Search

__all__ = ["join_inputs", "read_less"]


def read_less(search: Search) -> None:
    """Take state as inputs that the caller passes, so that nothing of it is left; tensors only.

    Args:
        search: what is reduced.
    """
    drop(search, _slots, _with_inputs, "pass as an input")


def _slots(program: Program) -> list[str]:
    slots = [spec.slot for spec in program.signature.inputs if type(spec) is StateInput]
    slots += [node.do.slot for node in program.main.nodes if type(node.do) is Get]
    return list(dict.fromkeys(slots))


def _with_inputs(program: Program, slots: Sequence[str]) -> Program | None:
    kinds = {slot: kind for slot in slots if (kind := type_of(program.state[slot].value)) is not None}
    if len(kinds) < len(set(slots)):
        return None
    edit, pairs = Rewriter(program.main), list(program.inputs)
    places = {spec.slot: at for at, (_, spec) in enumerate(pairs) if type(spec) is StateInput and spec.slot in kinds}
    names = {slot: pairs[at][0].name for slot, at in places.items()}
    for slot, at in places.items():
        pairs[at] = (pairs[at][0], UserInput(kinds[slot], names[slot]))
    for node in program.main.nodes:
        if type(node.do) is not Get or node.do.slot not in kinds:
            continue
        slot = node.do.slot
        if slot in names:
            edit.drop(node.name, Ref(names[slot]))
            continue
        names[slot] = node.name
        edit.erase(node.name)
        pairs.append((Input(node.name, node.meta), UserInput(kinds[slot], node.name)))
    outputs = [_promised(spec, kinds, places) for spec in program.signature.outputs]
    main = edit.graph(inputs=tuple([formal for formal, _ in pairs]))
    return without_unused(with_interface(program, main, [spec for _, spec in pairs], outputs))


def _promised(spec: OutputSpec, kinds: Container[str], places: Mapping[str, int]) -> OutputSpec:
    # New contents of state that is passed as an input are those of the input, or what the caller is given.
    if type(spec) is not StateMutation or spec.slot not in kinds:
        return spec
    return InputMutation(places[spec.slot]) if spec.slot in places else UserOutput()


def join_inputs(search: Search) -> None:
    """Let one input stand for another of the same type.

    Args:
        search: what is reduced.
    """
    drop(search, _users, _joined, "join")


def _users(program: Program) -> list[str]:
    return [formal.name for formal, spec in program.inputs if type(spec) is UserInput]


def _joined(program: Program, gone: Sequence[str]) -> Program | None:
    edit, first = Rewriter(program.main), dict[ArgumentType, str]()
    for formal, spec in program.inputs:
        if type(spec) is not UserInput:
            continue
        if formal.name not in gone:
            first.setdefault(spec.type, formal.name)
        elif spec.type in first:
            edit.replace(formal.name, Ref(first[spec.type]))
        else:
            return None
    return without_unused(program.with_main(edit.graph()))
