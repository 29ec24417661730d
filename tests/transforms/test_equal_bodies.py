"""Which bodies are equal: small programs, each with two bodies that one thing tells apart, or that nothing does.

The bodies of operators, the calls of other modules and preserved signatures are parts of a body; generated programs
seldom have two bodies that differ in nothing else.
"""

from __future__ import annotations

import pytest

import purefx as px
from tests.transforms.small import preserved, tree

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


def test_a_body_at_two_heights_is_one() -> None:
    """It is called by the root, and by a body that is called by a body: what it calls is compared before it is."""
    text = """
        graph @""(x) {
          y = call @a(x) as a
          z = call @b(y) as b
          return (z,)
        }
        graph @a(x) {
          y = call @c(x) as c
          return y
        }
        graph @c(x) {
          y = aten.sin.default(x)
          return y
        }
        graph @b(x) {
          y = call @d(x) as d
          return y
        }
        graph @d(x) {
          y = call @e(x) as c
          return y
        }
        graph @e(x) {
          y = aten.sin.default(x)
          return y
        }
    """
    result = px.deduplicate(tree(text))
    assert result.order == ("", "a", "c", "b")
    assert [node.do.graph for node in result.graphs["b"].nodes if isinstance(node.do, px.Call)] == ["a"]
