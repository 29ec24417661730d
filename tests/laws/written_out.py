"""``written_out``: what a program runs, line by line, with the bodies of all calls and operators in their places.

Two programs with one such list are one program that is cut into bodies in two ways.  Names and the numbers of calls are left out;
what values are known, and signatures, are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import define

from purefx.ir.arguments import Arg, Body, Ref, map_refs, replace_refs
from purefx.ir.graph import Call, Get, Node, Op
from purefx.ir.names import join
from purefx.ir.program import Program

__all__ = ["written_out"]

Line = tuple[Node, str]

RESULTS = Op("results")
"""The last line of a body."""


@define(eq=False)
class _Level:
    """A body that is being written out."""

    rest: Iterator[Node]
    known: dict[str, Any]
    """What stands for its values."""
    path: str
    """The module that its paths are below."""
    where: str
    """The module that it runs in: that of the operator whose body it is, which the module calls around its nodes are below."""
    output: Arg
    caller: str = ""
    """The value of the call that runs it; empty where an operator does, or nothing."""


def written_out(program: Program) -> list[Line]:
    """Return what a program runs: nodes that are called by their places in the list, each with the module that it runs in."""
    lines: list[Line] = []
    main = program.main
    levels = [_Level(iter(main.nodes), _formals(main, "in"), "", "", main.output)]
    while levels:
        level = levels[-1]
        node = next(level.rest, None)
        if node is None:
            levels.pop()
            result = replace_refs(level.output, level.known)
            if level.caller:
                levels[-1].known[level.caller] = result
            else:
                lines.append((Node(str(len(lines)), RESULTS, (result,)), level.where))
        elif type(node.do) is Call:
            levels.append(_called(program, node, node.do, level))
        elif not _is_known(node, level):
            levels += reversed(_written(program, node, level, lines))
    return lines


def _formals(graph: Any, prefix: str) -> dict[str, Any]:
    return {formal.name: Ref(f"{prefix}{number}") for number, formal in enumerate(graph.inputs)}


def _called(program: Program, node: Node, call: Call, level: _Level) -> _Level:
    body = program.graphs[call.graph]
    operands = replace_refs(node.args, level.known)
    known = dict(zip([formal.name for formal in body.inputs], operands, strict=True))
    path = join(level.path, call.instance.path)
    return _Level(iter(body.nodes), known, path, path, body.output, node.name)


def _is_known(node: Node, level: _Level) -> bool:
    # A part of what a call gave is a value already.
    name, index = node.projection or ("", 0)
    whole = level.known.get(name)
    if type(whole) is not tuple:
        return False
    level.known[node.name] = whole[index]
    return True


def _written(program: Program, node: Node, level: _Level, lines: list[Line]) -> list[_Level]:
    # The line of a node, and the bodies that its operator is given, which come behind it.
    name, where = str(len(lines)), join(level.where, node.stack[-1].path) if node.stack else level.where
    level.known[node.name] = Ref(name)
    given: list[str] = []

    def placed(leaf: Ref | Body) -> Arg:
        if isinstance(leaf, Ref):
            return level.known.get(leaf.name, leaf)
        given.append(leaf.graph)
        return Body(f"{name} body {len(given)}")

    args: Any = map_refs(node.args, placed)
    kwargs: Any = map_refs(node.kwargs, placed)
    do = Get(join(level.path, node.do.slot)) if type(node.do) is Get else node.do
    lines.append((Node(name, do, args, kwargs), where))
    graphs = [program.graphs[body] for body in given]
    return [
        _Level(iter(graph.nodes), _formals(graph, f"{name} body {number} "), level.path, where, graph.output)
        for number, graph in enumerate(graphs, 1)
    ]
