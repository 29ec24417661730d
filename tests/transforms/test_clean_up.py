"""The clean-up passes at their edges: names of inputs, stacks in bodies, and names of state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir.torch_private import pytree
from tests.programs import ADD_, NEG, flat, node

# What inputs are called.


def called(program: px.Program) -> list[str]:
    """Return the names of the inputs."""
    return [formal.name for formal in px.name_inputs(program).main.inputs]


def with_inputs(*specs: Any, names: tuple[str, ...] = (), **fields: Any) -> px.Program:
    """Return a program that does nothing with its inputs, which have these names."""
    names = names or tuple(f"i{number}" for number in range(len(specs)))
    return px.Program.of({"": px.Graph(tuple(map(px.Input, names)), (), ())}, signature=px.ir.Signature(specs, (), **fields))


def some(path: str = "") -> px.ir.UserInput:
    """Return a user input that is called so by the caller."""
    return px.ir.UserInput(px.ir.ObjectType(), path)


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
    assert called(with_inputs(some(path))) == [name]


# Stacks.


def test_stacks_in_bodies_of_bodies_are_below_all_modules_around() -> None:
    region = px.Op("toy.region", px.Effects(through_bodies=True))
    leaf = node("u", NEG, "x", stack=(px.Frame("leaf", 3),))
    inner = px.Node("z", region, (px.ir.Body("$c"), px.Ref("x")), (), (px.Frame("sub", 2),))
    outer = px.Node("y", region, (px.ir.Body("$b"), px.Ref("x")), (), (px.Frame("m", 1),))
    base = flat([outer], px.Ref("y"), "x")
    bodies = {name: px.Graph((px.Input("x"),), (one,), px.Ref(one.name)) for name, one in (("$b", inner), ("$c", leaf))}
    program = base.evolve(graphs=base.graphs.update(bodies), modules=(px.ir.Module(""),))
    result = px.normalize_stacks(program)
    assert [result.graphs[name].nodes[0].stack for name in ("", "$b", "$c")] == [
        (px.Frame("m"),),
        (px.Frame("sub"),),
        (px.Frame("leaf"),),
    ]
    assert [module.path for module in result.modules] == ["", "m", "m.sub", "m.sub.leaf"]


# Names of state.


def test_a_mapping_makes_parameters_of_what_it_has_as_parameters() -> None:
    value = nn.Parameter(torch.ones(2))
    slot = px.ir.Slot(px.ir.SlotKind.CONSTANT, value.detach(), 0, 0, False)
    program = px.Program.of({"": px.Graph((), (), ())}, state=px.ir.State(("c",), px.ir.pmap({"c": slot})))
    named = px.restore_names(program, {"w": value}).state["w"]
    assert (named.kind, named.persistent, named.value is value) == (px.ir.SlotKind.PARAMETER, True, True)
    kept = px.restore_names(program, {"w": value.detach()}).state["w"]
    assert (kept.kind, kept.persistent) == (px.ir.SlotKind.CONSTANT, False)


def test_arguments_that_become_state_leave_the_pytree() -> None:
    """By position or by keyword, also where the program knows no names of arguments."""
    weights = {name: torch.ones(2) for name in "wk"}
    for names in ((), ("w", "x", "k", "j")):
        spec = pytree.tree_structure(((0, 0), {"k": 0, "j": 0}))
        program = flat([node("y", NEG, "x")], px.Ref("y"), "w", "x", "k", "j")
        program = program.evolve(signature=evolve(program.signature, in_spec=spec, arg_names=names))
        named = px.restore_names(program, weights, inputs=(weights["w"], torch.ones(2), weights["k"], torch.ones(2)))
        assert named.signature.in_spec == pytree.tree_structure(((0,), {"j": 0}))
        assert named.signature.arg_names == tuple(name for name in names if name in "xj")
        assert [getattr(one, "slot", None) for one in named.signature.inputs] == ["w", None, "k", None]


def test_a_shared_body_cannot_read_one_slot_under_several_names() -> None:
    names = [f"m{number}" for number in range(5)]
    body = px.Graph((), (px.Node("v", px.Get("w")),), px.Ref("v"))
    nodes = [px.Node(name, px.Call(px.Frame(name), "m"), ()) for name in names]
    values = {f"{name}.w": torch.full((2,), float(number)) for number, name in enumerate(names)}
    program = px.Program.of({"": px.Graph((), tuple(nodes), ()), "m": body}).with_state(add=values)
    with pytest.raises(px.errors.UnsupportedProgram) as found:
        px.restore_names(program, {f"k{number}.{number}": value for number, value in enumerate(values.values())})
    assert str(found.value) == (
        "the body 'm' is shared by 'm0', 'm1', 'm2', and its slot 'w' would be renamed to 'k0.0', 'k1.1', 'k2.2'; restore "
        "names before deduplicate, or expand the program first"
    )


@pytest.mark.parametrize("written", [None, "_tensor_constant0", "n"])
def test_constants_that_a_tracer_made_are_constants_unless_something_writes_them(written: str | None) -> None:
    """The program takes its state as inputs, and one of them may be written in place."""
    module = nn.Module()
    module.register_buffer("n", torch.ones(2))
    slots = {"n": module.n, "_tensor_constant0": torch.zeros(2)}
    nodes = [node("w", ADD_, f"i{list(slots).index(written)}", 1)] if written else []
    program = flat([*nodes, node("y", NEG, "x")], px.Ref("y"), "i0", "i1", "x").with_state(add=slots)
    specs = (*map(px.ir.StateInput, slots), program.signature.inputs[-1])
    named = px.restore_names(program.evolve(signature=evolve(program.signature, inputs=specs)), module)
    made = named.state["_tensor_constant0"].kind
    assert made is (px.ir.SlotKind.BUFFER if written == "_tensor_constant0" else px.ir.SlotKind.CONSTANT)


def test_a_body_that_reads_state_of_the_root_reads_it_there_under_its_name() -> None:
    body = px.Graph((), (px.Node("v", px.Get("/w")),), px.Ref("v"))
    nodes = [px.Node(name, px.Call(px.Frame(name), "m"), ()) for name in ("m", "n")]
    value = torch.ones(2)
    program = px.Program.of({"": px.Graph((), tuple(nodes), ()), "m": body}).with_state(add={"w": value})
    assert px.restore_names(program, {"k.v": value}).graphs["m"].nodes[0].do == px.Get("/k.v")
