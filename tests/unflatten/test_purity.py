"""What unflattening leaves alone: the program and the process."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.export.graph_signature import CustomObjArgument, InputKind, InputSpec

import purefx as px
from purefx.laws.purity import changes_in_process
from tests.models import Shared, changes_in_export, module_class
from tests.unflatten.harness import LOWERED, Case, compare, export

# Issue 4, number 10: the exported program is as it was, and nobody else notices.

X = (torch.randn(4, 4),)
WAYS = pytest.mark.parametrize("way", ["plain", "decomposed"])
PRESERVED = pytest.mark.parametrize("preserve", [(), ("items.0",)])


@WAYS
@PRESERVED
def test_the_exported_program_and_the_process_are_unchanged(
    way: str, preserve: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    eager = Shared()
    ep = export(eager, X, way=way, preserve=preserve)
    px.unflatten(ep)  # what is imported on first use
    capfd.readouterr()
    assert not changes_in_process(lambda: px.unflatten(ep)(*X))
    assert capfd.readouterr() == ("", "")
    assert not changes_in_export(ep, lambda: px.unflatten(ep)(*X))
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*LeafSpec", category=FutureWarning
        )  # torch copies its own specs
        again = copy.deepcopy(ep)
    for each in (again, ep):
        compare(px.unflatten(each), eager, Case(Shared, [X]))


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
    parts = [
        weakref.ref(part)
        for part in (lowered, lowered.a, lowered.items.get_submodule("0"), *lowered.parameters())
    ]
    del lowered
    gc.collect()
    assert [part() for part in parts] == [None] * len(parts)


Quantized = module_class("Quantized", lambda self, x: self.layer(x), layer=nn.ReLU)


@pytest.mark.usefixtures("unverified")  # script objects have no fake value that operators take
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_script_object_is_held_by_the_module_that_uses_it() -> None:
    """No class that comes with torch can be exported, so the graph that uses one is written by hand."""
    packed: Any = torch.ops.quantized.linear_prepack(
        torch.quantize_per_tensor(torch.randn(3, 3), 0.1, 0, torch.qint8), torch.randn(3)
    )
    ep = export(Quantized(), (torch.ones(2, 3),))
    x, relu = (
        next(iter(ep.graph.nodes)),
        next(node for node in ep.graph.nodes if node.op == "call_function"),
    )
    with ep.graph.inserting_before(x):
        held = ep.graph.placeholder("obj_layer_packed")
    held.meta["val"] = spec = CustomObjArgument(
        held.name, "__torch__.torch.classes.quantized.LinearPackedParamsBase"
    )
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
