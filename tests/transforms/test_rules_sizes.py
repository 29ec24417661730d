"""Sizes that only a run knows: conditions hold where they are proven, nothing is assumed of a program, sizes are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px

X, Y = torch.randn(4, 4), torch.randn(6, 4)


class Relu(nn.Module):
    """One operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        return torch.relu(x)


def dynamic() -> px.Program:
    """Return a program whose first size is 2 to 64."""
    sizes = ({0: torch.export.Dim("d", min=2, max=64)},)
    return px.import_ep(torch.export.export(Relu(), (X,), dynamic_shapes=sizes))


def assumed(program: px.Program) -> tuple[int, dict[Any, Any]]:
    """Return what was assumed of the sizes of a program."""
    environment = program.main.inputs[0].meta["val"].shape[0].node.shape_env
    return len(environment.guards), dict(environment.replacements)


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


@pytest.mark.parametrize(("holds", "condition"), [(True, each) for each in PROVEN] + [(False, each) for each in OPEN])
def test_conditions_hold_where_they_are_proven(holds: bool, condition: Callable[[Any], Any]) -> None:
    program = dynamic()
    before = assumed(program)
    made = tanh(condition)(program)
    assert (made is not program) is holds
    assert assumed(program) == before


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (lambda m, x: torch.tanh(x).reshape(x.size(0), 2, 2), lambda x: x.tanh().reshape(x.size(0), 2, 2)),
        (lambda m, x: torch.tanh(x).reshape([x.shape[0], 2, 2]), lambda x: x.tanh().reshape(x.size(0), 2, 2)),
        (lambda m, x: torch.tanh(x).reshape([x.shape[0] * 2, 2]), lambda x: x.tanh().reshape(x.size(0) * 2, 2)),
        (lambda m, x: torch.tanh(x).reshape([2, x.shape[0] * 4 // 2]), lambda x: x.tanh().reshape(2, x.size(0) * 2)),
        (lambda m, x: x.sum(0).expand(x.shape), lambda x: x.sum(0).expand(x.shape)),
        (lambda m, x: x.sum(0).expand(m.shape("x")), lambda x: x.sum(0).expand(x.shape)),
        (lambda m, x: torch.tanh(x).reshape([m.val(x).shape[0], 2, 2]), lambda x: x.tanh().reshape(x.size(0), 2, 2)),
        (lambda m, x: torch.tanh(x) / x.shape[0], lambda x: x.tanh() / x.size(0)),
        (lambda m, x: torch.tanh(x) * x.numel(), lambda x: x.tanh() * x.numel()),
        (lambda m, x: torch.tanh(x).reshape([m.call(torch.ops.aten.sym_size.int, x, 0) * 2, 2]),
         lambda x: x.tanh().reshape(x.size(0) * 2, 2)),
    ],
)  # fmt: skip
def test_replacements_compute_with_sizes(written: Any, expected: Any) -> None:
    program = dynamic()
    before = assumed(program)
    made = px.rule(lambda x: torch.relu(x)).becomes(written)(program)
    assert not px.verify(made, infer=True)
    assert assumed(program) == before
    module = px.lower(made)
    exported = px.to_ep(made).run_decompositions({}).module()
    for x in (X, Y):
        assert torch.equal(module(x), expected(x))
        assert torch.equal(exported(x), expected(x))


def test_a_replacement_that_branches_on_an_open_size_installs_no_guard() -> None:
    program = dynamic()
    before = assumed(program)
    branching = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: x.tanh() if m.shape(x)[0] == 4 else x.sin())
    with pytest.raises(px.errors.RuleError, match="known only at run time"):
        branching(program)
    leaves = px.rule(at=torch.relu)(lambda m: m.arguments["self"].tanh() if m.arguments["self"].shape[0] > 8 else None)
    assert leaves(program) is program
    assert assumed(program) == before


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (lambda m, x: torch.nn.functional.layer_norm(x, x.shape[-1:]), lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:])),
        (lambda m, x: x.tanh().expand(x.shape), lambda x: x.tanh().expand(x.shape)),
        (lambda m, x: torch.tanh(x).reshape((*x.shape[:-1], 2, 2)), lambda x: torch.tanh(x).reshape((*x.shape[:-1], 2, 2))),
        (lambda m, x: x + torch.zeros(x.shape), lambda x: x + torch.zeros(x.shape)),
        (lambda m, x: x + torch.zeros([x.shape[0], 1]), lambda x: x + torch.zeros(x.shape[0], 1)),
        (lambda m, x: x + torch.arange(x.shape[0])[:, None], lambda x: x + torch.arange(x.shape[0])[:, None]),
        (lambda m, x: x * torch.full((x.shape[0], 1), 2.0), lambda x: x * torch.full((x.shape[0], 1), 2.0)),
        (lambda m, x: x[: x.shape[0] - 1].sum(0) + x, lambda x: x[: x.shape[0] - 1].sum(0) + x),
        (lambda m, x: x.tanh().reshape(x.shape[0] * x.shape[1]).view(x.shape), lambda x: x.tanh()),
        (lambda m, x: x.tanh().reshape(x.numel()).view(x.shape), lambda x: x.tanh()),
        (lambda m, x: torch.stack(torch.unbind(x, 1), 1).tanh(), lambda x: x.tanh()),
        (lambda m, x: x * x.shape[-1] ** -0.5, lambda x: x * x.shape[-1] ** -0.5),
        (lambda m, x: x / x.shape[0] ** 0.5, lambda x: x / x.shape[0] ** 0.5),
        (lambda m, x: torch.cat([x[..., 2:], -x[..., :2]], -1), lambda x: torch.cat([x[..., 2:], -x[..., :2]], -1)),
    ],
)
def test_replacements_are_written_as_torch_code_is(written: Any, expected: Any) -> None:
    sizes = ({0: torch.export.Dim("d", min=2, max=64)},)
    for dynamic in (None, sizes):
        program = px.import_ep(torch.export.export(Relu(), (X,), dynamic_shapes=dynamic))
        made = px.rule(lambda x: torch.relu(x)).becomes(written)(program)
        assert not px.verify(made, infer=True)
        for x in (X,) if dynamic is None else (X, Y):
            torch.testing.assert_close(px.lower(made)(x), expected(x))
