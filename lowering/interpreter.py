"""``LoweredInterpreter``: an ``InterpreterModule`` that runs a body operator by operator.

One idea: the body is a tape of steps; each is run by itself, so an error names the node, the module and the user's
line, and a debugger can stop between operators.  It computes what the generated code computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.fx
from torch.export.unflatten import InterpreterModule

from ..ir.arguments import Arg, Body, Items, Record, Ref
from ..ir.node import Call, Get, Node
from .module import RESERVED, Place
from .notes import note_failure
from .source import attribute_name, own_attribute

__all__ = ["LoweredInterpreter", "run_tape"]


class LoweredInterpreter(InterpreterModule):
    """A module made by ``lower(..., to="interpreter")``; see the file's docstring."""

    purefx_place: Place

    def __getattr__(self, name: str) -> Any:
        if name == "graph":
            graph = self.purefx_place.fx_graph(self)
            graph.owning_module = cast(Any, self)
            self.__dict__["graph"] = graph
            return graph
        if name == "graph_module":
            self.__dict__["graph_module"] = torch.fx.GraphModule(self, self.graph)
            return self.__dict__["graph_module"]
        if name == "arg_names":
            return [formal.name for formal in self.purefx_place.body.graph.inputs]
        if name == "_ty":
            return self.purefx_place.type_name
        return torch.nn.Module.__getattr__(self, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body; keyword arguments go by the names of its inputs."""
        if kwargs:
            names = self.arg_names[len(args) :]
            if set(kwargs) != set(names):
                raise TypeError(f"expected the keyword arguments {names}, got {list(kwargs)}")
            args = (*args, *(kwargs[name] for name in names))
        place = self.purefx_place
        if torch.compiler.is_compiling():
            return place.body.run(self, *args)
        return run_tape(place, self, args)

    def type_name(self) -> str | None:
        """Return the class name of the original module."""
        return self.purefx_place.type_name


def run_tape(place: Place, owner: torch.nn.Module, args: tuple[Any, ...]) -> Any:
    """Run a body step by step on a module's state.

    Raises:
        TypeError: the wrong number of arguments.
    """
    graph = place.body.runs
    if len(args) != len(graph.inputs):
        raise TypeError(f"{place.path or 'the root module'} takes {len(graph.inputs)} inputs, got {len(args)}")
    known: dict[str, Any] = {formal.name: value for formal, value in zip(graph.inputs, args, strict=True)}
    dead = graph.last_uses
    for index, node in enumerate(graph.nodes):
        try:
            known[node.name] = _step(node, known, owner, place)
        except Exception as error:
            note_failure(error, place, node)
            raise
        for name in dead.get(index, ()):
            del known[name]
    return _value(graph.output, known, place)


def _step(node: Node, known: dict[str, Any], owner: torch.nn.Module, place: Place) -> Any:
    do = node.do
    match do:
        case Get(slot=slot):
            return _attribute(owner, slot)
        case Call(instance=instance):
            return _attribute(owner, attribute_name(instance))(*[_value(arg, known, place) for arg in node.args])
        case _:
            args = [_value(arg, known, place) for arg in node.args]
            kwargs = {key: _value(value, known, place) for key, value in node.kwargs}
            return cast(Callable[..., Any], do.target)(*args, **kwargs)


def _attribute(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = own_attribute(owner, part) if part in RESERVED else getattr(owner, part)
    return owner


def _value(arg: Arg, known: dict[str, Any], place: Place) -> Any:
    kind = type(arg)
    if kind is Ref:
        return known[arg.name]
    if kind is Items:
        return [_value(part, known, place) for part in arg]
    if kind is tuple:
        return tuple([_value(part, known, place) for part in arg])
    if kind is Record:
        return {key: _value(value, known, place) for key, value in arg.items}
    if kind is slice:
        return slice(_value(arg.start, known, place), _value(arg.stop, known, place), _value(arg.step, known, place))
    if kind is Body:
        return place.bodies[arg.graph]
    return arg
