"""A Llama of 2,000 nodes (``make test``: 700), of which a rewrite gets one wrong, comes down to a few operators within a minute.

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
def program(layers: int) -> px.Program:
    """Return a Llama."""
    example = llama(layers)
    return px.import_ep(example.export(example.build()))


def silu(layers: int, which: int) -> str:
    """Return the name of an operator: that of some layer."""
    nodes = program(layers).main.nodes
    return [node.name for node in nodes if node.do == px.op(aten.silu.default)][which]


def neighbours(layers: int, result: px.Program) -> px.Program:
    """Compute the product behind the silu in the middle as a sum, where it is that of the silu."""
    name, add = silu(layers, layers // 2), px.op(aten.add.Tensor)
    if name not in result.main.by_name:
        return result
    nodes = [
        node.evolve(do=add) if node.do == px.op(aten.mul.Tensor) and name in node.refs() else node
        for node in result.main.nodes
    ]
    return result.with_main(result.main.with_nodes(nodes))


def far_apart(layers: int, result: px.Program) -> px.Program:
    """Compute the silu of one of the last layers as a tanh, where that of the third layer is there as well."""
    names = [silu(layers, which) for which in (2, layers - 3)]
    if not result.main.by_name.keys() >= set(names):
        return result
    nodes = [
        node.evolve(do=px.op(aten.tanh.default)) if node.name == names[1] else node
        for node in result.main.nodes
    ]
    return result.with_main(result.main.with_nodes(nodes))


@pytest.mark.parametrize(
    ("layers", "nodes"), [(12, 700), pytest.param(35, 2000, marks=pytest.mark.deep)]
)
@pytest.mark.parametrize(("rewrite", "at_most"), [(neighbours, 2), (far_apart, 2)])
def test_a_llama_comes_down_to_what_is_wrong(
    rewrite: Any, at_most: int, layers: int, nodes: int
) -> None:
    assert len(program(layers).main.nodes) >= nodes

    def is_wrong(candidate: px.Program) -> bool:
        calls = [example_args(candidate)]
        changed = rewrite(layers, candidate)
        return tensor_meaning(changed, calls) != tensor_meaning(candidate, calls)

    found = px.minimize(program(layers), is_wrong)
    assert px.verify(found.program, infer=True) == () and is_wrong(found.program)
    assert sum(type(node.do) is px.Op for _, node in found.program.nodes()) <= at_most <= 6
    assert found.seconds < 60 and found.steps[-1] != "the time was up"
    assert not len(found.program.state) and not found.program.modules
