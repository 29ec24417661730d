"""Issue 4, numbers 3 and 5: script objects among the state, and effects that the exporter orders with tokens.

One idea: what can be seen outside is compared: who holds the object, and what was printed in which order.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export.graph_signature import CustomObjArgument, InputKind, InputSpec

import purefx as px
from tests.unflatten.harness import LOWERED, export


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ReLU()

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_script_object_is_held_by_the_module_that_uses_it() -> None:
    """No class that comes with torch can be exported, so the graph that uses one is written by hand."""
    packed: Any = torch.ops.quantized.linear_prepack(
        torch.quantize_per_tensor(torch.randn(3, 3), 0.1, 0, torch.qint8), torch.randn(3)
    )
    ep = export(Quantized(), (torch.ones(2, 3),))
    x, relu = next(iter(ep.graph.nodes)), next(node for node in ep.graph.nodes if node.op == "call_function")
    with ep.graph.inserting_before(x):
        held = ep.graph.placeholder("obj_layer_packed")
    held.meta["val"] = spec = CustomObjArgument(held.name, "__torch__.torch.classes.quantized.LinearPackedParamsBase")
    relu.target, relu.args = torch.ops.quantized.linear_dynamic.default, (x, held)
    ep.graph_signature.input_specs.insert(0, InputSpec(InputKind.CUSTOM_OBJ, spec, "layer.packed"))
    ep.constants["layer.packed"] = packed
    given = torch.randn(2, 3)
    for to in LOWERED:
        module: Any = px.lower(px.transform(px.import_ep(ep)), to=to)
        assert module.layer.packed is packed
        assert list(module.state_dict()) == []
        for called in (module, module.layer):
            assert torch.equal(called(given), torch.ops.quantized.linear_dynamic(given, packed))


class Printing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: Any, word: str) -> Any:
        torch.ops.aten._print(f"before {word}")
        self.n.add_(1)
        y = x * self.n
        torch.ops.aten._print(f"after {word}")
        return y


class Speaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = Printing()

    def forward(self, x: Any) -> Any:
        y = self.child(x, "one")
        torch.ops.aten._print("between")
        return self.child(y, "two") + x


@pytest.mark.parametrize("way", ["plain", "decomposed"])
@pytest.mark.parametrize("to", LOWERED)
def test_what_is_printed_keeps_its_order(way: str, to: Any, capfd: pytest.CaptureFixture[str]) -> None:
    eager, x = Speaking(), torch.randn(3)
    ep = export(eager, (x,), way=way)
    if way == "decomposed":
        assert any("with_effects" in str(node.target) for node in ep.graph.nodes), "the exporter wrote tokens"
    module: Any = px.lower(px.transform(px.import_ep(ep)), to=to)
    for number in range(3):
        capfd.readouterr()
        expected = eager(x + number)
        told = capfd.readouterr().out
        assert torch.equal(module(x + number), expected)
        assert capfd.readouterr().out == told
        assert told.split("\n")[:5] == ["before one", "after one", "between", "before two", "after two"]
    assert torch.equal(module.child.n, eager.child.n)
