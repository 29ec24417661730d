"""``LoweredInterpreter``: a torch ``InterpreterModule`` that runs generated code until its graph is accessed.

Then the graph runs, with any edits.  An error names the node, the module and the user's line.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import CodeType, TracebackType
from typing import Any, cast

import torch
import torch.fx
from torch.export.unflatten import InterpreterModule
from torch.fx.graph import CodeGen

from ...ir.analysis.history import action_of
from ...ir.graph import Node
from ...ir.meta import source_line
from ...ir.names import FROM_ROOT, escaped
from ...ir.torch_private import children_dict, current_modes, member_of, mode_objects, restore_modes
from ..code.compiled import Body
from .module import Lowered, Place, copy_graph, holds, runs_on


def _described(path: str, node: Node) -> str:
    line = source_line(node.meta)
    return escaped(
        f"while running {path or 'the root'} / {node.name} ({action_of(node)})"
        + (f"\n    {line}" if line else "")
    )


def note_from_traceback(error: BaseException, bodies: Mapping[CodeType, Body]) -> None:
    """Add a note to an error with the innermost running node, found in its traceback."""
    if getattr(error, "__purefx_noted__", False):
        return
    found: tuple[Any, Body, int] | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        body = bodies.get(trace.tb_frame.f_code)
        index = body.node_at(trace.tb_lineno) if body is not None else None
        if body is not None and index is not None:
            found = (trace.tb_frame.f_locals.get("self"), body, index)
        trace = trace.tb_next
    if found is not None:
        module, body, index = found
        place = getattr(module, "__dict__", {}).get("purefx_place")
        error.add_note(_described(place.path if place is not None else "", body.runs.nodes[index]))
        try:
            error.__purefx_noted__ = True  # type: ignore[attr-defined]
        except AttributeError:  # an exception class with slots: a second note is harmless
            pass


def run_graph(owner: torch.nn.Module, graph: torch.fx.Graph, values: tuple[Any, ...]) -> Any:
    """Run a graph on a module's state, with flat inputs and results.

    >>> graph = torch.fx.symbolic_trace(lambda x: x + 1).graph
    >>> run_graph(torch.nn.Module(), graph, (1,))
    2
    """
    before, running = current_modes(), _Run(owner, graph=graph)
    try:
        return running.run(*values, enable_io_processing=False)
    except BaseException:
        restore_modes(
            before, mode_objects([running.env.get(node) for node in reversed(graph.nodes)])
        )
        raise


class _Run(torch.fx.Interpreter):
    def fetch_attr(self, target: str) -> Any:
        """Return a child, a piece of state or a constant, even if the class has an attribute of that name."""
        return functools.reduce(member_of, target.split("."), self.module)


class LoweredInterpreter(Lowered, InterpreterModule):
    """A module of a program lowered to interpreters; see the file's docstring."""

    def __getattr__(self, name: str) -> Any:
        if name != "graph" and holds(self, name):
            return torch.nn.Module.__getattr__(self, name)  # a child called ``code``: as in eager
        if name == "graph":
            return self.__dict__.setdefault(
                "graph", _fx_graph(self)
            )  # another thread may have built it
        if name == "graph_module":
            # While fx generates code, the nodes of the graph print with the names of that code.
            graph = (
                copy_graph(self.__dict__["graph"]) if "graph" in self.__dict__ else _fx_graph(self)
            )
            made = self.__dict__.setdefault("graph_module", self._as_graph_module(graph))
            self.__dict__.setdefault("graph", graph)
            return made
        if name == "arg_names":
            return self.purefx_place.body.graph.input_names
        if name == "_ty":
            return self.purefx_place.type_name
        if name == "code":
            return cast(Any, self.graph_module).code
        if name == "meta":
            return self.__dict__.setdefault("meta", {})
        return torch.nn.Module.__getattr__(self, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body; keyword arguments are named like its inputs."""
        if kwargs:
            names = self.arg_names[len(args) :]
            if set(kwargs) != set(names):
                raise TypeError(f"expected the keyword arguments {names}, got {list(kwargs)}")
            args = (*args, *(kwargs[name] for name in names))
        return run_body(self, self.purefx_place, args)

    def finalize(self) -> None:
        """Lint the (edited) graph and rebuild ``graph_module``, which ``torch.compile`` uses."""
        self.graph.lint()
        self.__dict__["graph_module"] = self._as_graph_module(self.graph)

    def _as_graph_module(self, graph: torch.fx.Graph) -> torch.fx.GraphModule:
        made = torch.fx.GraphModule(self, graph)
        made.__dict__["purefx_path"] = self.purefx_path
        if FROM_ROOT in self.__dict__:
            # fx copies the reference to the root as a child.
            children_dict(made).pop(FROM_ROOT, None)
            made.__dict__[FROM_ROOT] = self.__dict__[FROM_ROOT]
        return made


def _fx_graph(module: LoweredInterpreter) -> torch.fx.Graph:
    graph = module.purefx_place.fx_graph(module)
    graph.owning_module = cast(Any, module)
    graph.set_codegen(CodeGen())  # flat, as in UnflattenedModule
    return graph


def run_body(owner: torch.nn.Module, place: Place, values: Sequence[Any]) -> Any:
    """Run a body on a module's state: its generated code, or its fx graph if it was accessed."""
    compiling = torch.compiler.is_compiling()
    accessed = owner.__dict__.get("graph_module" if compiling else "graph")
    if accessed is not None and compiling:
        return type(accessed).forward(owner, *values)
    if accessed is not None and place.body.convention is None:
        return run_graph(owner, accessed, tuple(values))
    return place.body.run(runs_on(owner), *values)
