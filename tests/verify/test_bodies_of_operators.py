"""An operator that runs a body gets a graph: it raised a TypeError when the program ran."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir import Body, Items, Op, Ref
from purefx.ir.effects.declared import Effects
from purefx.ir.operators import BODIES, BodyAt
from tests.models import flat


class Cond(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


class Still(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x.sin()
        return x + y


@pytest.mark.parametrize("model", [Cond(), Still()], ids=["cond", "no_grad"])
@pytest.mark.parametrize("value", [3, None, "name"], ids=["number", "none", "string"])
def test_a_body_is_a_graph(model: torch.nn.Module, value: Any) -> None:
    program = px.capture(model, (torch.ones(2),))
    node = next(node for node in program.main.nodes if "higher_order" in str(node.do))
    args = tuple(value if type(arg) is Body else arg for arg in node.args)
    nodes = [each.evolve(args=args) if each is node else each for each in program.main.nodes]
    graphs = {**program.graphs, program.root: program.main.with_nodes(nodes)}
    rules = {fault.rule for fault in px.verify(program.with_graphs(graphs))}
    assert "operator-bodies" in rules


def _faults(name: str, args: list[Any], kwargs: dict[str, Any]) -> list[str]:
    # The messages of the rule about a program that only calls an operator.
    do = Op(f"higher_order.{name}", effects=Effects(through_bodies=True))
    call = px.Node("y", do, tuple(args), tuple(kwargs.items()))
    body = px.Graph((px.ir.Input("a"),), (), (Ref("a"),))
    program = flat([call], Ref("y"), "x")
    program = program.with_graphs({**program.graphs, "body": body})
    return [fault.message for fault in px.verify(program) if fault.rule == "operator-bodies"]


def _argument(body: BodyAt, value: Any) -> Any:
    return value if body.items is None else Items([value])


PLACES = [
    pytest.param(name, body, id=f"{name}-{body.parameter}")
    for name in BODIES
    for body in BODIES[name]
]

WRONG = {"number": 3, "none": None, "string": "body", "value": Ref("x"), "list": Items([3])}


def _arguments(name: str, wrong: BodyAt | None, value: Any, keywords: bool) -> Any:
    # The arguments of an operator, with a value in the place of one body.
    bodies = BODIES[name]
    first = min(body.position for body in bodies)
    args: list[Any] = [Ref("x")] * (first if keywords else bodies[-1].position + 2)
    kwargs = dict[str, Any]()
    for body in bodies:
        part = _argument(body, value if body is wrong else Body("body"))
        if keywords:
            kwargs[body.parameter] = part
        else:
            args[body.position] = part
    return args, kwargs


@pytest.mark.parametrize("keywords", [False, True], ids=["positional", "keyword"])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(("name", "body"), PLACES)
def test_each_body_of_each_operator_is_a_graph(
    name: str, body: BodyAt, wrong: str, keywords: bool
) -> None:
    assert _faults(name, *_arguments(name, None, None, keywords)) == []
    place = repr(body.parameter) if keywords else str(body.position)
    (message,) = _faults(name, *_arguments(name, body, WRONG[wrong], keywords))
    assert message.startswith(f"its argument {place} is ")
    assert message.endswith(", not a graph")


@pytest.mark.parametrize(("name", "body"), PLACES)
def test_a_missing_body_is_named(name: str, body: BodyAt) -> None:
    args, kwargs = _arguments(name, None, None, keywords=True)
    del kwargs[body.parameter]
    assert _faults(name, args, kwargs) == [
        f"it has no argument {body.parameter!r}, which is a graph"
    ]


@pytest.mark.parametrize("value", [3, Ref("x"), Items([])], ids=["number", "value", "empty"])
@pytest.mark.parametrize("name", [name for name in BODIES if BODIES[name][-1].items])
def test_a_list_of_bodies_is_a_list(name: str, value: Any) -> None:
    args, kwargs = _arguments(name, None, None, keywords=False)
    args[BODIES[name][-1].position] = value
    (message,) = _faults(name, args, kwargs)
    assert message.endswith("not a list that contains graphs")


def test_an_operator_with_a_token_gets_graphs() -> None:
    inner = torch.ops.higher_order.invoke_subgraph
    assert _faults("with_effects", [Ref("x"), inner, Body("body"), "id", Ref("x")], {}) == []
    assert _faults("with_effects", [Ref("x"), inner, 3, "id", Ref("x")], {}) == [
        "its argument 2 is the int 3, not a graph"
    ]


def test_an_operator_may_be_a_body() -> None:
    sin = torch.ops.aten.sin.default
    assert _faults("cond", [Ref("x"), sin, Body("body"), Items([Ref("x")])], {}) == []
