"""Objects among arguments become state: where the slot is, that one object is one slot, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir.operators import op_of
from tests.models import ADD, ADD_, MUL, Tower, exported, flat

X = torch.tensor([1.0, 2.0])


def test_a_rewrite_may_put_a_tensor_into_a_node() -> None:
    """Verify says what to do, and the result runs as eager does, also after the hierarchy is restored."""
    torch.manual_seed(0)
    tower = Tower(2)
    program = px.import_ep(exported(tower, torch.ones(3, 4)))
    relus = [
        node
        for node in program.main.nodes
        if isinstance(node.do, px.Op) and node.do.name == "aten.relu.default"
    ]
    scale = torch.tensor(3.0)
    scaled = {node.name: evolve(node, do=MUL, args=(*node.args, scale)) for node in relus}
    nodes = tuple(scaled.get(node.name, node) for node in program.main.nodes)
    dirty = program.with_main(evolve(program.main, nodes=nodes))
    found = px.verify(dirty)
    assert {violation.rule for violation in found} == {
        "argument-kinds"
    } and "lift_constants" in found[0].advice
    clean = px.lift_constants(dirty)
    assert px.verify(clean) == ()
    assert clean.state.order[-1] == "_constant0" and len(clean.state) == len(program.state) + 1
    assert clean.facts == frozenset({"flat"}) and px.lift_constants(clean) is clean

    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in tower.layers:
                x = x + layer.down(layer.up(x) * scale)
            return x

    x = torch.randn(3, 4)
    for done in (clean, px.transform(px.lift_state(clean))):
        lowered: Any = px.lower(done)
        assert torch.equal(lowered(x), Scaled()(x)) and "_constant0" not in lowered.state_dict()
    assert torch.equal(px.to_ep(clean).module()(x), Scaled()(x))


def test_one_object_is_one_tensor_wherever_it_stands() -> None:
    """A write to it is seen by whoever reads it, in every call; a window on its memory is known as one."""
    total = torch.zeros(2)
    nodes = [
        px.Node("one", ADD_, (total, 1)),
        px.Node("y", ADD, (px.Ref("x"), total)),
        px.Node("z", MUL, (px.Ref("y"), total[:1])),
    ]
    clean = px.lift_constants(flat(nodes, (px.Ref("z"), total), "x"))
    assert [slot.storage for _, slot in clean.state.pairs] == [0, 0] and len(clean.state) == 2
    lowered: Any = px.lower(clean)
    mine = total.clone()
    for _ in range(3):
        mine.add_(1)
        given = lowered(X)
        assert torch.equal(given[0], (X + mine) * mine[:1]) and torch.equal(given[1], mine)
    assert torch.equal(total, torch.zeros(2)), "the program has a copy"


def test_state_that_is_there_already_is_read() -> None:
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)
    state = px.ir.State(("a.w",), px.ir.pmap({"a.w": slot}))
    clean = px.lift_constants(
        flat([px.Node("y", MUL, (px.Ref("x"), slot.value))], px.Ref("y"), "x", state=state)
    )
    assert clean.state is state and clean.main.nodes[0].do == px.Get("a.w")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines,
    reason="torch packs weights for fbgemm only on x86",
)
def test_script_objects() -> None:
    """A script object that two nodes use is one constant, though it is an argument that a program may have."""
    weight = torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, None)
    linear = op_of(torch.ops.quantized.linear_dynamic.default)
    nodes = [px.Node(name, linear, (px.Ref(of), packed)) for name, of in ("yx", "zy")]
    spec = px.ir.UserInput(px.ir.TensorType(torch.float32, (1, 2)), "x")
    clean = px.lift_constants(flat(nodes, px.Ref("z"), "x"))
    assert clean.state.order == ("_constant0",) and clean.state["_constant0"].value is packed
    lowered = px.lower(clean.evolve(signature=px.ir.Signature((spec,), clean.signature.outputs)))
    x = torch.ones(1, 2)
    once = torch.ops.quantized.linear_dynamic(x, packed)
    assert torch.equal(lowered(x)[0], torch.ops.quantized.linear_dynamic(once, packed))
