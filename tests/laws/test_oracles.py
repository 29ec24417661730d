"""The oracles see what they are for: each kind of difference, made on purpose, is reported and nothing else is.

One idea: start from two equal modules and spoil one of them in one way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.laws import (
    assert_same_as_eager,
    behaviour_differences,
    changes_in_export,
    changes_in_program,
    gradient_differences,
    structure_differences,
    value_differences,
)
from tests.programs import exported


class Model(nn.Module):
    """Has ties, a buffer that is saved and one that is not, changes its argument, and drops out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.spoil: Callable[[Model, torch.Tensor], object] = lambda _model, _x: None

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen += x.sum()
        y = nn.functional.dropout(self.second(self.first(self.norm(x.clone()))))
        x.mul_(2)
        self.spoil(self, x)
        return {"y": y}


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((torch.ones(2, 3),), {}), ((), {"x": torch.full((2, 3), 0.5)})]


def untie(model: Model) -> None:
    model.second.weight = nn.Parameter(model.first.weight.detach().clone())


def share_memory_only(model: Model) -> None:
    model.second.weight = nn.Parameter(model.first.weight.detach())


def save_seen(model: Model) -> None:
    model._non_persistent_buffers_set.clear()


def other_order(model: Model) -> None:
    model._modules["norm"] = model._modules.pop("norm")


STRUCTURE: dict[str, Callable[[Model], object]] = {
    "tied tensors": untie,
    "tied": share_memory_only,
    "persistent": save_seen,
    "the order differs": other_order,
    "requires_grad": lambda model: model.first.bias.requires_grad_(requires_grad=False),
    "modules: invented": lambda model: model.add_module("extra", nn.ReLU()),
    "modules: missing": lambda model: model.__delattr__("first"),
    "tensors: missing": lambda model: model.double(),
}


def test_equal_modules_have_no_differences() -> None:
    model = Model()
    assert_same_as_eager(copy.deepcopy(model), model, CALLS)
    assert float(model.seen) == 0.0, "the oracles run copies"
    assert torch.equal(CALLS[0][0][0], torch.ones(2, 3)), "of the arguments too"


@pytest.mark.parametrize("says", STRUCTURE)
def test_structure(says: str) -> None:
    model = Model()
    spoiled = copy.deepcopy(model)
    STRUCTURE[says](spoiled)
    assert any(says in difference for difference in structure_differences(spoiled, model))
    with pytest.raises(AssertionError, match=says):
        assert_same_as_eager(spoiled, model, CALLS, checks=["structure"])


def add_to_seen(model: Model, x: torch.Tensor) -> None:
    model.seen += torch.ones_like(x[0, 0])


def test_state_that_no_output_shows() -> None:
    model = Model()
    spoiled = copy.deepcopy(model)
    spoiled.spoil = add_to_seen
    assert behaviour_differences(spoiled, model, CALLS) == ["after 2 calls, state seen: values differ by up to 2"]
    assert gradient_differences(spoiled, model, CALLS) == []


def test_arguments_that_are_changed_otherwise() -> None:
    model = Model()
    spoiled = copy.deepcopy(model)
    spoiled.spoil = lambda _model, x: [x.sub_(0.25)]
    assert behaviour_differences(spoiled, model, CALLS)[:2] == [
        "call 0, arguments after it[0][0]: values differ by up to 0.25",
        "call 1, arguments after it[1]['x']: values differ by up to 0.25",
    ]


def test_random_numbers_that_are_drawn_in_another_order() -> None:
    model = Model()
    spoiled = copy.deepcopy(model)
    spoiled.norm.register_forward_hook(lambda *_: [torch.rand(1)][1:] or None)
    assert behaviour_differences(spoiled, model, CALLS)


def test_gradients() -> None:
    model = Model()
    spoiled = copy.deepcopy(model)
    spoiled.first.register_forward_hook(lambda _module, _args, result: result.detach())
    missing = gradient_differences(spoiled, model, CALLS)
    assert "gradient of norm.weight: got None, expected" in missing[-1]


@pytest.mark.parametrize(
    ("given", "expected", "says"),
    [
        (torch.zeros(1), -torch.zeros(1), "up to 0"),
        (torch.ones(1), torch.ones(1, dtype=torch.int64), "expected torch.int64"),
        (torch.ones(1), torch.ones(1, 1), "expected torch.float32 (1, 1)"),
        ((1, 2), [1, 2], "structure"),
        ({"a": 1}, {"b": 1}, "structure"),
        (1, True, "expected True"),
        (None, torch.ones(1), "got"),
        (torch.ones(1) * 1j, torch.ones(1), "complex"),
        (torch.ones(1) * 1j, torch.ones(1) * 2j, "up to 1"),
    ],
)
def test_values_that_differ(given: object, expected: object, says: str) -> None:
    (difference,) = value_differences(given, expected)
    assert says in difference


def test_values_that_do_not_differ() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    assert value_differences([nan, torch.ones(0), "a", None], [nan.clone(), torch.ones(0), "a", None]) == []
    assert value_differences(torch.tensor(1.0), torch.tensor(1.0 + 1e-6), tolerance=1e-5) == []
    assert value_differences(torch.tensor(1.0), torch.tensor(1.1), tolerance=1e-5) == ["value: values differ by up to 0.1"]
    assert value_differences(torch.tensor(1), torch.tensor(2), tolerance=10.0) == ["value: values differ by up to 1"]


def test_changes_of_an_exported_program_are_seen() -> None:
    ep = exported(nn.BatchNorm1d(2).eval(), torch.ones(3, 2))
    node = next(iter(ep.graph.nodes))

    def act() -> None:
        node.meta["note"] = 1
        ep.state_dict["running_mean"].add_(1)
        ep.state_dict["weight"].requires_grad_(requires_grad=False)

    assert changes_in_export(ep, lambda: None) == []
    assert changes_in_export(ep, act) == ["meta changed", "tensor weight changed", "the contents of running_mean changed"]


def test_changes_of_the_state_of_a_program_are_seen() -> None:
    program = px.import_ep(exported(nn.BatchNorm1d(2).eval(), torch.ones(3, 2)))
    assert changes_in_program(program, lambda: px.lower(program, state="copy")(torch.ones(3, 2))) == []
    changed = changes_in_program(program, lambda: program.state["running_mean"].value.add_(1))
    assert changed == ["the contents of running_mean changed"]
