"""The law of ``import_fx``: lowering what was imported gives what the graph module does, whatever the graph is."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.fx
from hypothesis import given, settings
from hypothesis import strategies as st

import purefx as px
from tests.importing.traced_graphs import compare, graph_modules, outcome

INPUTS = (torch.linspace(-1, 2, 16).reshape(4, 4), torch.linspace(1, -3, 16).reshape(4, 4))


@given(graph_modules(), st.booleans(), st.sampled_from(["graph_module", "interpreter"]))
@settings(max_examples=30, deadline=None)
def test_lowered_is_the_graph_module(module: torch.fx.GraphModule, with_example: bool, to: Any) -> None:
    """Outputs, inputs that are written to, gradients, state, over two calls; at every stage; and through text."""
    before = copy.deepcopy(module.state_dict())
    program = px.import_fx(module, example_inputs=INPUTS if with_example else None)
    expected = outcome(module, INPUTS)
    compare(outcome(px.lower(program, to=to), INPUTS), expected)
    assert list(px.lower(program).state_dict()) == list(before)
    compare(outcome(px.lower(px.transform(program), to=to), INPUTS), expected)
    compare(outcome(px.lower(px.inline(program), to=to), INPUTS), expected)
    compare(dict(module.state_dict()), dict(before))
    state = {name: program.state[name].value for name in program.state}
    assert px.parse(str(program), state=state) == program


@given(graph_modules(depth=1))
@settings(max_examples=10, deadline=None)
def test_what_was_lowered_can_be_imported_again(module: torch.fx.GraphModule) -> None:
    """A lowered module is a GraphModule too."""
    again = px.import_fx(px.lower(px.import_fx(module)))
    compare(outcome(px.lower(again), INPUTS), outcome(module, INPUTS))
