"""Rules that look at calls of modules: by path and by class, in bodies that modules share; and calls that they write."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purefx as px

Function = Callable[..., Any]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x).relu()


class Two(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin(), x.cos()


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.two = Mlp(), Two()

    def forward(self, x: Tensor) -> Tensor:
        sin, cos = self.two(self.mlp(x))
        return sin + cos + self.mlp(x + 1)


class Model(nn.Module):
    layers: Any

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


X = torch.randn(2, 4)


def tree(model: nn.Module) -> px.Program:
    return px.transform(px.import_ep(torch.export.export(copy.deepcopy(model), (X,))))


def calls(program: px.Program) -> list[str]:
    return sorted(
        {
            str(node.do.instance)
            for graph in program.order
            for node in program.graphs[graph].callers
            if type(node.do) is px.ir.Call
        }
    )


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
    first, second, third = [node.do.graph for node in result.main.nodes if isinstance(node.do, px.Call)]
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


def test_conditions_and_state() -> None:
    model = Model()

    @px.rule(at=px.module(nn.Linear), once=True, where=lambda m: m.path.startswith("layers.2"))
    def scaled(m: px.Match) -> Any:
        return m.value * m.parameter("gain", torch.full((4,), 3.0))

    changed = copy.deepcopy(model)
    changed.layers[2].mlp.up.register_forward_hook(lambda module, args, result: result * 3)
    result = checked(scaled(tree(model)), changed)
    assert "layers.2.mlp.gain" in result.state


def test_a_call_of_another_module_or_once_more() -> None:
    model = Model()

    @px.rule(at=px.module("layers.*.mlp"), once=True)
    def twice(m: px.Match) -> Any:
        return m.module_call("mlp", m.value)

    changed = with_mlp(model, lambda _: False, torch.tanh)
    for layer in changed.layers:
        forward = layer.mlp.forward
        layer.mlp.forward = lambda x, forward=forward: forward(forward(x))
    checked(twice(tree(model)), changed)


def test_refusals() -> None:
    program = tree(Model())
    several = px.rule(at=px.module("layers.*.two"))(lambda m: m.arguments["relu"])
    with pytest.raises(px.errors.RuleError, match="the module two returns 2 values, and a rule as many in a tuple, not relu"):
        several(program)
    nowhere = px.rule(at=px.module("layers.*.mlp"), once=True)(lambda m: m.module_call("nothing", m.value))
    with pytest.raises(
        px.errors.RuleError, match="nothing calls a module 'nothing' below the body 'Layer', so the program has no"
    ):
        nowhere(program)
    few = px.rule(at=px.module("layers.*.mlp"), once=True)(lambda m: m.module_call("mlp"))
    with pytest.raises(px.errors.RuleError, match="takes 1 operands"):
        few(program)
    with pytest.raises(px.errors.RuleError, match=r"px.module takes the path of a module"):
        px.module(3)
    flat = px.inline(program)
    assert few(flat) is flat


RESULTS: list[tuple[str, Function, Function]] = [
    ("made of them", lambda m: (m.value[0] * 2, m.value[1]), lambda two, x: (two(x)[0] * 2, two(x)[1])),
    ("called anew", lambda m: _called_anew(m), lambda two, x: (two(x * 2)[1], two(x * 2)[0])),
    ("left", lambda m: None, lambda two, x: two(x)),
]


def _called_anew(m: px.Match) -> Any:
    a, b = m.module_call("two", m.arguments["relu"] * 2)
    return b, a


@pytest.mark.parametrize(("name", "written", "expected"), RESULTS, ids=[case[0] for case in RESULTS])
def test_a_module_with_several_results(name: str, written: Function, expected: Function) -> None:
    model = Model()
    rule = px.rule(at=px.module("layers.1.two"), once=True)(written)
    changed = copy.deepcopy(model)
    two = Two()
    changed.layers[1].two.forward = lambda x: expected(two, x)
    result = checked(rule(tree(model)), changed)
    assert rule.explain(tree(model)).replaced or name == "left"
    assert len({node.do.graph for node in result.main.nodes if isinstance(node.do, px.Call)}) == (1 if name == "left" else 2)


def test_a_module_that_the_body_does_not_call() -> None:
    model = Model()
    for path in ("layers.0.mlp", "/layers.0.mlp"):
        with px.editing(tree(model), "") as edit:
            edit.replace(edit.names[-1], edit.module_call(path, edit[edit.names[-1]]))
        changed = copy.deepcopy(model)
        changed.register_forward_hook(lambda module, args, result, mlp=changed.layers[0].mlp: mlp(result))
        checked(edit.program, changed)
        checked(px.import_ep(px.to_ep(edit.program)), changed)
    second = px.rule(at=px.module("layers.1.two"), once=True)(lambda m: (m.value[0], m.module_call("/layers.1.mlp", m.value[1])))
    changed, two = copy.deepcopy(model), Two()
    mlp = changed.layers[1].mlp
    changed.layers[1].two.forward = lambda x: (two(x)[0], mlp(two(x)[1]))
    checked(second(tree(model)), changed)
    outside = px.rule(at=px.module("layers.1.mlp"), once=True)(lambda m: m.module_call("/layers.0.mlp", m.value))
    with pytest.raises(px.errors.RuleError, match=r"is the body of layers.1, and calls modules below that: layers.0.mlp is none"):
        outside(tree(model))


def test_a_preserved_call_stays_whatever_is_made_of_it() -> None:
    model = Model()
    paths = [f"layers.{number}.{name}" for number in range(3) for name in ("mlp", "two")]
    exported = torch.export.export(copy.deepcopy(model), (X,), preserve_module_call_signature=tuple(paths))
    program = px.transform(px.import_ep(exported))
    doubled = px.rule(at=px.module("layers.*.two"), once=True)(lambda m: (m.value[0] * 2, m.value[1]))
    changed = copy.deepcopy(model)
    for layer in changed.layers:
        layer.two.register_forward_hook(lambda module, args, result: (result[0] * 2, result[1]))
    result = checked(doubled(program), changed)
    assert result.call_signatures == program.call_signatures
    lowered: Any = px.lower(result)
    lowered.layers[1].two = changed.layers[1].two
    twice = copy.deepcopy(changed)
    twice.layers[1].two.register_forward_hook(lambda module, args, result: (result[0] * 2, result[1]))
    torch.testing.assert_close(lowered(X), twice(X))
    again = px.rule(at=px.module("layers.*.mlp"), once=True)(lambda m: m.module_call("mlp", m.value))
    with pytest.raises(px.errors.RuleError, match="preserved signature"):
        again(program)
    away = px.rule(at=px.module("layers.*.mlp"))(lambda m: torch.tanh(next(iter(m.arguments.values()))))
    with pytest.raises(px.errors.RuleError, match="preserved signature"):
        away(program)


class Counting(nn.Module):
    """Counts its calls, draws and returns two values."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.count.add_(1)
        return nn.functional.dropout(x * self.count, 0.5, training=True), x + self.count


class Counters(nn.Module):
    """Calls two counters, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Counting(), Counting()

    def forward(self, x: Tensor) -> Tensor:
        (one, two), (three, four) = self.a(x), self.b(x)
        five, six = self.a(one + three)
        return five * six + two - four


@pytest.mark.parametrize("preserved", [(), ("a", "b")])
@pytest.mark.parametrize("where", ["a", "*"])
def test_what_a_module_that_writes_gives_can_be_wrapped(where: str, preserved: tuple[str, ...]) -> None:
    """The call stays, with what it writes and draws, so nothing is replaced; a second call of it would write again."""

    def double(m: px.Match) -> Any:
        first, second = m.value
        return first * 2, second + 1

    def again(m: px.Match) -> Any:
        call: Any = m.origin.do
        first, _ = m.value
        return first, m.module_call(call.instance.path, next(iter(m.arguments.values())))[1]

    ep = torch.export.export(Counters(), (X,), preserve_module_call_signature=preserved)
    program = px.transform(px.import_ep(ep))
    wrapped = px.lower(px.rule(at=px.module(where), once=True)(double)(program))
    expected = Counters()
    for name, child in expected.named_children():
        if where in (name, "*"):
            child.register_forward_hook(lambda _, args, results: (results[0] * 2, results[1] + 1))
    for call in range(3):
        found = []
        for module in (wrapped, expected):
            torch.manual_seed(call)
            found.append((module(X), *module.state_dict().values()))
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    with pytest.raises(px.errors.RuleError):
        px.rule(at=px.module(where), once=True)(again)(program)
