"""Stopped by fuel, ``expand`` leaves no two bodies to calls that are called alike.  Found by the laws of fuel.

Cause: a later piece of a call kept the number of the call, and got a body of its own, while the same piece of an equal call
somewhere else kept the shared one.
"""

from __future__ import annotations

import pytest

import purefx as px
from tests.programs import NEG, flat


def piece(name: str, arg: str, part: int) -> px.Node:
    """Return a call of a piece of the first call of ``c``."""
    return px.Node(name, px.Call(px.Frame("c", 0, part), "c"), (px.Ref(arg),))


def twice() -> px.Program:
    """Return two bodies that both call ``c`` in two pieces, all with one body."""
    inner = px.Graph((px.Input("x"),), (px.Node("y", NEG, (px.Ref("x"),)),), px.Ref("y"))
    first = px.Graph((px.Input("x"),), (piece("p", "x", 0), piece("q", "p", 1)), px.Ref("q"))
    second = px.Graph((px.Input("x"),), (piece("p", "x", 0), px.Node("n", NEG, (px.Ref("p"),)), piece("q", "n", 1)), px.Ref("q"))
    calls = (
        px.Node("a", px.Call(px.Frame("a"), "a"), (px.Ref("x"),)),
        px.Node("b", px.Call(px.Frame("a", 1), "b"), (px.Ref("a"),)),
    )
    program = flat(calls, (px.Ref("b"),), "x")
    return program.evolve(graphs=program.graphs.update({"a": first, "b": second, "c": inner}), facts=frozenset({"outlined"}))


@pytest.mark.parametrize("step", [px.expand, px.inline])
@pytest.mark.parametrize("fuel", range(6))
def test_a_program_after_some_fuel_is_valid(step: px.Transformation, fuel: int) -> None:
    assert px.verify(twice()) == ()
    part = step(twice(), fuel=fuel)
    assert px.verify(part) == ()
    assert px.digest(step(part)) == px.digest(step(twice()))
    assert part == twice() or fuel
