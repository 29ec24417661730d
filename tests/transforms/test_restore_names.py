"""Inputs are called as the exporter calls them, and state gets the names of the module back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import purefx as px
from purefx.ir.torch_private import pytree
from tests.models import ADD_, NEG, Tower, exported, flat, node


class Tied(nn.Module):
    """Ties a weight, counts in a buffer, has one that is not saved, a window on another, and a plain tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.ones(4), persistent=False)
        self.register_buffer("part", self.mask[:2])
        self.register_buffer("count", torch.zeros(()))
        self.scale = torch.full((4,), 2.0)
        self.unused = nn.Linear(2, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        self.part.mul_(1.5)
        hidden = self.embed(ids) * self.mask * self.scale + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return self.head(hidden) + self.count


IDS = torch.tensor([1, 2, 3])


def assert_equal(program: px.Program, module: nn.Module) -> Any:
    """Raise unless the lowered program does what a copy of the module does, over three calls; return it."""
    assert px.verify(program) == ()
    eager = copy.deepcopy(module)
    lowered: Any = px.lower(program)
    for _ in range(3):
        given = lowered(IDS)
        assert torch.equal(given[0] if isinstance(given, tuple) else given, eager(IDS))
    mine = lowered.state_dict()
    assert all(
        torch.equal(mine[name], value) for name, value in eager.state_dict().items() if name in mine
    )
    return lowered


def test_what_make_fx_forgot() -> None:
    """Names, kinds, ties; what the trace made is a constant, and the state dict is that of the module with its unused state."""
    module = Tied()
    program = px.import_fx(make_fx(module)(IDS))
    assert "_param_constant0" in program.state and "head.weight" not in program.state
    named = px.restore_names(program, module)
    lowered = assert_equal(named, module)
    assert list(lowered.state_dict()) == ["part", "count", "embed.weight", "head.weight"]
    assert (
        lowered.head.weight is lowered.embed.weight
        and lowered.mask.data_ptr() == lowered.part.data_ptr()
    )
    kinds = {name: (slot.kind.value, slot.persistent) for name, slot in named.state.pairs}
    assert (
        kinds["mask"] == ("buffer", False)
        and kinds["scale"] == ("constant", False) == kinds["_tensor_constant4"]
    )
    assert {entry.path for entry in named.modules} >= {"embed", "head"}
    assert px.restore_names(named, module) is named
    full = px.restore_names(program, module, add_unused=True)
    assert list(px.lower(full).state_dict()) == list(module.state_dict())
    px.lower(full).load_state_dict(module.state_dict())
    assert_equal(px.transform(px.lift_state(full)), module)
    assert_equal(px.import_ep(px.to_ep(full)), module)


def test_inputs_that_are_the_modules_tensors() -> None:
    """Dynamo hands parameters over; the lowered module is called without them, and reads stand in their modules."""
    module = Tied()
    caught: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> torch.fx.GraphModule:
        caught.extend((graph, inputs))
        return graph

    torch.compile(module, backend=backend)(IDS)
    graph, inputs = caught
    program = px.import_fx(graph)
    named = px.name_inputs(px.restore_names(program, module, inputs=inputs), ["ids"])
    assert_equal(named, module)
    assert torch.equal(px.lower(named)(ids=IDS)[0], px.lower(named)(IDS)[0])
    assert [formal.name for formal in named.main.inputs] == [
        "ids"
    ] and named.signature.arg_names == ("ids",)
    reads = {
        (node.do.slot, node.stack[-1:]) for node in named.main.nodes if isinstance(node.do, px.Get)
    }
    assert {(f"{path}.weight", (px.Frame(path),)) for path in ("embed", "head")} <= reads
    with pytest.raises(px.errors.NamingError, match=r"takes parameters as inputs .*pass `inputs=`"):
        px.restore_names(program, module)
    with pytest.raises(px.errors.NamingError, match="inputs are 1 values"):
        px.restore_names(program, module, inputs=[IDS])
    with pytest.raises(TypeError, match="in a tuple or a list"):
        px.restore_names(program, module, inputs=IDS)  # type: ignore[arg-type]


def test_a_mapping_says_names_alone() -> None:
    """What ``state_dict`` gives are other objects on the same memory."""
    module = Tied()
    program = px.import_fx(make_fx(module)(IDS))
    named = px.restore_names(program, module.state_dict())
    assert named.state["embed.weight"].kind is px.ir.SlotKind.PARAMETER
    assert named.state.by_cell[named.state["head.weight"].cell] == ("embed.weight", "head.weight")
    assert named.state["count"].persistent and "_tensor_constant2" in named.state
    assert_equal(named, module)


def test_bodies_name_state_relative_to_their_module() -> None:
    """Names are restored in outlined programs too; a shared body cannot read its state under two names."""
    tower = Tower(2)
    program = px.import_ep(exported(tower, torch.ones(3, 4)))
    outlined = px.transform(program, *px.DEFAULT[:-2])
    values = {name: slot.value for name, slot in program.state.pairs}
    moved = px.restore_names(
        outlined, {name.replace("up.", "up.inner."): value for name, value in values.items()}
    )
    assert px.verify(moved) == () and moved.graphs["layers.0.up"].nodes[0].do == px.Get(
        "inner.weight"
    )
    x = torch.randn(3, 4)
    assert torch.equal(px.lower(moved)(x), px.lower(program)(x))
    back = px.restore_names(moved, values)
    assert (back.graphs, back.signature) == (
        outlined.graphs,
        outlined.signature,
    ) and back.state.order == outlined.state.order
    with pytest.raises(px.errors.UnsupportedProgram, match="before deduplicate"):
        px.restore_names(
            px.transform(program),
            {**values, "layers.0.up.weight": x, "w": values["layers.0.up.weight"]},
        )


def test_leaf_modules_and_parts_keep_what_is_theirs() -> None:
    """State inside a module that is held as it is stays there; state of a split program stays in its parts."""
    module = Tied()
    leaves = px.import_fx(torch.fx.symbolic_trace(module))
    assert leaves.state["embed"].kind is px.ir.SlotKind.MODULE
    for add_unused in (False, True):
        named = px.restore_names(leaves, module, add_unused=add_unused)
        assert px.verify(named) == () and "embed.weight" not in named.state
        assert torch.equal(px.lower(named)(IDS), px.lower(leaves)(IDS))
    program = px.transform(px.import_ep(exported(Tower(2), torch.ones(3, 4))))
    split = px.split_by_module(program, {"layers.0": "a", "layers.1": "b"})
    weight = split.state["a.layers.0.up.weight"].value
    with pytest.raises(px.errors.UnsupportedProgram, match="join the parts first"):
        px.restore_names(split, {"up.weight": weight})
    inside = px.restore_names(split, {"a.up.weight": weight})
    assert px.verify(inside) == () and "a.up.weight" in inside.state


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("batch['ids'][0]", "batch_ids_0"),
        ("batch['a-b']['c']", "batch_a_b_c"),
        ("Batch.x", "batch_x"),
        ("é", "_"),
        ("lambda", "lambda_"),
        ("0", "_0"),
        ("", "i0"),
    ],
)
def test_an_input_is_called_after_its_path(path: str, name: str) -> None:
    signature = px.ir.Signature((px.ir.UserInput(px.ir.ObjectType(), path),))
    program = px.Program.of({"": px.Graph((px.Input("i0"),), ())}, signature=signature)
    assert [formal.name for formal in px.name_inputs(program).main.inputs] == [name]


def test_a_mapping_makes_parameters_of_what_it_has_as_parameters() -> None:
    value = nn.Parameter(torch.ones(2))
    slot = px.ir.Slot(px.ir.SlotKind.CONSTANT, value.detach(), 0, 0, False)
    program = px.Program.of(
        {"": px.Graph((), (), ())}, state=px.ir.State(("c",), px.ir.pmap({"c": slot}))
    )
    named = px.restore_names(program, {"w": value}).state["w"]
    assert (named.kind, named.persistent, named.value is value) == (
        px.ir.SlotKind.PARAMETER,
        True,
        True,
    )
    kept = px.restore_names(program, {"w": value.detach()}).state["w"]
    assert (kept.kind, kept.persistent) == (px.ir.SlotKind.CONSTANT, False)


def test_arguments_that_become_state_leave_the_pytree() -> None:
    """By position or by keyword, also where the program knows no names of arguments."""
    weights = {name: torch.ones(2) for name in "wk"}
    for names in ((), ("w", "x", "k", "j")):
        spec = pytree.tree_structure(((0, 0), {"k": 0, "j": 0}))
        program = flat([node("y", NEG, "x")], px.Ref("y"), "w", "x", "k", "j")
        program = program.evolve(signature=evolve(program.signature, in_spec=spec, arg_names=names))
        named = px.restore_names(
            program, weights, inputs=(weights["w"], torch.ones(2), weights["k"], torch.ones(2))
        )
        assert named.signature.in_spec == pytree.tree_structure(((0,), {"j": 0}))
        assert named.signature.arg_names == tuple(name for name in names if name in "xj")
        assert [getattr(one, "slot", None) for one in named.signature.inputs] == [
            "w",
            None,
            "k",
            None,
        ]


def test_a_shared_body_cannot_read_one_slot_under_several_names() -> None:
    names = [f"m{number}" for number in range(5)]
    body = px.Graph((), (px.Node("v", px.Get("w")),), px.Ref("v"))
    nodes = [px.Node(name, px.Call(px.Frame(name), "m"), ()) for name in names]
    values = {f"{name}.w": torch.full((2,), float(number)) for number, name in enumerate(names)}
    program = px.Program.of({"": px.Graph((), tuple(nodes), ()), "m": body}).with_state(add=values)
    with pytest.raises(px.errors.UnsupportedProgram) as found:
        px.restore_names(
            program, {f"k{number}.{number}": value for number, value in enumerate(values.values())}
        )
    assert str(found.value) == (
        "the body 'm' is shared by 'm0', 'm1', 'm2', and its slot 'w' would be renamed to 'k0.0', 'k1.1', 'k2.2'; restore "
        "names before deduplicate, or expand the program first"
    )


@pytest.mark.parametrize("written", [None, "_tensor_constant0", "n"])
def test_constants_that_a_tracer_made_are_constants_unless_something_writes_them(
    written: str | None,
) -> None:
    """The program takes its state as inputs, and one of them may be written in place."""
    module = nn.Module()
    module.register_buffer("n", torch.ones(2))
    slots = {"n": module.n, "_tensor_constant0": torch.zeros(2)}
    nodes = [node("w", ADD_, f"i{list(slots).index(written)}", 1)] if written else []
    program = flat([*nodes, node("y", NEG, "x")], px.Ref("y"), "i0", "i1", "x").with_state(
        add=slots
    )
    specs = (*map(px.ir.StateInput, slots), program.signature.inputs[-1])
    named = px.restore_names(
        program.evolve(signature=evolve(program.signature, inputs=specs)), module
    )
    made = named.state["_tensor_constant0"].kind
    assert made is (
        px.ir.SlotKind.BUFFER if written == "_tensor_constant0" else px.ir.SlotKind.CONSTANT
    )


def test_a_body_that_reads_state_of_the_root_reads_it_there_under_its_name() -> None:
    body = px.Graph((), (px.Node("v", px.Get("/w")),), px.Ref("v"))
    nodes = [px.Node(name, px.Call(px.Frame(name), "m"), ()) for name in ("m", "n")]
    value = torch.ones(2)
    program = px.Program.of({"": px.Graph((), tuple(nodes), ()), "m": body}).with_state(
        add={"w": value}
    )
    assert px.restore_names(program, {"k.v": value}).graphs["m"].nodes[0].do == px.Get("/k.v")
