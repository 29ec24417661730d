"""`fold_constants`: what is known when the program is made, and what only looks constant."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.torch_private import pytree
from tests.transforms.simplifying import root, sound, text

FOLD = px.fold_constants

STATE = """state {
buffer n: f32[2]
buffer view: f32[1] shares n
constant c: f32[2]
parameter p: f32[2]
constant shown: f32[2] shares p
}"""

FLAT = {
    "a buffer": (("n = get n", "a = aten.exp.default(n)", "y = aten.add.Tensor(x, a)", "(y,)"), ["y"]),
    "a constant": (("c = get c", "a = aten.exp.default(c)", "y = aten.add.Tensor(x, a)", "(y,)"), ["y"]),
    "a parameter": (("p = get p", "a = aten.exp.default(p)", "y = aten.add.Tensor(x, a)", "(y,)"), ["a", "y"]),
    "what a parameter is under another name": (("p = get shown", "a = aten.exp.default(p)", "y = aten.add.Tensor(x, a)", "(y,)"),
     ["a", "y"]),
    "literals": (("a = aten.full.default([2], 1.5)", "y = aten.add.Tensor(x, a)", "(y,)"), ["y"]),
    "a chain": (
        ("a = aten.ones.default([2, 2])", "b = aten.tril.default(a)", "c = aten.select.int(b, 0, 0)",
        "y = aten.add.Tensor(x, c)", "(y,)"),
        ["y"],
    ),
    "a view of state": (
        ("n = get n", "a = aten.select.int(n, 0, 0)", "y = aten.add.Tensor(x, a)", "(y,)"),
        ["a", "y"],
    ),
    "a result of several": (
        (
            "n = get n", "a = aten.topk.default(n, 1)", "b = operator.getitem(a, 0)", "y = aten.add.Tensor(x, b)", "(y,)",
        ),
        ["y"],
    ),
    "a buffer that is written later": (
        ("n = get n", "a = aten.exp.default(n)", "w = aten.add_.Tensor(n, 1)", "y = aten.add.Tensor(x, a)", "(y,)"),
        ["a", "w", "y"],
    ),
    "a buffer whose memory is written": (
        ("n = get n", "v = get view", "a = aten.exp.default(n)", "w = aten.add_.Tensor(v, 1)",
        "y = aten.add.Tensor(x, a)", "(y,)"),
        ["a", "w", "y"],
    ),
    "a buffer that is returned": (
        ("n = get n", "a = aten.exp.default(n)", "y = aten.add.Tensor(x, a)", "(y, n)"),
        ["a", "y"],
    ),
    "a constant of which a view is returned": (
        ("c = get c", "v = aten.select.int(c, 0, 0)", "a = aten.exp.default(c)", "y = aten.add.Tensor(x, a)", "(y, v)"),
        ["v", "a", "y"],
    ),
    "a buffer that is returned under another name": (
        ("n = get n", "v = get view", "a = aten.exp.default(n)", "y = aten.add.Tensor(x, a)", "(y, v)"),
        ["a", "y"],
    ),
    "a result that is written": (
        ("n = get n", "a = aten.exp.default(n)", "w = aten.add_.Tensor(a, x)", "y = aten.add.Tensor(x, a)", "(y,)"),
        ["a", "w", "y"],
    ),
    "a result that is returned": (("n = get n", "a = aten.exp.default(n)", "(a,)"), ["a"]),
    "a result of which a view is returned": (("n = get n", "a = aten.exp.default(n)", "b = aten.view.default(a, [2])", "(b,)"),
     ["a", "b"]),
    "a random number": (("n = get n", "a = aten.rand_like.default(n)", "y = aten.add.Tensor(x, a)", "(y,)"), ["a", "y"]),
    "memory without contents": (("a = aten.empty.memory_format([2])", "y = aten.mul.Tensor(x, a)", "(y,)"), ["a", "y"]),
    "too much": (("a = aten.zeros.default([1024, 1024])", "b = aten.sum.default(a)",
        "y = aten.add.Tensor(x, b)", "(y,)"), ["a", "b", "y"]),
    "what it refuses": (("n = get n", "a = aten.to.dtype(n, torch.int64)", "b = aten.index_select.default(n, 0, a)",
     "y = aten.add.Tensor(x, b)", "(y,)"), ["a", "b", "y"]),
    "dead code": (("n = get n", "a = aten.exp.default(n)", "(x,)"), ["a"]),
}  # fmt: skip


def left(program: px.Program, graph: str = "") -> list[str]:
    """Return the names of the nodes that are no reads."""
    return [node.name for node in program.graphs[graph].nodes if type(node.do) is not px.Get]


@pytest.mark.parametrize("case", FLAT)
def test_of_one_graph(case: str) -> None:
    lines, names = FLAT[case]
    program = text(root(*lines), STATE, outputs=len(lines[-1].strip("(),").split(",")))
    result = sound(FOLD, program)
    assert left(result) == names
    if case not in ("what it refuses", "memory without contents"):
        first, second = px.lower(program), px.lower(result)
        for call in range(3):
            torch.manual_seed(call)
            expected = first(torch.ones(2) * call)
            torch.manual_seed(call)
            given = second(torch.ones(2) * call)
            torch.testing.assert_close(given, expected, rtol=0, atol=0)
            for tensor in pytree.tree_leaves((given, expected)):
                tensor.detach().add_(1)  # as a caller may do
        assert first.state_dict().keys() == second.state_dict().keys()


def test_parameters_on_request_and_never_those_that_get_gradients() -> None:
    lines, _ = FLAT["a parameter"]
    program = text(root(*lines), STATE)
    assert left(FOLD(program, parameters=True)) == ["y"]
    assert not FOLD(program, parameters=True).state["_constant0"].value.requires_grad


def test_in_a_shared_body_only_what_is_one_tensor_everywhere() -> None:
    graphs = """
    graph @""(x) {
      y = call @f(x) as a
      z = call @f(y) as b
      return (z,)
    }
    graph @f(p) {
      n = get n
      e = aten.exp.default(n)
      o = aten.ones.default([2])
      t = aten.sin.default(o)
      s = aten.add.Tensor(p, e)
      r = aten.add.Tensor(s, t)
      return r
    }
    """
    apart = text(graphs, "state {\nbuffer a.n: f32[2]\nbuffer b.n: f32[2]\n}")
    assert left(sound(FOLD, apart), "f") == ["e", "s", "r"]
    tied = text(graphs, "state {\nbuffer a.n: f32[2]\nbuffer b.n: f32[2] tied a.n\n}")
    assert left(sound(FOLD, tied), "f") == ["s", "r"]
    assert left(sound(FOLD, px.expand(apart)), "b") == ["s", "r"]


def test_operators_of_other_libraries_are_not_run() -> None:
    ran: list[int] = []

    @torch.library.custom_op("purefx_clean::counts", mutates_args=())
    def counts(x: torch.Tensor) -> torch.Tensor:
        ran.append(1)
        return x.clone()

    counts.register_fake(lambda x: torch.empty_like(x))

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + counts(torch.ones(3))

    program = px.import_ep(torch.export.export(Model(), (torch.ones(3),)), effects={counts: px.PURE})
    ran.clear()
    result = FOLD(program)
    assert ran == []
    assert "purefx_clean.counts.default" in [node.do.name for node in result.main.nodes if type(node.do) is px.Op]
