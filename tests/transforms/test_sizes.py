"""Sizes that cross a call are computed again, and children are called with the sizes they need."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import purefx as px
from purefx.laws.asking import assert_law
from purefx.laws.law import Case
from tests.laws.specific import sizes_at_home
from tests.models import parent
from tests.transforms.small import lines, preserved, symbolic, told, tree

# Sizes that cross a call are computed again: where, from what, and which numbers are no sizes.


N, M = symbolic()

SIZE, OTHER = N.shape[0], M.shape[0]

VALUES: Mapping[str, Any] = {
    "x": N,
    "w": M,
    "n": SIZE,
    "k": OTHER,
    "h": SIZE * 2,
    "y": N,
    "i": SIZE + OTHER,
    "o": SIZE,
}


def sized(nodes: str, *more: str) -> px.Program:
    """Return a program of these nodes, with what their values are; the first call of ``c`` is preserved if nothing is said."""
    program = tree('graph @""(x) {\n' + nodes + "\n}", *(more or (preserved("c"),)))
    return told(
        program, {name: {"val": value, "stack_trace": name} for name, value in VALUES.items()}
    )


OUT = """
    t = purefx.takes(x)  in c
    n = aten.sym_size.int(x, 0)  in c
    g = purefx.gives(x)  in c
    z = aten.view.default(x, (n,))  STACK
    u = aten.view.default(z, (n,))  STACK
    return (u,)
"""


@pytest.mark.parametrize("stack", ["", "in d", "in d / .e"])
def test_a_size_that_leaves_is_computed_again_for_each_use(stack: str) -> None:
    """Where it is used, also in modules whose calls are not preserved, once for each; what has no use left goes."""
    program, fuel = sized(OUT.replace("STACK", stack)), px.Fuel(9)
    result = px.insert_ivals.spend(program, fuel)
    inside = f" {stack}".rstrip()
    assert lines(result)[2:] == [
        f"n_1 = aten.sym_size.int(x, 0){inside}",
        f"z = aten.view.default(x, (n_1,)){inside}",
        f"u = aten.view.default(z, (n_1,)){inside}",
        "return (u,)",
    ]
    assert dict(result.main.by_name["n_1"].meta) == {"val": SIZE}
    assert px.insert_ivals(result) is result


STAYS = {
    "no tensor has it": OUT.replace(
        "n = aten.sym_size.int(x, 0)", "k = aten.sym_size.int(x, 0)"
    ).replace("(n,)", "(k,)"),
    "an operator of more than numbers": OUT.replace(
        "n = aten.sym_size.int(x, 0)", "n = aten._local_scalar_dense.default(x)"
    ),
    "it is given a keyword": OUT.replace("(x, 0)", "(x, dim=0)"),
    "it has an effect": OUT.replace("n = aten.sym_size.int(x, 0)", "n = toy.next(3) ! ordered"),
    "it is random": OUT.replace("n = aten.sym_size.int(x, 0)", "n = toy.next(3) ! random"),
    "nothing is known of it": OUT.replace(
        "n = aten.sym_size.int(x, 0)", "n = toy.next(3) ! unknown"
    ),
    "it is a tensor": OUT.replace("n = aten.sym_size.int(x, 0)", "y = aten.neg.default(x)").replace(
        "(n,)", "(y,)"
    ),
}


@pytest.mark.parametrize("why", STAYS)
def test_other_numbers_stay(why: str) -> None:
    program = sized(STAYS[why].replace("STACK", ""))
    assert px.insert_ivals(program) is program


# A child takes what the original took: sizes that another module computed are computed again in it.


class Folds(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] * 2, -1)


class Adds(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, x.shape[1] * x.shape[2]).sin() + x.shape[0]


class Unfolds(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: x.shape[0] // 2] + 1


class Inner(parent(folds=Folds, adds=Adds)):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.adds(x) * y.shape[0], self.folds(y.flatten(1))


class Root(parent(adds=Adds, inner=Inner, unfolds=Unfolds, last=Adds)):
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
    assert_law(px.insert_ivals, sizes_at_home, Case(px.transform(flat, *px.DEFAULT[:3])))
    program, eager = px.transform(flat), Root()
    # Without it they take sizes, so the test says something.
    bare = px.transform(flat, *(step for step in px.DEFAULT if step is not px.insert_ivals))
    assert any(len(graph.inputs) > 1 for name, graph in bare.graphs.items() if name == "adds")
    called_alone(px.lower(program), eager)
    called_alone(px.lower(program, to="interpreter"), eager)
    bodies = {name: len(graph.inputs) for name, graph in program.graphs.items()}
    assert bodies == {
        "": 1,
        "Adds": 1,
        "inner": 2,
        "inner.folds": 1,
        "unfolds": 1,
    }  # and so equal modules are equal bodies


def called_alone(made: nn.Module, eager: nn.Module) -> None:
    """Call each child of a lowered module with what eager hands to its own."""
    seen: set[str] = set()

    def alone(path: str, original: nn.Module) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], result: Any) -> None:
            seen.add(path)
            assert len(args) == len(inspect.signature(original.forward).parameters)
            for got, wanted in zip(
                _leaves(made.get_submodule(path)(*args)), _leaves(result), strict=True
            ):
                assert torch.equal(got, wanted)

        return hook

    for rows, columns in ((4, 6), (3, 8)):
        x, model = torch.randn(rows, columns, 3), copy.deepcopy(eager)
        assert all(
            torch.equal(torch.as_tensor(a), torch.as_tensor(b))
            for a, b in zip(made(x), eager(x), strict=True)
        )
        for path, child in model.named_modules():
            if path:
                child.register_forward_hook(alone(path, child))
        model(x)
    assert seen == {"adds", "inner", "inner.adds", "inner.folds", "unfolds", "last"}


def _leaves(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class Turned(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y = y.clone()
        y.unsqueeze_(0)
        return y.expand(x.shape[0], x.shape[0], x.shape[1]) + x.shape[1]


class Turns(parent(folds=Unfolds, turned=Turned)):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.turned(x, x[0]) + self.folds(x.repeat(2, 1)).sum()


def test_a_tensor_that_is_turned_in_place_tells_no_size() -> None:
    ep = torch.export.export(
        Turns(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n", min=2), 1: Dim("m", min=2)},)
    )
    made = px.unflatten(ep)
    for shape in ((3, 4), (5, 2)):
        x = torch.randn(shape)
        assert torch.equal(made(x), Turns()(x))
