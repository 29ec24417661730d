"""The table of bodies of higher-order operators agrees with the signatures of the installed torch."""

from __future__ import annotations

import inspect
import re

import pytest

from purefx.ir.operators import BODIES, HIGHER_ORDER
from purefx.ir.torch_private import register_all, resolve_higher_order

WITHOUT = frozenset({
    "_export_tracepoint", "auto_functionalized", "auto_functionalized_v2", "call_torchbind", "out_dtype", "with_effects",
})  # fmt: skip
"""Operators whose own arguments are no bodies; some call another operator."""

UNNAMED = {"map_impl": "*args"}
"""Operators whose signature does not name their bodies."""

CALLED = re.compile(
    r"(^|_)(fn|fns|func|function|graph|gm|gmod|subgraph|callable|mod|branches|mask)$"
)
"""Names that torch gives to parameters which it calls."""


def test_each_operator_has_its_bodies() -> None:
    assert {*BODIES}.isdisjoint(WITHOUT)
    assert {*BODIES} | WITHOUT == HIGHER_ORDER


@pytest.mark.parametrize("name", sorted(HIGHER_ORDER))
def test_the_bodies_are_the_parameters_that_torch_calls(name: str) -> None:
    register_all()
    target = resolve_higher_order(name)
    if target is None:
        pytest.skip(f"this torch has no {name}")
    parameters = [*inspect.signature(type(target).__call__).parameters.values()][1:]
    if name in UNNAMED:
        assert str(parameters[0]) == UNNAMED[name]
        return
    called = {
        (parameter.name, position)
        for position, parameter in enumerate(parameters)
        if CALLED.search(parameter.name)
    }
    assert called == {(body.parameter, body.position) for body in BODIES.get(name, ())}
