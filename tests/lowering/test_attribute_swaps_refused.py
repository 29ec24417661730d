"""Assignments on lowered modules that cannot be right: a typed error that says why, and nothing has changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.lowering.swaps import (
    Add,
    Around,
    Counting,
    Dicts,
    Layer,
    Layers,
    Pair,
    Parent,
    Plus,
    Reads,
    Scaled,
    Sub,
    X,
    both,
    program_of,
    put,
    refused,
    same,
)  # fmt: skip
from tests.programs import parent


class Chooses(parent(a=lambda: nn.Linear(4, 4))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.a(x), lambda x: self.a(x - 1), (x,))


class Negated(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  torch's name
        return -super().forward(input)


class Calls(parent(a=Layer)):
    """Calls a child, and a child of that."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a.lin(self.a(x))


def one(child: nn.Module) -> nn.Module:
    return Parent(lambda p, x: p.a(x) + 1, a=child)


def dicts(parent: Any, x: torch.Tensor) -> torch.Tensor:
    return parent.a({"a": x, "b": x + 0.5}, more=[x.exp()])["sum"]


Refused = tuple[Callable[[], nn.Module], tuple[str, ...], tuple[tuple[str, Callable[[], Any], str], ...]]
"""A model, what is preserved, and assignments with what the error says."""

CASES: dict[str, Refused] = {
    "a module that does nothing": (lambda: one(nn.Identity()), (), (("a", Plus, "not called in this program, or its call did"),)),
    "a preserved one that returns its argument": (lambda: one(nn.Identity()), ("a",), (("a", Plus, "would not be asked"),)),
    "a module that is not called": (lambda: Parent(lambda p, x: x + 1, a=Layer()), (), (("a", Plus, "nothing would call"),)),
    "a constant that nobody knows of": (
        lambda: Parent(lambda p, x: p.a(x, 0.5), a=Scaled()), (), (
            ("a", lambda: Scaled(-1.0), "takes scale besides"),
            ("a", lambda: Around(Plus()), r"takes \*args, \*\*kwargs besides"),
        ),
    ),
    "arguments in an order that nobody knows": (
        lambda: Parent(lambda p, x: p.a(x.relu(), x), a=Sub()), (), (("a", Add, r"takes \(x, relu\) and gives 1 value"),)
    ),
    "results in an order that nobody knows": (
        lambda: Parent(lambda p, x: torch.sub(*p.a(x)), a=Pair()), (), (("a", lambda: Pair(2.0), "gives 2 values"),)
    ),
    "several bodies": (
        lambda: Parent(lambda p, x: p.a(p.a(x, 2.0), -1.0), a=Scaled()), (), (("a", Plus, "what its calls run differs"),)
    ),
    "arguments that do not fit": (
        lambda: Parent(dicts, a=Dicts()), ("a",), (
            ("a", Sub, r"passes 1 positional, more=, and Sub.forward\(a: .*does not take that"),
            ("a", lambda: torch.compile(Sub(), backend="eager"), "does not take that"),
            ("a", lambda: nn.ModuleList([Plus()]), "has no forward"),
            ("a", lambda: px.import_ep(torch.export.export(Sub(), (X, X))), "the program takes"),
            ("a", lambda: px.unflatten(torch.export.export(Sub(), (X, X))), "the program takes"),
            ("a", lambda: px.unflatten(torch.export.export(one(Layer()), (X,))).a, "takes or gives something else"),
            ("a", lambda: None, "cannot be None"),
        ),
    ),
    "programs that do not fit": (
        lambda: one(Layer()), (), (
            ("a", lambda: px.import_ep(torch.export.export(Plus(), (X[:, :2],))), "for the size 2, and that is 4 here"),
            ("a", lambda: px.import_ep(torch.export.export(Plus(), (X.double(),))), "torch.float64, and a torch.float32"),
            ("a", lambda: px.import_ep(torch.export.export(Pair(), (X,))), "let it give the same structure"),
        ),
    ),
    "state that others read": (
        Reads, (), (
            ("emb", Plus, "the root reads its weight, and a Plus has no such tensor"),
            ("emb", lambda: nn.Linear(4, 5), r"which has the shape \[4, 4\]"),
        ),
    ),
    "state that others may read under another name": (
        lambda: Reads(tied=True), (), (("emb", lambda: nn.Linear(4, 4), "or the same tensor as"),)
    ),
    "modules that others call": (
        Calls, (), (("a", Plus, "the root calls its lin, and a Plus has no such module"), ("a.lin", Sub, "does not take that"))
    ),
    "lists": (
        lambda: Layers(between=True), (), (
            ("layers", lambda: nn.ModuleList([Plus()]), "has 1"),
            ("layers", lambda: nn.ModuleList([Plus()] * 4), "has 4"),
            ("layers", lambda: nn.ModuleList([Plus()] * 3), "module 'layers.1' is not called"),
            ("layers", lambda: nn.ModuleDict({"0": Plus()}), "has no such module"),
        ),
    ),
    "lists with a module that does not fit": (
        Layers, (), (("layers", lambda: nn.ModuleList([Plus(), Counting(), Sub()][1:]), "does not take that"),)
    ),
    "a branch of an operator": (Chooses, (), (("a", lambda: Negated(4, 4), "stands in the code of the root"),)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_changes_nothing(case: str) -> None:
    make, preserve, assignments = CASES[case]
    model = make()
    program = program_of(model, preserve)
    for module in both(program):
        for path, new, said in assignments:
            refused(module, path, new(), said)
        assert torch.equal(module(X), model(X))


def test_values_that_cross_unnamed() -> None:
    """What only the original's body gives is asked for when a module is assigned, and not when it is called."""
    model = Parent(lambda p, x: p.a(p.a(x)) + p.a.n, a=Counting())
    for module in both(program_of(model, way="decomposed")):
        refused(module, "a", Counting(), "gives 2 values")


def test_a_flat_program() -> None:
    """Its modules hold state and run nothing."""
    model = Layers()
    for module in both(px.import_ep(torch.export.export(model, (X,)))):
        refused(module, "layers.0", Plus(), "stands in the code of the root")
        refused(module, "layers", nn.ModuleList([Layer(), Layer()]), "stands in the code of the root")


def test_a_list_gets_no_more_modules() -> None:
    """Nobody would call them; where nothing is called, a list is a list."""
    for module in both(program_of(Layers())):
        for change in (lambda m: m.append(Plus()), lambda m: m.insert(0, Plus()), lambda m: m.extend([Plus()])):
            with pytest.raises(px.errors.SwapError, match="would never call a new one"):
                change(module.layers)
        assert len(module.layers) == 2
    idle = Parent(lambda p, x: x + 1, a=nn.ModuleList([Layer()]))
    (module, *_) = both(program_of(idle))
    module.a.append(Plus())
    assert len(module.a) == 2
    part = module.a[:1].append(Plus())
    assert len(part) == len(module.a[0:]) == 2


def test_the_advice_helps() -> None:
    """What an assignment refuses, ``swap_modules`` does, with eager's result."""
    model = one(nn.Identity())
    refused(next(both(program_of(model, ("a",)))), "a", Plus(), r"px.swap_modules\(program, \{.a.: module\}\)")
    other = copy.deepcopy(model)
    put(other, "a", Plus())
    for module in both(px.swap_modules(program_of(model, ("a",)), {"a": Plus()})):
        same(module, other)


def test_a_lowered_module_with_several_bodies_called_from_elsewhere() -> None:
    """Only the root tells it which call it is."""
    model = Parent(lambda p, x: p.a(p.a(x, 2.0), -1.0), a=Scaled())
    for module in both(program_of(model, ("a",))):
        refused(module, "a", Around(module.a), "called from elsewhere it runs the first")
