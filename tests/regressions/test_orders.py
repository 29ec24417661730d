"""Orders of buffers, inputs, copies and writes that were once lost."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.operators import op_of
from purefx.laws import structure_differences
from purefx.lowering.calls.root import LoweredRoot
from tests.lowering.users import lowered
from tests.models import exported, parent

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
    assert list(program.state) == [
        "first",
        "second",
        "third",
        "child.first",
        "child.second",
        "child.third",
    ]
    assert structure_differences(px.lower(px.transform(program)), Buffers()) == []


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


SIZE, COPY_, MUL = (
    op_of(op)
    for op in (torch.ops.aten.sym_size.int, torch.ops.aten.copy_.default, torch.ops.aten.mul.Scalar)
)


def program(*, written: str) -> px.Program:
    """Return a program that takes a size of ``x``, and writes to one of its inputs."""
    nodes = (
        px.Node("n", SIZE, (px.Ref("x"), 0)),
        px.Node("w", COPY_, (px.Ref(written), px.Ref("z"))),
        px.Node("m", MUL, (px.Ref("x"), px.Ref("n"))),
    )
    types = tuple([px.ir.UserInput(px.ir.TensorType(torch.float32, (3,)), name) for name in "xyz"])
    signature = px.ir.Signature(types, (px.ir.UserOutput(),))
    return px.Program.of(
        {"": px.Graph(tuple(map(px.Input, "xyz")), nodes, (px.Ref("m"),))}, signature=signature
    )


@pytest.mark.parametrize("tags", [("a", "b", "c"), ("b", "a", "c")], ids=str)
def test_the_order_of_parts_says_nothing(tags: tuple[str, ...]) -> None:
    split = px.split_by_tags(program(written="y"), tags, tag_of={"n": "a", "w": "b", "m": "c"})
    moved = px.move_non_tensor_nodes(split)
    assert [node.name for node in moved.graphs["c"].nodes] == ["n_1", "m"]
    x, y, z = torch.ones(3), torch.zeros(3), torch.ones(3)
    assert torch.equal(px.lower(moved)(x, y, z)[0], torch.full((3,), 3.0))
    assert torch.equal(y, z)


def test_a_number_stays_before_a_write_to_what_it_is_of() -> None:
    split = px.split_by_tags(
        program(written="x"), ("a", "b", "c"), tag_of={"n": "a", "w": "b", "m": "c"}
    )
    assert px.move_non_tensor_nodes(split) is split


def test_a_copy_that_is_converted_leaves_the_checks_of_the_original() -> None:
    module = lowered(exported(torch.nn.Linear(2, 1), torch.ones(1, 2)))
    assert isinstance(module, LoweredRoot)
    assert copy.deepcopy(module).double()(torch.ones(1, 2).double()).dtype is torch.float64
    with pytest.raises(px.errors.InputValueError, match="dtype"):
        module(torch.ones(1, 2).double())
