"""A Llama of 2,000 nodes, of which a rewrite gets one wrong, comes down to a few operators within a minute.

The rewrite is found wrong by what the program computes, on arguments made from its signature, as a user would ask.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import purefx as px
from examples.zoo import llama
from purefx.laws import example_args
from purefx.laws.toy import tensor_meaning

pytestmark = pytest.mark.models

aten: Any = torch.ops.aten


@functools.cache
def program() -> px.Program:
    """Return a Llama of 35 layers."""
    example = llama(35)
    return px.import_ep(example.export(example.build()))


def number(target: Any, which: int) -> str:
    """Return the name of an operator: which one of its kind it is, in order."""
    return [node.name for node in program().main.nodes if node.do == px.op(target)][which]


def neighbours(result: px.Program) -> px.Program:
    """Compute the product behind the 17th silu as a sum, where it is that of the silu."""
    name, add = number(aten.silu.default, 16), px.op(aten.add.Tensor)
    if name not in result.main.by_name:
        return result
    nodes = [
        node.evolve(do=add) if node.do == px.op(aten.mul.Tensor) and name in node.refs() else node
        for node in result.main.nodes
    ]
    return result.with_main(result.main.with_nodes(nodes))


def far_apart(result: px.Program) -> px.Program:
    """Compute the 25th silu as a tanh, where the third one is there as well."""
    names = [number(aten.silu.default, which) for which in (2, 24)]
    if not result.main.by_name.keys() >= set(names):
        return result
    nodes = [
        node.evolve(do=px.op(aten.tanh.default)) if node.name == names[1] else node
        for node in result.main.nodes
    ]
    return result.with_main(result.main.with_nodes(nodes))


@pytest.mark.parametrize(("rewrite", "at_most"), [(neighbours, 2), (far_apart, 2)])
def test_a_llama_comes_down_to_what_is_wrong(rewrite: Any, at_most: int) -> None:
    assert len(program().main.nodes) >= 2000

    def is_wrong(candidate: px.Program) -> bool:
        calls = [example_args(candidate)]
        return tensor_meaning(rewrite(candidate), calls) != tensor_meaning(candidate, calls)

    found = px.minimize(program(), is_wrong)
    assert px.verify(found.program, infer=True) == () and is_wrong(found.program)
    assert sum(type(node.do) is px.Op for _, node in found.program.nodes()) <= at_most <= 6
    assert found.seconds < 60 and found.steps[-1] != "the time was up"
    assert not len(found.program.state) and not found.program.modules
