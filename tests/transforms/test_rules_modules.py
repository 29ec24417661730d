"""Rules that look at calls of modules: by path and by class, in bodies that modules share; and calls that they write."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purefx as px
from tests.models import parent

Function = Callable[..., Any]


class Mlp(parent(up=lambda: nn.Linear(4, 4))):
    def forward(self, x: Tensor) -> Tensor:
        return self.up(x).relu()


class Two(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin(), x.cos()


class Layer(parent(mlp=Mlp, two=Two)):
    def forward(self, x: Tensor) -> Tensor:
        sin, cos = self.two(self.mlp(x))
        return sin + cos + self.mlp(x + 1)


class Model(parent(layers=lambda: nn.ModuleList([Layer() for _ in range(3)]))):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


X = torch.randn(2, 4)


def tree(model: nn.Module) -> px.Program:
    return px.transform(px.import_ep(torch.export.export(copy.deepcopy(model), (X,))))


def calls(program: px.Program) -> set[str]:
    return {str(node.do.instance) for _, node in program.nodes() if type(node.do) is px.Call}


def checked(program: px.Program, eager: nn.Module) -> px.Program:
    assert not px.verify(program, infer=True)
    torch.testing.assert_close(px.lower(program)(X), eager(X))
    return program


def with_mlp(model: Model, which: Function, instead: Function) -> Model:
    changed = copy.deepcopy(model)
    for number, layer in enumerate(changed.layers):
        if which(number):
            layer.mlp.forward = instead
    return changed


def test_every_call_by_glob() -> None:
    model = Model()
    rule = px.rule(at=px.module("layers.*.mlp"))(lambda m: torch.tanh(m.arguments["arg"]))
    program = tree(model)
    result = checked(rule(program), with_mlp(model, lambda _: True, torch.tanh))
    assert len(result.graphs) == 3
    assert "mlp" not in calls(result)
    assert rule(result) is result


def test_calls_of_one_module_part_a_shared_body() -> None:
    model = Model()
    rule = px.rule(at=px.module("layers.1.mlp"))(lambda m: torch.tanh(m.arguments["arg"]))
    result = checked(rule(tree(model)), with_mlp(model, lambda number: number == 1, torch.tanh))
    first, second, third = [
        node.do.graph for node in result.main.nodes if isinstance(node.do, px.Call)
    ]
    assert first == third != second


@pytest.mark.parametrize("which", [nn.Linear, "layers.*.up"])
def test_calls_by_class(which: Any) -> None:
    model = Model()
    rule = px.rule(at=px.module(which), once=True)(lambda m: m.value * 2)
    changed = copy.deepcopy(model)
    for layer in changed.layers:
        up = layer.mlp.up
        up.register_forward_hook(lambda module, args, result: result * 2)
    result = checked(rule(tree(model)), changed)
    assert "up" in calls(result)


def test_a_replacement_may_depend_on_the_graph() -> None:
    class Mixed(parent(act=nn.ReLU)):
        def forward(self, x: Tensor) -> Tensor:
            return self.act(x) + torch.relu(x)

    rule = px.rule(lambda x: torch.relu(x)).becomes(
        lambda m, x: torch.sin(x) if m.graph else torch.cos(x)
    )
    torch.testing.assert_close(px.lower(rule(tree(Mixed())))(X), X.sin() + X.cos())


def test_refusals() -> None:
    program = tree(Model())
    several = px.rule(at=px.module("layers.*.two"))(lambda m: m.arguments["relu"])
    with pytest.raises(px.errors.RuleError, match="the module two returns 2 values"):
        several(program)
    flat = px.inline(program)
    assert several(flat) is flat


class Counting(parent(count=lambda: torch.zeros(()))):
    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return nn.functional.dropout(x * self.count, 0.5, training=True)


class Counters(parent(a=Counting, b=Counting)):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x + self.a(x)) - self.b(x)


@pytest.mark.parametrize("preserved", [(), ("a", "b")])
@pytest.mark.parametrize("where", ["a", "*"])
def test_the_result_of_a_module_that_writes_can_be_wrapped(
    where: str, preserved: tuple[str, ...]
) -> None:
    """The call stays, with its writes and draws; a preserved call cannot be replaced."""
    ep = torch.export.export(Counters(), (X,), preserve_module_call_signature=preserved)
    program = px.transform(px.import_ep(ep))
    result = px.rule(at=px.module(where), once=True)(lambda m: m.value * 2)(program)
    assert result.call_signatures == program.call_signatures
    wrapped, expected = px.lower(result), Counters()
    for name, child in expected.named_children():
        if where in (name, "*"):
            child.register_forward_hook(lambda _, args, result: result * 2)
    for call in range(3):
        found = []
        for module in (wrapped, expected):
            torch.manual_seed(call)
            found.append((module(X), *module.state_dict().values()))
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    away = px.rule(at=px.module(where))(lambda m: torch.tanh(next(iter(m.arguments.values()))))
    with pytest.raises(
        px.errors.RuleError, match="preserved signature" if preserved else "the match"
    ):
        away(program)
