"""What of two programs to show: the first place at which they differ, with what it uses and what uses it.

Nodes are compared by what they do and their literals; one that differs in its operands alone stands around a place and is no
difference.  Both programs are flat, and one name means the same value in both.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import unified_diff
from typing import Any

from attrs import evolve, frozen

import purefx as px
from purefx.ir.arguments import map_refs, refs_in
from purefx.ir.names import escaped
from purefx.ir.text import print_node

RETURN, TAKES = "return", px.Op("input")


@frozen
class Box:
    """A node of a picture."""

    name: str
    label: str
    operands: tuple[str, ...]
    """Those that are in the picture."""
    differs: bool
    """The other program has no such node."""


@frozen
class Scene:
    """A place in two programs: boxes of both, and the lines of both as a diff."""

    before: tuple[Box, ...]
    after: tuple[Box, ...]
    lines: tuple[str, ...]


def scene(before: px.Program, after: px.Program, *, at: str | None = None) -> Scene:
    """Return the first place at which two flat programs differ.

    Args:
        before: a flat program.
        after: the same, rewritten.
        at: a node that differs, to show its place instead.
    """
    sides = [_side(before), _side(after)]
    differing = [_differing(*sides), _differing(*reversed(sides))]
    first = at or next(
        (
            name
            for each, side in zip(differing, sides, strict=True)
            for name in side
            if name in each
        ),
        RETURN,
    )
    place = _place(first, sides, differing)
    shown = [_around(place, side) for side in sides]
    boxes = [
        tuple([_box(side[name], names, name in differs) for name in side if name in names])
        for side, names, differs in zip(sides, shown, differing, strict=True)
    ]
    lines = [
        _lines(node for name, node in side.items() if name in names)
        for side, names in zip(sides, shown, strict=True)
    ]
    return Scene(boxes[0], boxes[1], tuple(unified_diff(*lines, n=99, lineterm=""))[3:])


def _side(program: px.Program) -> dict[str, px.Node]:
    """Return the nodes of a program, with its inputs and its result as nodes."""
    inputs = [px.Node(formal.name, TAKES) for formal in program.main.inputs]
    nodes = (*inputs, *program.main.nodes, px.Node(RETURN, px.Op(RETURN), (program.main.output,)))
    return {node.name: node for node in nodes}


def _operands(node: px.Node) -> list[str]:
    return list(dict.fromkeys(refs_in(node.args, node.kwargs)))


def _literals(node: px.Node) -> Any:
    same = px.Ref("")
    return node.do, map_refs(node.args, lambda _: same), map_refs(node.kwargs, lambda _: same)


def _differing(side: dict[str, px.Node], other: dict[str, px.Node]) -> set[str]:
    return {
        name
        for name, node in side.items()
        if name not in other or _literals(other[name]) != _literals(node)
    }


def _place(first: str, sides: list[dict[str, px.Node]], differing: list[set[str]]) -> set[str]:
    """Return what differs together: by use, or because one node uses the one before and the other after."""
    every = differing[0] | differing[1]
    near: dict[str, set[str]] = {name: set() for name in every}
    for name in {**sides[0], **sides[1]}:
        used = {
            each
            for side in sides
            if name in side
            for each in _operands(side[name])
            if each in every
        }
        together = used | ({name} & every)
        for each in together:
            near[each] |= together
    found, todo = {first}, [first]
    while todo:
        fresh = near.get(todo.pop(), set()) - found
        found |= fresh
        todo += sorted(fresh)
    return found


def _around(place: set[str], side: dict[str, px.Node]) -> set[str]:
    """Return the names of a place and its neighbours; what is read is shown with what reads it."""
    users = {
        name for name, node in side.items() if name not in place and place & set(_operands(node))
    }
    operands = {each for name in place if name in side for each in _operands(side[name])}
    return (
        {name for name in place if name in side}
        | {name for name in operands if name in side}
        | users
    )


def _box(node: px.Node, shown: set[str], differs: bool) -> Box:
    return Box(
        node.name,
        escaped(_label(node)),
        tuple([each for each in _operands(node) if each in shown]),
        differs,
    )


def _label(node: px.Node) -> str:
    match node.do:
        case px.Get(slot=slot):
            return ".".join(slot.split(".")[-2:])
        case px.Op(name="input"):
            return node.name
        case px.Op(name=name):
            word = name.removeprefix("aten.").removeprefix("operator.").removesuffix(".default")
            said = [
                _said(each)
                for each in (*node.args, *[value for _, value in node.kwargs])
                if not refs_in((each,))
            ]
            return " ".join(
                [word.partition(".")[0] if name.startswith("aten.") else word, *_short(said)]
            )
        case px.Call(graph=graph):
            return f"@{graph}"


def _said(literal: Any) -> str:
    return f"{literal:.3g}" if isinstance(literal, float) else str(literal).removeprefix("torch.")


def _short(words: Iterable[str]) -> list[str]:
    return [word for word in words if len(word) < 12 and word not in {"None", "False", "True"}][:2]


def _lines(nodes: Iterable[px.Node]) -> list[str]:
    lines: list[str] = []
    for node in nodes:
        if node.name == RETURN:
            lines.append(f"return {', '.join(_operands(node))}")
        elif node.do != TAKES:
            lines.append(print_node(evolve(node, stack=())))
    return lines
