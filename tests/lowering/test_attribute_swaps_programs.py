"""Programs that are assigned to lowered modules, and what becomes of the whole: copies, files, state, graphs that were edited."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch

import purefx as px
from tests.lowering.swaps import Counting, Dicts, Layer, Layers, Parent, Plus, Sub, X, both, program_of, refused, same


def test_a_program_is_lowered_as_the_whole_is() -> None:
    """Flat or transformed; with its own state, under the original's keys; in copies and files, too."""
    torch.manual_seed(0)
    model, layer = Layers(), Layer()
    flat = px.import_ep(torch.export.export(layer, (X,)))
    other = copy.deepcopy(model)
    other.layers[0], other.layers[1] = copy.deepcopy(layer), copy.deepcopy(layer)
    for module in both(program_of(model)):
        module.layers[0] = flat
        module.set_submodule("layers.1", px.transform(flat))
        assert type(module.layers[0]).__name__ == type(module).__name__
        for each in (module, pickle.loads(pickle.dumps(module))):
            same(each, other)
        assert module.layers[0].lin.weight is not layer.lin.weight
        with torch.no_grad():
            module.layers[0].lin.weight.zero_()
        assert not torch.equal(module(X), other(X))


def test_a_program_for_dicts_and_keywords() -> None:
    """Its arguments are told by name, so another order of keywords is the same."""

    def run(parent: Any, x: torch.Tensor) -> torch.Tensor:
        return parent.a({"a": x, "b": x + 0.5}, more=[x.exp()])["sum"]

    model, other = Parent(run, a=Dicts()), Parent(run, a=Dicts(2.0))
    program = px.import_ep(torch.export.export(Dicts(2.0), ({"a": X, "b": X + 1},), {"more": [X + 2]}))
    for module in both(program_of(model, ("a",))):
        module.a = program
        same(module, other)


def test_a_program_that_writes() -> None:
    model = Parent(lambda p, x: p.a(p.a(x)) + p.a.n, a=Counting())
    other = Parent(lambda p, x: p.a(p.a(x)) + p.a.n, a=Counting(2.0))
    program = px.import_ep(torch.export.export(Counting(2.0), (X,)))
    for module in both(program_of(model, ("a",))):
        module.a = program
        same(module, other, calls=3)


def test_what_is_loaded_still_notices() -> None:
    """Lists and containers of a loaded module, and children that come from it."""
    model = Layers()
    for module in both(program_of(model)):
        module.layers[0] = Plus()
        loaded = pickle.loads(pickle.dumps(module))
        refused(loaded, "layers.1", Sub(), "does not take that")
        loaded.layers[0] = px.unflatten(torch.export.export(model, (X,))).layers[0]
        same(loaded, model)
        module.layers = loaded.layers
        same(module, model)


def test_a_graph_that_was_edited_calls_what_it_likes() -> None:
    """Whoever edits a graph knows what it calls."""
    model = Parent(lambda p, x: p.a(x) + 1, a=torch.nn.Identity())
    for module in both(program_of(model)):
        (taken, *_) = [node for node in module.graph.nodes if node.op == "placeholder"]
        refused(module, "a", Plus(), "not called")
        with module.graph.inserting_after(taken):
            called = module.graph.call_module("a", (taken,))
        taken.replace_all_uses_with(called, delete_user_cb=lambda node: node is not called)  # noqa: B023  used at once
        module.finalize()
        module.a = Plus()
        assert torch.equal(module(X), X + 3 + 1)
