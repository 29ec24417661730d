"""Fewer nodes and outputs: a window of the root first, then whatever of it can go.

Each function takes the search and proposes candidates until it has no more; a search that was here before is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...ir.graph import Get
from ...ir.program import Program
from .cutting import with_interface, without, without_unused
from .search import Search

__all__ = ["drop", "drop_nodes", "drop_outputs", "find_window"]


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
