"""Lowering: real modules, eager's state, options, graphs on demand."""

from __future__ import annotations

import copy
import gc
from typing import Any, Literal

import pytest
import torch
from torch import nn
from torch.export.unflatten import InterpreterModule

import purefx as px
from tests.programs import Aliased, Block, Counter, Shared, Tower, exported, parent

To = Literal["graph_module", "interpreter"]
BOTH = pytest.mark.parametrize("to", ["graph_module", "interpreter"])


def lowered(module: nn.Module, *args: Any, to: To = "graph_module", **options: Any) -> Any:
    """Return the lowered module after the default pipeline."""
    return px.lower(px.transform(px.import_ep(exported(module, *args))), to=to, **options)


@BOTH
def test_kinds_of_modules(to: To) -> None:
    """Every module that was called is a GraphModule, or an InterpreterModule; containers index like the originals."""
    module = lowered(Tower(2), torch.ones(2, 4), to=to)
    kind = torch.fx.GraphModule if to == "graph_module" else InterpreterModule
    assert all(isinstance(part, kind) for part in (module, module.layers[0], module.layers[1].up))
    assert module.layers[1].type_name().endswith("Block")


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


def test_ties_survive_a_copy() -> None:
    """Tied parameters are one parameter, aliasing buffers one memory, and both are not the program's."""
    model, x = Aliased(), torch.randn(1, 2)
    module = lowered(model, x)
    assert module.linear.weight is module.other.weight
    for _ in range(3):
        assert torch.equal(module(x), model(x))
    assert module.whole.tolist() == [0, 3, 3, 0]


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


def test_persistence_and_load_state_dict() -> None:
    """Non-persistent buffers stay out of state_dict, and eager's loads strictly, both ways."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.ones(2))
            self.register_buffer("dropped", torch.ones(2), persistent=False)
            self.constant = torch.full((2,), 3.0)
            self.weights = nn.ParameterList([torch.ones(2), torch.zeros(2)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.kept + self.dropped + self.constant + self.weights[0] + self.weights[1]

    model = Mixed()
    module = lowered(model, torch.ones(2))
    assert list(module.state_dict()) == list(model.state_dict())
    assert list(dict(module.named_buffers())) == ["kept", "dropped"]
    with torch.no_grad():
        model.weights[1].fill_(7)
    module.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(module(torch.ones(2)), model(torch.ones(2)))
    model.load_state_dict(module.state_dict(), strict=True)


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


def test_the_graph_means_what_the_module_does() -> None:
    """fx's own interpreter and code, on the graph of every module, give the module's result."""
    model, x = Shared(), torch.randn(3, 4)
    module = lowered(model, x)
    expected = copy.deepcopy(model)(x)
    torch.testing.assert_close(torch.fx.Interpreter(copy.deepcopy(module)).run(x), expected, rtol=0, atol=0)
    rebuilt = copy.deepcopy(module)
    for part in rebuilt.modules():
        if isinstance(part, torch.fx.GraphModule):
            part.graph.lint()
            part.recompile()
    for _ in range(3):
        torch.testing.assert_close(rebuilt(x), model(x), rtol=0, atol=0)


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
    with pytest.raises(ValueError, match=message):
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


def test_hooks_and_functional_calls() -> None:
    """Forward hooks of children run, and functional_call swaps parameters."""
    model, x = Tower(2), torch.randn(2, 4)
    module = lowered(model, x)
    seen: list[str] = []
    module.layers[1].up.register_forward_hook(lambda *_: seen.append("up"))
    zeros = {name: torch.zeros_like(value) for name, value in module.named_parameters()}
    assert torch.equal(torch.func.functional_call(module, zeros, (x,)), x)
    assert seen == ["up"]
    assert torch.equal(module(x), model(x))
