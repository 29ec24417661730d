"""What unflattening leaves alone: the program, the order of its calls, its effects, and defects of the peer."""

from __future__ import annotations

import copy
import gc
import random
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.export.graph_signature import CustomObjArgument, InputKind, InputSpec

import purefx as px
from purefx.laws.purity import changes_in_export, changes_in_process
from tests.programs import Shared, parent
from tests.unflatten.harness import LOWERED, Case, compare, export

# Issue 4, number 10: the exported program is as it was, and nobody else notices.


X = (torch.randn(4, 4),)
WAYS = pytest.mark.parametrize("way", ["plain", "decomposed"])
PRESERVED = pytest.mark.parametrize("preserve", [(), ("items.0",)])


@WAYS
@PRESERVED
def test_the_exported_program_is_unchanged(way: str, preserve: tuple[str, ...]) -> None:
    eager = Shared()
    ep = export(eager, X, way=way, preserve=preserve)
    assert not changes_in_export(ep, lambda: px.unflatten(ep)(*X))
    case = Case(Shared, [X])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)  # torch copies its own specs
        again = copy.deepcopy(ep)
    compare(px.unflatten(again), eager, case)
    compare(px.unflatten(ep), eager, case)


@WAYS
@PRESERVED
def test_the_process_is_unchanged(way: str, preserve: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    ep = export(Shared(), X, way=way, preserve=preserve)
    px.unflatten(ep)  # what is imported on first use
    capfd.readouterr()
    assert not changes_in_process(lambda: px.unflatten(ep)(*X))
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("quick_collection")
@WAYS
@PRESERVED
def test_nothing_is_kept_alive(way: str, preserve: tuple[str, ...]) -> None:
    """The module keeps nothing of the exported program, and the exported program nothing of the module."""
    ep = export(Shared(), X, way=way, preserve=preserve)
    lowered: Any = px.unflatten(ep)
    lowered(*X)
    parts = [weakref.ref(part) for part in (ep, *ep.state_dict.values())]  # torch keeps the graph
    del ep
    gc.collect()
    assert [part() for part in parts] == [None] * len(parts)
    lowered(*X)

    ep = export(Shared(), X, way=way, preserve=preserve)
    lowered = px.unflatten(ep)
    lowered(*X)
    parts = [weakref.ref(part) for part in (lowered, lowered.a, lowered.items.get_submodule("0"), *lowered.parameters())]
    del lowered
    gc.collect()
    assert [part() for part in parts] == [None] * len(parts)


# Issue 4, number 7: any legal order of the exported graph gives the same hierarchy and the same numbers.


BLOCKS = ("blocks.0", "blocks.1")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: Any) -> Any:
        scores = self.q(x) @ self.k(x).transpose(-1, -2)
        return self.out(scores.softmax(-1) @ self.v(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(6)
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x))
        return x + self.down(self.up(x).relu())


class Transformer(parent(blocks=lambda: nn.ModuleList([Block(), Block()]))):
    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def reordered(ep: torch.export.ExportedProgram, seed: int) -> None:
    """Give the graph of an exported program another topological order."""
    choose = random.Random(seed)
    graph = ep.graph
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    waiting = {node: {used for used in node.all_input_nodes if used in set(nodes)} for node in nodes}
    output = next(node for node in graph.nodes if node.op == "output")
    while waiting:
        ready = [node for node, needs in waiting.items() if not needs]
        node = choose.choice(ready)
        del waiting[node]
        output.prepend(node)
        for needs in waiting.values():
            needs.discard(node)
    graph.lint()


@pytest.mark.parametrize("preserve", [(), BLOCKS])
def test_forty_legal_orders(preserve: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    eager = Transformer()
    case = Case(Transformer, [(torch.randn(2, 4, 6),)] * 2, preserve=preserve)
    ep = export(eager, case.calls[0], preserve=preserve)
    hierarchy = [name for name, _ in px.unflatten(ep).named_modules()]
    first = [node.name for node in ep.graph.nodes]
    for seed in range(40):
        reordered(ep, seed)
        assert [node.name for node in ep.graph.nodes] != first
        lowered = px.lower(px.transform(px.import_ep(ep)))
        assert [name for name, _ in lowered.named_modules()] == hierarchy
        compare(lowered, eager, case)
        if preserve and seed < 5:
            for path in preserve:
                lowered.set_submodule(path, Block())
                lowered.get_submodule(path).load_state_dict(eager.get_submodule(path).state_dict())
            compare(lowered, eager, case)


# Issue 4, numbers 3 and 5: script objects among the state, and effects that the exporter orders with tokens.


class Quantized(parent(layer=nn.ReLU)):
    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.usefixtures("unverified")  # script objects have no fake value that operators take
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
        assert type(module.layer.packed) is type(packed)
        assert list(module.state_dict()) == []
        for called in (module, module.layer):
            assert torch.equal(called(given), torch.ops.quantized.linear_dynamic(given, packed))


class Printing(parent(n=lambda: torch.zeros(()))):
    def forward(self, x: Any, word: str) -> Any:
        torch.ops.aten._print(f"before {word}")
        self.n.add_(1)
        y = x * self.n
        torch.ops.aten._print(f"after {word}")
        return y


class Speaking(parent(child=Printing)):
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


# The table of ``docs/unflatten.md`` is what ``bench/defects.py`` finds.
