"""Compiled bodies: one function for each distinct body, compiled when it is first called.

The function exists from the beginning and replaces its own code.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, FunctionType, TracebackType
from typing import Any
from weakref import WeakValueDictionary

import torch
from attrs import define, field

from ...ir.allowed import advice_for, told
from ...ir.analysis.numbers import too_much_work
from ...ir.calls.call_graph import heights
from ...ir.calls.call_sites import Convention, without_boundaries
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Call, Graph, Node, Op
from ...ir.program import Program
from ...ir.torch_private import (
    LEAVES_GRADIENTS_OFF,
    OpOverload,
    current_modes,
    mode_objects,
    restore_modes,
    run_while_tracing,
)
from ..calls.preserved import PreservedCall
from ..modules.context import LoweringContext
from .source import Table, write_body

__all__ = ["FILE", "Body", "Codes", "bodies_of", "check_runs", "code_of", "deferred", "may_leave_modes", "restoring"]


def deferred(write: Callable[[], tuple[CodeType, Mapping[str, Any]]], name: str, *, parameters: int) -> FunctionType:
    """Return a function of ``self`` and values that is compiled when it is first called.

    Threads that call it first at the same time may each write its code; what they write is the same.

    Args:
        write: gives the code and the globals that it reads.
        name: of the function.
        parameters: how many values it takes.

    >>> code = compile("def twice(self, v0): return two * v0", "", "exec").co_consts[0]
    >>> twice = deferred(lambda: (code, {"two": 2}), "twice", parameters=1)
    >>> twice(None, 4), twice.__code__ is code
    (8, True)
    """

    def ready() -> None:
        if run.__code__ is first:
            code, values = write()
            run.__globals__.update(values)
            run.__code__ = code

    # Of its own: dynamo keeps what it compiled with the code object.
    first = _template(FIRST, _parameters(parameters)).replace(co_name=name)
    run = FunctionType(first, {"ready": run_while_tracing(ready), "__builtins__": builtins}, name)
    run.__globals__["whole"] = run
    return run


FIRST = "def first({0}):\n ready()\n return whole({0})"

RESTORING = """def restoring({0}):
 if is_compiling(): return run({0})
 before = current_modes()
 try: return run({0})
 except BaseException as error:
  restore_modes(before, left_open(error))
  raise"""
"""Dynamo splits no function at a graph break inside of ``try``, so it sees the body alone."""


@functools.cache
def _template(text: str, parameters: str) -> CodeType:
    made: dict[str, Any] = {}
    exec(text.format(parameters), {}, made)  # noqa: S102 - nothing of a program is in it
    function: FunctionType
    (function,) = made.values()
    return function.__code__


def _parameters(count: int) -> str:
    # Those of the compiled function, so that ``inspect.signature`` sees no difference.
    return ", ".join(["self", *(f"v{number}" for number in range(count))])


def may_leave_modes(target: Any, *, unknown: bool) -> bool:
    """Return whether a mode of torch may stay behind where a call raises, or where a later one does.

    Torch writes many plain functions into graphs that switch modes, so one that nothing is known of counts.

    Args:
        target: the function or operator that is called.
        unknown: whether its effects are.

    >>> may_leave_modes(torch.ops.aten.relu.default, unknown=False), may_leave_modes(torch.set_grad_enabled, unknown=True)
    (False, True)
    """
    return target is LEAVES_GRADIENTS_OFF or (unknown and type(target) is not OpOverload)


def restoring(run: FunctionType, parameters: str, opened: Callable[[], Iterable[str]]) -> FunctionType:
    """Return a function that does the same, and puts the modes of torch back if it raises.

    Args:
        run: the function.
        parameters: how the new one takes its arguments, and passes them on.
        opened: gives the local variables of the function that may hold an object through which a mode is left, the last first.

    >>> def off(self):
    ...     torch.set_grad_enabled(False)
    ...     return self.missing
    >>> try:
    ...     restoring(off, "self", tuple)(None)
    ... except AttributeError:
    ...     torch.is_grad_enabled()
    True
    """

    def left_open(error: BaseException) -> list[Any]:
        trace: TracebackType | None = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not run.__code__:
            trace = trace.tb_next
        known = trace.tb_frame.f_locals if trace is not None else {}
        return mode_objects([known.get(name) for name in opened()])

    values = {
        "run": run, "current_modes": current_modes, "restore_modes": restore_modes, "left_open": left_open,
        "is_compiling": torch.compiler.is_dynamo_compiling, "__builtins__": builtins,
    }  # fmt: skip
    return FunctionType(_template(RESTORING, parameters).replace(co_name=run.__name__), values, run.__name__)


FILE = "<purefx>"


@define(eq=False)
class Body:
    """A distinct body: its graph, and the function that runs it."""

    name: str
    graph: Graph
    program: Program = field(repr=False)
    runs: Graph = field(repr=False)
    """What its code runs: the graph without boundaries, with the leaves of the result where its signature is preserved."""
    convention: Convention | None = field(repr=False)
    """How it is called, where the exporter was asked to preserve that."""
    sites: Mapping[str, PreservedCall] = field(repr=False)
    """Its calls of modules with a preserved signature, by name of node."""
    new_table: Callable[[], Table] = field(repr=False)
    """Makes a table for what its code refers to."""
    switches_modes: bool = False
    """Whether it puts modes back after an error."""
    run: FunctionType = field(default=None, repr=False)  # type: ignore[assignment]
    opened: tuple[str, ...] = ()
    """The registers of its code that get an object through which a mode is left, the last one first."""

    def node_at(self, line: int) -> int | None:
        """Return the number of the node that a source line runs."""
        index = line - 2  # the first line is the `def`
        return index if 0 <= index < len(self.runs.nodes) else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Body:
        return self  # code is not state


class Codes(WeakValueDictionary[CodeType, Body]):
    """The body that each code runs, of one lowering; a body that no module has is dropped."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.reserved = reserved
        """Attribute names that the module classes use themselves."""
        self.count = 0
        """How many functions were named: none has the name of another, so no code is another's."""

    def body(
        self, context: LoweringContext, name: str, graph: Graph, convention: Convention | None, sites: Mapping[str, PreservedCall]
    ) -> Body:
        """Return a body with the function that runs it.

        Args:
            context: of the program that it is a body of.
            name: its id there.
            graph: what its code runs.
            convention: how it is called.
            sites: its calls of modules with a preserved signature.
        """

        def new_table() -> Table:
            nested = context.nested
            return Table(self.reserved, context.position_dependent if nested else frozenset(), nested)

        program = context.program
        operators = [node.do for node in graph.nodes if type(node.do) is Op]
        switches = any(may_leave_modes(do.target, unknown=do.effects.unknown) for do in operators)
        made = Body(name, program.graphs[name], program, graph, convention, sites, new_table, switches)
        made.run = _runner(made, f"body_{self.count}", self)
        if made.switches_modes:
            made.run = restoring(made.run, _parameters(len(graph.inputs)), lambda: made.opened)
        self.count += 1
        return made


DEEPEST = 100
"""How many modules deep calls may nest: at most six frames each, and 400 of 1,000 are the caller's."""


def bodies_of(context: LoweringContext, *, reserved: frozenset[str]) -> tuple[dict[str, Body], Codes]:
    """Return a body for every graph that the root reaches, and those that were compiled, by the code that runs each.

    Args:
        context: of the program to run, whose root takes and gives user values only; it gets the modules of nested graphs later.
        reserved: attribute names that the module classes use themselves.

    Raises:
        UnsupportedProgram: an operator has no callable behind it, or modules nest too deeply.
    """
    program = context.program
    deepest = heights(program)[program.root]
    if deepest > DEEPEST:
        raise UnsupportedProgram(f"modules nest {deepest} deep, and at most {DEEPEST} run: px.inline(program) before lowering it")
    check_runs(node for _, node in program.nodes())
    bodies: dict[str, Body] = {}
    codes = Codes(reserved)
    called = context.conventions
    for name in program.order:
        graph = without_boundaries(program.graphs[name], called.get(name))
        sites = _sites(program, graph, called) if called else {}
        bodies[name] = codes.body(context, name, graph, called.get(name), sites)
    return bodies, codes


def check_runs(nodes: Iterable[Node]) -> None:
    """Refuse operators without anything behind them, and numbers that no size needs.

    Args:
        nodes: what is to run.

    Raises:
        UnsupportedProgram: one of them cannot.
    """
    found: dict[str, str] = {}
    for node in nodes:
        if type(node.do) is not Op:
            continue
        if node.do.target is None:
            found.setdefault(node.do.name, node.name)
        elif type(node.do.target) is not OpOverload and (work := too_much_work(node.do.target, node.args)) is not None:
            raise UnsupportedProgram(f"node {node.name}: {node.do.name} would compute {work}, which no size needs")
    if found:
        named = ", ".join([f"{name} at node {node}" for name, node in found.items()])[:2000]
        raise UnsupportedProgram(
            f"the program cannot run, because operators have no callable: {named}; {told(found)[:2000]}. Where it comes from "
            f"text or a file: {advice_for(found)[:2000]}"
        )


def _runner(body: Body, name: str, codes: Codes) -> FunctionType:
    def write() -> tuple[CodeType, Mapping[str, Any]]:
        code, values, body.opened = _compiled(body)
        # Of this lowering: dynamo keeps what it compiled with the code object, and an error is told where by it.
        code = code.replace(co_name=name, co_qualname=name)
        codes[code] = body
        return code, values

    return deferred(write, name, parameters=len(body.runs.inputs))


def code_of(head: str, lines: Sequence[str]) -> CodeType:
    """Return the code of a function.

    Args:
        head: its name and parameters.
        lines: of its body; the text is ours, see ``source.py``.

    >>> code_of("f(x)", ["return x"]).co_varnames
    ('x',)
    """
    made: dict[str, Any] = {}
    exec(compile("\n    ".join([f"def {head}:", *lines]), FILE, "exec"), {}, made)  # noqa: S102
    (function,) = made.values()
    code: CodeType = function.__code__
    return code


def _compiled(body: Body) -> tuple[CodeType, Mapping[str, Any], tuple[str, ...]]:
    # Code that follows from the graph alone is kept with it, for other programs that have it; that of calls with a preserved
    # signature, of graphs that operators are given and of inlined calls depends on more.
    alone = not body.sites and body.runs is body.graph and not any(type(node.do) is Op for node in body.graph.callers)
    kept = body.graph.derived.get(_compiled) if alone else None
    if kept is None:
        table = body.new_table()
        source = write_body(body.runs, table, body.sites)
        kept = code_of(f"body({', '.join(('self', *source.parameters))})", source.lines), table.values, source.opened
        if alone:
            body.graph.derived[_compiled] = kept
    return kept


def _sites(program: Program, graph: Graph, called: Mapping[str, Convention]) -> dict[str, PreservedCall]:
    found: dict[str, PreservedCall] = {}
    for node in graph.nodes:
        if type(node.do) is Call and node.do.graph in called:
            formals = [formal.name for formal in program.graphs[node.do.graph].inputs]
            found[node.name] = PreservedCall(node, node.do, called[node.do.graph], formals)
    return found
