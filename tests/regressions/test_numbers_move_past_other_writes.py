"""A part that writes to something else keeps no number from moving past it, whichever of two legal orders the parts run in.

The smallest program: one part takes a size, one writes to another input, one uses the size.
"""

from __future__ import annotations

import pytest
import torch

import purefx as px
from purefx.ir.operators import op_of

SIZE, COPY, MUL = (op_of(op) for op in (torch.ops.aten.sym_size.int, torch.ops.aten.copy_.default, torch.ops.aten.mul.Scalar))


def program(*, written: str) -> px.Program:
    """Return a program that takes a size of ``x``, and writes to one of its inputs."""
    nodes = (
        px.Node("n", SIZE, (px.Ref("x"), 0)),
        px.Node("w", COPY, (px.Ref(written), px.Ref("z"))),
        px.Node("m", MUL, (px.Ref("x"), px.Ref("n"))),
    )
    types = tuple([px.UserInput(px.TensorType(torch.float32, (3,)), name) for name in "xyz"])
    signature = px.Signature(types, (px.UserOutput(),))
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
