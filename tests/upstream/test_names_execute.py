"""What torch 2.13 does with hostile names: it writes them into Python text and runs it.

The smallest reproductions of why names are checked at our doors; when torch mends one, its test says so.
"""

from __future__ import annotations

import builtins
import contextlib
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px


class Clamped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(min=0.5)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(builtins, "RAN", found, raising=False)
    return found


@pytest.fixture
def ep() -> torch.export.ExportedProgram:
    return torch.export.export(Clamped(), (torch.ones(2),))


def run(ep: torch.export.ExportedProgram) -> None:
    """Have torch make a module, and run it; what it says does not matter."""
    try:
        module: Any = ep.module()
        module(torch.ones(2))
    except Exception:
        pass


def nodes(ep: torch.export.ExportedProgram, op: str) -> list[torch.fx.Node]:
    return [node for node in ep.graph.nodes if node.op == op]


def test_a_placeholder_with_a_default(ep: torch.export.ExportedProgram, ran: list[int]) -> None:
    """``def forward(self, x=RAN.append(1)):`` runs as soon as the graph is compiled."""
    (node,) = nodes(ep, "placeholder")
    (spec,) = ep.graph_signature.input_specs
    node.name = node.target = spec.arg.name = "x=RAN.append(1)"
    with contextlib.suppress(SyntaxError):
        torch.fx.GraphModule({}, ep.graph)
    with contextlib.suppress(SyntaxError):
        ep.graph_module.recompile()
    assert ran
    ran.clear()
    with pytest.raises(px.errors.InvalidProgram, match=r"'x=RAN.append\(1\)' is not a name of an input"):
        px.import_ep(ep)
    assert not ran


def test_a_keyword(ep: torch.export.ExportedProgram, ran: list[int]) -> None:
    """``clamp(x, a = RAN.append(1), min = 0.5)`` runs with the module."""
    nodes(ep, "call_function")[0].kwargs = {"a = RAN.append(1), min": 0.5}
    run(ep)
    assert ran
    ran.clear()
    with pytest.raises(px.errors.InvalidProgram, match=r"'a = RAN.append.1., min' is not a name of a keyword"):
        px.import_ep(ep)
    assert not ran


def test_what_an_object_prints(ep: torch.export.ExportedProgram, ran: list[int]) -> None:
    """The ``repr`` of an argument becomes a piece of the code."""

    class Number(float):
        def __repr__(self) -> str:
            return "RAN.append(1)"

    node = nodes(ep, "call_function")[0]
    node.args = (node.args[0], Number(0.5))
    run(ep)
    assert ran
    ran.clear()
    with pytest.raises(px.errors.UnsupportedProgram, match="Number is not supported"):
        px.import_ep(ep)
    assert not ran
