"""What a replacement wrote for one match is written again for matches that are alike, where nothing else decides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.transforms.rules.templates import sources_of
from tests.programs import exported

FACTOR = 2.0


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


def test_literals_are_told_apart_to_the_last_bit() -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.add(torch.add(torch.add(x, 0.0), -0.0), True)

    program = px.import_ep(exported(Adds(), torch.ones(2, 3)))
    made = px.rule(lambda x, y: torch.add(x, y)).becomes(lambda m, x, y: torch.sub(x, y))(program)
    assert [repr(node.args[1]) for node in made.main.nodes] == ["0.0", "-0.0", "True"]


def test_one_value_in_two_places_is_not_two_values() -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.add(x, y) * torch.add(x, x) * torch.add(y, x)

    args = torch.full((2,), 2.0), torch.full((2,), 5.0)
    program = px.import_ep(exported(Adds(), *args))
    made = px.rule(lambda x, y: torch.add(x, y)).becomes(lambda m, x, y: torch.sub(x, y, alpha=-1))(program)
    assert torch.equal(px.lower(made)(*args), Adds()(*args))


def plain(m: Any, x: Any) -> Any:
    """Call a function of this module."""
    return halved(torch.relu(x)) * FACTOR


def halved(x: Any) -> Any:
    """Divide by a number of this module."""
    return x / FACTOR


STORE: dict[str, int] = {}


@pytest.mark.parametrize(
    "written",
    [
        lambda m, x: torch.zeros_like(x) if m.dtype("x") == torch.int8 else x,
        lambda m, x: x.relu() if x.dtype == torch.int8 else x,
        lambda m, x: m.parameter("w", torch.ones(2)) * x,
        lambda m, x: m.value * x,
        lambda m, x: print(x),  # noqa: T201
        lambda m, x: STORE.setdefault("x", 1) * x,
        lambda m, x: x * not_there,  # type: ignore[name-defined]  # noqa: F821
        torch.relu,
        px.rule,
    ],
)
def test_what_else_may_decide_is_asked_each_time(written: Any) -> None:
    assert sources_of(written) is None


def test_functions_that_are_called_are_looked_into() -> None:
    found = sources_of(plain)
    assert found is not None
    assert [value for _, value in found] == [plain.__code__, halved, torch, FACTOR, halved.__code__, FACTOR]
