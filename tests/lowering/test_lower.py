"""Lowering: real modules, eager's state, options, graphs on demand."""

from __future__ import annotations

import gc
from typing import Any, Literal

import pytest
import torch
from torch import nn

import purefx as px
from tests.programs import Block, Counter, Shared, Tower, exported, parent

To = Literal["graph_module", "interpreter"]
BOTH = pytest.mark.parametrize("to", ["graph_module", "interpreter"])


def lowered(module: nn.Module, *args: Any, to: To = "graph_module", **options: Any) -> Any:
    """Return the lowered module after the default pipeline."""
    return px.lower(px.transform(px.import_ep(exported(module, *args))), to=to, **options)


@BOTH
@pytest.mark.parametrize("stage", range(len(px.DEFAULT) + 1))
@pytest.mark.parametrize("decomposed", [False, True])
def test_a_program_runs_at_any_stage(stage: int, decomposed: bool, to: To) -> None:
    """Flat, with mutations in its signature or in place, state sunk, outlined, deduplicated: eager's numbers and state."""
    torch.manual_seed(0)
    model = Shared()
    inputs = [torch.randn(3, 4) for _ in range(3)]
    program = px.import_ep(exported(model, inputs[0], decomposed=decomposed))
    for step in px.DEFAULT[:stage]:
        program = step(program)
    module = px.lower(program, to=to)
    for x in inputs:
        torch.testing.assert_close(module(x), model(x), rtol=0, atol=0)
    expected = model.state_dict()
    assert list(module.state_dict()) == list(expected)
    for name, value in module.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_state_is_copied_or_shared() -> None:
    """By default training the module leaves the program alone; with share it is the program's own tensors."""
    program = px.transform(px.import_ep(exported(Counter(), torch.ones(2, 4))))
    copied, shared = px.lower(program), px.lower(program, state="share")
    weight = program.state["linear.weight"].value
    assert shared.linear.weight is weight  # type: ignore[union-attr]
    assert copied.linear.weight is not weight  # type: ignore[union-attr]
    copied(torch.ones(2, 4))
    assert program.state["count"].value == 0
    shared(torch.ones(2, 4))
    assert program.state["count"].value == 1


def test_parameters_train_as_in_eager() -> None:
    """Gradients, frozen parameters and two optimiser steps."""
    torch.manual_seed(0)
    model = Tower(2)
    model.layers[0].up.weight.requires_grad_(False)  # type: ignore[union-attr]
    module = lowered(model, torch.ones(2, 4))
    assert [p.requires_grad for p in module.parameters()] == [p.requires_grad for p in model.parameters()]
    for step in range(2):
        x = torch.randn(2, 4)
        for each in (model, module):
            optimiser = torch.optim.SGD([p for p in each.parameters() if p.requires_grad], lr=0.1)
            optimiser.zero_grad()
            each(x).square().sum().backward()
            optimiser.step()
        for mine, theirs in zip(module.parameters(), model.parameters(), strict=True):
            assert torch.equal(mine, theirs), step
            assert (mine.grad is None) == (theirs.grad is None)


def test_generated_code_is_shared_by_equal_bodies() -> None:
    """All blocks run one function; a graph is built when looked at and belongs to one module."""
    module = lowered(Tower(3), torch.ones(2, 4))
    assert type(module.layers[0]) is type(module.layers[2])
    assert "_graph" not in module.layers[0].__dict__
    graph = module.layers[0].graph
    graph.lint()
    assert graph.owning_module is module.layers[0]
    assert module.layers[0].graph is graph
    assert "_graph" not in module.layers[1].__dict__


def test_meta_device() -> None:
    """Moving maps the state and every device literal."""

    class Makes(parent(linear=lambda: nn.Linear(4, 4))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) + torch.arange(4, device=x.device)

    module = lowered(Makes(), torch.ones(1, 4), device="meta")
    assert {p.device.type for p in module.parameters()} == {"meta"}
    assert module(torch.ones(1, 4, device="meta")).device.type == "meta"


@pytest.mark.parametrize(("options", "message"), [({"to": "onnx"}, "graph_module"), ({"state": "borrow"}, "share")])
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    """A misspelt option says what it may be."""
    with pytest.raises(px.errors.ArgumentError, match=message):
        px.lower(px.import_ep(exported(Block(), torch.ones(1, 4))), **options)


def test_the_collector_is_left_as_it_was() -> None:
    """Import and lowering pause the collector and restore what they found."""
    ep = exported(Block(), torch.ones(1, 4))
    assert gc.isenabled()
    program = px.import_ep(ep)
    px.lower(program)
    assert gc.isenabled()
    gc.disable()
    try:
        px.lower(px.import_ep(ep))
        assert not gc.isenabled()
    finally:
        gc.enable()
