"""Rewrite rules on exported modules: what they match, what they leave alone, and what they say when they are written wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor, nn
from torch.nn import functional

import purefx as px

Function = Callable[..., Any]


def names_of_operators(program: px.Program) -> list[str]:
    return [node.do.name for _, node in program.nodes() if type(node.do) is px.Op]


class Plain(nn.Module):
    """A function as a module, with a buffer and two modules of its own."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.up = nn.Linear(4, 4)
        self.act = nn.ReLU()
        self.register_buffer("seen", torch.ones(3, 4))

    def forward(self, *args: Tensor) -> Any:
        return self.function(self, *args)


def assert_equal(module: nn.Module, eager: nn.Module, args: tuple[Tensor, ...]) -> None:
    eager = copy.deepcopy(eager)
    for _ in range(3):
        mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
        torch.testing.assert_close(module(*mine), eager(*theirs))
        torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(dict(module.state_dict()), dict(eager.state_dict()))


def rewritten(rule: px.RuleSet, function: Function, *args: Tensor) -> list[list[str]]:
    """Return the operators after a rule, on the flat program and on the tree, where it changed something."""
    model = Plain(function)
    flat = px.import_ep(torch.export.export(copy.deepcopy(model), args))
    found: list[list[str]] = []
    for program in (flat, px.transform(flat)):
        result = rule(program)
        assert not px.verify(result, infer=True)
        assert rule(result) is result
        assert_equal(px.lower(px.transform(result)), model, args)
        found.append(names_of_operators(result) if result is not program else [])
    return found


X = torch.arange(12.0).reshape(3, 4) - 5
neg = torch.neg


def of(pattern: Function, replacement: Function, **options: Any) -> px.Rule:
    """Return a rule."""
    return px.rule(**options)(pattern).becomes(replacement)


FUSED = of(
    lambda x, w, b: torch.relu(functional.linear(x, w, b)),
    lambda m, x, w, b: functional.linear(x, w, b).clamp_min(0),
)
CANCELLED = of(lambda x: neg(neg(x)), lambda m, x: x)
GATED = of(lambda x: x * torch.sigmoid(x), lambda m, x: functional.silu(x))
BESIDE = of(lambda x: x * torch.sigmoid(x), lambda m, x: functional.silu(x), keeps_inner=True)
HALVES = of(
    lambda x: (parts := x.chunk(2, -1))[0] * torch.sigmoid(parts[1]),
    lambda m, x: functional.glu(x, -1),
)
ATTENDED = of(
    lambda q, k, v, scale: torch.softmax(q @ k.transpose(-1, -2) / scale, -1) @ v,
    lambda m, q, k, v, scale: functional.scaled_dot_product_attention(q, k, v, scale=1 / scale),
)

MATCHES: list[tuple[str, px.RuleSet, Function, str]] = [
    ("operands", FUSED, lambda m, x: torch.relu(functional.linear(x, m.up.weight, m.up.bias)), "linear clamp_min"),
    ("by name", FUSED, lambda m, x: functional.linear(bias=m.up.bias, weight=m.up.weight, input=x).relu(), "linear clamp_min"),
    ("chain", CANCELLED, lambda m, x: neg(neg(neg(neg(neg(x.exp()))))), "exp neg"),
    ("overlapping", of(lambda x: neg(neg(x)), lambda m, x: torch.abs(x)), lambda m, x: neg(neg(neg(x.exp()))), "exp abs neg"),
    ("commutes", GATED, lambda m, x: torch.sigmoid(x) * x + x * torch.sigmoid(x), "silu silu add"),
    ("inner stays", BESIDE, lambda m, x: (g := torch.sigmoid(x)) * x + g, "sigmoid silu add"),
    ("several results", HALVES, lambda m, x: (h := x.chunk(2, -1))[0] * torch.sigmoid(h[1]), "glu"),
    ("number", ATTENDED, lambda m, x: torch.softmax(x @ x.transpose(-2, -1) / 8.0, -1) @ x, "scaled_dot_product_attention"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "rule", "function", "wanted"), MATCHES, ids=[case[0] for case in MATCHES]
)
def test_matches(name: str, rule: px.RuleSet, function: Function, wanted: str) -> None:
    for names in rewritten(rule, function, X):
        assert [name.split(".")[1] for name in names] == wanted.split()


def test_fuel_stops_and_labels() -> None:
    model = Plain(lambda m, x: torch.sigmoid(x) * x + x * torch.sigmoid(x))
    program = px.import_ep(torch.export.export(model, (X,)))
    fuel = px.Fuel(1)
    once = GATED.transformation.spend(program, fuel)
    assert names_of_operators(once).count("aten.silu.default") == 1
    assert fuel.labels == ("apply <lambda> at mul",)
    assert_equal(px.lower(once), model, (X,))


def test_other_effects_are_refused() -> None:
    dropped = of(lambda x: functional.dropout(x, 0.5), lambda m, x: x.clone())
    program = px.import_ep(
        torch.export.export(Plain(lambda m, x: functional.dropout(x, 0.5).sin()), (X,))
    )
    with pytest.raises(px.errors.RuleError, match="draws random numbers"):
        dropped(program)
    allowed = evolve(dropped, any_effects=True)
    assert names_of_operators(allowed(program)) == ["aten.clone.default", "aten.sin.default"]


def _with_cast(m: Any, x: Tensor) -> Tensor:
    return torch.softmax(x, -1, dtype=torch.float64).to(torch.float32) @ m.up.weight


@pytest.mark.parametrize("keeps_inner", [False, True])
def test_what_torch_asserts_of_an_inner_value_goes_with_it(keeps_inner: bool) -> None:
    wide = lambda x: torch.softmax(x, -1, dtype=torch.float64).to(torch.float32)  # noqa: E731
    cast = of(wide, lambda m, x: torch.softmax(x, -1), keeps_inner=keeps_inner)
    program = px.import_ep(torch.export.export(Plain(_with_cast), (X,)))
    assert "aten._assert_tensor_metadata.default" in names_of_operators(program)
    assert rewritten(cast, _with_cast, X) == [["aten.softmax.int", "aten.matmul.default"]] * 2


def test_what_torch_asserts_of_a_type_is_of_the_new_one() -> None:
    half = of(lambda x: torch.exp(x), lambda m, x: torch.exp(x).to(torch.float16), once=True)
    program = px.import_ep(
        torch.export.export(Plain(lambda _, x: x.exp().double() + (x.exp() * 2).double()), (X,))
    )
    for result in (half(program), half(px.transform(program))):
        assert px.lower(result)(X).dtype is torch.float64 and px.verify(result, infer=True) == ()
        checks = [
            dict(node.kwargs)["dtype"]
            for node in result.main.nodes
            if "_assert_tensor_metadata" in str(node.do)
        ]
        assert checks == [torch.float16] * 2


@pytest.mark.parametrize("is_late", [False, True])
def test_a_result_that_nothing_uses_goes_with_the_match(is_late: bool) -> None:
    first = of(lambda x: torch.relu(x.chunk(2, -1)[0]), lambda m, x: torch.relu(x.narrow(-1, 0, 2)))
    program = px.import_ep(
        torch.export.export(
            Plain(lambda _, x: torch.relu(x.chunk(2, -1)[0]) + 1), (torch.ones(2, 4),)
        )
    )
    nodes = list(program.main.nodes)
    dead = next(node for node in nodes if node.projection is not None and node.projection[1] == 1)
    if is_late:
        nodes.remove(dead)
        nodes.append(dead)
        program = program.with_main(program.main.with_nodes(nodes))
    result = first(program)
    assert [node.name for node in result.main.nodes] == ["narrow", "relu_1", "add"]
    assert px.verify(result, infer=True) == ()
    used = px.Node("more", px.op(torch.ops.aten.neg.default), (px.Ref(dead.name),))
    kept = px.infer(
        program.with_main(
            px.Graph(program.main.inputs, (*nodes, used), (*program.main.output, px.Ref("more")))
        )
    )
    kept = kept.evolve(
        signature=px.ir.Signature(kept.signature.inputs, (px.ir.UserOutput(), px.ir.UserOutput()))
    )
    assert first(kept) is kept, "the other half is used"
