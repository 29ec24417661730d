"""Bodies that can be called: one function for each distinct body, compiled when it is first called.

One idea: a function takes the module whose state it reads as ``self``, so every module with the same body shares it; what is
never called is never compiled.  The source is not registered anywhere: nothing outlives the modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any

from attrs import define, field

from ..ir.allowed import advice_for, told
from ..ir.conventions import Convention, without_borders
from ..ir.errors import UnsupportedProgram
from ..ir.graph import Graph
from ..ir.node import Call, Op
from ..ir.numbers import too_much_work
from ..ir.program import Program
from ..ir.torch_private import OpOverload
from .deferred import deferred
from .family import Family
from .preserved import CallSite
from .source import Table, write_body

__all__ = ["FILE", "Body", "bodies_of"]

FILE = "<purefx>"


@define(eq=False)
class Body:
    """A distinct body: its graph, and the function that runs it."""

    name: str
    graph: Graph
    program: Program = field(repr=False)
    runs: Graph = field(repr=False)
    """What its code runs: the graph without borders, with some calls inlined where modules nest deeply."""
    convention: Convention | None = field(repr=False)
    """How it is called, where the exporter was asked to preserve that."""
    sites: Mapping[str, CallSite] = field(repr=False)
    """Its calls of modules with a preserved signature, by name of node."""
    new_table: Callable[[], Table] = field(repr=False)
    """Makes a table for what its code refers to."""
    tape: Any = field(default=None, repr=False)
    """What runs it step by step, once somebody did, see ``tape.py``."""
    run: FunctionType = field(default=None, repr=False)  # type: ignore[assignment]

    def node_at(self, line: int) -> int | None:
        """Return the number of the node that a source line runs."""
        index = line - 2  # the first line is the `def`
        return index if 0 <= index < len(self.runs.nodes) else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Body:
        return self  # code is not state


def bodies_of(family: Family, *, reserved: frozenset[str]) -> tuple[dict[str, Body], dict[CodeType, Body]]:
    """Return a body for every graph that the root reaches, and those that were compiled, by the code that runs each.

    Args:
        family: of the program to run, whose root takes and gives user values only; it gets the modules of nested graphs later.
        reserved: attribute names that the module classes use themselves.

    Raises:
        UnsupportedProgram: an operator has no callable behind it.
    """
    program = family.program
    _check_known(program)
    bodies: dict[str, Body] = {}
    codes: dict[CodeType, Body] = {}
    called = family.conventions

    def new_table() -> Table:
        return Table(reserved, family.standing, family)

    for number, name in enumerate(program.order):
        graph = without_borders(family.shallow.graph(name), called.get(name))
        sites = _sites(program, graph, called) if called else {}
        body = bodies[name] = Body(name, program.graphs[name], program, graph, called.get(name), sites, new_table)
        body.run = _runner(body, f"body_{number}", codes)
    return bodies, codes


def _check_known(program: Program) -> None:
    found: dict[str, str] = {}
    for _, node in program.nodes():
        if type(node.do) is not Op:
            continue
        if node.do.target is None:
            found.setdefault(node.do.name, node.name)
        elif type(node.do.target) is not OpOverload and (work := too_much_work(node.do.target, node.args)) is not None:
            raise UnsupportedProgram(f"node {node.name}: {node.do.name} would compute {work}, which no size needs")
    if found:
        nodes = ", ".join([f"{name} at node {node}" for name, node in found.items()])[:2000]
        raise UnsupportedProgram(
            f"the program can not run, because operators have no callable: {nodes}; {told(found)[:2000]}. Where it comes from "
            f"text or a file: {advice_for(found)[:2000]}"
        )


def _runner(body: Body, name: str, codes: dict[CodeType, Body]) -> FunctionType:
    def write() -> tuple[CodeType, Mapping[str, Any]]:
        table = body.new_table()
        source = write_body(body.runs, table, body.sites)
        lines = [f"def {name}({', '.join(('self', *source.parameters))}):", *(f"    {line}" for line in source.lines)]
        made: dict[str, Any] = {}
        exec(compile("\n".join(lines), FILE, "exec"), {}, made)  # noqa: S102 - the text is ours, see source.py
        code: CodeType = made[name].__code__
        codes[code] = body
        return code, table.values

    return deferred(write, name, parameters=len(body.runs.inputs))


def _sites(program: Program, graph: Graph, called: Mapping[str, Convention]) -> dict[str, CallSite]:
    found: dict[str, CallSite] = {}
    for node in graph.nodes:
        if type(node.do) is Call and node.do.graph in called:
            formals = [formal.name for formal in program.graphs[node.do.graph].inputs]
            found[node.name] = CallSite(node, node.do, called[node.do.graph], formals)
    return found
