"""``example_args``: leaves that fit the signature of a program, the same ones for one seed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import nn

import purefx as px
from purefx.laws import example_args, value_differences
from purefx.laws.strategies import Exported, exported_programs
from tests.models import exported


class Many(nn.Module):
    """Takes tensors of several dtypes, a size twice, and a literal."""

    def forward(
        self, x: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor, z: torch.Tensor, times: int
    ) -> torch.Tensor:
        return (x[ids] * mask * z.real).sum() * times


def test_leaves_have_the_types_that_the_signature_says() -> None:
    args = (
        torch.randn(3, 4),
        torch.tensor([0, 2]),
        torch.tensor(True),
        torch.randn(1, dtype=torch.complex64),
        3,
    )
    program = px.import_ep(exported(Many(), *args))
    made, generator = example_args(program), torch.get_rng_state()
    facts: list[Any] = [
        (leaf.dtype, leaf.shape) if isinstance(leaf, torch.Tensor) else leaf for leaf in args
    ]
    assert [
        (leaf.dtype, leaf.shape) if isinstance(leaf, torch.Tensor) else leaf for leaf in made
    ] == facts
    assert value_differences(example_args(program), made) == []
    assert value_differences(example_args(program, seed=1), made) != []
    assert torch.equal(torch.get_rng_state(), generator), "torch's own generator stays"
    assert px.lower(program)(*made).shape == ()


def test_sizes_are_those_of_the_export_or_fit_the_guards() -> None:
    sizes = ({0: torch.export.Dim("n", min=2, max=64)},)
    program = px.import_ep(exported(nn.ReLU(), torch.randn(7, 2), dynamic_shapes=sizes))
    assert example_args(program)[0].shape == (7, 2)
    bare = px.parse(program.text())
    assert example_args(bare)[0].shape[1:] == (2,) and 2 <= example_args(bare)[0].shape[0] <= 64


def test_numbers_and_objects() -> None:
    def takes(kind: Any) -> px.Program:
        graph = px.Graph((px.Input("x"),), (), (px.Ref("x"),))
        return px.Program.of(
            {"": graph},
            signature=px.ir.Signature((px.ir.UserInput(kind, "x"),), (px.ir.UserOutput(),)),
        )

    given = [example_args(takes(px.ir.NumberType(kind)))[0] for kind in ("int", "float", "bool")]
    assert [type(number) for number in given] == [int, float, bool]
    assert example_args(takes(px.ir.LiteralType(px.ir.Items([1, 2])))) == [[1, 2]]
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"the input 'x' is an object \(a lamp\), which cannot be generated",
    ):
        example_args(takes(px.ir.ObjectType("a lamp")))


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(exported_programs())
def test_drawn_programs(drawn: Exported) -> None:
    program = px.import_ep(drawn.ep)
    leaves = example_args(program)
    kinds = [spec.type for spec in program.signature.inputs if isinstance(spec, px.ir.UserInput)]
    for leaf, kind in zip(leaves, kinds, strict=True):
        if isinstance(kind, px.ir.TensorType):
            assert leaf.dtype is kind.dtype and leaf.dim() == len(kind.shape)
