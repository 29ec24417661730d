"""The checkers do not warn about generated programs, which nobody can mend; warnings about the user's own programs stay."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.errors import FlatCallWarning
from purefx.laws import check_fx_pass, check_rule, check_transformation
from purefx.laws.fx_passes import INFERENCE

OWN = [(nn.ReLU(), (torch.linspace(-1, 1, 4),))]


def warns_always(program: px.Program) -> px.Program:
    warnings.warn(FlatCallWarning("about this program"), stacklevel=1)
    return px.outline(program)


def replacement(m: px.Match, x: Any) -> Any:
    warnings.warn(FlatCallWarning("about this match"), stacklevel=1)
    return x.clamp_min(0)


def noisy_pass(module: torch.fx.GraphModule) -> None:
    warnings.warn(FlatCallWarning("about this graph"), stacklevel=1)
    module.graph.eliminate_dead_code()


def noisy_rule() -> px.Rule:
    return px.rule(lambda x: torch.relu(x)).becomes(replacement)


CHECKS: dict[str, Callable[[], object]] = {
    "outline": lambda: check_transformation(px.outline, examples=8),
    "a function that warns": lambda: check_transformation(warns_always, examples=8),
    "a rule that warns": lambda: check_rule(noisy_rule(), examples=2),
    "a pass that warns": lambda: check_fx_pass(noisy_pass, contract=INFERENCE, examples=6),
}


@pytest.mark.parametrize("name", CHECKS)
def test_no_checker_warns_about_generated_programs(name: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        CHECKS[name]()
        assert warnings.filters == before
    assert [str(each.message) for each in seen if "about" in str(each.message)] == []
    assert not [each for each in seen if issubclass(each.category, FlatCallWarning)]


OWN_CHECKS: dict[str, Callable[[], object]] = {
    "a function": lambda: check_transformation(noisy_rule(), examples=0, programs=OWN),
    "a rule": lambda: check_rule(noisy_rule(), examples=0, programs=OWN),
}


@pytest.mark.parametrize("name", OWN_CHECKS)
def test_warnings_about_programs_of_the_user_stay(name: str) -> None:
    with pytest.warns(FlatCallWarning, match="about this match"):
        OWN_CHECKS[name]()
