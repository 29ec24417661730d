"""Passes that drop one keyword or one condition are found by ``check_fx_pass`` where programs are drawn around an example.

The example has the keyword at its default, as users write it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from purefx.laws.fx_passes import Contract, survey_pass

aten: Any = torch.ops.aten

Build = Callable[..., Any]

CLOSE = Contract(rtol=1e-4, atol=1e-4)


def rewriting(target: Any, build: Build) -> Callable[[torch.fx.GraphModule], None]:
    """Return a pass that builds something else of the operands of an operator, whatever its keywords are."""

    def a_pass(module: torch.fx.GraphModule) -> None:
        for node in module.graph.find_nodes(op="call_function", target=target):
            with module.graph.inserting_before(node):
                made = build(module.graph.call_function, *node.args)
            if made is not None:
                node.replace_all_uses_with(made)
                module.graph.erase_node(node)
        module.recompile()

    return a_pass


def is_of(node: Any, target: Any) -> bool:
    return isinstance(node, torch.fx.Node) and node.target == target


def of_softmax(call: Build, x: Any, dim: int, *_: Any) -> Any:
    above = call(
        aten.exp.default, (call(aten.sub.Tensor, (x, call(aten.amax.default, (x, [dim], True)))),)
    )
    return call(aten.div.Tensor, (above, call(aten.sum.dim_IntList, (above, [dim], True))))


X, Y = torch.randn(2, 4), torch.randn(2, 4)

DROPPED: dict[str, tuple[Callable[..., None], Callable[..., Any], tuple[Any, ...]]] = {
    "keepdim": (
        rewriting(
            aten.sum.dim_IntList, lambda call, x, dims, *_: call(aten.sum.dim_IntList, (x, dims))
        ),
        lambda x: x.sum(1),
        (X,),
    ),
    "rounding_mode": (
        rewriting(
            aten.div.Tensor_mode,
            lambda call, a, b: call(aten.div.Tensor_mode, (a, b), {"rounding_mode": "floor"}),
        ),
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        (X, Y),
    ),
    "dtype of softmax": (rewriting(aten.softmax.int, of_softmax), lambda x: x.softmax(-1), (X,)),
    "dims of two transposes": (
        rewriting(
            aten.transpose.int,
            lambda _, x, *__: x.args[0] if is_of(x, aten.transpose.int) else None,
        ),
        lambda x: x.transpose(0, 1).transpose(0, 1) + 1,
        (X,),
    ),
    "which number is multiplied with": (
        rewriting(
            aten.mul.Tensor, lambda _, x, number: None if isinstance(number, torch.fx.Node) else x
        ),
        lambda x: x.sin() * 1.0,
        (X,),
    ),
    "upper limit of clamp": (
        rewriting(aten.clamp.default, lambda call, x, *_: call(aten.relu.default, (x,))),
        lambda x: x.clamp(0),
        (X,),
    ),
}


@pytest.mark.deep
@pytest.mark.parametrize("dropped", DROPPED)
def test_a_dropped_condition_is_found(dropped: str) -> None:
    a_pass, function, args = DROPPED[dropped]
    assert survey_pass(
        a_pass, contract=CLOSE, seed=0, around=[(function, args)], first_only=True, seconds=0
    ).findings
