"""Bodies of operators in exported programs, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir.operators import op_of
from purefx.transforms.regions import with_regions
from tests.programs import NEG, Block, Counter, Tower, flat
from tests.to_ep.support import decomposed, differences, flattened, imported, loaded

# ``nested=True``: what several calls share is one region in the result, and everything else is as without.


class Headed(nn.Module):
    """Blocks, and a layer of another shape whose body is shared with those inside them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 4, bias=True), nn.Linear(4, 11)
        self.layers = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def regions(ep: torch.export.ExportedProgram) -> list[str]:
    """Return the bodies that the regions of an exported program run, in order."""
    return [str(node.args[0]) for node in ep.graph.nodes if "invoke_subgraph" in str(node.target)]


@pytest.mark.parametrize("shapes", [None, ({0: torch.export.Dim.DYNAMIC},)], ids=["static", "dynamic"])
def test_blocks_are_one_body(shapes: Any) -> None:
    torch.manual_seed(0)
    module, x = Headed(), torch.randn(3, 4)
    program = imported(module, x, dynamic_shapes=shapes)
    tree = px.transform(program)
    before, ep = str(tree), px.to_ep(tree, nested=True)
    assert len(set(regions(ep))) == 1
    assert len(regions(ep)) == 3
    assert str(tree) == before
    assert px.alpha_equal(px.import_ep(ep), flattened(with_regions(tree)))
    assert regions(px.to_ep(program, nested=True)) == regions(ep)
    calls = [(torch.randn(3, 4),) for _ in range(2)]
    for made in (ep, loaded(ep) if shapes else decomposed(ep), px.to_ep(px.transform(px.import_ep(ep)))):
        assert len(regions(made)) == 3
        with torch.no_grad():
            assert differences(made, module, calls) == []


class Twice(nn.Module):
    """Calls something several times."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


class View(nn.Module):
    """Gives a view of what it was given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 4)


class Prints(nn.Module):
    """Has an effect whose order can be seen."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._print("called")
        return x + 1


@pytest.mark.parametrize("kind", [Counter, View, Prints], ids=["writes", "gives a view", "prints"])
def test_bodies_that_do_more_are_inlined(kind: type[nn.Module]) -> None:
    module = Twice(kind(), kind())
    program = px.transform(imported(module, torch.randn(3, 4)))
    assert with_regions(program) is program
    assert regions(px.to_ep(program, nested=True)) == []


def test_preserved_signatures_stay_calls_of_their_own() -> None:
    module, x = Tower(2), torch.randn(3, 4)
    program = px.transform(imported(module, x, preserve_module_call_signature=("layers.0", "layers.1")))
    ep = px.to_ep(program, nested=True)
    assert {entry.fqn for entry in ep.module_call_graph if entry.signature} == {"", "layers.0", "layers.1"}
    with torch.no_grad():
        assert differences(ep, module, [(x,)]) == []


# What torch cannot express, or what a caller gets wrong, is told before anything is made; names of a program run nothing.


def plain(x: torch.Tensor) -> torch.Tensor:
    """Do what a user's function does."""
    return x


class Hostile:
    """An object whose text is code."""

    def __repr__(self) -> str:
        return "__import__('os').abort()"

    def __call__(self) -> None:
        """Be callable, so that a program may hold it."""


def test_options() -> None:
    program = imported(Block(), torch.ones(1, 4))
    with pytest.raises(TypeError, match="takes a purefx Program, not an ExportedProgram"):
        px.to_ep(torch.export.export(Block(), (torch.ones(1, 4),)))
    with pytest.raises(ValueError, match='"copy" or "share"'):
        px.to_ep(program, state="none")
    with pytest.raises(ValueError, match='None, "TRAINING" or "ATEN"'):
        px.to_ep(program, dialect="EDGE")


@pytest.mark.parametrize(
    "examples", [(torch.ones(1, 4),), ((), {"x": 1, "z": 2}), [(), {}], ((torch.ones(1), torch.ones(1)), {})]
)
def test_example_inputs_of_another_structure(examples: Any) -> None:
    with pytest.raises(px.errors.InputError, match="example_inputs"):
        px.to_ep(imported(Block(), torch.ones(1, 4)), example_inputs=examples)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (px.Node("y", px.Op("toy.neg"), (px.Ref("x"),)), "toy.neg has no callable behind it"),
        (px.Node("y", op_of(plain), (px.Ref("x"),)), "is not an operator of torch.*custom_op"),
        (px.Node("y", NEG, (Hostile(),)), "an argument of type .*Hostile cannot stand"),
        (px.Node("y", op_of(torch.nn.functional.relu), (px.Ref("x"),)), "torch does not take it.*relu"),
    ],
)
def test_nodes(node: px.Node, said: str) -> None:
    if node.do == op_of(torch.nn.functional.relu):
        node = evolve(node, meta={"val": torch.empty(2, device="meta")})
    with pytest.raises(px.errors.UnsupportedProgram, match=said):
        px.to_ep(flat([node], px.Ref("y"), "x"))


def test_state_that_a_branch_reads() -> None:
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)
    branch = px.Graph((px.Input("a"),), (px.Node("b", px.Get("n")), px.Node("c", NEG, (px.Ref("b"),))), (px.Ref("c"),))
    cond = op_of(torch.ops.higher_order.cond)
    nodes = [px.Node("cond", cond, (True, px.ir.Body("then"), px.ir.Body("then"), (px.Ref("x"),)))]
    program = flat(nodes, px.Ref("cond"), "x", state=px.ir.State(("n",), px.ir.pmap({"n": slot})))
    with pytest.raises(
        px.errors.UnsupportedProgram, match=r"node b reads the state 'n' inside the body of an operator.*as an operand"
    ):
        px.to_ep(program.evolve(graphs=program.graphs.set("then", branch)))


def test_an_output_that_is_a_list() -> None:
    nodes = [px.Node("y", op_of(torch.ops.aten.split.Tensor), (px.Ref("x"), 1))]
    with pytest.raises(px.errors.UnsupportedProgram, match=r"the value 'y' is a list.*operator\.getitem"):
        px.to_ep(flat(nodes, px.Ref("y"), "x"))


def test_a_name_of_state_that_is_code() -> None:
    name = 'a"); __import__("os").abort(); ("'
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)
    program = flat([], px.Ref("x"), "x", state=px.ir.State((name,), px.ir.pmap({name: slot})))
    with pytest.raises(px.errors.UnsupportedProgram, match="has a name that torch would write into code"):
        px.to_ep(program)


@pytest.mark.parametrize("name", ["x=__import__('os').abort()", "a\nimport os", "\u202ex", "def", "self", "torch", "1", "x.y"])
def test_names_of_values_run_nothing(name: str) -> None:
    nodes = [px.Node(name + "_", NEG, (px.Ref(name),)), px.Node("y", NEG, (px.Ref(name + "_"),))]
    program = flat(nodes, px.Ref("y"), name)
    module = px.to_ep(program).module()
    assert module(torch.ones(2))[0].tolist() == [1, 1]
    assert px.alpha_equal(px.import_ep(px.to_ep(program)).evolve(modules=()), _with_specs_of(program))


def _with_specs_of(program: px.Program) -> px.Program:
    return program.evolve(signature=px.import_ep(px.to_ep(program)).signature)


def test_a_held_module_is_exported_by_capture() -> None:
    """What the message advises is a way through: the trace of a model with leaf modules becomes an ExportedProgram."""
    x = torch.ones(1, 4)
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    program = px.import_fx(traced, example_inputs=(x,))
    with pytest.raises(px.errors.UnsupportedProgram, match=r"px\.capture\(px\.lower\(program\), args\)"):
        px.to_ep(program)
    with pytest.raises(px.errors.UnsupportedProgram, match="import_fx does with example_inputs"):
        px.to_ep(px.import_fx(traced))
    ep = px.to_ep(px.capture(px.lower(program), (x,)))
    assert torch.equal(ep.module()(x), traced(x)) and list(ep.state_dict) == list(traced.state_dict())
