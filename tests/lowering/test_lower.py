"""Lowering: real modules, eager's state, options, graphs on demand."""

from __future__ import annotations

import gc
import operator
from typing import Any, Literal

import pytest
import torch
from torch import nn

import purefx as px
from tests.lowering.users import lowered
from tests.models import Block, Counter, Shared, Tower, exported, module_class

To = Literal["graph_module", "interpreter"]
BOTH = pytest.mark.parametrize("to", ["graph_module", "interpreter"])


@BOTH
@pytest.mark.parametrize("decomposed", [False, True])
def test_a_program_runs_at_any_stage(decomposed: bool, to: To) -> None:
    """Flat, with mutations in its signature or in place, state sunk, outlined, deduplicated: eager's numbers and state."""
    torch.manual_seed(0)
    model, inputs = Shared(), [torch.randn(3, 4) for _ in range(3)]
    program = px.import_ep(exported(model, inputs[0], decomposed=decomposed))
    outputs = [model(x) for x in inputs]
    for number in range(len(px.DEFAULT) + 1):
        module = px.lower(program, to=to)
        for x, expected in zip(inputs, outputs, strict=True):
            torch.testing.assert_close(module(x), expected, rtol=0, atol=0)
        assert list(module.state_dict()) == list(model.state_dict())
        for name, value in module.state_dict().items():
            assert torch.equal(value, model.state_dict()[name]), name
        program = px.DEFAULT[number](program) if number < len(px.DEFAULT) else program


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


def test_generated_code_is_shared_by_equal_bodies() -> None:
    """All blocks run one function; a graph is built when looked at and belongs to one module."""
    module = lowered(exported(Tower(3), torch.ones(2, 4)))
    assert type(module.layers[0]) is type(module.layers[2])
    assert "_graph" not in module.layers[0].__dict__
    graph = module.layers[0].graph
    graph.lint()
    assert graph.owning_module is module.layers[0]
    assert module.layers[0].graph is graph
    assert "_graph" not in module.layers[1].__dict__


def test_meta_device() -> None:
    """Moving maps the state and every device literal."""
    kind = module_class(
        "M",
        lambda self, x: self.linear(x) + torch.arange(4, device=x.device),
        linear=lambda: nn.Linear(4, 4),
    )
    module = lowered(exported(kind(), torch.ones(1, 4)), device="meta")
    assert {p.device.type for p in module.parameters()} == {"meta"}
    assert module(torch.ones(1, 4, device="meta")).device.type == "meta"


@pytest.mark.parametrize(
    ("options", "message"), [({"to": "onnx"}, "graph_module"), ({"state": "borrow"}, "share")]
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    """A misspelt option says what it may be."""
    with pytest.raises(px.errors.ArgumentError, match=message):
        px.lower(px.import_ep(exported(Block(), torch.ones(1, 4))), **options)


def test_the_collector_is_left_as_it_was() -> None:
    """Import and lowering pause the collector and restore what they found."""
    ep = exported(Block(), torch.ones(1, 4))
    assert gc.isenabled()
    px.lower(px.import_ep(ep))
    assert gc.isenabled()
    gc.disable()
    try:
        px.lower(px.import_ep(ep))
        assert not gc.isenabled()
    finally:
        gc.enable()


@BOTH
def test_an_operator_takes_a_dict(to: To) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(
        graph.call_function(operator.add, (x, graph.call_function(len, ({"a": x, "b": 2},))))
    )
    program = px.import_fx(torch.fx.GraphModule(nn.Module(), graph))
    assert torch.equal(px.lower(program, to=to)(torch.ones(2)), torch.full((2,), 3.0))
