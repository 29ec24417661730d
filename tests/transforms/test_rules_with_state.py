"""Rules and edits that bring, replace and drop state, and bodies that several modules share: each instance gets what is its own.

Every case is applied to the flat program, which takes its state as inputs, and to the tree, and compared with eager modules that
were changed by hand.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purefx as px

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class MLP(nn.Module):
    """Two linear modules of different sizes, which share one body."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(x)))


class Model(nn.Module):
    """Four equal layers, and a counter that is written."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(MLP() for _ in range(4))
        self.head = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        self.seen.add_(1)
        return self.head(x) + self.seen


class Wrapped(nn.Module):
    """A function of a module and its input."""

    def __init__(self, function: Callable[..., Tensor], inner: nn.Module, **state: Tensor) -> None:
        super().__init__()
        self.function, self.inner = function, inner
        for name, value in state.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def changed(paths: str, change: Callable[[Any], nn.Module]) -> nn.Module:
    model = Model()
    for path in [path for path, _ in model.named_modules() if path and fnmatch(path, paths)]:
        model.set_submodule(path, change(model.get_submodule(path)))
    return model


def programs(model: nn.Module | None = None) -> list[px.Program]:
    flat = px.import_ep(torch.export.export(model or Model(), (X,)))
    return [flat, px.transform(flat)]


def assert_like(program: px.Program, eager: nn.Module) -> None:
    assert not px.verify(program, infer=True)
    lowered, eager = px.lower(px.transform(program)), copy.deepcopy(eager)
    for _ in range(3):
        torch.testing.assert_close(lowered(X), eager(X))


@px.rule(where=lambda m: m.path in ("layers.0.act", "layers.1.act"))
def softer(x: Any, how: Any) -> Any:
    return functional.gelu(x, approximate=how)


@softer.becomes
def _(m: px.Match, x: Any, how: Any) -> Any:
    return torch.relu(x)


def test_some_instances_of_a_shared_body() -> None:
    flat, tree = programs()
    eager = changed("layers.[01].act", lambda _: nn.ReLU())
    assert_like(softer(flat), eager)
    result = softer(tree)
    assert_like(result, eager)
    assert [len(result.order), len(tree.order)] == [6, 4]  # one more activation, and one more layer that calls it
    assert softer(result) is result
    assert sum(node.do.name == "aten.relu.default" for _, node in result.nodes() if type(node.do) is px.Op) == 1


@px.rule(at=torch.ops.aten.linear, once=True)
def adapted(m: px.Match) -> Any:
    if not fnmatch(m.path, "layers.*"):
        return None
    x, (rows, columns) = m.arguments["input"], m.arguments["weight"].shape
    a, b = m.parameter("a", torch.full((2, columns), 0.1)), m.parameter("b", torch.full((rows, 2), 0.2))
    return m.value + functional.linear(functional.linear(x, a), b)


def _adapted(linear: nn.Linear) -> nn.Module:
    a, b = torch.full((2, linear.in_features), 0.1), torch.full((linear.out_features, 2), 0.2)
    return Wrapped(lambda m, x: m.inner(x) + functional.linear(functional.linear(x, m.a), m.b), linear, a=a, b=b)


def test_low_rank_adapters_by_path() -> None:
    flat, tree = programs()
    eager = changed("layers.*.[ud][po]*", _adapted)
    for program in (flat, tree):
        result = adapted(program)
        assert_like(result, eager)
        state = px.lower(result).state_dict()
        assert [tuple(state[f"layers.3.{name}"].shape) for name in ("up.a", "up.b", "down.a")] == [(2, 4), (8, 2), (2, 8)]
        names = list(result.state)
        assert names.index("layers.0.up.a") == names.index("layers.0.up.bias") + 1, "new state stands behind that of its module"
    # The eight adapted modules share a body still, and the head has one of its own.
    assert len(adapted(tree).order) == len(tree.order) + 1
    lowered = px.lower(adapted(tree))
    lowered(X).sum().backward()
    assert all(param.grad is not None for name, param in lowered.named_parameters() if name.endswith((".a", ".b")))


@px.rule(where=lambda m: m.tensor("w") is not None)
def quantized(x: Any, w: Any, b: Any) -> Any:
    return functional.linear(x, w, b)


@quantized.becomes
def _(m: px.Match, x: Any, w: Any, b: Any) -> Any:
    weight = m.tensor(w)
    scale = weight.abs().amax(1, keepdim=True) / 127
    small, factor = m.buffer("weight_int8", (weight / scale).round().to(torch.int8)), m.buffer("scale", scale)
    m.drop(w)
    return x @ (small.to(torch.float32) * factor).t() + b


def _quantized(linear: nn.Linear) -> nn.Module:
    weight = linear.weight.detach()
    scale = weight.abs().amax(1, keepdim=True) / 127
    small = (weight / scale).round().to(torch.int8)
    return Wrapped(lambda m, x: x @ (m.small.float() * m.scale).t() + m.inner.bias, linear, small=small, scale=scale)


def test_weights_of_eight_bits() -> None:
    eager = changed("*", lambda inner: _quantized(inner) if isinstance(inner, nn.Linear) else inner)
    for program in programs():
        result = quantized(program)
        assert_like(result, eager)
        assert not [name for name in result.state if name.endswith(".weight")]
        assert result.state["head.weight_int8"].value.dtype is torch.int8
        assert len(result.order) == len(program.order)
        assert quantized(result) is result


class Between(nn.Module):
    """Draws numbers, and writes, between a read of state and the end of what reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = functional.linear(x, self.w)
        drawn = torch.rand_like(self.w)
        self.count.add_(1)
        return torch.relu(y), drawn + self.count


def test_reads_of_state_that_is_dropped_do_not_stand_in_the_way() -> None:
    @px.rule
    def doubled(x: Any, w: Any) -> Any:
        return torch.relu(functional.linear(x, w))

    @doubled.becomes
    def _(m: px.Match, x: Any, w: Any) -> Any:
        m.drop(w)
        return torch.relu(functional.linear(x, m.parameter("w2", m.tensor(w) * 2)) / 2)

    model, x = Between(), torch.randn(2, 3)
    flat = px.import_ep(torch.export.export(copy.deepcopy(model), (x,)))
    for program in (flat, px.sink_state(flat), px.transform(flat)):
        result = doubled(program)
        assert not px.verify(result, infer=True)
        assert "w2" in result.state
        lowered, eager = px.lower(px.transform(result)), copy.deepcopy(model)
        for _ in range(3):
            torch.manual_seed(0)
            given = lowered(x)
            torch.manual_seed(0)
            torch.testing.assert_close(given, eager(x))


def test_state_that_is_written_is_not_known() -> None:
    asked: list[object] = []
    ask = px.rule(where=lambda m: bool(asked.append(m.tensor("b"))))(lambda a, b: a + b).becomes(lambda m, a, b: a - b)
    for program in programs(Wrapped(lambda m, x: x + m.inner.head.bias + m.inner.seen.add_(1), Model())):
        ask(program)
    assert any(isinstance(each, Tensor) for each in asked)
    assert not [each for each in asked if isinstance(each, Tensor) and not each.requires_grad]


def test_a_tensor_of_the_rule_is_one_constant() -> None:
    three = torch.tensor(3.0)
    more = px.rule(lambda x, how: functional.gelu(x, approximate=how)).becomes(lambda m, x, how: torch.relu(x) + three)
    eager = changed("layers.*.act", lambda _: Wrapped(lambda m, x: torch.relu(x) + three, nn.Identity()))
    for program in programs():
        result = more(program)
        assert_like(result, eager)
        assert len(result.state) == len(program.state) + 1


@pytest.mark.parametrize("number", [0, 1])
def test_an_edit_of_one_module(number: int) -> None:
    program = programs()[number]
    gelu = [node.name for _, node in program.nodes() if node.name.startswith("gelu")][1 - number]
    one = px.rule(at=torch.nn.functional.gelu, where=lambda m: m.path == "layers.1.act" and m.root.name == gelu, once=True)
    made = one(lambda m: m.value * m.parameter("alpha", torch.tensor(2.0)))(program)
    eager = changed("layers.1.act", lambda act: Wrapped(lambda m, x: m.inner(x) * 2.0, act))
    assert_like(made, eager)
    assert [name for name in made.state if name not in program.state] == ["layers.1.act.alpha"]
    assert len(made.order) == len(program.order) + 2 * number


def test_values_that_instances_do_not_share_are_known_of_each() -> None:
    shapes: dict[str, Any] = {}
    look = px.rule(where=lambda m: bool(shapes.update({m.path: m.shape("w")})))
    watch = look(lambda x, w, b: functional.linear(x, w, b)).becomes(lambda m, x, w, b: x)
    for program in programs():
        shapes.clear()
        assert watch(program) is program
        assert [shapes[path] for path in ("layers.2.up", "layers.2.down", "head")] == [(8, 4), (4, 8), (4, 4)]


def _activated() -> px.Rule:
    @px.rule
    def activated(x: Any, w: Any, b: Any, how: Any) -> Any:
        return functional.gelu(functional.linear(x, w, b), approximate=how)

    return activated.becomes(lambda m, x, w, b, how: torch.relu(functional.linear(x, w, b)))


def test_a_pattern_over_two_modules() -> None:
    flat, tree = programs()
    eager = changed("layers.*.act", lambda _: nn.ReLU())
    assert _activated()(tree) is tree
    result = px.transform(_activated()(flat))
    assert_like(result, eager)
    assert {"MLP", "Linear"} < set(result.order) and "GELU" not in result.order
    assert sum(node.do.name == "aten.relu.default" for _, node in result.nodes() if type(node.do) is px.Op) == 1


class Counted(nn.Module):
    """Reads a buffer between two writes to it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.ones(4))
        self.register_buffer("other", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.w.add_(1)
        y = torch.relu(x)
        self.w.add_(1)
        return y + self.w


def _by_state(name: str) -> px.Rule:
    return px.rule(lambda m: m.value * m.read(name), at=torch.ops.aten.relu, once=True)


def test_a_read_of_state_is_of_its_version_at_that_place_or_an_error() -> None:
    written = px.import_ep(torch.export.export(Counted(), (X,)))
    for program in (written, px.transform(written)):
        eager = Counted()
        expected = torch.relu(X) * (eager.w + 1) + 3
        torch.testing.assert_close(px.lower(_by_state("w")(program))(X), expected)
    versions = px.import_ep(torch.export.export(Counted(), (X,)).run_decompositions())
    with pytest.raises(px.errors.RuleError, match="a read of 'w' would return its contents before the call"):
        _by_state("w")(versions)
    other = _by_state("other")(versions)
    torch.testing.assert_close(px.lower(px.transform(other))(X), torch.relu(X) + 3)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.w, self.b)


class Tied(nn.Module):
    """The second weight is the first."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.other = Scaled(), Scaled(), Scaled()
        self.two.w = self.one.w

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.two(self.one(x)))


def _by_norm(weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = weight.detach().norm(dim=1, keepdim=True)
    return scale, weight.detach() / scale


@pytest.mark.parametrize("is_flat", [True, False])
@pytest.mark.parametrize("is_kept", [True, False])
def test_new_state_of_tied_state_is_tied_where_it_is_one_tensor(is_flat: bool, is_kept: bool) -> None:
    model = Tied()
    program = px.import_ep(torch.export.export(copy.deepcopy(model), (X,)))
    program = program if is_flat else px.transform(program)
    made = functools.cache(_by_norm) if is_kept else _by_norm
    apart = px.rule(lambda x, w, b: functional.linear(x, w, b), where=lambda m: m.tensor("w") is not None, once=True)

    @apart.becomes
    def _(m: px.Match, x: Any, w: Any, b: Any) -> Any:
        scale, direction = made(m.tensor(w))
        m.drop(w)
        return functional.linear(x, m.parameter("direction", direction) * m.parameter("scale", scale), b)

    result = apart(program)
    assert not px.verify(result, infer=True)
    assert not any(name.endswith(".w") for name in result.state)
    lowered = px.lower(result)
    torch.testing.assert_close(lowered(X), model(X))
    for name in ("scale", "direction"):
        one, two, other = [getattr(part, name) for part in (lowered.one, lowered.two, lowered.other)]
        assert (one is two) is is_kept
        assert other is not one
    torch.testing.assert_close(px.lower(px.import_ep(px.to_ep(result)))(X), model(X))
