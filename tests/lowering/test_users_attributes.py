"""What users read of a root and of its children: torch's attributes and methods, made when they are read."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.export.graph_signature import InputKind

import purefx as px
from tests.lowering.users import FORMS, KINDS, lowered, mixed
from tests.programs import Counter, Shared, Tower

EACH = pytest.mark.parametrize("to", KINDS)


@EACH
@pytest.mark.parametrize("form", FORMS)
def test_contract_is_the_exported_programs(to: str, form: str) -> None:
    """graph_signature, module_call_graph, range_constraints, equality_constraints: as the exported program has them."""
    _, ep = mixed(form)
    module = lowered(ep, to)
    expected = copy.deepcopy(ep.graph_signature)
    for spec in expected.input_specs:
        if spec.kind is InputKind.CONSTANT_TENSOR:
            spec.persistent = None  # strict export writes True or None there, and means nothing by it
    assert module.graph_signature == expected
    assert [entry.fqn for entry in module.module_call_graph] == [entry.fqn for entry in ep.module_call_graph]
    mine, theirs = module.module_call_graph[0].signature, ep.module_call_graph[0].signature
    assert (mine.in_spec, mine.out_spec, mine.forward_arg_names) == (theirs.in_spec, theirs.out_spec, theirs.forward_arg_names)
    assert module.range_constraints == ep.range_constraints
    assert module.equality_constraints == []
    assert module.graph_signature is module.graph_signature
    assert all(isinstance(node, torch.fx.Node) for node in module.input_placeholders)


@EACH
def test_contract_of_other_arguments(to: str) -> None:
    """Constants, None, numbers, mutated inputs and state: every kind of input and output."""

    class Kinds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("hidden", torch.ones(2), persistent=False)
            self.constant = torch.ones(2)

        def forward(self, x: torch.Tensor, n: int, skip: None, text: str) -> tuple[Any, ...]:
            x.add_(1)
            self.hidden.add_(1)
            return x * n + self.constant, n, None, text, x.shape[0]

    args = (torch.ones(2), 3, None, "t")
    ep = torch.export.export(Kinds(), args).run_decompositions({})
    assert str(lowered(ep, to).graph_signature) == str(ep.graph_signature)
    ep = torch.export.export(Kinds(), args, dynamic_shapes=(None, torch.export.Dim.DYNAMIC, None, None))
    assert str(lowered(ep, to).graph_signature) == str(ep.graph_signature)


@EACH
def test_preserved_signatures_are_entries(to: str) -> None:
    """A call with a preserved signature is an entry of module_call_graph with specs and names."""
    ep = torch.export.export(Tower(2), (torch.ones(2, 4),), preserve_module_call_signature=("layers.1",))
    module = lowered(ep, to)
    mine = {entry.fqn: entry.signature for entry in module.module_call_graph}
    theirs = {entry.fqn: entry.signature for entry in ep.module_call_graph}
    assert list(mine) == list(theirs)
    found, expected = mine["layers.1"], theirs["layers.1"]
    assert found is not None
    assert expected is not None
    assert (found.in_spec, found.out_spec) == (expected.in_spec, expected.out_spec)
    assert len(found.inputs) == len(expected.inputs)
    assert len(found.outputs) == len(expected.outputs)


def test_a_parsed_program_has_a_contract() -> None:
    """Nothing was exported here: state comes first, under its own names."""
    program = px.transform(px.import_ep(torch.export.export(Counter(), (torch.ones(1, 4),))))
    state = {name: slot.value for name, slot in program.state.pairs}
    module: Any = px.lower(px.parse(program.text(), state=state))
    targets = {spec.target for spec in module.graph_signature.input_specs}
    assert targets >= {"linear.weight", "linear.bias", "count"}
    assert module.range_constraints == {}


@EACH
def test_class_names_and_text(to: str, capfd: pytest.CaptureFixture[str]) -> None:
    """type_name of root and children; print_readable gives the text and prints only when asked."""
    module = lowered(torch.export.export(Tower(2), (torch.ones(2, 4),)), to)
    assert module.type_name().endswith("programs.Tower")
    assert module.layers[0].type_name().endswith("programs.Block")
    assert module.layers[0].up.type_name() == "torch.nn.modules.linear.Linear"
    capfd.readouterr()
    for part in (module, module.layers[1]):
        text = part.print_readable(print_output=False)
        assert ("self.layers" if part is module else "self.up") in text
        assert "f32[2, 4]" in text
        assert "def forward" in part.code
    assert capfd.readouterr() == ("", "")
    module.print_readable()
    assert "def forward" in capfd.readouterr().out


@EACH
@pytest.mark.parametrize("form", FORMS)
def test_every_node_of_every_graph_has_a_value(to: str, form: str) -> None:
    """meta["val"] everywhere but on outputs, in the graphs of later calls too."""
    module = lowered(mixed(form)[1], to)
    hidden = [part for _, part in module.purefx_hidden()]
    seen = 0
    for part in (*module.modules(), *hidden):
        if hasattr(part, "purefx_place"):
            part.graph.lint()
            assert [node for node in part.graph.nodes if node.op != "output" and "val" not in node.meta] == []
            seen += 1
    assert seen > 5


@EACH
def test_values_are_those_of_the_module_that_is_looked_at(to: str) -> None:
    """Modules that share a body show their own shapes."""
    module = lowered(torch.export.export(Tower(2), (torch.ones(2, 4),)), to)
    shapes = {
        path: tuple(
            next(reversed([node for node in module.get_submodule(path).graph.nodes if node.op == "call_function"]))
            .meta["val"]
            .shape
        )
        for path in ("layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down")
    }
    assert shapes == {"layers.0.up": (2, 8), "layers.0.down": (2, 4), "layers.1.up": (2, 8), "layers.1.down": (2, 4)}


@EACH
def test_an_edited_graph_takes_effect(to: str) -> None:
    """After finalize() (and at once where torch's does): in that module, seen from its root, and compiled."""
    model, x = Tower(2), torch.randn(2, 4)
    module = lowered(torch.export.export(copy.deepcopy(model), (x,)), to)
    block = module.layers[0]
    for node in block.graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.tanh.default
    if to == "interpreter":
        block.graph.lint()
    else:
        assert torch.equal(module(x), model(x))
        block.finalize()
    hidden = model.layers[0].up(x).tanh()
    expected = model.layers[1](x + model.layers[0].down(hidden))
    assert torch.equal(module(x), expected)
    block.finalize()
    assert torch.equal(module(x), expected)
    assert torch.equal(copy.deepcopy(module)(x), expected)
    assert torch.equal(torch.compile(module, backend="eager", fullgraph=True)(x), expected)
    torch._dynamo.reset()


@EACH
def test_looking_at_graphs_changes_nothing(to: str) -> None:
    """Numbers, state and copies are the same after all graphs were read."""
    torch.manual_seed(0)
    model, x = Shared(), torch.randn(3, 4)
    module = lowered(torch.export.export(copy.deepcopy(model), (x,)), to)
    for part in (*module.modules(), *(part for _, part in module.purefx_hidden())):
        if hasattr(part, "purefx_place"):
            assert part.graph_module is not None
    for each in (module, copy.deepcopy(module)):
        fresh = copy.deepcopy(model)
        for _ in range(3):
            torch.testing.assert_close(each(x), fresh(x), rtol=0, atol=0)


@EACH
def test_children_by_name(to: str) -> None:
    """named_modules, get_submodule, named_parameters: eager's, in eager's order."""
    model = Tower(2)
    module = lowered(torch.export.export(model, (torch.ones(2, 4),)), to)
    assert [name for name, _ in module.named_modules()] == [name for name, _ in model.named_modules()]
    assert [name for name, _ in module.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert module.get_submodule("layers.1.up") is module.layers[1].up
