"""Issue 4, numbers 3, 4 and 6: state that is loaded and converted, guards that stay, long chains of reads."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn
from torch.nn.utils import parametrizations

import purefx as px
from tests.models import module_class, parent
from tests.tables import in_turns
from tests.unflatten.harness import Case, Cases, compare, export, exported
from tests.unflatten.test_calls import TwoNames
from tests.unflatten.test_state import CASES as STATE
from tests.unflatten.test_state import (
    BatchNormTwice,
    ListsAndDicts,
    NonPersistentBuffers,
    ParameterInAList,
    TensorsThatAreNoBuffers,
    TiedParameters,
)

CASES = Cases()
X = (torch.randn(4, 3),)
BUILDS: tuple[Callable[[torch.export.ExportedProgram], nn.Module], ...] = (
    px.unflatten,
    lambda ep: px.lower(px.transform(px.import_ep(ep))),
)

ENDS = ("plain", "strict, decomposed, saved")
"""The two ends: as the exporter gives it, and after everything that may happen to it."""

WeightNorm = CASES.add(X, preserve=("l",))(
    module_class(
        "WeightNorm",
        lambda self, x: self.l(x),
        l=lambda: parametrizations.weight_norm(nn.Linear(3, 3)),
    )
)


def ties(module: nn.Module) -> set[frozenset[str]]:
    """Return the names of parameters and buffers, those of one object together."""
    names: dict[int, set[str]] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        names.setdefault(id(tensor), set()).add(name)
    return {frozenset(group) for group in names.values()}


def tensors(module: nn.Module) -> list[torch.Tensor]:
    """Return every tensor of a module: parameters, buffers, and the constants of all its modules."""
    constants = [
        value
        for child in module.modules()
        for value in vars(child).values()
        if isinstance(value, torch.Tensor)
    ]
    return [*module.parameters(), *module.buffers(), *constants]


LOADED = (TiedParameters, NonPersistentBuffers, BatchNormTwice, ListsAndDicts, ParameterInAList)
CHOSEN = [*CASES.all, *[case for case in STATE.all if case.make in LOADED]]


@in_turns(case={case.make.__name__: case for case in CHOSEN}, way=ENDS)
def test_loaded(case: Case, way: str) -> None:
    eager = case.make()
    ep = exported(case, eager, way)
    for build in BUILDS:
        lowered, twin = build(ep), case.make()
        twin.load_state_dict(lowered.state_dict(), strict=True)
        compare(lowered, twin, case)
        compare(build(ep), eager, case)
        lowered, other = build(ep), case.make()
        lowered.load_state_dict(other.state_dict(), strict=True)
        assert ties(lowered) == ties(eager)
        compare(lowered, other, case)


CONVERTED = [*CHOSEN, *[case for case in STATE.all if case.make is TensorsThatAreNoBuffers]]


@in_turns(case={case.make.__name__: case for case in CONVERTED}, way=("plain", "decomposed"))
def test_converted(case: Case, way: str) -> None:
    eager = case.make()
    ep = exported(case, eager, way)
    for build in BUILDS:
        for convert, dtype in ((nn.Module.double, torch.float64), (nn.Module.half, torch.float16)):
            lowered = convert(build(ep))
            stored = [
                *lowered.parameters(),
                *lowered.buffers(),
            ]  # constants keep their type, as in eager
            assert {tensor.dtype for tensor in stored} <= {dtype, torch.int64}
            assert ties(lowered) == ties(eager)
            calls = [tuple(arg.to(dtype) for arg in args) for args in case.calls]
            compare(lowered, convert(copy.deepcopy(eager)), evolve(case, calls=calls))
        lowered = build(ep).to("meta")
        assert {tensor.device.type for tensor in tensors(lowered)} == {"meta"}
        assert ties(lowered) == ties(eager)
        found = lowered(X[0].to("meta"))
        assert found.is_meta
        assert found.shape == (4, 3)


@pytest.mark.parametrize("kind", [TiedParameters, BatchNormTwice])
@pytest.mark.parametrize("way", ["plain", "decomposed"])
def test_on_meta(kind: type[nn.Module], way: str) -> None:
    """A module without memory is exported, and gets its state afterwards."""
    real = kind()
    with torch.device("meta"):
        ep = export(kind(), (X[0].to("meta"),), way=way)
    for build in BUILDS:
        lowered = build(ep)
        assert {tensor.device.type for tensor in tensors(lowered)} == {"meta"}
        assert lowered(X[0].to("meta")).is_meta
        lowered.load_state_dict(copy.deepcopy(real.state_dict()), strict=True, assign=True)
        compare(lowered, real, Case(kind, [X, X]))


PartlyFrozen = module_class(
    "PartlyFrozen", lambda self, x: self.free(self.fixed(x)), free=lambda: nn.Linear(3, 3),
    fixed=lambda: nn.Linear(3, 3).requires_grad_(False),
)  # fmt: skip


TRAINED = (ParameterInAList, PartlyFrozen, TiedParameters, TwoNames, WeightNorm)


@in_turns(kind={kind.__name__: kind for kind in TRAINED}, way=("plain", "decomposed"))
def test_trained(kind: type[nn.Module], way: str) -> None:
    """Each parameter is one parameter for the optimizer, also in copies and after loading."""
    eager, other = kind(), kind()
    ep = export(eager, X, way=way)
    for build in BUILDS:
        file = io.BytesIO()
        torch.save(build(ep), file)
        file.seek(0)
        loaded = build(ep)
        loaded.load_state_dict(other.state_dict())
        pairs = (
            (build(ep), eager),
            (copy.deepcopy(build(ep)), eager),
            (torch.load(file, weights_only=False), eager),
            (loaded, other),
        )
        for lowered, original in pairs:
            expected = copy.deepcopy(original)
            mine, theirs = (
                [(name, one.requires_grad) for name, one in each.named_parameters()]
                for each in (lowered, expected)
            )
            assert mine == theirs
            for module in (lowered, expected):
                optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
                for _ in range(2):
                    optimizer.zero_grad()
                    module(X[0]).square().sum().backward()
                    optimizer.step()
            torch.testing.assert_close(lowered.state_dict(), expected.state_dict(), rtol=0, atol=0)


class Counting(parent(n=lambda: torch.zeros(()))):
    def forward(self, x: Any) -> Any:
        self.n.add_(1)
        return x * 0.5 + self.n


class OneChild(nn.Module):
    """A child that writes and reads its buffer, over and over."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.child = length, Counting()

    def forward(self, x: Any) -> Any:
        for _ in range(self.length):
            x = self.child(x)
        return x + self.child.n


Reading = module_class("Reading", lambda self, x, n: x * 0.5 + n)


class ManyChildren(nn.Module):
    """The parent writes before each child reads."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))
        self.layers = nn.ModuleList([Reading() for _ in range(length)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            self.n.add_(1)
            x = layer(x, self.n)
        return x + self.n


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        pytest.param(OneChild, 512, marks=[pytest.mark.slow, pytest.mark.deep]),
        (OneChild, 128),
        (ManyChildren, 64),
    ],
)
def test_chained(kind: Callable[[int], nn.Module], length: int) -> None:
    """Preserved signatures; ``torch.export.unflatten`` 2.13 ends in a RecursionError at 512."""
    eager = kind(length)
    preserve = tuple(
        name for name, module in eager.named_modules() if isinstance(module, Counting | Reading)
    )
    ep = export(eager, X, preserve=preserve)
    for build in BUILDS:
        compare(build(ep), eager, Case(lambda: eager, [X, X, X]))
