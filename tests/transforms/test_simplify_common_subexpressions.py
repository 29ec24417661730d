"""`eliminate_common_subexpressions`: what is one value, and what only looks like it."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import purefx as px
from purefx.laws.asking import LawBroken, assert_law
from purefx.laws.law import Case
from tests.laws.simplifying import computed_once
from tests.transforms.simplifying import nodes, root, sound, text

ONCE = px.eliminate_common_subexpressions

BUFFER = "state {\nbuffer n: f32[2]\nbuffer m: f32[2] tied n\n}"

FLAT = {
    "equal": (("a = aten.exp.default(x)", "b = aten.exp.default(x)", "c = aten.add.Tensor(a, b)", "(c,)"), ["a", "c"]),
    "a chain": (("a = aten.exp.default(x)", "b = aten.exp.default(x)", "c = aten.neg.default(a)", "d = aten.neg.default(b)",
     "e = aten.add.Tensor(c, d)", "(e,)"), ["a", "c", "e"]),
    "one and true": (("a = aten.mul.Tensor(x, 1)", "b = aten.mul.Tensor(x, True)", "c = aten.add.Tensor(a, b)", "(c,)"), ["a",
     "b", "c"]),
    "zero and minus zero": (("a = aten.add.Tensor(x, 0.0)", "b = aten.add.Tensor(x, -0.0)", "c = aten.add.Tensor(a, b)", "(c,)"),
     ["a", "b", "c"]),
    "draws": (("a = aten.rand_like.default(x)", "b = aten.rand_like.default(x)", "c = aten.add.Tensor(a, b)", "(c,)"), ["a", "b",
     "c"]),
    "dropout that drops nothing": (("a = aten.dropout.default(x, 0.5, False)", "b = aten.dropout.default(x, 0.5, False)",
     "c = aten.add.Tensor(a, b)", "(c,)"), ["a", "c"]),
    "a write to the operand in between": (("a = aten.exp.default(x)", "w = aten.add_.Tensor(x, 1)", "b = aten.exp.default(x)",
     "c = aten.add.Tensor(a, b)", "(c,)"), ["a", "w", "b", "c"]),
    "a write to a view of the operand in between": (("v = aten.select.int(x, 0, 0)", "a = aten.exp.default(x)",
     "w = aten.zero_.default(v)", "b = aten.exp.default(x)", "c = aten.add.Tensor(a, b)", "(c,)"), ["v", "a", "w", "b", "c"]),
    "a write before and after": (("w = aten.add_.Tensor(x, 1)", "a = aten.exp.default(x)", "b = aten.exp.default(x)",
     "v = aten.add_.Tensor(x, 1)", "c = aten.add.Tensor(a, b)", "(c,)"), ["w", "a", "v", "c"]),
    "the first is written": (("a = aten.exp.default(x)", "w = aten.add_.Tensor(a, 1)", "b = aten.exp.default(x)",
     "c = aten.add.Tensor(a, b)", "(c,)"), ["a", "w", "b", "c"]),
    "the second is written": (("a = aten.exp.default(x)", "b = aten.exp.default(x)", "w = aten.add_.Tensor(b, 1)",
     "c = aten.add.Tensor(a, b)", "(c,)"), ["a", "b", "w", "c"]),
    "a view of the second is written": (("a = aten.exp.default(x)", "b = aten.exp.default(x)", "v = aten.view.default(b, [2])",
     "w = aten.add_.Tensor(v, 1)", "c = aten.add.Tensor(a, b)", "(c,)"), ["a", "b", "v", "w", "c"]),
    "both are returned": (("a = aten.exp.default(x)", "b = aten.exp.default(x)", "(a, b)"), ["a", "b"]),
    "a view of one is returned with the other": (("a = aten.exp.default(x)", "b = aten.exp.default(x)",
     "v = aten.view.default(b, [2])", "(a, v)"), ["a", "b", "v"]),
    "three, of which two are returned": (("a = aten.exp.default(x)", "b = aten.exp.default(x)", "c = aten.exp.default(x)",
     "d = aten.neg.default(b)", "(a, c)"), ["a", "c", "d"]),
    "reads of tied state": (("n = get n", "m = get m", "a = aten.exp.default(n)", "b = aten.exp.default(m)",
     "c = aten.add.Tensor(a, b)", "(c,)"), ["n", "m", "a", "c"]),
    "tied state that is written in between": (("n = get n", "m = get m", "a = aten.exp.default(n)", "w = aten.add_.Tensor(m, 1)",
     "b = aten.exp.default(n)", "c = aten.add.Tensor(a, b)", "(c,)"), ["n", "m", "a", "w", "b", "c"]),
    "prints": (('a = aten._print.default("x")', 'b = aten._print.default("x")', "(x,)"), ["a", "b"]),
    "several results": (("a = aten.topk.default(x, 1)", "b = aten.topk.default(x, 1)", "c = operator.getitem(a, 0)",
     "d = operator.getitem(b, 0)", "e = aten.add.Tensor(c, d)", "(e,)"), ["a", "c", "e"]),
    "fresh memory that is filled in place": (("a = aten.full.default([2], 1.0)", "b = aten.full.default([2], 1.0)",
     "w = aten.copy_.default(b, x)", "c = aten.add.Tensor(a, b)", "(c,)"), ["a", "b", "w", "c"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FLAT)
def test_of_one_graph(case: str) -> None:
    lines, left = FLAT[case]
    program = text(root(*lines), BUFFER, outputs=len(re.findall("[a-z]+", lines[-1])))
    result = sound(ONCE, program)
    assert nodes(result) == left
    first, second = px.lower(program), px.lower(result)
    for call in range(3):
        torch.manual_seed(call)
        given = torch.tensor([0.5, -2.0]) * call
        expected = first(given.clone())
        torch.manual_seed(call)
        torch.testing.assert_close(second(given.clone()), expected, rtol=0, atol=0)


CALLS = """
graph @""(x) {{
  y = call @f(x) as {first}
  z = call @f(x) as {second}
  s = aten.add.Tensor(y, z)
  return (s,)
}}
graph @f(p) {{
  {body}
  return b
}}
"""


@pytest.mark.parametrize(
    ("first", "second", "body", "calls"),
    [
        ("a", "a@1", "b = aten.exp.default(p)", 1),
        ("a", "c", "b = aten.exp.default(p)", 1),
        ("a", "a@1", "n = get n\n  b = aten.add.Tensor(p, n)", 1),
        ("a", "c", "n = get n\n  b = aten.add.Tensor(p, n)", 2),
        ("a", "a@1", "n = get n\n  w = aten.add_.Tensor(n, 1)\n  b = aten.add.Tensor(p, n)", 2),
        ("a", "a@1", "b = aten.dropout.default(p, 0.5, True)", 2),
    ],
    ids=[
        "one module",
        "two modules",
        "a body with state",
        "bodies with different state",
        "a body that writes",
        "a body that draws",
    ],
)
def test_calls(first: str, second: str, body: str, calls: int) -> None:
    program = text(CALLS.format(first=first, second=second, body=body), "state {\nbuffer a.n: f32[2]\nbuffer c.n: f32[2]\n}")
    result = sound(ONCE, program)
    assert sum(type(node.do) is px.Call for node in result.main.nodes) == calls


def test_two_tensors_that_are_handed_out_as_views_are_no_repetition() -> None:
    lines = (
        "a = aten.exp.default(x)",
        "b = aten.exp.default(x)",
        "c = aten.view.default(a, [2])",
        "d = aten.view.default(b, [2])",
    )
    both, one = (text(root(*lines, outputs), outputs=outputs.count(",")) for outputs in ("(c, d,)", "(c,)"))
    assert nodes(sound(ONCE, both)) == ["a", "b", "c", "d"]
    for program in (both, one):
        assert_law(ONCE, computed_once, Case(program))
    with pytest.raises(LawBroken, match="b is computed a second time"):
        assert_law(lambda program: program, computed_once, Case(one))


def test_a_call_between_that_writes_what_it_reads_itself() -> None:
    program = text(
        """
        graph @""(x) {
          n = get a.n
          b = aten.exp.default(n)
          y = call @a(x) as a
          c = aten.exp.default(n)
          d = aten.add.Tensor(b, c)
          return (d,)
        }
        graph @a(p) {
          n = get n
          w = aten.add_.Tensor(n, p)
          return ()
        }
        """,
        "state {\nbuffer a.n: f32[2]\n}",
    )
    assert sound(ONCE, program) is program


def test_inputs_of_a_body_may_be_one_tensor() -> None:
    """The body writes `p`; its caller gives it one tensor as both."""
    program = text("""
        graph @""(x) {
          t = aten.neg.default(x)
          y = call @f(t, t) as a
          return (y,)
        }
        graph @f(p, q) {
          a = aten.exp.default(q)
          w = aten.add_.Tensor(p, 1)
          b = aten.exp.default(q)
          c = aten.sub.Tensor(a, b)
          return c
        }
        """)
    result = sound(ONCE, program)
    assert nodes(result, "f") == ["a", "w", "b", "c"]


def test_calls_with_preserved_signatures_are_not_crossed() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.GELU(), nn.GELU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x) + self.second(x)

    ep = torch.export.export(Outer(), (torch.randn(2, 3),), preserve_module_call_signature=("first", "second"))
    program = px.import_ep(ep)
    for one in (program, px.transform(program)):
        assert sound(ONCE, one) is one
    free = px.import_ep(torch.export.export(Outer(), (torch.randn(2, 3),)))
    assert len(nodes(sound(ONCE, free))) == len(nodes(free)) - 1
