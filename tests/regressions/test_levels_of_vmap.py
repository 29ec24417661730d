"""Exporters record batched tensors in a level of ``torch.vmap``; imported programs have the value of one example instead."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import purefx as px
from purefx import rules

X = torch.linspace(-1, 1, 60).reshape(3, 5, 4)


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        w = x[0, 0]
        return torch.vmap(lambda row: (row * w).relu() * 1)(x)


class Nested(nn.Module):
    """Two levels, and a module inside of one."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        def of_row(row: Tensor) -> Tensor:
            items = torch.vmap(lambda item: (item * 2).relu() * 1)(row)
            return items + self.lin(row).relu().sum()

        return torch.vmap(of_row)(x)


class Several(nn.Module):
    """An operator with several results; the mapped dimension is not the first."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = torch.vmap(lambda row: (row * 1).relu().topk(2, -1), in_dims=1)(x)
        return values + 1, places


class Twice(nn.Module):
    """Two calls of a child, whose bodies are shared."""

    def __init__(self) -> None:
        super().__init__()
        self.one = Nested()

    def forward(self, x: Tensor) -> Tensor:
        return self.one(self.one(x))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "one level": Plain,
    "two levels": Nested,
    "several results": Several,
    "a child that is called twice": Twice,
}
OPEN = {"x": {0: torch.export.Dim("s", min=2, max=9)}}


@cache
def programs(name: str) -> tuple[nn.Module, list[px.Program]]:
    """Return a model; its program flat and as bodies, with fixed sizes and an open one, and of a strict export."""
    model = MODELS[name]()
    ways: list[dict[str, Any]] = [{}, {"dynamic_shapes": OPEN}]
    if not list(model.parameters()):  # Dynamo fails on these in a level
        ways.append({"strict": True})
    flat = [px.import_ep(torch.export.export(model, (X,), **options)) for options in ways]
    return model, [*flat, *map(px.transform, flat)]


def relu_is_clamp(m: px.Match, x: Any) -> Any:
    return x.clamp_min(0)


JOBS: dict[str, Callable[[px.Program], px.Program]] = {
    "algebra": rules.algebra,
    "attention": rules.attention,
    "fusions": rules.fusions,
    "a rule": px.rule(lambda x: torch.relu(x)).becomes(relu_is_clamp),
    "a rule with the old value": px.rule(at=torch.ops.aten.relu, once=True)(lambda m: m.value * 1),
    "a replacement of another shape": px.rule(lambda x: torch.relu(x), once=True).becomes(
        lambda m, x: x.unsqueeze(0).flatten().relu().view_as(x)
    ),
    "explain": lambda program: rules.algebra.explain(program).program,
    "infer": px.infer,
    "remove_noops": px.remove_noops,
    "fold_constants": px.fold_constants,
    "eliminate_common_subexpressions": px.eliminate_common_subexpressions,
    "expand": px.expand,
    "inline": px.inline,
    "text": lambda program: px.parse(program.text(), state=program.state),
}


@pytest.mark.parametrize("name", MODELS)
def test_no_imported_value_is_of_a_closed_level(name: str) -> None:
    for program in programs(name)[1]:
        for graph in program.graphs.values():
            for value in tree_leaves([meta.get("val") for meta in graph.metas.values()]):
                assert not isinstance(value, Tensor) or hasattr(value, "fake_mode"), value


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", MODELS)
def test_rules_and_passes_keep_what_a_program_with_vmap_computes(name: str, job: str) -> None:
    model, several = programs(name)
    expected = tree_leaves(copy.deepcopy(model)(X))
    for program in several:
        result = JOBS[job](program)
        assert px.verify(result) == ()
        module = px.lower(result)
        for _ in range(2):
            for value, wanted in zip(tree_leaves(module(X)), expected, strict=True):
                torch.testing.assert_close(value, wanted)


def test_a_rule_in_a_level_compares_the_sizes_of_one_example() -> None:
    program = px.capture(Plain(), (X,))
    for shape, is_changed in (((5, 4), True), ((3, 5, 4), False)):
        rule = px.rule(lambda x: torch.relu(x), where=lambda m, s=shape: m.shape("x") == s)
        assert (rule.becomes(relu_is_clamp)(program) is not program) == is_changed


def test_a_body_under_vmap_and_outside_has_no_common_size() -> None:
    class Wave(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wave = Wave()

        def forward(self, x: Tensor) -> Tensor:
            return torch.vmap(self.wave)(x) + self.wave(x)

    tree = px.transform(px.capture(Both(), (X,)))
    for shape in ((5, 4), (3, 5, 4)):
        rule = px.rule(lambda x: torch.relu(x), where=lambda m, s=shape: m.shape("x") == s)
        assert rule.becomes(lambda m, x: torch.tanh(x))(tree) is tree


def test_an_open_size_in_a_level_is_refused_because_torch_cannot_read_it() -> None:
    rule = px.rule(lambda x: torch.relu(x), once=True)
    rule.becomes(lambda m, x: x.flatten().relu().reshape(x.shape))
    fixed, is_open = programs("several results")[1][:2]
    px.lower(rule(fixed))(X)
    with pytest.raises(px.errors.RuleError, match="an open size in a level"):
        rule(is_open)
