"""Fewer nodes, outputs, inputs and state: a window of the root first, then whatever of it can go.

Each function takes the search and proposes candidates until it has no more.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeVar

from ...ir.arguments import Ref
from ...ir.graph import Get, Input
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.signature import ArgumentType, InputMutation, OutputSpec, StateInput, StateMutation, UserInput, UserOutput
from .cutting import type_of, with_interface, without, without_unused
from .search import Search

__all__ = ["drop", "drop_nodes", "drop_outputs", "find_window", "join_inputs", "read_less"]

Item = TypeVar("Item")


def find_window(search: Search) -> None:
    """Cut off the beginning and the end of the root, in halves of what is left, then in ever smaller pieces.

    A fault of few neighbouring nodes is found in about twice the logarithm of their number.

    Args:
        search: what is reduced.
    """
    size = len(_nodes(search.program)) // 2
    while size:
        nodes = _nodes(search.program)
        sides = (nodes[:size], "first"), (nodes[-size:], "last")
        if any(search.offer(f"cut off the {side} {_counted(gone)}", _dropping(gone)) for gone, side in sides):
            size = min(size, len(_nodes(search.program)) // 2)
        else:
            size //= 2


def drop_nodes(search: Search) -> None:
    """Take out nodes of the root, many at once first.

    Args:
        search: what is reduced.
    """

    def change(program: Program, gone: Sequence[str]) -> Program | None:
        return without(program, gone)

    drop(search, _nodes, change, "take out")


def drop_outputs(search: Search) -> None:
    """Give fewer values back.

    Args:
        search: what is reduced.
    """

    def change(program: Program, gone: Sequence[int]) -> Program | None:
        return _with_outputs(program, [number for number in _outputs(program) if number not in gone])

    drop(search, _outputs, change, "no longer return")


def drop(
    search: Search,
    items: Callable[[Program], Sequence[Item]],
    change: Callable[[Program, Sequence[Item]], Program | None],
    told: str,
) -> None:
    """Take out as much as possible of something that a program has in some order: the last first, in ever smaller pieces.

    Args:
        search: what is reduced.
        items: says what a program has.
        change: takes some of it out.
        told: what that is called.
    """
    size = max(1, len(items(search.program)) // 2)
    while True:
        end, before = len(items(search.program)), search.program
        while end > 0:
            there = items(search.program)
            end = min(end, len(there))
            gone = there[max(0, end - size) : end]
            named = ", ".join(map(str, gone)) if len(gone) <= SHOWN else _counted(gone)
            search.offer(f"{told} {named}", lambda program, gone=gone: change(program, gone))
            end -= size
        if size > 1:
            size //= 2
        elif search.program is before:
            return


SHOWN = 3
"""How many things a step names."""


def _nodes(program: Program) -> list[str]:
    # Reads of state go when nothing uses them.
    return [node.name for node in program.main.nodes if type(node.do) is not Get]


def _outputs(program: Program) -> list[int]:
    return list(range(len(program.signature.outputs)))


def _with_outputs(program: Program, numbers: Sequence[int]) -> Program:
    main, specs = program.main, program.signature
    output = tuple([main.output[number] for number in numbers])
    root = type(main)(main.inputs, main.nodes, output)
    made = with_interface(program, root, specs.inputs, [specs.outputs[number] for number in numbers])
    return without_unused(made)


def _dropping(gone: Sequence[str]) -> Callable[[Program], Program | None]:
    return lambda program: without(program, gone)


def _counted(gone: Sequence[object]) -> str:
    return f"{len(gone):,} node{'' if len(gone) == 1 else 's'}"


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
