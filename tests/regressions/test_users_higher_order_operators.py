"""A user's own higher-order operator was taken to do no more than its bodies and the operators of other libraries do.

It has no schema: it may write to its operands, draw and print, so one that wrote what another node reads was moved past it.
It may do anything, like a function in no registry, unless it is declared.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._ops import HigherOrderOperator

import purefx as px
from purefx.ir.effects.dependencies import dependencies
from purefx.ir.effects.registered import effects_of


class Applied(HigherOrderOperator):
    """Runs a body, and adds random numbers to its operand before that."""

    def __init__(self) -> None:
        super().__init__("purefx_applied")

    def __call__(self, body: Any, x: torch.Tensor) -> Any:
        return super().__call__(body, x)


applied = Applied()


@applied.py_impl(torch._C.DispatchKey.CompositeExplicitAutograd)
@applied.py_impl(torch._C.DispatchKey.Autograd)
def _(body: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        x.add_(torch.rand_like(x))
    return body(x)


def traced() -> torch.fx.GraphModule:
    """Return a graph of one that writes its operand and draws; others read that and draw as well."""
    body = torch.fx.Graph()
    body.output((body.call_function(torch.ops.aten.neg.default, (body.placeholder("p"),)),))
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    early = graph.call_function(torch.ops.aten.neg.default, (x,))
    made = graph.call_function(applied, (graph.get_attr("body"), x))
    late = graph.call_function(torch.ops.aten.mul.Tensor, (x, 3))
    drawn = graph.call_function(torch.ops.aten.rand_like.default, (early,))
    graph.output((early, made, late, drawn))
    return torch.fx.GraphModule({"body": torch.fx.GraphModule({}, body)}, graph)


def test_what_it_does_is_not_known() -> None:
    """It stays behind what reads its operand, and before what reads it later and what draws."""
    program = px.import_fx(traced())
    assert dependencies(program, program.main)[1:] == [[0], [1], [0, 1]]
    for first, late in (("neg", "applied"), ("applied", "mul"), ("applied", "rand")):
        names = {
            word: next(node.name for node in program.main.nodes if word in node.name)
            for word in (first, late)
        }
        with pytest.raises(px.errors.PartitionError, match="depends on"):
            px.split_by_tags(
                px.transform(program), ("a", "b"), tag_of={names[first]: "b", names[late]: "a"}
            )
    expected, lowered = traced(), px.lower(px.transform(program))
    for module in (expected, lowered):
        torch.manual_seed(0)
        module.last = module(torch.tensor([[0.5, -1.0, 2.0]]))  # type: ignore[assignment]
    torch.testing.assert_close(lowered.last, expected.last)


def test_it_is_declared() -> None:
    """For one import or for the process; it does what its bodies do all the same.  Those of torch are known."""
    program = px.import_fx(traced(), effects={applied: px.PURE})
    assert dependencies(program, program.main)[1:] == [[], [], [0]]
    effects = next(
        node.do.effects
        for node in program.main.nodes
        if "applied" in node.name and isinstance(node.do, px.Op)
    )
    assert effects == px.Effects(through_bodies=True)
    assert effects_of(applied) == px.ir.ANYTHING.__class__(
        random=True, ordered=True, unknown=True, through_bodies=True
    )
    px.declare(applied, px.Effects(writes=(px.ir.ArgAt(1, "x"),), random=True))
    try:
        program = px.import_fx(traced())
        assert dependencies(program, program.main)[1:] == [[0], [1], [0, 1]]
        assert px.verify(px.transform(program)) == ()
    finally:
        px.declare(applied, None)
    with pytest.raises(px.errors.EffectsError, match="higher-order operator of torch"):
        px.declare(torch.ops.higher_order.cond, px.PURE)
