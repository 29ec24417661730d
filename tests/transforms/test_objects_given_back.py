"""A module that says ``x.to(x.dtype)`` of its argument gives its parent nothing: both still have the one ``x``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.lowering.swaps import Parent, both, program_of, put

X = torch.randn(2, 4)

Run = Callable[[torch.Tensor], Any]

BACK: dict[str, Run] = {
    "to dtype": lambda x: x.to(torch.float32),
    "to device and dtype": lambda x: x.to("cpu", torch.float32),
    "cpu": lambda x: x.cpu(),
    "to a memory format": lambda x: x.to(torch.float32, memory_format=torch.contiguous_format),
    "type_as": lambda x: x.type_as(x),
    "contiguous": lambda x: x.contiguous(),
    "dropout in eval": lambda x: nn.functional.dropout(x, 0.5, False),
    "flatten": lambda x: x.flatten(1),
    "positive": lambda x: +x,
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x)[0],
    "sum_to_size": lambda x: x.sum_to_size(2, 4),
    "to twice": lambda x: x.float().to("cpu").flatten(1),
}
OTHERS: dict[str, Run] = {
    "a conversion": lambda x: x.to(torch.float64),
    "a copy": lambda x: x.to(torch.float32, copy=True),
    "a view": lambda x: x.view(x.shape),
    "detach": lambda x: x.detach(),
    "dropout that draws nothing": lambda x: nn.functional.dropout(x, 0.0, True),
}


class Norm(nn.Module):
    """Does something with its argument first, and then with that."""

    def __init__(self, first: Run, by: float = 2.0) -> None:
        super().__init__()
        self.first, self.by = first, by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) * self.by


def block(norm: nn.Module) -> Any:
    """Return a residual around its norm, twice."""

    def run(p: Any, x: torch.Tensor) -> torch.Tensor:
        h = x.sin()
        h = h + p.norm(h)
        return h - p.norm(h) * h

    return Parent(run, norm=norm)


def replaced(program: px.Program, path: str, by: nn.Module) -> list[nn.Module]:
    """Return what both ways of putting a module in give, lowered both ways."""
    found = list(both(px.swap_modules(program, {path: copy.deepcopy(by)})))
    for module in both(program):
        put(module, path, copy.deepcopy(by))
        found.append(module)
    return found


PLAIN = [(first, "plain") for first in (*BACK, *OTHERS)]
DECOMPOSED = [
    (first, "decomposed")
    for first in ("to dtype", "type_as", "to twice", "sum_to_size", "a conversion")
]


@pytest.mark.parametrize(("first", "way"), PLAIN + DECOMPOSED)
def test_a_norm_before_a_residual_is_swapped(first: str, way: str) -> None:
    run = {**BACK, **OTHERS}[first]
    model, other = block(Norm(run)), Norm(run, 5.0)
    program = program_of(model, ("norm",), way, (X,))
    model.norm = other
    for module in replaced(program, "norm", other):
        for x in (X, X + 1):
            torch.testing.assert_close(module(x), model(x), rtol=0, atol=0)


class Casts(nn.Module):
    """Gives its argument back, as its result."""

    def __init__(self, back: Run) -> None:
        super().__init__()
        self.back = back

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.back(x)


CLEAR: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "once": lambda p, x: x.exp() + p.a(x),
    "once, of a value": lambda p, x: p.a(x.exp()).cos(),
}
UNCLEAR: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "the argument too": lambda p, x: x + p.a(x),
    "twice": lambda p, x: torch.add(*[p.a(x)] * 2),
    "below, and returned": lambda p, x: x + p.inner(x),
}
WAYS = [
    ("to dtype", "plain", "preserved"),
    ("flatten", "plain", "flat"),
    ("type_as", "decomposed", "preserved"),
]


def casting(run: Callable[[Any, torch.Tensor], Any], back: Run) -> Any:
    """Return a model that calls ``a``, or ``inner``, which is a wrapper around it."""
    cast = Casts(back)
    model = Parent(run, a=cast)
    if "inner" in run.__code__.co_names:
        del model.a
        model.inner = Parent(lambda p, x: p.a(x), a=cast)
    return model


@pytest.mark.parametrize(("back", "way", "signature"), WAYS)
@pytest.mark.parametrize("uses", CLEAR)
def test_a_result_that_is_the_argument_and_is_used_once_is_the_result(
    uses: str, back: str, way: str, signature: Any
) -> None:
    model, new = casting(CLEAR[uses], BACK[back]), Casts(torch.neg)
    program = program_of(model, ("a",) if signature == "preserved" else (), way, (X,))
    model.a = new
    assigned = px.lower(program)
    assigned.a = new
    for module in (px.lower(px.swap_modules(program, {"a": new}, signature=signature)), assigned):
        torch.testing.assert_close(module(X), model(X), rtol=0, atol=0)


@pytest.mark.parametrize(("back", "way", "signature"), WAYS)
@pytest.mark.parametrize("uses", UNCLEAR)
def test_a_result_that_is_the_argument_is_not_guessed_at(
    uses: str, back: str, way: str, signature: Any
) -> None:
    """``x + cast(x)`` is twice the same, and with another module it is not."""
    model = casting(UNCLEAR[uses], BACK[back])
    path = "a" if hasattr(model, "a") else "inner.a"
    program = program_of(model, (path,) if signature == "preserved" else (), way, (X,))
    module = px.lower(program)
    with pytest.raises(px.errors.SwapError, match="the object that was passed to it"):
        put(module, path, Casts(torch.neg))
    with pytest.raises(
        px.errors.SwapError, match=r'the object that was passed to it.*through="result"'
    ):
        px.swap_modules(program, {path: Casts(torch.neg)}, signature=signature)
    torch.testing.assert_close(module(X), model(X), rtol=0, atol=0)


def test_who_swaps_may_say_what_later_uses_mean() -> None:
    program = program_of(casting(UNCLEAR["the argument too"], BACK["to dtype"]), ("a",), args=(X,))
    for through, factor in (("result", -2.0), ("argument", 2.0)):
        for by in (Casts(torch.neg), px.capture(Casts(torch.neg), (X,))):
            swapped = px.swap_modules(program, {"a": by}, through=through)  # type: ignore[arg-type]
            torch.testing.assert_close(px.lower(swapped)(X), X * factor, rtol=0, atol=0)


def test_an_argument_that_is_given_back_in_a_body_and_is_used_once_is_the_result() -> None:
    program = program_of(
        Parent(lambda p, x: p.m(x), m=Parent(lambda p, x: p.a(x).exp(), a=nn.Identity())),
        ("m.a",),
        args=(X,),
    )
    assert torch.equal(px.lower(px.swap_modules(program, {"m.a": Casts(torch.neg)}))(X), (-X).exp())
