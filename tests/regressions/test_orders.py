"""Orders of buffers, inputs, copies and writes that were once lost."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir.operators import op_of
from purefx.laws import structure_differences, toy
from purefx.laws.law import Case
from purefx.lowering.calls.root import LoweredRoot
from purefx.transforms.mutations import COPY
from tests.laws.pairs import PAIRS, copies_nothing, copies_stand_first
from tests.programs import exported, parent

# A buffer that is not saved kept its place behind all saved ones, so the order of ``named_buffers`` was not eager's.


class Buffers(nn.Module):
    """Has a buffer that is not saved, before one that is, in itself and in a child."""

    def __init__(self, *, child: bool = True) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros(2), persistent=False)
        self.register_buffer("second", torch.ones(2))
        self.register_buffer("third", torch.zeros(2), persistent=False)
        if child:
            self.child = Buffers(child=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second


@pytest.mark.parametrize("decomposed", [False, True])
def test_buffers_keep_their_order(decomposed: bool) -> None:
    program = px.import_ep(exported(Buffers(), torch.ones(2), decomposed=decomposed))
    assert list(program.state) == ["first", "second", "third", "child.first", "child.second", "child.third"]
    assert structure_differences(px.lower(px.transform(program)), Buffers()) == []


# Copies that may stand in any order stand in the exporter's, whatever the order of the outputs that they come from.


INTEGER = px.ir.TensorType(torch.int64, ())


def test_functionalize_gives_back_the_outputs() -> None:
    slots = {name: px.ir.Slot(px.ir.SlotKind.BUFFER, torch.tensor(n), n, n) for n, name in enumerate(("s0", "s1"))}
    inputs = (px.ir.StateInput("s0"), px.ir.StateInput("s1"), px.ir.UserInput(INTEGER, "x"))
    graph = px.Graph((px.Input("s0"), px.Input("s1"), px.Input("x")), (), (px.Ref("x"), px.Ref("x")))
    backwards = px.ir.Signature(inputs, (px.ir.StateMutation("s1"), px.ir.StateMutation("s0")))
    program = px.Program.of({"": graph}, state=px.ir.State(("s0", "s1"), px.ir.pmap(slots)), signature=backwards)
    written = px.inplace_mutations(program)
    assert [node.args for node in written.main.nodes] == [(px.Ref("s0"), px.Ref("x")), (px.Ref("s1"), px.Ref("x"))]
    assert px.inplace_mutations(px.functionalize(written)) == written
    forwards = evolve(backwards, outputs=(px.ir.StateMutation("s0"), px.ir.StateMutation("s1")))
    assert px.inplace_mutations(program.evolve(signature=forwards)) == written
    assert toy.toy_meaning(written) == toy.toy_meaning(program)


def test_a_copy_of_the_user_comes_back_where_copies_are_made() -> None:
    """Where it stood is not in what is returned: it comes back right behind the value, in the call of that, and then stays."""
    neg = px.Op("toy.neg")
    nodes = (
        px.Node("n", neg, (px.Ref("x"),)),
        px.Node("m", neg, (px.Ref("n"),), (), (px.Frame("a"),)),
        px.Node("c", COPY, (px.Ref("x"), px.Ref("n")), (), (px.Frame("a"),)),
    )
    graph = px.Graph((px.Input("x"),), nodes, ())
    program = px.Program.of({"": graph}, signature=px.ir.Signature((px.ir.UserInput(INTEGER, "x"),)), facts=frozenset({"flat"}))
    assert not copies_nothing(program)
    assert not copies_stand_first(program)
    again = px.inplace_mutations(px.functionalize(program))
    assert [node.name for node in again.main.nodes] == ["n", "copy_", "m"]
    assert toy.toy_meaning(again) == toy.toy_meaning(program)
    assert copies_stand_first(again)
    assert px.inplace_mutations(px.functionalize(again)) == again
    assert [law.check(Case(program)) for law in PAIRS if {"functionalize"} == {*law.transformations} - {"inplace_mutations"}] == [
        []
    ] * 4


# The order of a body's inputs.


class Layer(nn.Module):
    """Uses what it is given in one order."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.relu() + mask


class Layers(parent(first=Layer, second=Layer)):
    """The first layer's ``x`` is made before the mask, the second's after it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x * 2
        return self.second(self.first(x, mask), mask)


def test_equal_layers_are_one_body_wherever_their_inputs_are_made() -> None:
    """One body beside the root, whose inputs are in the order of their use."""
    program = px.transform(px.import_ep(exported(Layers(), torch.ones(2))))
    assert program.order == ("", "Layer")
    assert [formal.name for formal in program.graphs["Layer"].inputs] == ["arg", "mul"]


# A part that writes to something else keeps no number from moving past it, whichever of two legal orders the parts run in.


SIZE, COPY_, MUL = (op_of(op) for op in (torch.ops.aten.sym_size.int, torch.ops.aten.copy_.default, torch.ops.aten.mul.Scalar))


def program(*, written: str) -> px.Program:
    """Return a program that takes a size of ``x``, and writes to one of its inputs."""
    nodes = (
        px.Node("n", SIZE, (px.Ref("x"), 0)),
        px.Node("w", COPY_, (px.Ref(written), px.Ref("z"))),
        px.Node("m", MUL, (px.Ref("x"), px.Ref("n"))),
    )
    types = tuple([px.ir.UserInput(px.ir.TensorType(torch.float32, (3,)), name) for name in "xyz"])
    signature = px.ir.Signature(types, (px.ir.UserOutput(),))
    return px.Program.of({"": px.Graph(tuple(map(px.Input, "xyz")), nodes, (px.Ref("m"),))}, signature=signature)


@pytest.mark.parametrize("tags", [("a", "b", "c"), ("b", "a", "c")], ids=str)
def test_the_order_of_parts_says_nothing(tags: tuple[str, ...]) -> None:
    split = px.split_by_tags(program(written="y"), tags, tag_of={"n": "a", "w": "b", "m": "c"})
    moved = px.move_non_tensor_nodes(split)
    assert [node.name for node in moved.graphs["c"].nodes] == ["n", "m"]
    x, y, z = torch.ones(3), torch.zeros(3), torch.ones(3)
    assert torch.equal(px.lower(moved)(x, y, z)[0], torch.full((3,), 3.0))
    assert torch.equal(y, z)


def test_a_number_stays_before_a_write_to_what_it_is_of() -> None:
    split = px.split_by_tags(program(written="x"), ("a", "b", "c"), tag_of={"n": "a", "w": "b", "m": "c"})
    assert px.move_non_tensor_nodes(split) is split


# Copies of lowered modules.


def lowered(to: Any) -> torch.nn.Module:
    ep = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))
    return px.lower(px.transform(px.import_ep(ep)), to=to)


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_copying_a_lowered_module_warns_of_nothing(to: str) -> None:
    module = lowered(to)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = copy.deepcopy(module)
    x = torch.ones(1, 2)
    assert torch.equal(twin(x), module(x))


def test_a_copy_that_is_converted_leaves_the_checks_of_the_original() -> None:
    module = lowered("graph_module")
    assert isinstance(module, LoweredRoot)
    twin = copy.deepcopy(module).double()
    assert twin(torch.ones(1, 2).double()).dtype is torch.float64
    with pytest.raises(px.errors.InputValueError, match="dtype"):
        module(torch.ones(1, 2).double())
