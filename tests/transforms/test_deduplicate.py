"""Deduplication: equal bodies become one; callees, state and literals tell bodies apart."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from tests.programs import MUL, Tower, exported, flat
from tests.transforms.small import preserved, tree


def whole(module: nn.Module, *args: object, **kwargs: object) -> px.Program:
    """Return the program after the default pipeline."""
    return px.transform(px.import_ep(exported(module, *args, **kwargs)))


def test_literals_are_compared_with_their_type() -> None:
    """x * 1, x * 1.0 and x * True are three bodies."""
    nodes = [
        px.Node(f"n{index}", MUL, (px.Ref("x"), value), (), (px.Frame(f"m{index}"),))
        for index, value in enumerate([1, 1.0, True, 1])
    ]
    program = px.deduplicate(px.outline(flat(nodes, tuple(px.Ref(node.name) for node in nodes), "x")))
    assert [node.do.graph for node in program.main.nodes if isinstance(node.do, px.Call)] == ["m0", "m1", "m2", "m0"]


def reads_of(program: px.Program, graph: str) -> dict[str, str]:
    """Return the names of the reads in a graph, with what they read."""
    return {node.name: node.do.slot for node in program.graphs[graph].nodes if isinstance(node.do, px.Get)}


def test_reads_are_called_after_the_state_of_the_module() -> None:
    """The code of five layers says ``weight``, and so does that of one."""
    program = whole(Tower(5), torch.ones(2, 4))
    assert reads_of(program, "Linear") == {"weight": "weight", "bias": "bias"}
    assert px.parse(program.text(), state={name: program.state[name].value for name in program.state}) == program
    single = whole(nn.Sequential(nn.Linear(4, 4)), torch.ones(2, 4))
    assert reads_of(single, "0") == {"weight": "weight", "bias": "bias"}


TWO_CALLS = """
    graph @""(x) {
      y = call @a(x) as a
      z = call @b(y) as b
      return (z,)
    }
"""


EQUAL = """
    graph @a(x) {
      y = aten.neg.default(x)
      return y
    }
    graph @b(x) {
      y = aten.neg.default(x)
      return y
    }
"""

SIGNATURES = {
    "one": ((preserved("a"), preserved("b")), True),
    "none": ((), True),
    "only one has one": ((preserved("a"),), False),
    "names": ((preserved("a"), preserved("b", names="(other)")), False),
    "arguments": ((preserved("a"), preserved("b", in_spec='((), {"x": *})')), False),
    "results": ((preserved("a"), preserved("b", out_spec="(*,)")), False),
}


@pytest.mark.parametrize("which", SIGNATURES)
def test_bodies_that_are_called_differently_stay_apart(which: str) -> None:
    """A body is called as its preserved signature says, so two with different ones are two."""
    sections, merged = SIGNATURES[which]
    result = px.deduplicate(tree(TWO_CALLS + EQUAL, *sections))
    assert result.order == (("", "a") if merged else ("", "a", "b"))


def test_signatures_are_those_of_the_module_and_of_the_call() -> None:
    """The first call of ``a`` and the second of ``b`` are called alike; ``b`` as such has no signature."""
    graphs = """
        graph @""(x) {
          y = call @a(x) as a
          z = call @b(y) as b@1
          return (z,)
        }
    """
    assert px.deduplicate(tree(graphs + EQUAL, preserved("a"), preserved("b@1"))).order == ("", "a")
    assert px.deduplicate(tree(graphs + EQUAL, preserved("a"), preserved("b"))).order == ("", "a", "b")
