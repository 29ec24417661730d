"""Which operand an operator gives back as it is: ``x.to(dtype)`` of an ``x`` that has it is ``x``, the very object.

One idea: eager and the exporter tell objects apart by identity, and operators that may convert give back what they are given
where nothing is to convert.  Which do is asked of the operators themselves, on the fake values that the program carries; one that
writes says so in its schema.  Where a value is not known nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arguments import Arg, Ref, thawed
from ..effects.aliasing import item_of
from ..effects.declared import ArgAt
from ..graph import Graph
from ..node import Call, Node, Op
from ..program import Program
from ..torch_private import FakeTensor, OpOverload
from .values import running

__all__ = ["input_given_back", "operand_given_back", "values_of"]


def values_of(graph: Graph) -> dict[str, Any]:
    """Return the fake values that a graph carries, by name.

    >>> from purefx.ir import Input
    >>> values_of(Graph((Input("x", {"val": 2}),), (), ()))
    {'x': 2}
    """
    return {each.name: each.meta["val"] for each in (*graph.inputs, *graph.nodes) if "val" in each.meta}


def operand_given_back(graph: Graph, name: str, values: Mapping[str, Any]) -> str | None:
    """Return the operand whose very object a value is, by what its operator does; None where it is another, or not known.

    Args:
        graph: where the value is made.
        name: the value; one of several results is found through the node that takes it.
        values: fake values, by name.

    >>> import torch
    >>> import torch, purefx as px
    >>> program = px.capture(torch.nn.Flatten(), (torch.ones(2, 3),))
    >>> operand_given_back(program.main, "flatten", values_of(program.main))
    'input'
    """
    node, place = _maker(graph, name)
    if node is None or type(node.do) is not Op or not isinstance(node.do.target, OpOverload):
        return None
    effects = node.do.effects
    if effects.writes:
        return _named(effects.returns[place or 0], node) if len(effects.returns) > (place or 0) else None
    drawn = effects.random and not any(unless.spares(node.args, node.kwargs) for unless in effects.random_unless)
    if drawn or effects.ordered or effects.through_bodies or effects.unknown or effects.scope or not effects.aliases:
        return None
    return _same(node, node.do.target, place, values)


def _maker(graph: Graph, name: str) -> tuple[Node | None, int | None]:
    # The node that makes a value, and which of its results that is where it gives several.
    node = graph.by_name.get(name)
    item = None if node is None else item_of(node)
    return (node, None) if item is None else (graph.by_name.get(item[0]), item[1])


def _named(at: ArgAt | None, node: Node) -> str | None:
    found = None if at is None else at.find(node.args, node.kwargs)
    return found.name if type(found) is Ref else None


def _same(node: Node, target: Any, place: int | None, values: Mapping[str, Any]) -> str | None:
    names = list(dict.fromkeys(node.refs()))
    tensors = {name: values[name] for name in names if isinstance(values.get(name), FakeTensor)}
    modes = {id(value.fake_mode): value.fake_mode for value in tensors.values()}
    if len(modes) != 1 or any(name not in values for name in names):
        return None

    def leaf(arg: Arg) -> Any:
        return values[arg.name] if type(arg) is Ref else arg

    (mode,) = modes.values()
    args, kwargs = [thawed(arg, leaf) for arg in node.args], {key: thawed(arg, leaf) for key, arg in node.kwargs}
    with running(mode):
        try:
            found = target(*args, **kwargs)
            found = found if place is None else found[place]
        except Exception:  # noqa: BLE001  no fake kernel, a size that depends on data: not known
            return None
    return next((name for name, value in tensors.items() if value is found), None)


def input_given_back(program: Program, graph: Graph, name: str, known: Mapping[str, Any]) -> str | None:
    """Return the input of a graph whose very object a value of it is, with nothing written to it; None where there is none.

    Args:
        program: whose graph it is; it says what calls give.
        graph: the graph.
        name: the value.
        known: fake values of inputs where the graph is called, by name.

    >>> import torch
    >>> import torch, purefx as px
    >>> program = px.capture(torch.nn.Flatten(), (torch.ones(2, 3),))
    >>> input_given_back(program, program.main, "flatten", {})
    'input'
    """
    callers: list[tuple[Graph, Node, dict[str, Any]]] = []
    values = {**values_of(graph), **known}
    while True:
        maker, place = _maker(graph, name)
        if maker is None:
            # An input: of the graph that was asked for, or of one that it calls.
            if not callers:
                return name
            formals = [formal.name for formal in graph.inputs]
            graph, call, values = callers.pop()
            found = call.args[formals.index(name)]
        elif type(maker.do) is Call:
            callers.append((graph, maker, values))
            graph, values = _called(program, maker, maker.do, values)
            found = graph.output[place] if place is not None and type(graph.output) is tuple else graph.output
        else:
            step = None if type(maker.do) is Op and maker.do.effects.writes else operand_given_back(graph, name, values)
            found = None if step is None else Ref(step)
        if type(found) is not Ref:
            return None
        name = found.name


def _called(program: Program, node: Node, call: Call, values: Mapping[str, Any]) -> tuple[Graph, dict[str, Any]]:
    # A shared body carries the values of one of its calls; what this one passes is known better here.
    graph = program.graphs[call.graph]
    pairs = [(formal.name, arg) for formal, arg in zip(graph.inputs, node.args, strict=True)]
    given = {name: values[arg.name] for name, arg in pairs if type(arg) is Ref and arg.name in values}
    return graph, {**values_of(graph), **given}
