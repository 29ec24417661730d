"""Compile bodies: one function for each distinct body, compiled when it is first called.

The function replaces its own code at the first call.
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

from ...ir.analysis.numbers import too_much_work
from ...ir.calls.call_graph import heights
from ...ir.calls.call_sites import Convention, without_boundaries
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Call, Graph, Node, Op, Uncopied
from ...ir.operators import advice_for, named_with_reasons
from ...ir.torch_private import (
    OpOverload,
    current_modes,
    mode_objects,
    restore_modes,
    run_while_tracing,
)
from ..calls.preserved import PreservedCall
from ..modules.context import LoweringContext, conventions_of, position_dependent
from .source import Table, write_body


def deferred(
    write: Callable[[], tuple[CodeType, Mapping[str, Any]]], name: str, *, parameters: int
) -> FunctionType:
    """Return a function of ``self`` and values that is compiled when it is first called.

    Concurrent first calls may each write the code; they write the same.

    Args:
        write: returns the code and its globals.
        name: the name of the function.
        parameters: the number of values that it accepts.

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

    # A separate code object, as dynamo caches compiled code on it.
    first = _template(DEFERRED, _parameters(parameters)).replace(co_name=name)
    run = FunctionType(first, {"ready": run_while_tracing(ready), "__builtins__": builtins}, name)
    run.__globals__["whole"] = run
    return run


DEFERRED = "def first({0}):\n ready()\n return whole({0})"

RESTORING = """def restoring({0}):
 if is_compiling(): return run({0})
 before = current_modes()
 try: return run({0})
 except BaseException as error:
  restore_modes(before, left_open(error))
  raise"""
"""Dynamo does not split a function at a graph break inside ``try``, so it gets the body alone."""


@functools.cache
def _template(text: str, parameters: str) -> CodeType:
    made: dict[str, Any] = {}
    exec(text.format(parameters), {}, made)  # noqa: S102 - contains no text of a program
    function: FunctionType
    (function,) = made.values()
    return function.__code__


def _parameters(count: int) -> str:
    # Those of the compiled function, for ``inspect.signature``.
    return ", ".join(["self", *(f"v{number}" for number in range(count))])


def may_leave_modes(target: Any, *, unknown: bool) -> bool:
    """Return whether a mode of torch may stay set after this call, or a later one, raises.

    Torch puts plain functions that switch modes into graphs, so functions with unknown effects count.

    Args:
        target: the called function or operator.
        unknown: whether its effects are unknown.

    >>> may_leave_modes(torch.ops.aten.relu.default, unknown=False), may_leave_modes(torch.set_grad_enabled, unknown=True)
    (False, True)
    """
    return target is torch.ops.higher_order.wrap_with_set_grad_enabled or (
        unknown and type(target) is not OpOverload
    )


def restoring(
    run: FunctionType, parameters: str, opened: Callable[[], Iterable[str]]
) -> FunctionType:
    """Return a function that does the same, and restores the modes of torch if it raises.

    Args:
        run: the function.
        parameters: the parameter list of the new function.
        opened: returns the local variables that may hold a handle of an entered mode, the last first.

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
    return FunctionType(
        _template(RESTORING, parameters).replace(co_name=run.__name__), values, run.__name__
    )


FILE = "<purefx>"


@define(eq=False)
class Body(Uncopied):
    """A distinct body: its graph and its function."""

    name: str
    graph: Graph
    runs: Graph = field(repr=False)
    """The graph without boundaries, which its code runs; with a preserved signature, it returns the leaves of the result."""
    convention: Convention | None = field(repr=False)
    """Its calling convention, if its call signature is preserved."""
    sites: Mapping[str, PreservedCall] = field(repr=False)
    """Its calls of modules with a preserved signature, by node name."""
    context: LoweringContext = field(repr=False)
    run: FunctionType = field(default=None, repr=False)  # type: ignore[assignment]
    opened: tuple[str, ...] = ()
    """The registers of its code that hold handles of entered modes, the last first."""

    def new_table(self) -> Table:
        """Return a table for the values in its code."""
        nested = self.context.nested
        return Table(position_dependent(self.context) if nested else frozenset(), nested)

    def node_at(self, line: int) -> int | None:
        """Return the number of the node that a source line runs."""
        index = line - 2  # the first line is the `def`
        return index if 0 <= index < len(self.runs.nodes) else None


Codes = WeakValueDictionary[CodeType, Body]
"""The bodies of one lowering by code object; a body without modules is dropped."""


DEEPEST = 100
"""The limit on nested module calls: at most six frames each, with 400 of Python's 1,000 left to the caller."""


def bodies_of(context: LoweringContext) -> tuple[dict[str, Body], Codes]:
    """Return a body for every graph that the root reaches, and the bodies by compiled code.

    Args:
        context: the context of an executable program; it gets the modules of nested graphs later.

    Raises:
        UnsupportedProgram: an operator has no callable, or modules nest too deeply.
    """
    program = context.program
    deepest = heights(program)[program.root]
    if deepest > DEEPEST:
        raise UnsupportedProgram(
            f"modules nest {deepest} deep, at most {DEEPEST} can run: lower px.inline(program) instead"
        )
    check_runs(node for _, node in program.nodes())
    bodies: dict[str, Body] = {}
    codes, called = Codes(), conventions_of(context)
    for number, name in enumerate(program.order):
        graph, convention = program.graphs[name], called.get(name)
        runs = without_boundaries(graph, convention)
        sites = {
            node.name: PreservedCall(
                node, node.do, called[node.do.graph], program.graphs[node.do.graph].inputs
            )
            for node in (runs.nodes if called else ())
            if type(node.do) is Call and node.do.graph in called
        }
        bodies[name] = body = Body(name, graph, runs, convention, sites, context)
        body.run = _runner(body, f"body_{number}", codes)
    return bodies, codes


def check_runs(nodes: Iterable[Node]) -> None:
    """Refuse operators without a callable, and arithmetic on excessively large numbers.

    Args:
        nodes: the nodes to run.

    Raises:
        UnsupportedProgram: a node cannot run.
    """
    found: dict[str, str] = {}
    for node in nodes:
        if type(node.do) is not Op:
            continue
        if node.do.target is None:
            found.setdefault(node.do.name, node.name)
        elif (
            type(node.do.target) is not OpOverload
            and (work := too_much_work(node.do.target, node.args)) is not None
        ):
            raise UnsupportedProgram(
                f"node {node.name}: {node.do.name} would compute {work}, which no size needs"
            )
    if found:
        named = ", ".join([f"{name} at node {node}" for name, node in found.items()])[:2000]
        raise UnsupportedProgram(
            f"the program cannot run, because operators have no callable: {named}; {named_with_reasons(found)[:2000]}. "
            f"If it comes from text or a file, {advice_for(found)[:2000]}"
        )


def _runner(body: Body, name: str, codes: Codes) -> FunctionType:
    def write() -> tuple[CodeType, Mapping[str, Any]]:
        code, values, body.opened = _compiled(body)
        # Separate for each lowering: dynamo caches on the code object, and error notes look the body up by it.
        code = code.replace(co_name=name, co_qualname=name)
        codes[code] = body
        return code, values

    count = len(body.runs.inputs)
    run = deferred(write, name, parameters=count)
    if any(
        type(do) is Op and may_leave_modes(do.target, unknown=do.effects.unknown)
        for do in body.runs.distinct
    ):
        run = restoring(run, _parameters(count), lambda: body.opened)
    return run


def code_of(head: str, lines: Sequence[str]) -> CodeType:
    """Return the code of a function.

    Args:
        head: the name and parameters.
        lines: the lines of the body, without text of a program, see ``source.py``.

    >>> code_of("f(x)", ["return x"]).co_varnames
    ('x',)
    """
    made: dict[str, Any] = {}
    exec(compile("\n    ".join([f"def {head}:", *lines]), FILE, "exec"), {}, made)  # noqa: S102
    (function,) = made.values()
    code: CodeType = function.__code__
    return code


def _compiled(body: Body) -> tuple[CodeType, Mapping[str, Any], tuple[str, ...]]:
    # Code that depends on the graph alone is cached on it, for other programs with the graph; the code of calls with a
    # preserved signature, of operators on graphs, and of inlined calls depends on more.
    alone = (
        not body.sites
        and body.runs is body.graph
        and not any(type(node.do) is Op for node in body.graph.callers)
    )
    kept = body.graph.derived.get(_compiled) if alone else None
    if kept is None:
        table = body.new_table()
        source = write_body(body.runs, table, body.sites)
        kept = (
            code_of(f"body({', '.join(('self', *source.parameters))})", source.lines),
            table.values,
            source.opened,
        )
        if alone:
            body.graph.derived[_compiled] = kept
    return kept
