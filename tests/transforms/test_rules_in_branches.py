"""Rules in the branches of ``cond`` and the body of ``while_loop``: what is given has one type, wherever it goes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import purefx as px
from tests.transforms.test_rules import Plain

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def chosen(_: Any, x: Tensor) -> Any:
    return torch.cond(
        x.sum() > 0, lambda x: torch.relu(x.sin()), lambda x: torch.relu(x.cos()), (x,)
    )


def repeated(_: Any, x: Tensor) -> Any:
    return torch.while_loop(
        lambda n, x: n < 3, lambda n, x: (n + 1, torch.relu(x.sin())), (torch.tensor(0), x)
    )[1]


def stages(function: Any) -> list[px.Program]:
    flat = px.import_ep(torch.export.export(Plain(function), (X,)))
    return [flat, px.transform(flat)]


@pytest.mark.parametrize("model", [chosen, repeated])
def test_one_branch_with_another_type_is_refused(model: Any) -> None:
    wider = px.rule(lambda x: torch.relu(x.sin())).becomes(
        lambda m, x: x.sin().double().clamp_min(0)
    )
    kept = px.rule(lambda x: torch.relu(x.sin())).becomes(
        lambda m, x: x.sin().double().clamp_min(0).to(x.dtype)
    )
    for program in stages(model):
        with pytest.raises(
            px.errors.RuleError, match=r"<lambda>: a replacement has another type"
        ) as caught:
            wider(program)
        assert "torch.float64 of shape (3, 4)" in str(caught.value)
        result = kept(program)
        assert result is not program and px.verify(result, infer=True) == ()


def test_another_size_is_refused_and_all_branches_may_change() -> None:
    shorter = px.rule(lambda x: torch.relu(x.sin())).becomes(lambda m, x: x.sin().sum(0))
    everywhere = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: x.double().clamp_min(0))
    for program in stages(chosen):
        with pytest.raises(px.errors.RuleError, match="in all branches"):
            shorter(program)
        result = everywhere(program)
        assert px.verify(result, infer=True) == ()
        assert px.lower(result)(X).dtype is torch.float64 is px.lower(result)(-X + 1).dtype
