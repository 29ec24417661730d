"""`eliminate_dead_code`: what goes, and above all what stays."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from tests.transforms.simplifying import nodes, root, same_as_eager, sound, text

CLEAN = px.eliminate_dead_code

BUFFER = "state {\nbuffer n: f32[2]\n}"

FLAT = {
    "unused": (("a = aten.neg.default(x)", "b = aten.neg.default(x)", "(b,)"), ["b"]),
    "a chain": (("a = aten.neg.default(x)", "b = aten.neg.default(a)", "(x,)"), []),
    "a draw moves the generator": (("a = aten.rand_like.default(x)", "(x,)"), ["a"]),
    "dropout that drops nothing draws nothing": (("a = aten.dropout.default(x, 0.5, False)", "(x,)"), []),
    "a write to an input": (("a = aten.add_.Tensor(x, 1)", "b = aten.neg.default(a)", "(x,)"), ["a"]),
    "a write to a view of an input": (("v = aten.view.default(x, [2])", "a = aten.add_.Tensor(v, 1)", "(x,)"), ["v", "a"]),
    "a write to what is returned": (("a = aten.neg.default(x)", "v = aten.view.default(a, [2])", "w = aten.add_.Tensor(v, 1)",
     "(a,)"), ["a", "v", "w"]),
    "a write that nobody sees": (("a = aten.neg.default(x)", "w = aten.add_.Tensor(a, 1)", "(x,)"), []),
    "a write to what only dead code reads": (("a = aten.neg.default(x)", "w = aten.add_.Tensor(a, 1)", "b = aten.neg.default(a)",
     "(x,)"), []),
    "a write that is read before it": (("a = aten.neg.default(x)", "b = aten.exp.default(a)", "w = aten.add_.Tensor(a, 1)",
     "(b,)"), ["a", "b", "w"]),
    "a write of one of two": (("a = aten.neg.default(x)", "b = aten.neg.default(x)", "w = aten.add_.Tensor(a, b)", "(b,)"),
     ["b"]),
    "a write to what dead code alone joins to an input": (("a = aten.neg.default(x)", "w = aten.add_.Tensor(a, 1)",
     "t = aten.broadcast_tensors.default([x, a])", "(x,)"), []),
    "an assertion and what it reads": (("a = aten.sum.default(x)", "b = aten.gt.Scalar(a, 0)",
     'c = aten._assert_async.msg(b, "positive")', "(x,)"), ["a", "b", "c"]),
    "a print": (('a = aten._print.default("here")', "(x,)"), ["a"]),
    "a write to state": (("n = get n", "a = aten.add_.Tensor(n, 1)", "(x,)"), ["n", "a"]),
    "an unused read": (("n = get n", "(x,)"), []),
    "a write to a view of state": (("n = get n", "v = aten.slice.Tensor(n, 0, 0, 1)", "a = aten.zero_.default(v)", "(x,)"), ["n",
     "v", "a"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FLAT)
def test_of_one_graph(case: str) -> None:
    (lines, left) = FLAT[case]
    program = text(root(*lines), BUFFER)
    assert nodes(sound(CLEAN, program)) == left


BODIES = """
graph @""(x) {{
  y = call @f(x, x) as a
  r = operator.getitem(y, {first})
  z = call @f(r, x) as b
  s = operator.getitem(z, {second})
  return (s,)
}}
graph @f(p, q) {{
  a = aten.neg.default(p)
  b = aten.exp.default(q)
  c = aten.sin.default(p)
  return (a, b, c)
}}
"""


@pytest.mark.parametrize(
    ("first", "second", "inputs", "left", "results"),
    [(0, 0, ["p"], ["a"], 1), (0, 2, ["p"], ["a", "c"], 2), (0, -1, ["p"], ["a", "c"], 2), (1, 1, ["q"], ["b"], 1)],
)
def test_a_shared_body_keeps_what_one_of_its_calls_needs(
    first: int, second: int, inputs: list[str], left: list[str], results: int
) -> None:
    program = text(BODIES.format(first=first, second=second))
    result = sound(CLEAN, program)
    body = result.graphs["f"]
    assert [one.name for one in body.inputs] == inputs
    assert nodes(result, "f") == left
    assert (len(body.output) if type(body.output) is tuple else 1) == results
    x = torch.tensor([0.5, -2.0])
    assert torch.equal(px.lower(result)(x)[0], px.lower(program)(x)[0])


def test_a_call_for_its_effect_gives_nothing() -> None:
    """The one value of a body that is called to write alone."""
    result = sound(
        CLEAN,
        text(
            """
        graph @""(x) {
          y = call @f(x) as a
          return (x,)
        }
        graph @f(p) {
          n = get n
          w = aten.add_.Tensor(n, 1)
          a = aten.neg.default(p)
          return a
        }
        """,
            "state {\nbuffer a.n: f32[2]\n}",
        ),
    )
    assert nodes(result, "f") == ["n", "w"]
    assert (result.graphs["f"].inputs, result.graphs["f"].output) == ((), ())


class Messy(nn.Module):
    """Draws, counts, and computes what nobody asks for, in modules that are called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.unused = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(3)
        self.cache: torch.Tensor
        self.register_buffer("cache", torch.zeros(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.drop(x)  # draws
        self.count += 1
        self.norm(x)  # counts
        self.unused(x)
        self.cache[1:3] = x
        scratch = torch.zeros(2, 3)
        scratch[0] = x[1]
        with torch.no_grad():
            x.exp()
        return self.drop(x) * self.cache[:2]


def test_a_messy_module_in_training() -> None:
    program = same_as_eager(Messy().train(), (torch.randn(2, 3),), CLEAN)
    used = {node.do.name for _, node in program.nodes() if type(node.do) is px.Op}
    assert "aten.linear.default" not in used
    assert "aten.zeros.default" not in used
    assert "unused.weight" in program.state


@pytest.mark.parametrize("stage", ["flat", "tree"])
def test_state_goes_on_request(stage: str) -> None:
    program = px.import_ep(torch.export.export(Messy().train(), (torch.randn(2, 3),)))
    program = px.transform(program) if stage == "tree" else program
    result = sound(CLEAN.bind(state=True), program)
    assert set(program.state) - set(result.state) == {"unused.weight", "unused.bias"}
    assert {"unused"} <= {one.path for one in program.modules} - {one.path for one in result.modules}
    lowered = px.lower(px.transform(result))
    assert "unused.weight" not in lowered.state_dict()
    assert not hasattr(lowered, "unused")


def test_preserved_calls_stay() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.inner(x)
            return x * 2

    ep = torch.export.export(Outer(), (torch.randn(2, 3),), preserve_module_call_signature=("inner",))
    program = px.import_ep(ep)
    for one in (program, px.transform(program)):
        result = sound(CLEAN, one)
        assert result is one
