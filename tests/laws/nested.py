"""``nested_modules``: modules of regions and calls, in which modules are called several times, inside and outside of regions.

``drawn_orders`` draws sequences of transformations, mostly pairs of inverses, in any order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import frozen
from torch import nn

import purefx as px
from purefx.laws.strategies.recipes import PrintedWhole

MODES: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "no_grad": torch.no_grad,
        "enable_grad": torch.enable_grad,
        "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        "autocast off": lambda: torch.autocast("cpu", enabled=False),
    }
)
OPERATORS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {
        "sin": torch.sin,
        "twice": lambda x: x * 2,
        "gram": lambda x: torch.tanh(x @ x.T @ x),
        "rows": lambda x: x + torch.arange(x.shape[0])[:, None],
        "reshape": lambda x: x.reshape(x.shape[0] * 2, 2).cos().reshape(x.shape[0], 4),
    }
)

Items = tuple[Any, ...]
"""Names of operators, numbers of modules to call, and regions."""


@frozen
class Region:
    """Items that run in a mode."""

    mode: str
    items: Items


class Nested(nn.Module):
    """Runs items; a number calls a later module of the pool, which several modules share."""

    def __init__(self, items: Items, pool: Sequence[nn.Module], *, has_weight: bool) -> None:
        super().__init__()
        self.items = items
        self.weight = nn.Parameter(torch.randn(4, 4) / 2) if has_weight else None
        self.children_of_pool = nn.ModuleList(pool)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the items in order."""
        x = x.float() if self.weight is None else x.float() @ self.weight
        return self.run(self.items, x) + x

    def run(self, items: Items, x: torch.Tensor) -> torch.Tensor:
        """Run some items in the current mode."""
        for item in items:
            if isinstance(item, Region):
                with MODES[item.mode]():
                    x = self.run(item.items, x.float()).float()
            elif isinstance(item, str):
                x = OPERATORS[item](x)
            elif len(self.children_of_pool):
                x = self.children_of_pool[item % len(self.children_of_pool)](x)
        return x


@frozen
class Nest(PrintedWhole):
    """The items of a root and of the modules below it: each calls the modules after it."""

    items: tuple[Items, ...]
    weights: int
    """A bit for each module that has a weight."""

    def build(self) -> Nested:
        """Return the module, always with the same numbers."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            pool: list[Nested] = []
            for number, items in reversed(list(enumerate(self.items))):
                pool.insert(0, Nested(items, pool, has_weight=bool(self.weights >> number & 1)))
        return pool[0].eval()


def _items(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Items]:
    return st.lists(inner, min_size=1, max_size=3).map(tuple)


def nested_modules() -> st.SearchStrategy[Nest]:
    """Return a strategy of modules, which shrink by dropping items."""
    item = st.one_of(st.sampled_from(tuple(OPERATORS)), st.integers(0, 1), st.integers(0, 1))
    region = st.builds(Region, st.sampled_from(tuple(MODES)), _items(item))
    deep = st.builds(Region, st.sampled_from(tuple(MODES)), _items(st.one_of(item, region)))
    bodies = st.lists(_items(st.one_of(item, region, deep)), min_size=2, max_size=3)
    return st.builds(
        Nest, bodies.map(lambda drawn: ((0, *drawn[0], 0), *drawn[1:])), st.integers(0, 7)
    )


def _split(program: px.Program) -> px.Program:
    return px.split_balanced(program, 2)


STEPS: Mapping[str, Callable[[px.Program], px.Program]] = MappingProxyType(
    {
        "bodies_to_regions": px.bodies_to_regions,
        "regions_to_bodies": px.regions_to_bodies,
        "transform": px.transform,
        "inline": px.inline,
        "expand": px.expand,
        "deduplicate": px.deduplicate,
        "outline": px.outline,
        "sink_state": px.sink_state,
        "lift_state": px.lift_state,
        "split": _split,
        "join": px.join,
    }
)
"""Transformations that keep what a program computes, with an inverse among them."""

Order = tuple[str, ...]


def orders() -> st.SearchStrategy[Order]:
    """Return a strategy of sequences of steps."""
    return st.lists(st.sampled_from(tuple(STEPS)), min_size=1, max_size=6).map(tuple)


REFUSALS = (px.errors.PipelineError, px.errors.PartitionError)
"""A step that requires facts that the program does not have, or a program that cannot be cut."""


def after(program: px.Program, order: Order) -> tuple[px.Program, Order]:
    """Return the program after the steps that accept it, and these steps."""
    done: list[str] = []
    for name in order:
        try:
            result = STEPS[name](program)
        except REFUSALS:
            continue
        if result is not program:
            done.append(name)
        program = result
    return program, tuple(done)


def wrong_after(nest: Nest, program: px.Program, order: Order) -> str:
    """Return how a program is wrong after some steps; "" if it is right."""
    result, done = after(program, order)
    broken = px.verify(result)
    if broken:
        return f"after {done}: {broken[0]}"
    model, module = nest.build(), px.lower(result)
    for number in range(2):
        x = torch.linspace(-1, 1, 12).reshape(3, 4) + number
        expected, value = copy.deepcopy(model)(x), module(x)
        if not torch.equal(expected, value):
            return f"after {done}: got {value}, expected {expected}"
    return ""
