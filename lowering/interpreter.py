"""``LoweredInterpreter``: an ``InterpreterModule`` that runs a body operator by operator.

One idea: the body is a tape of steps (``tape.py``); each is run by itself, so an error names the node, the module and the
user's line, and a debugger can stop between operators.  Once somebody has looked at ``graph``, that is what runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.fx
from torch.export.unflatten import InterpreterModule
from torch.fx.graph import CodeGen

from ..ir.paths import FROM_ROOT
from ..ir.torch_private import children_dict
from .edited import run_graph
from .lowered import Lowered, copy_graph
from .module import Place, holds
from .notes import note_failure
from .tape import tape_of

__all__ = ["LoweredInterpreter", "run_body", "run_tape"]


class LoweredInterpreter(Lowered, InterpreterModule):
    """A module made by ``lower(..., to="interpreter")``; see the file's docstring."""

    def __getattr__(self, name: str) -> Any:
        if name != "graph" and holds(self, name):
            return torch.nn.Module.__getattr__(self, name)  # a child called ``code``: as in eager
        if name == "graph":
            return self.__dict__.setdefault("graph", _fx_graph(self))  # another thread may have been faster
        if name == "graph_module":
            # While fx generates code, the nodes of the graph print themselves by the names of that code.
            graph = copy_graph(self.__dict__["graph"]) if "graph" in self.__dict__ else _fx_graph(self)
            made = self.__dict__.setdefault("graph_module", self._as_graph_module(graph))
            self.__dict__.setdefault("graph", graph)
            return made
        if name == "arg_names":
            return [formal.name for formal in self.purefx_place.body.graph.inputs]
        if name == "_ty":
            return self.purefx_place.type_name
        if name == "code":
            return cast(Any, self.graph_module).code
        if name == "meta":
            return self.__dict__.setdefault("meta", {})
        return torch.nn.Module.__getattr__(self, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body; keyword arguments go by the names of its inputs."""
        if kwargs:
            names = self.arg_names[len(args) :]
            if set(kwargs) != set(names):
                raise TypeError(f"expected the keyword arguments {names}, got {list(kwargs)}")
            args = (*args, *(kwargs[name] for name in names))
        return run_body(self, self.purefx_place, args)

    def finalize(self) -> None:
        """Check the (edited) graph, and make ``graph_module`` of it, which is what ``torch.compile`` sees."""
        self.graph.lint()
        self.__dict__["graph_module"] = self._as_graph_module(self.graph)

    def _as_graph_module(self, graph: torch.fx.Graph) -> torch.fx.GraphModule:
        made = torch.fx.GraphModule(self, graph)
        if FROM_ROOT in self.__dict__:
            # fx copies the way to what is called, the root, as if it were a child.
            children_dict(made).pop(FROM_ROOT, None)
            made.__dict__[FROM_ROOT] = self.__dict__[FROM_ROOT]
        return made


def _fx_graph(module: LoweredInterpreter) -> torch.fx.Graph:
    graph = module.purefx_place.fx_graph(module)
    graph.owning_module = cast(Any, module)
    graph.set_codegen(CodeGen())  # flat, as an UnflattenedModule's
    return graph


def run_body(owner: torch.nn.Module, place: Place, values: Sequence[Any]) -> Any:
    """Run a body on a module's state: step by step, or its generated code where dynamo looks on."""
    graph = owner.__dict__.get("graph")
    if torch.compiler.is_compiling():
        looked_at = owner.__dict__.get("graph_module")
        return place.body.run(owner, *values) if looked_at is None else type(looked_at).forward(owner, *values)
    if graph is not None and place.body.convention is None:
        return run_graph(owner, graph, tuple(values))
    return run_tape(place, owner, tuple(values))


def run_tape(place: Place, owner: torch.nn.Module, args: tuple[Any, ...]) -> Any:
    """Run a body step by step on a module's state.

    Raises:
        TypeError: the wrong number of arguments.
    """
    body = place.body
    if len(args) != len(body.runs.inputs):
        raise TypeError(f"{place.path or 'the root module'} takes {len(body.runs.inputs)} inputs, got {len(args)}")
    tape = tape_of(body)
    registers = [*args, *[None] * (tape.registers - len(args))]
    number = 0
    try:
        for number, step in enumerate(tape.steps):  # noqa: B007  read where a step fails
            step(owner, registers)
    except Exception as error:
        note_failure(error, place.path, body.runs.nodes[number])
        raise
    return tape.result(owner, registers)
