"""``px.op``: operators are given as torch has them, with the effects that they have."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

import purefx as px
from tests.programs import exported

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Written(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        z = y + 1
        return z * y.relu_()


def test_it_is_what_import_makes_of_the_operator() -> None:
    program = px.import_ep(exported(Written(), X))
    for node in program.main.nodes:
        assert isinstance(node.do, px.Op)
        assert px.op(node.do.target) == node.do
        assert px.op(node.do) is node.do
    writes = [node.do.effects.writes for node in program.main.nodes if isinstance(node.do, px.Op)]
    assert sum(map(bool, writes)) == 1


def test_one_overload_is_chosen_and_functions_are_taken() -> None:
    assert px.op(torch.ops.aten.one_hot) == px.op(torch.ops.aten.one_hot.default)
    assert px.op(operator.getitem).name == "operator.getitem"
    assert px.op(torch.ops.higher_order.cond).name == "higher_order.cond"


def test_a_write_by_hand_is_a_write() -> None:
    """A node that is made by hand keeps its place: what reads before it is not moved behind it."""
    program = px.import_ep(exported(Written(), X))
    nodes = [node.evolve(do=px.op(node.do.target)) if isinstance(node.do, px.Op) else node for node in program.main.nodes]
    same = program.with_main(program.main.with_nodes(nodes))
    assert torch.equal(px.lower(px.eliminate_dead_code(px.canonicalize(same)))(X), Written()(X))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.ops.aten.add, "aten.add has several overloads, so say which: Tensor, Scalar"),
        ("aten.relu.default", "the operator itself, such as torch.ops.aten.relu.default, and not its name, 'aten.relu.default'"),
        (3, "an operator or a function, such as torch.ops.aten.relu.default, not 3"),
        (None, "an operator or a function"),
    ],
)
def test_what_is_no_operator(given: Any, said: str) -> None:
    with pytest.raises(px.errors.NamingError, match=said):
        px.op(given)
