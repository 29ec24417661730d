"""Fewer nodes, outputs and state, by one greedy loop.

Each function takes the search and proposes candidates until it has no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import evolve

from ...ir.arguments import Ref
from ...ir.graph import Get, Input
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.signature import InputSpec, StateInput, StateMutation, UserInput
from .cutting import type_of, with_interface, without, without_unused
from .search import Search

__all__ = ["drop", "drop_nodes", "drop_outputs", "read_less"]

Item = TypeVar("Item")


def drop_nodes(search: Search) -> None:
    """Take out nodes of the root, many at once first; reads of state go when nothing uses them.

    Args:
        search: what is reduced.
    """
    drop(search, lambda program: [node.name for node in program.main.nodes if type(node.do) is not Get], without, "take out")


def drop_outputs(search: Search) -> None:
    """Give fewer values back.

    Args:
        search: what is reduced.
    """
    drop(search, lambda program: range(len(program.signature.outputs)), _without_outputs, "no longer return")


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
            named = ", ".join(map(str, gone)) if len(gone) <= SHOWN else f"{len(gone):,} of them"
            search.offer(f"{told} {named}", lambda program, gone=gone: change(program, gone))
            end -= size
        if size > 1:
            size //= 2
        elif search.program is before:
            return


SHOWN = 3
"""How many things a step names."""


def _without_outputs(program: Program, gone: Sequence[int]) -> Program:
    main, specs = program.main, program.signature
    numbers = [number for number in range(len(specs.outputs)) if number not in gone]
    root = evolve(main, output=tuple([main.output[number] for number in numbers]))
    return without_unused(with_interface(program, root, specs.inputs, [specs.outputs[number] for number in numbers]))


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
    written = any(type(spec) is StateMutation and spec.slot in kinds for spec in program.signature.outputs)
    if written or len(kinds) < len(set(slots)):
        return None
    edit, pairs, names = Rewriter(program.main), list[tuple[Input, InputSpec]](), dict[str, str]()
    for formal, spec in program.inputs:
        if type(spec) is StateInput and spec.slot in kinds:
            names[spec.slot] = formal.name
            pairs.append((formal, UserInput(kinds[spec.slot], formal.name)))
        else:
            pairs.append((formal, spec))
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
    main = edit.graph(inputs=tuple([formal for formal, _ in pairs]))
    return without_unused(with_interface(program, main, [spec for _, spec in pairs], program.signature.outputs))
