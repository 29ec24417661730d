"""What a replacement wrote for one match is written again for matches that are alike, where nothing else decides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import purefx as px
from purefx.transforms.rules.templates import sources_of
from tests.programs import exported


class Chain(nn.Module):
    """Three activations of one type, and one of another."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Apply them."""
        return x.sin().sin().sin(), x.double().sin()


def rewritten(replacement: Callable[..., Any]) -> list[str]:
    program = px.import_ep(exported(Chain(), torch.ones(2, 3)))
    made = px.rule(lambda x: torch.sin(x)).becomes(replacement)(program)
    assert not px.verify(made, infer=True)
    return [node.do.name.split(".")[1] for _, node in made.nodes() if isinstance(node.do, px.Op)]


def test_operands_of_another_type_are_another_kind() -> None:
    assert sources_of(lambda m, x: torch.cos(x) * 2) is not None
    assert rewritten(lambda m, x: torch.cos(x) * 2) == ["cos", "mul"] * 3 + ["_assert_tensor_metadata", "to", "cos", "mul"]


def test_whoever_sees_the_calls_gets_one_for_each_match() -> None:
    seen: list[int] = []

    def counting(m: Any, x: Any) -> Any:
        seen.append(1)
        return torch.cos(x) * len(seen)

    program = px.import_ep(exported(Chain(), torch.ones(2, 3)))
    made = px.rule(lambda x: torch.sin(x)).becomes(counting)(program)
    factors = [node.args[1] for node in made.main.nodes if isinstance(node.do, px.Op) and node.do.name == "aten.mul.Tensor"]
    assert factors == [1, 2, 3, 4]


def test_a_name_that_changes_between_two_matches_is_looked_up_again() -> None:
    factor = 1.0

    def raises(m: Any) -> bool:
        nonlocal factor
        factor += 1
        return True

    program = px.import_ep(exported(Chain(), torch.ones(2, 3)))
    rule = px.rule(lambda x: torch.sin(x), where=raises).becomes(lambda m, x: torch.cos(x) * factor)
    made = rule(program)
    factors = [node.args[1] for node in made.main.nodes if isinstance(node.do, px.Op) and node.do.name == "aten.mul.Tensor"]
    assert factors == [2.0, 3.0, 4.0, 5.0]


def test_one_value_in_two_places_is_not_two_values() -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.add(x, y) * torch.add(x, x) * torch.add(y, x)

    args = torch.full((2,), 2.0), torch.full((2,), 5.0)
    program = px.import_ep(exported(Adds(), *args))
    made = px.rule(lambda x, y: torch.add(x, y)).becomes(lambda m, x, y: torch.sub(x, y, alpha=-1))(program)
    assert torch.equal(px.lower(made)(*args), Adds()(*args))
