"""Calls that stay, and bodies of operators, when others are put in their places: what they call and read is named from the root.

One idea: a module ``a`` whose cond has branches that read state and call a module ``a.c``; the fuel says which calls go.
"""

from __future__ import annotations

import pytest

import purefx as px
from tests.transforms.small import shown, tree

STATE = "state {\nbuffer a.n: f32[2]\nbuffer a.c.n: f32[2]\n}"

GRAPHS = """
    graph @""(x) {
      y = call @a(x) as a
      return (y,)
    }
    graph @a(x) {
      y = higher_order.cond(x, @"$t", @"$f", (x,))
      z = operator.getitem(y, 0)
      return z
    }
    graph @"$t"(v) {
      n = get n
      w = aten.add.Tensor(v, n)
      z = call @c(w) as c@1
      return (z,)
    }
    graph @"$f"(v) {
      w = aten.neg.default(v)
      return (w,)
    }
    graph @c(v) {
      n = get n
      w = aten.mul.Tensor(v, n)
      return w
    }
"""

ROOT = """graph @""(x) {
  y = higher_order.cond(x, @$t, @$f, (x,))  in a
  z = operator.getitem(y, 0)                in a
  return (z,)
}"""


def test_branches_are_named_from_the_root() -> None:
    program = tree(GRAPHS, STATE)
    result = px.inline(program)
    assert px.verify(result) == ()
    assert shown(result, "") == ROOT
    assert [line.partition("  in ")[0].strip() for line in shown(result, "$t").splitlines()[1:-1]] == [
        "n = get a.n",
        "w = aten.add.Tensor(v, n)",
        "n_1 = get a.c.n",
        "w_1 = aten.mul.Tensor(w, n_1)",
        "return (w_1,)",
    ]
    assert result.graphs["$f"] is program.graphs["$f"]


def test_calls_that_stay_in_branches_are_named_from_the_root() -> None:
    """With fuel for the outer call only."""
    program = tree(GRAPHS, STATE)
    result = px.inline(program, fuel=1)
    assert px.verify(result) == ()
    assert shown(result, "", "$t").splitlines() == [
        *ROOT.splitlines(),
        "graph @$t(v) {",
        "  n = get a.n",
        "  w = aten.add.Tensor(v, n)",
        "  z = call @c(w) as a.c@1",
        "  return (z,)",
        "}",
    ]
    assert result.graphs["c"] is program.graphs["c"]


@pytest.mark.parametrize("fuel", [None, 1])
def test_branches_of_the_root_stay_as_they_are(fuel: int | None) -> None:
    """They stood in the root before; one that a call which stays gives an operator stands where it stood."""
    graphs = """
        graph @""(x) {
          y = higher_order.cond(x, @"$t", @"$t", (x,))
          z = operator.getitem(y, 0)
          u = call @a(z) as a
          w = call @b(u) as b
          return (w,)
        }
        graph @"$t"(v) {
          n = get a.n
          return (n,)
        }
        graph @a(x) {
          n = get n
          return n
        }
        graph @b(x) {
          y = higher_order.cond(x, @"$b", @"$b", (x,))
          z = operator.getitem(y, 0)
          return z
        }
        graph @"$b"(v) {
          n = get n
          return (n,)
        }
    """
    program = tree(graphs, "state {\nbuffer a.n: f32[2]\nbuffer b.n: f32[2]\n}")
    copies = px.Fuel(None if fuel is None else 2 + fuel)
    result = px.inline.spend(program, copies)
    assert px.verify(result) == ()
    reads = {name: node.do.slot for name, node in result.nodes() if isinstance(node.do, px.Get)}
    assert {slot for name, slot in reads.items() if name.startswith("$t")} == {"a.n"}
    assert {slot for name, slot in reads.items() if name.startswith("$b")} == ({"b.n"} if fuel is None else {"n"})


def test_branches_of_two_calls_of_a_module_are_both_named() -> None:
    """Each call has a branch of its own that reads the state, and one that reads nothing stays shared."""
    program = tree(
        """
        graph @""(x) {
          y = call @a(x) as a
          z = call @a(y) as a@1
          return (z,)
        }
        graph @a(x) {
          y = higher_order.cond(x, @"$t", @"$f", (x,))
          z = operator.getitem(y, 0)
          return z
        }
        graph @"$t"(v) {
          n = get n
          return (n,)
        }
        graph @"$f"(v) {
          return (v,)
        }
        """,
        STATE,
    )
    result = px.inline(program)
    assert px.verify(result) == ()
    assert [node.do for _, node in result.nodes() if isinstance(node.do, px.Get)] == [px.Get("a.n")] * 2
    assert result.order == ("", "$t", "$f", "$t_1")
