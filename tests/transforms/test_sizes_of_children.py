"""A child takes what the original took: sizes that another module computed are computed again in it.

One idea: each child of the lowered module is called alone, with what eager hands to its own, and gives the same.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import purefx as px
from purefx.laws.asking import assert_law
from purefx.laws.law import Case
from purefx.laws.specific import SIZES_AT_HOME


class Folds(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] * 2, -1)


class Adds(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, x.shape[1] * x.shape[2]).sin() + x.shape[0]


class Unfolds(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: x.shape[0] // 2] + 1


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.folds, self.adds = Folds(), Adds()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.adds(x) * y.shape[0], self.folds(y.flatten(1))


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.adds, self.inner, self.unfolds, self.last = Adds(), Inner(), Unfolds(), Adds()

    def forward(self, x: torch.Tensor) -> Any:
        total = self.adds(x).sum() + x.shape[0] * x.shape[1]
        left, right = self.inner(x, x + 1)
        return total, left, self.unfolds(right), self.last(x * 2), right.shape[0]


SHAPES = ({0: Dim("n", min=2), 1: Dim("m", min=2)},)


def exported(strict: bool, decomposed: bool) -> torch.export.ExportedProgram:
    ep = torch.export.export(Root(), (torch.randn(4, 6, 3),), dynamic_shapes=SHAPES, strict=strict)
    return ep.run_decompositions({}) if decomposed else ep


@pytest.mark.parametrize(("strict", "decomposed"), [(False, False), (True, True)])
def test_children_take_what_the_originals_took(strict: bool, decomposed: bool) -> None:
    ep = exported(strict, decomposed)
    flat = px.import_ep(ep)
    assert_law(px.insert_ivals, SIZES_AT_HOME, Case(px.transform(flat, *px.DEFAULT[:3])))
    program, eager = px.transform(flat), Root()
    # Without it they take sizes, so the test says something.
    bare = px.transform(flat, *(step for step in px.DEFAULT if step is not px.insert_ivals))
    assert any(len(graph.inputs) > 1 for name, graph in bare.graphs.items() if name == "adds")
    called_alone(px.lower(program), eager)
    called_alone(px.lower(program, to="interpreter"), eager)
    bodies = {name: len(graph.inputs) for name, graph in program.graphs.items()}
    assert bodies == {"": 1, "Adds": 1, "inner": 2, "inner.folds": 1, "unfolds": 1}  # and so equal modules are equal bodies


def called_alone(made: nn.Module, eager: nn.Module) -> None:
    """Call each child of a lowered module with what eager hands to its own."""
    seen: set[str] = set()

    def alone(path: str, original: nn.Module) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], result: Any) -> None:
            seen.add(path)
            assert len(args) == len(inspect.signature(original.forward).parameters)
            for got, wanted in zip(_leaves(made.get_submodule(path)(*args)), _leaves(result), strict=True):
                assert torch.equal(got, wanted)

        return hook

    for rows, columns in ((4, 6), (3, 8)):
        x, model = torch.randn(rows, columns, 3), copy.deepcopy(eager)
        assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(made(x), eager(x), strict=True))
        for path, child in model.named_modules():
            if path:
                child.register_forward_hook(alone(path, child))
        model(x)
    assert seen == {"adds", "inner", "inner.adds", "inner.folds", "unfolds", "last"}


def _leaves(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class Checks(nn.Module):
    """What is asserted is asked of the sizes themselves: equal symbols are equal because of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folds, self.adds = Unfolds(), Adds()

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        count = n.item()
        torch._check(count == x.shape[0])
        return self.adds(x) + torch.ones(count, 1).sum() + self.adds(torch.ones(count, 2, 3)).sum()


def test_assertions_are_asked_of_what_they_were() -> None:
    ep = torch.export.export(Checks(), (torch.randn(4, 2, 3), torch.tensor(4)), dynamic_shapes=({0: Dim.DYNAMIC}, None))
    made, x = px.unflatten(ep), torch.randn(5, 2, 3)
    assert torch.equal(made(x, torch.tensor(5)), Checks()(x, torch.tensor(5)))
    for other in (ep.module(), made):
        with pytest.raises((RuntimeError, AssertionError)):
            other(x, torch.tensor(4))


class Turned(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y = y.clone()
        y.unsqueeze_(0)
        return y.expand(x.shape[0], x.shape[0], x.shape[1]) + x.shape[1]


class Turns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.folds, self.turned = Unfolds(), Turned()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.turned(x, x[0]) + self.folds(x.repeat(2, 1)).sum()


def test_a_tensor_that_is_turned_in_place_tells_no_size() -> None:
    ep = torch.export.export(Turns(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n", min=2), 1: Dim("m", min=2)},))
    made = px.unflatten(ep)
    for shape in ((3, 4), (5, 2)):
        x = torch.randn(shape)
        assert torch.equal(made(x), Turns()(x))
