"""The lines around a violation: what stands there, five lines before and after, and the user's source line.

One idea: each node is printed once, however many violations are near it, and whatever it holds comes out as text.  It
judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arguments import Body, Items, Record, Ref
from ..graph import Graph
from ..node import Node
from ..printing import text_of
from .kinds import short

__all__ = ["AROUND", "Lines", "source_of"]

AROUND = 5
WIDTH = 120


class Lines:
    """Prints the neighbourhood of nodes, each line once.

    >>> from purefx.ir import Get, Graph, Node
    >>> Lines({"": Graph((), (Node("w", Get("weight")),), (Ref("w"),))}).around("", 0)
    ('  inputs ()', '> w = get weight', '  return (w,)')
    """

    def __init__(self, graphs: Mapping[str, Graph]) -> None:
        self._graphs = graphs
        self._known: dict[tuple[str, int], str] = {}

    def around(self, name: str, at: int) -> tuple[str, ...]:
        """Return the lines around a position of a graph; the line itself begins with ``>``."""
        graph = self._graphs.get(name)
        if graph is None:
            return ()
        nodes: Any = graph.nodes
        end = len(nodes) if type(nodes) is tuple else 0
        span = range(max(-1, at - AROUND), min(end, at + AROUND) + 1)
        return tuple(f"{'>' if index == at else ' '} {self._line(name, graph, index, end)}" for index in span)

    def _line(self, name: str, graph: Graph, index: int, end: int) -> str:
        known = self._known.get((name, index))
        if known is None:
            known = self._known[name, index] = _cut(_safely(graph, index, end))
        return known


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _safely(graph: Graph, index: int, end: int) -> str:
    try:
        return _printed(graph, index, end)
    except Exception as error:  # noqa: BLE001  garbage may refuse to be printed; that must not hide what is wrong with it
        return f"(a line that can not be printed: {type(error).__name__})"


def _printed(graph: Graph, index: int, end: int) -> str:
    if index == end:
        return f"return {_argument(graph.output)}"
    if index < 0:
        inputs: Any = graph.inputs
        shown = inputs[:WIDTH] if type(inputs) is tuple else ()
        return f"inputs ({', '.join(str(getattr(formal, 'name', formal)) for formal in shown)})"
    node = graph.nodes[index]
    return text_of(node) if type(node) is Node else short(node, width=WIDTH)


def _argument(arg: Any, depth: int = 3) -> str:
    kind = type(arg)
    if kind is Ref:
        return str(arg.name)
    if kind is Body:
        return f"body {arg.graph}"
    if kind is Items and depth:
        return f"[{', '.join(_argument(part, depth - 1) for part in arg[:WIDTH])}]"
    if kind is tuple and depth:
        return f"({', '.join(_argument(part, depth - 1) for part in arg[:WIDTH])}{',' if len(arg) == 1 else ''})"
    if kind is Record and depth and type(arg.items) is tuple:
        return f"{{{', '.join(_argument(pair, depth - 1) for pair in arg.items)}}}"
    return repr(arg) if kind in (int, bool, float, type(None)) else short(arg, width=40)


def source_of(meta: Any) -> str | None:
    r"""Return the user's innermost source line from a node's stack trace.

    >>> source_of({"stack_trace": '  File "m.py", line 3, in forward\n    return x + y\n'})
    'm.py:3, in forward: return x + y'
    """
    trace: Any = meta.get("stack_trace") if isinstance(meta, Mapping) else None  # type: ignore[reportUnknownMemberType]
    if not isinstance(trace, str):
        return None
    lines = [line.strip() for line in trace.strip().splitlines()]
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].startswith('File "'):
            place, _, function = lines[number].removeprefix("File ").partition(", in ")
            file, _, line = place.partition(", line ")
            code = lines[number + 1] if number + 1 < len(lines) else ""
            return f"{file.strip(chr(34))}:{line}, in {function}" + (f": {code}" if code else "")
    return lines[-1] if lines and lines[-1] else None
