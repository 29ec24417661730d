"""Inverse transformations keep programs with regions and repeated calls valid and equal to eager, in any order."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import purefx as px
from purefx.laws.tiers import examples_of, share
from tests.laws.nested import MODES, Nest, Order, Region, nested_modules, orders, wrong_after

X = torch.linspace(-1, 1, 12).reshape(3, 4)
KNOWN: tuple[Order, ...] = (
    ("transform", "bodies_to_regions", "inline"),
    ("bodies_to_regions", "transform", "inline"),
    ("bodies_to_regions", "transform", "regions_to_bodies", "expand", "inline", "lift_state"),
    ("transform", "split", "bodies_to_regions", "join"),
    ("transform", "inline", "bodies_to_regions", "outline"),
)


@settings(
    max_examples=share(10), derandomize=True, database=None, deadline=None,
    suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
)  # fmt: skip
@given(nested_modules(), st.lists(orders(), min_size=2, max_size=4))
def test_any_order(nest: Nest, drawn: list[Order]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", px.errors.FlatCallWarning)
        program = px.capture(nest.build(), (X,))
        for order in (*KNOWN, *drawn):
            assert not wrong_after(nest, program, order)


def test_regions_and_repeated_calls_are_drawn() -> None:
    nests = examples_of(nested_modules(), 60, 0)
    text = "\n".join(map(repr, nests))
    assert all(mode in text for mode in MODES)
    in_regions = [
        item
        for nest in nests
        for items in nest.items
        for region in items
        if isinstance(region, Region)
        for item in region.items
    ]
    assert any(type(item) is int for item in in_regions), "no module is called in a region"
    assert any(isinstance(item, Region) for item in in_regions), "no region is in another"


@pytest.mark.parametrize("order", KNOWN, ids=" ".join)
def test_a_module_in_a_region_that_is_called_twice(order: Order) -> None:
    nest = Nest(((0, 0), (Region("no_grad", (0,)), "sin", Region("no_grad", (0,))), ("twice",)), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", px.errors.FlatCallWarning)
        assert not wrong_after(nest, px.capture(nest.build(), (X,)), order)
