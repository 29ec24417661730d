"""What a body is called that several modules share depends on none of them, and goes again where each has its own.

One model of three equal layers, whose calls the exporter preserved; the exporter's names are what must come back.
"""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

import purefx as px
from purefx.ir.names import stem_of
from purefx.transforms.shared_bodies import with_common_names
from tests.programs import Tower

LAYERS = tuple(f"layers.{number}" for number in range(3))


@pytest.fixture(scope="module")
def outlined() -> px.Program:
    """The program, with a body for each call."""
    ep = torch.export.export(Tower(3), (torch.ones(2, 4),), preserve_module_call_signature=LAYERS)
    return px.outline(px.insert_ivals(px.sink_state(px.inplace_mutations(px.import_ep(ep)))))


def names_and_stacks(program: px.Program) -> list[tuple[str, tuple[px.Frame, ...]]]:
    """Return what the nodes of the root are called, and the calls around each."""
    return [(node.name, node.stack) for node in program.main.nodes]


def test_users_in_any_order_give_the_same_names(outlined: px.Program) -> None:
    users = [(outlined.graphs[path], (path,)) for path in LAYERS]
    named = [with_common_names(order[0][0], order) for order in permutations(users)]
    assert {graph.inputs for graph in named} == {named[0].inputs} and named[0].inputs[0].name != users[0][0].inputs[0].name
    for graph in named:
        assert [node.name for node in graph.nodes] == [node.name for node in named[0].nodes]
        assert not {node.name for node in graph.nodes} & {"layers_0", "p_layers_0_up_weight"}


def test_expanded_it_has_the_ids_and_names_of_the_exporter(outlined: px.Program) -> None:
    merged = px.deduplicate(outlined)
    assert len(merged.order) < len(outlined.order) and not set(LAYERS) & set(merged.order)
    expanded = px.expand(merged)
    assert expanded.order == outlined.order and expanded.call_signatures == outlined.call_signatures
    for name in outlined.order:
        for given, expected in zip(expanded.graphs[name].nodes, outlined.graphs[name].nodes, strict=True):
            # Values are numbered within their body; what is called after the module has the exporter's very name.
            is_after_module = type(given.do) is px.Get or "layers_" in expected.name
            assert given.name == expected.name if is_after_module else stem_of(given.name) == stem_of(expected.name)
    assert names_and_stacks(px.inline(expanded)) == names_and_stacks(px.inline(outlined))


def test_inlined_it_has_the_names_of_the_exporter(outlined: px.Program) -> None:
    assert names_and_stacks(px.inline(px.deduplicate(outlined))) == names_and_stacks(px.inline(outlined))
