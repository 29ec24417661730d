"""Sizes that only a run knows: conditions hold where they are proven, nothing is assumed of a program, sizes are computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px

X, Y = torch.randn(4, 4), torch.randn(6, 4)


class Relu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


@cache
def dynamic() -> px.Program:
    """Return a program whose first size is 2 to 64."""
    sizes = ({0: torch.export.Dim("d", min=2, max=64)},)
    return px.import_ep(torch.export.export(Relu(), (X,), dynamic_shapes=sizes))


def assumed(program: px.Program) -> tuple[int, dict[Any, Any]]:
    """Return what was assumed of the sizes of a program."""
    size = program.main.inputs[0].meta["val"].shape[0]
    return (
        (0, {})
        if type(size) is int
        else (len(size.node.shape_env.guards), dict(size.node.shape_env.replacements))
    )


def tanh(where: Callable[[Any], Any]) -> px.Rule:
    """Return a rule with a condition."""
    return px.rule(lambda x: torch.relu(x), where=where).becomes(lambda m, x: torch.tanh(x))


PROVEN: list[Callable[[Any], Any]] = [
    lambda m: m.shape("x")[0] >= 2,
    lambda m: m.shape("x")[0] != 1,
    lambda m: not m.shape("x")[0] == 65,  # noqa: SIM201
    lambda m: m.val("x").dim() == 2 and m.val("x").dtype == torch.float32,
    lambda m: m.val("x").shape[0] * 2 > 3,
    lambda m: m.val("x").numel() == m.shape("x")[0] * 4,
    lambda m: m.val("x").stride() == (4, 1),
    lambda m: m.shape("x")[1] == 4 or m.shape("x")[0] == 5,
    lambda m: m.val("x").is_contiguous(),
    lambda m: bool(m.shape("x")[0]),
    lambda m: isinstance(m.val("x"), torch.Tensor),
]

OPEN: list[Callable[[Any], Any]] = [
    lambda m: m.shape("x")[0] == 4,
    lambda m: not m.shape("x")[0] == 4,  # noqa: SIM201
    lambda m: m.shape("x")[0] != 4,
    lambda m: m.val("x").shape[0] == 4,
    lambda m: m.val("x").size(0) >= 5,
    lambda m: m.val("x").numel() > 16,
    lambda m: m.shape("x") == (4, 4),
    lambda m: m.shape("x")[0] % 2 == 0,
    lambda m: m.shape("x")[0] == 65,
    lambda m: m.shape("x")[0] == 4 or m.shape("x")[0] != 4,
]


@pytest.mark.parametrize(
    ("holds", "condition"), [(True, each) for each in PROVEN] + [(False, each) for each in OPEN]
)
def test_conditions_hold_where_they_are_proven(
    holds: bool, condition: Callable[[Any], Any]
) -> None:
    program = dynamic()
    before = assumed(program)
    assert (tanh(condition)(program) is not program) is holds
    assert assumed(program) == before


WRITTEN: list[Callable[[Any, Any], Any]] = [
    lambda m, x: torch.tanh(x).reshape([2, x.shape[0] * 4 // 2]),
    lambda m, x: x.sum(0).expand(x.shape),
    lambda m, x: torch.tanh(x) / x.shape[0] * x.numel(),
    lambda m, x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    lambda m, x: torch.tanh(x).reshape((*x.shape[:-1], 2, 2)),
    lambda m, x: x + torch.zeros(x.shape) + torch.zeros([x.shape[0], 1]),
    lambda m, x: x * torch.full((x.shape[0], 1), 2.0) + torch.arange(x.shape[0])[:, None],
    lambda m, x: x[: x.shape[0] - 1].sum(0) + x,
    lambda m, x: x.tanh().reshape(x.shape[0] * x.shape[1]).view(x.shape) / x.shape[0] ** 0.5,
    lambda m, x: torch.stack(torch.unbind(x, 1), 1).tanh(),
    lambda m, x: torch.cat([x[..., 2:], -x[..., :2]], -1),
]
ASKED: list[Callable[[Any, Any], Any]] = [
    lambda m, x: (x.sum(0).expand(m.shape("x")) + x.sum(0).expand(m.val(x).shape)) / 2,
    lambda m, x: x.sum(0).expand([m.call(torch.ops.aten.sym_size.int, x, 0), 4]),
]


@pytest.mark.parametrize("replacement", [*WRITTEN, *ASKED])
def test_a_replacement_computes_with_sizes(replacement: Callable[[Any, Any], Any]) -> None:
    for program in (dynamic(), px.import_ep(torch.export.export(Relu(), (X,)))):
        before = assumed(program)
        made = px.rule(lambda x: torch.relu(x)).becomes(replacement)(program)
        assert not px.verify(made, infer=True)
        assert assumed(program) == before
        for x in (X, Y) if program is dynamic() else (X,):
            expected = replacement(None, x) if replacement in WRITTEN else x.sum(0).expand(x.shape)
            torch.testing.assert_close(px.lower(made)(x), expected)


def test_a_replacement_with_sizes_is_exported_again() -> None:
    made = px.rule(lambda x: torch.relu(x)).becomes(WRITTEN[0])(dynamic())
    module = px.to_ep(made).run_decompositions({}).module()
    assert all(torch.equal(module(x), WRITTEN[0](None, x)) for x in (X, Y))


def test_a_replacement_that_branches_on_an_open_size_installs_no_guard() -> None:
    program = dynamic()
    before = assumed(program)
    for replacement in (
        lambda m, x: x.tanh() if m.shape(x)[0] == 4 else x.sin(),
        lambda m, x: torch.stack(x.unbind(0)),
        lambda m, x: torch.cat(x.split(2)),
        lambda m, x: torch.nn.functional.adaptive_avg_pool1d(x, x.shape[0] // 2 * 2),
    ):
        with pytest.raises(px.errors.RuleError, match="known only at run time"):
            px.rule(lambda x: torch.relu(x)).becomes(replacement)(program)
    leaves = px.rule(at=torch.relu)(
        lambda m: m.arguments["self"].tanh() if m.arguments["self"].shape[0] > 8 else None
    )
    assert leaves(program) is program
    assert assumed(program) == before
