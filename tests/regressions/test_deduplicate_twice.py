"""Deduplicating a program in which bodies are shared already.

Cause: every body was ranked by the one module in which it is met first, so a body shared by a shallow and a deep
module was looked at after its deeper callers, and a second ``deduplicate`` ended in a KeyError.  A body is now looked at
wherever it stands.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from tests.programs import NEG, exported


class Inner(nn.Module):
    """Holds a linear layer one level deeper than the model does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


class Outer(nn.Module):
    """Two linear layers that are one body, at two depths."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.inner = nn.Linear(2, 2), Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.linear(x))


def negate(*calls: tuple[px.Frame, str]) -> px.Graph:
    """Return a body that calls others one after the other."""
    nodes = [
        px.Node(f"y{index}", px.Call(*call), (px.Ref(f"y{index - 1}" if index else "x"),)) for index, call in enumerate(calls)
    ]
    return px.Graph((px.Input("x"),), tuple(nodes), px.Ref(nodes[-1].name))


def test_a_second_time_there_is_nothing_to_do() -> None:
    """One body at two depths."""
    program = px.transform(px.import_ep(exported(Outer(), torch.ones(1, 2))))
    assert program.order == ("", "Linear", "inner")
    assert px.deduplicate(program) is program


def test_a_shared_body_whose_calls_are_numbered_differently_where_it_stands() -> None:
    """In module ``a`` call 1 of ``a.f`` has the body of call 0 and gets its number; in ``b`` it has not."""
    leaf = px.Graph((px.Input("x"),), (px.Node("y", NEG, (px.Ref("x"),)),), px.Ref("y"))
    twice = px.Graph((px.Input("x"),), (px.Node("y", NEG, (px.Ref("x"),)), px.Node("z", NEG, (px.Ref("y"),))), px.Ref("z"))
    second = negate((px.Frame("f", 1), "leaf"))
    root = negate(
        (px.Frame("a"), "first_a"), (px.Frame("a", 1), "second"), (px.Frame("b"), "first_b"), (px.Frame("b", 1), "second")
    )  # fmt: skip
    firsts = {"first_a": negate((px.Frame("f"), "leaf")), "first_b": negate((px.Frame("f"), "twice"))}
    root = px.Graph(root.inputs, root.nodes, (root.output,))
    program = px.Program.of({"": root, **firsts, "second": second, "leaf": leaf, "twice": twice})
    result = px.deduplicate(program)
    assert [node.do for node in result.main.nodes[:2]] == [px.Call(px.Frame("a"), "first_a"), px.Call(px.Frame("a"), "first_a")]
    assert [node.do for node in result.main.nodes[2:]] == [px.Call(px.Frame("b"), "first_b"), px.Call(px.Frame("b", 1), "second")]
    assert result.graphs["second"] is second
    assert px.deduplicate(result) is result


def test_a_body_that_calls_itself_is_refused() -> None:
    """It would stand in infinitely many modules."""
    graph = negate((px.Frame("f"), "loop"))
    root = px.Graph(graph.inputs, graph.nodes, (graph.output,))
    program = px.Program.of({"": root, "loop": graph}, signature=px.Signature((), (px.UserOutput(),)))
    with pytest.raises(px.InvalidProgram, match="loop"):
        px.deduplicate(program)
