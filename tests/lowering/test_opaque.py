"""Modules that a program holds as they are: called as eager calls them, with hooks, ties and modes, however they are lowered."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.effects.dependencies import dependencies
from purefx.ir.operators import op_of
from purefx.ir.own_operators import CALL_MODULE
from purefx.ir.verify import verify
from tests.models import parent

KINDS = ("graph_module", "interpreter")


class Counting(parent(lin=lambda: nn.Linear(2, 2), calls=lambda: torch.zeros(1))):
    """Counts its calls, takes a keyword, and has a weight that others may have too."""

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        self.calls.add_(1)
        return self.lin(x) * scale + self.calls


def program(held: nn.Module, weight: torch.Tensor) -> px.Program:
    """Return ``held(x, scale=2.0) * weight + weight`` with the module under two names."""
    nodes = (
        px.Node("w", px.Get("w")),
        px.Node("before", op_of(torch.ops.aten.add.Tensor), (px.Ref("w"), 0)),
        px.Node("m", px.Get("blocks.m")),
        px.Node("y", CALL_MODULE, (px.Ref("m"), px.Ref("x")), (("scale", 2.0),)),
        px.Node("z", op_of(torch.ops.aten.mul.Tensor), (px.Ref("y"), px.Ref("w"))),
        px.Node("out", op_of(torch.ops.aten.add.Tensor), (px.Ref("z"), px.Ref("before"))),
    )
    kind = px.ir.SlotKind.PARAMETER if isinstance(weight, nn.Parameter) else px.ir.SlotKind.BUFFER
    module = px.ir.Slot(px.ir.SlotKind.MODULE, held, 1, 1)
    slots = {"w": px.ir.Slot(kind, weight, 0, 0), "blocks.m": module, "blocks.again": module}
    signature = px.ir.Signature(
        (px.ir.UserInput(px.ir.TensorType(torch.float32, (2, 2)), "x"),), (px.ir.UserOutput(),)
    )
    graph = px.Graph((px.Input("x"),), nodes, (px.Ref("out"),))
    return px.Program.of(
        {"": graph}, state=px.ir.State(tuple(slots), px.ir.pmap(slots)), signature=signature
    )


def tied() -> tuple[Counting, px.Program]:
    held = Counting()
    return held, program(held, held.lin.weight)


def eager(held: Counting, x: torch.Tensor) -> torch.Tensor:
    return held(x, scale=2.0) * held.lin.weight + held.lin.weight


@pytest.mark.parametrize("to", KINDS)
def test_it_is_called_as_eager_calls_it_and_stays_tied(to: Any) -> None:
    held, value = tied()
    assert verify(value) == ()
    lowered: Any = px.lower(value, to=to)
    assert [node.target for node in lowered.graph.nodes if node.op == "call_module"] == ["blocks.m"]
    x, mine = torch.randn(2, 2), copy.deepcopy(held)
    seen: list[str] = []
    lowered.blocks.m.register_forward_hook(lambda *_: seen.append("hook"))
    for _ in range(3):
        torch.testing.assert_close(lowered(x)[0], eager(mine, x), rtol=0, atol=0)
    assert seen == ["hook"] * 3
    assert held.calls.item() == 0, "the program's own module was called"
    assert lowered.blocks.m.lin.weight is lowered.w
    assert lowered.blocks.again is lowered.blocks.m
    assert list(dict(lowered.named_parameters())) == ["w", "blocks.m.lin.bias"]


@pytest.mark.parametrize("to", KINDS)
def test_modes_conversions_copies_and_pickles_reach_it(to: Any) -> None:
    held, value = tied()
    lowered: Any = px.lower(value, to=to)
    x = torch.randn(2, 2)
    lowered.double()
    assert lowered.blocks.m.lin.weight is lowered.w
    assert lowered.w.dtype is torch.float64
    lowered.float().eval()
    assert not lowered.blocks.m.training
    expected = eager(held, x)
    for other in (copy.deepcopy(lowered), pickle.loads(pickle.dumps(lowered))):
        torch.testing.assert_close(other(x)[0], expected, rtol=0, atol=0)
        assert other.blocks.m is not lowered.blocks.m


@pytest.mark.parametrize("state", ["copy", "share"])
def test_it_moves_to_a_device_with_what_it_shares(state: Any) -> None:
    held, value = tied()
    lowered: Any = px.lower(value, device="meta", state=state)
    assert {tensor.device.type for tensor in (*lowered.parameters(), *lowered.buffers())} == {
        "meta"
    }
    assert lowered.blocks.m.lin.weight is lowered.w
    assert held.calls.device.type == "cpu"


def test_views_of_memory_that_it_holds_stay_views() -> None:
    held = Counting()
    lowered: Any = px.lower(program(held, held.calls[:1]), state="copy")
    lowered.w[0] = 7
    assert lowered.blocks.m.calls.item() == 7
    assert held.calls.item() == 0


def test_a_module_that_can_not_be_copied_is_told() -> None:
    class Stubborn(Counting):
        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("no copies")

    held = Stubborn()
    value = program(held, held.lin.weight)
    with pytest.raises(px.errors.UnsupportedProgram, match=r"'blocks\.m' cannot be copied .*share"):
        px.lower(value)
    assert px.lower(value, state="share").get_submodule("blocks.m") is held


def test_nothing_moves_across_the_call() -> None:
    _, value = tied()
    names = [node.name for node in value.main.nodes]
    edges = dependencies(value, value.main)
    call = names.index("y")
    assert names.index("before") in edges[call], "it reads memory that the module may write"
    assert call in edges[names.index("z")]
    other = program(Counting(), nn.Parameter(torch.ones(2, 2)))
    assert names.index("before") not in dependencies(other, other.main)[call]


def test_it_is_text_and_identity() -> None:
    held, value = tied()
    text = str(value)
    assert "purefx.call_module(m, x, scale=2.0)" in text
    assert px.parse(text, state=value.state) == value
    with pytest.raises(px.errors.ParseError, match=r"not a torch\.nn\.Module"):
        px.parse(text, state={"w": held.lin.weight, "blocks.m": 3, "blocks.again": 3})
    same, other = (
        program(copy.deepcopy(held), torch.ones(2, 2)),
        program(nn.Linear(2, 2), torch.ones(2, 2)),
    )
    assert px.digest(same) != px.digest(other)
