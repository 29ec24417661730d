"""Bodies that can be called: one function for each distinct body, all of them from one ``compile``.

One idea: a function takes the module whose state it reads as ``self``, so every module with the same body shares it.
The source is not registered anywhere: nothing outlives the modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FunctionType
from typing import Any

from attrs import define, field

from ..ir.conventions import Convention, conventions, without_borders
from ..ir.graph import Graph
from ..ir.node import Call
from ..ir.program import Program
from .depth import Shallow
from .preserved import CallSite
from .source import Table, write_body
from .standing import that_stand

__all__ = ["Body", "by_code", "compile_bodies"]

FILE = "<purefx>"


@define(eq=False)
class Body:
    """A distinct body: its graph, and the function that runs it."""

    name: str
    graph: Graph
    program: Program = field(repr=False)
    runs: Graph = field(repr=False)
    """What its code runs: the graph without borders, with some calls inlined where modules nest deeply."""
    convention: Convention | None = field(default=None, repr=False)
    """How it is called, where the exporter was asked to preserve that."""
    sites: Mapping[str, CallSite] = field(factory=dict, repr=False)
    """Its calls of modules with a preserved signature, by name of node."""
    table: Table = field(default=None, repr=False)  # type: ignore[assignment]
    """What its code refers to."""
    tape: Any = field(default=None, repr=False)
    """What runs it step by step, once somebody did, see ``tape.py``."""
    first_line: int = 0
    run: Callable[..., Any] = field(default=None, repr=False)  # type: ignore[assignment]

    def node_at(self, line: int) -> int | None:
        """Return the number of the node that a source line runs."""
        index = line - self.first_line
        return index if 0 <= index < len(self.runs.nodes) else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Body:
        return self  # code is not state


def compile_bodies(program: Program, *, reserved: frozenset[str]) -> tuple[dict[str, Body], Table]:
    """Return a function for every graph that the root reaches.

    Args:
        program: what to run; its root takes and gives user values only.
        reserved: attribute names that the module classes use themselves.

    Returns:
        The bodies by graph id, and the table that their code reads; the entries ``("body", id)`` are still None.

    Raises:
        UnsupportedProgram: an operator has no callable behind it.
    """
    table = Table(reserved, that_stand(program))
    lines: list[str] = []
    bodies: dict[str, Body] = {}
    shallow = Shallow(program)
    called = conventions(program)
    for number, name in enumerate(program.order):
        graph = without_borders(shallow.graph(name), called.get(name))
        sites = _sites(program, graph, called) if called else {}
        source = write_body(graph, table, sites)
        lines.append(f"def body_{number}({', '.join(('self', *source.parameters))}):")
        first = len(lines) + 1
        bodies[name] = Body(name, program.graphs[name], program, graph, called.get(name), sites, table, first_line=first)
        lines += ["    " + line for line in source.lines]
    exec(compile("\n".join(lines), FILE, "exec"), table.values)  # noqa: S102 - the text is ours, see source.py
    for number, body in enumerate(bodies.values()):
        body.run = table.values.pop(f"body_{number}")
    return bodies, table


def _sites(program: Program, graph: Graph, called: Mapping[str, Convention]) -> dict[str, CallSite]:
    found: dict[str, CallSite] = {}
    for node in graph.nodes:
        if type(node.do) is Call and node.do.graph in called:
            formals = [formal.name for formal in program.graphs[node.do.graph].inputs]
            found[node.name] = CallSite(node, node.do, called[node.do.graph], formals)
    return found


def by_code(bodies: Iterable[Body]) -> dict[CodeType, Body]:
    """Return the bodies by the code object that runs each."""
    return {body.run.__code__: body for body in bodies if isinstance(body.run, FunctionType)}
