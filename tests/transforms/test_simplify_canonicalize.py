"""`canonicalize`: all legal orders of a program are one, and no illegal one is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from purefx.laws.variants import renamed, reordered
from tests.transforms.simplifying import root, sound, text

CANONICAL = px.canonicalize

BUFFER = "state {\nbuffer n: f32[2]\nbuffer m: f32[2]\n}"

PROGRAMS = {
    "independent nodes": ("b = aten.sin.default(x)", "a = aten.exp.default(x)", "c = aten.sub.Tensor(a, b)", "(c,)"),
    "equal nodes with different users": (
        "a = aten.exp.default(x)", "b = aten.exp.default(x)", "c = aten.neg.default(b)", "d = aten.sin.default(a)",
        "e = aten.sub.Tensor(c, d)", "(e,)",
    ),
    "equal nodes in two places of one": (
        "a = aten.exp.default(x)", "b = aten.exp.default(x)", "c = aten.sub.Tensor(b, a)", "(c,)",
    ),
    "writes to two buffers": (
        "n = get n", "m = get m", "v = aten.add_.Tensor(m, x)", "w = aten.add_.Tensor(n, 1)", "a = aten.neg.default(n)", "(a,)",
    ),
    "reads between writes": (
        "n = get n", "a = aten.exp.default(n)", "b = aten.sin.default(n)", "w = aten.add_.Tensor(n, 1)",
        "c = aten.sin.default(n)", "d = aten.sub.Tensor(a, b)", "e = aten.sub.Tensor(d, c)", "(e,)",
    ),
    "draws and prints": (
        'p = aten._print.default("one")', "a = aten.rand_like.default(x)", 'q = aten._print.default("two")',
        "b = aten.rand_like.default(x)", "c = aten.sub.Tensor(b, a)", "(c,)",
    ),
    **{
        f"twins of exp and {user}": (
            "a = aten.exp.default(x)", "b = aten.exp.default(x)", f"c = aten.{user}.Tensor(a, x)",
            f"d = aten.{user}.Tensor(b, x)", "w = aten.add_.Tensor(x, 1)", "(x,)",
        )
        for user in ("add", "sub", "mul", "div")
    },
    "twins of three nodes": (
        "a = aten.exp.default(x)", "b = aten.exp.default(x)", "c = aten.sin.default(a)", "d = aten.sin.default(b)",
        "e = aten.add.Tensor(c, x)", "f = aten.add.Tensor(d, x)", "w = aten.add_.Tensor(x, 1)", "(x,)",
    ),
    "twins in twins": (
        *(f"a{i} = aten.exp.default(x)" for i in range(4)), *(f"b{i} = aten.add.Tensor(a{i}, x)" for i in range(4)),
        "c0 = aten.mul.Tensor(b0, b1)", "c1 = aten.mul.Tensor(b2, b3)", "w = aten.add_.Tensor(x, 1)", "(x,)",
    ),
    "dead code": ("a = aten.exp.default(x)", "b = aten.sin.default(x)", "c = aten.cos.default(b)", "(x,)"),
}  # fmt: skip


@pytest.mark.parametrize("case", PROGRAMS)
def test_of_one_graph(case: str) -> None:
    program = text(root(*PROGRAMS[case]), BUFFER)
    result = sound(CANONICAL, program)
    for seed in range(8):
        other = renamed(reordered(program, seed=seed), seed=seed)
        assert CANONICAL(other).main.nodes == result.main.nodes
    first, second = px.lower(program), px.lower(result)
    for call in range(2):
        torch.manual_seed(call)
        expected = first(torch.ones(2))
        torch.manual_seed(call)
        torch.testing.assert_close(second(torch.ones(2)), expected, rtol=0, atol=0)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


def test_in_a_body_that_writes_other_inputs_may_be_what_it_writes() -> None:
    graphs = """
    graph @""(x) {{
      y = call @f(x, x) as a
      return (y,)
    }}
    graph @f(p, q) {{
      {first}
      {second}
      c = aten.sub.Tensor(b, p)
      return c
    }}
    """
    steps = ("w = aten.add_.Tensor(p, 1)", "b = aten.sin.default(q)")
    for first, second in (steps, steps[::-1]):
        program = text(graphs.format(first=first, second=second))
        result = sound(CANONICAL, program)
        assert torch.equal(px.lower(result)(torch.ones(2))[0], px.lower(program)(torch.ones(2))[0])


def test_what_differs_stays_different() -> None:
    one = text(
        root("n = get n", "a = aten.exp.default(n)", "w = aten.add_.Tensor(n, 1)", "b = aten.sub.Tensor(a, n)", "(b,)"), BUFFER
    )
    other = text(
        root("n = get n", "w = aten.add_.Tensor(n, 1)", "a = aten.exp.default(n)", "b = aten.sub.Tensor(a, n)", "(b,)"), BUFFER
    )
    assert px.digest(CANONICAL(one)) != px.digest(CANONICAL(other))


class Attention(nn.Module):
    """Layers, a counter and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)])
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        for layer in self.layers:
            x = layer(x)
        return x * self.count


def test_orders_of_a_model_have_one_digest() -> None:
    program = px.import_ep(torch.export.export(Attention().train(), (torch.randn(2, 3, 8),)))
    result = CANONICAL(program)
    others = [reordered(program, seed=seed) for seed in range(3)]
    assert len({px.digest(other) for other in (program, *others)}) == 4
    assert {px.digest(CANONICAL(other)) for other in others} == {px.digest(result)}
    assert all(CANONICAL(other) == result for other in others)
    modules = px.outline(px.sink_state(px.inplace_mutations(result)))
    assert len(modules.order) == len(px.outline(px.sink_state(px.inplace_mutations(program))).order)
