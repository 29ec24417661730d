"""What a call gives and how its body is named: values in order with their meta, calls and reads relative to the module.

A flat program of one module ``a``, in which some calls are outlined already, as text before and after.
"""

from __future__ import annotations

import pytest
import torch

import purefx as px
from tests.transforms.small import lines, number, shown, told, tree

TWO_RESULTS = """
    graph @""(x) {
      z = aten.neg.default(x)  in a
      m = aten.abs.default(x)  in a
      b = aten.sin.default(m)  in a
      u = aten.add.Tensor(b, z)
      v = aten.add.Tensor(u, b)
      return (v,)
    }
"""


def test_a_call_is_told_the_values_that_it_gives() -> None:
    program = told(tree(TWO_RESULTS), {"z": number((2,)), "b": number((3,)), "v": number((4,))})
    nodes = px.outline(program).main.by_name
    value = nodes["a"].meta["val"]
    assert [tuple(part.shape) for part in value] == [(2,), (3,)]
    assert [tuple(nodes[name].meta["val"].shape) for name in "zb"] == [(2,), (3,)]
    assert isinstance(nodes["v"].meta["val"], torch.Tensor)
    assert px.outline(tree(TWO_RESULTS)).main.by_name["a"].meta["val"] == (None, None)


@pytest.mark.parametrize("frame", ["c", "c@1"])
def test_calls_that_are_outlined_already_are_named_in_the_module(frame: str) -> None:
    """With their number; and so are reads."""
    program = tree(
        f"""
        graph @""(x) {{
          w = get a.w  in a
          y = call @c(x) as a.{frame}  in a
          z = aten.add.Tensor(y, w)  in a
          o = get b.w  in a
          u = aten.add.Tensor(z, o)  in a
          return (u,)
        }}
        graph @c(v) {{
          return v
        }}
        """,
        "state {\nbuffer a.w: f32[2]\nbuffer b.w: f32[2]\n}",
    )
    result = px.outline(program)
    assert px.verify(result) == ()
    assert [line.strip() for line in shown(result, "a").splitlines()[1:-1]] == [
        "w = get w",
        f"y = call @c(x) as {frame}",
        "z = aten.add.Tensor(y, w)",
        'o = get "/b.w"',
        "u = aten.add.Tensor(z, o)",
        "return u",
    ]
    assert result.graphs["c"] is program.graphs["c"]


def test_what_a_call_takes_of_the_state_is_read_outside() -> None:
    """And what its operators take, inside."""
    program = px.parse("""program {
      state {
        buffer c.n: f32[2]
      }
      takes {
        state c.n
        user x: f32[2]
      }
      gives {
        user
      }
      signature c {
        names (n)
        in_spec ((*,), {})
        out_spec *
      }
      graph @""(pn, x) {
        t = purefx.takes(pn)  in c
        y = aten.add.Tensor(x, pn)  in c
        g = purefx.gives(y)  in c
        return (y,)
      }
    }""")
    assert lines(px.sink_state(program))[:4] == [
        "pn = get c.n", "t = purefx.takes(pn) in c", "pn_1 = get c.n in c", "y = aten.add.Tensor(x, pn_1) in c",
    ]  # fmt: skip


def test_branches_that_go_into_a_body_are_named_in_it() -> None:
    """One body of two operators in two modules becomes two; the branches inside it go with each."""
    program = tree(
        """
        graph @""(x) {
          y = higher_order.cond(x, @$t, @$t, ())  in a
          p = operator.getitem(y, 0)  in a
          w = higher_order.cond(p, @$t, @$s, ())  in b
          q = operator.getitem(w, 0)
          return (q,)
        }
        graph @$t() {
          i = higher_order.cond(True, @$s, @$s, ())
          n = get a.n
          return (n,)
        }
        graph @$s() {
          k = get b.k
          return (k,)
        }
        """,
        "state {\nbuffer a.n: f32[2]\nbuffer b.k: f32[2]\n}",
    )
    result = px.outline(program)
    assert px.verify(result) == ()
    assert {
        name: [line for line in shown(result, name).splitlines() if "get " in line] for name in ("$t", "$t_1", "$s", "$s_1")
    } == {
        "$t": ["  n = get n"],
        "$t_1": ['  n = get "/a.n"'],
        "$s": ['  k = get "/b.k"'],
        "$s_1": ["  k = get k"],
    }
    assert px.alpha_equal(px.inline(result), px.inline(px.outline(px.inline(result))))
