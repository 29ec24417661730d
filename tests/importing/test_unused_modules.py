"""A ``get_attr`` of a graph module that nothing uses, as ``split_module`` leaves them."""

from __future__ import annotations

import torch

import purefx as px


def test_a_graph_that_nothing_uses_is_no_part_of_the_program() -> None:
    module = torch.fx.symbolic_trace(torch.nn.ReLU())
    module.add_submodule("branch", torch.fx.symbolic_trace(torch.nn.Tanh()))
    with module.graph.inserting_before(next(iter(module.graph.nodes))):
        module.graph.get_attr("branch")
    program = px.import_fx(module)
    assert program.order == tuple(program.graphs)
    assert torch.equal(px.lower(program)(-torch.ones(2)), torch.zeros(2))
