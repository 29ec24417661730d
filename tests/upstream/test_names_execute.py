"""What torch 2.13 does with hostile names: it writes them into Python text and runs it.

The smallest reproductions of why names are checked at our doors; when torch mends one, its case says so.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import purefx as px

CODE = "RAN.append(1)"


class Number(float):
    """Prints what is run."""

    def __repr__(self) -> str:
        return CODE


def default_of_a_placeholder(ep: Any) -> None:
    """``def forward(self, x=RAN.append(1)):`` runs as soon as the graph is compiled."""
    node = next(node for node in ep.graph.nodes if node.op == "placeholder")
    node.name = node.target = ep.graph_signature.input_specs[0].arg.name = f"x={CODE}"


def keyword(ep: Any) -> None:
    """``clamp(x, a = RAN.append(1), min = 0.5)`` runs with the module."""
    next(node for node in ep.graph.nodes if node.op == "call_function").kwargs = {f"a = {CODE}, min": 0.5}


def text_of_an_object(ep: Any) -> None:
    """The ``repr`` of an argument becomes a piece of the code."""
    node = next(node for node in ep.graph.nodes if node.op == "call_function")
    node.args = (node.args[0], Number(0.5))


@pytest.mark.parametrize(
    ("corrupt", "said"),
    [
        (default_of_a_placeholder, r"'x=RAN.append\(1\)' is not a name of an input"),
        (keyword, "'a = RAN.append.1., min' is not a name of a keyword"),
        (text_of_an_object, "Number is not supported"),
    ],
)
def test_torch_runs_it_and_import_refuses(corrupt: Callable[[Any], None], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    monkeypatch.setattr(builtins, "RAN", ran, raising=False)
    ep = torch.export.export(Clamped(), (torch.ones(2),))
    corrupt(ep)
    with contextlib.suppress(Exception):  # what torch says does not matter
        ep.graph_module.recompile()
    with contextlib.suppress(Exception):
        ep.module()(torch.ones(2))
    assert ran
    ran.clear()
    with pytest.raises((px.errors.InvalidProgram, px.errors.UnsupportedProgram), match=said):
        px.import_ep(ep)
    assert not ran


class Clamped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(min=0.5)
