"""`remove_noops`: what changes nothing to the last bit, and what only looks like it."""

from __future__ import annotations

import pytest
import torch

import purefx as px
from tests.transforms.simplifying import nodes, root, sound, text

NOOPS = px.remove_noops

STATE = "state {\nbuffer n: f32[2, 3]\n}"

FRESH = "a = aten.exp.default(x)"

FLAT = {
    "a view": (("a = aten.view.default(x, [2, 3])", "b = aten.neg.default(a)", "(b,)"), ["b"]),
    "a view with -1": (("a = aten.reshape.default(x, [-1, 3])", "b = aten.neg.default(a)", "(b,)"), ["b"]),
    "a view to other sizes": (("a = aten.reshape.default(x, [3, 2])", "b = aten.neg.default(a)", "(b,)"), ["a", "b"]),
    "expand": (("a = aten.expand.default(x, [-1, 3])", "b = aten.neg.default(a)", "(b,)"), ["b"]),
    "a slice": (("a = aten.slice.Tensor(x, 0, 0, 9223372036854775807)", "b = aten.neg.default(a)", "(b,)"), ["b"]),
    "a slice of some": (("a = aten.slice.Tensor(x, 0, 0, 1)", "b = aten.neg.default(a)", "(b,)"), ["a", "b"]),
    "permute": (("a = aten.permute.default(x, [0, -1])", "b = aten.neg.default(a)", "(b,)"), ["b"]),
    "transpose once": (("a = aten.transpose.int(x, 0, 1)", "b = aten.neg.default(a)", "(b,)"), ["a", "b"]),
    "to": (("a = aten.to.dtype(x, torch.float32)", "b = aten.neg.default(a)", "(b,)"), ["b"]),
    "to another": (("a = aten.to.dtype(x, torch.float64)", "b = aten.neg.default(a)", "(b,)"), ["a", "b"]),
    "to that copies": (("a = aten.to.dtype(x, torch.float32, False, True)", "b = aten.neg.default(a)", "(b,)"), ["a", "b"]),
    "dropout that drops nothing": (("a = aten.dropout.default(x, 0.5, False)", "b = aten.neg.default(a)", "(b,)"), ["b"]),
    "dropout of rate 0": (("a = aten.dropout.default(x, 0.0, True)", "b = aten.neg.default(a)", "(b,)"), ["b"]),
    "dropout": (("a = aten.dropout.default(x, 0.5, True)", "b = aten.neg.default(a)", "(b,)"), ["a", "b"]),
    "a copy of an input, of which nobody knows the strides": (("a = aten.clone.default(x)", "b = aten.neg.default(a)", "(b,)"),
     ["a", "b"]),
    "a copy of fresh memory": ((FRESH, "c = aten.clone.default(a)", "b = aten.neg.default(c)", "(b,)"), ["a", "b"]),
    "a copy laid out otherwise": ((FRESH, "c = aten.clone.default(a, memory_format=torch.contiguous_format)",
     "b = aten.neg.default(c)", "(b,)"), ["a", "c", "b"]),
    "a copy of what is expanded": (("s = aten.select.int(x, 0, 0)", "e = aten.expand.default(s, [2, 3])",
     "c = aten.clone.default(e)", "b = aten.neg.default(c)", "(b,)"), ["s", "e", "c", "b"]),
    "a copy that is written": ((FRESH, "c = aten.clone.default(a)", "w = aten.add_.Tensor(c, 1)", "b = aten.neg.default(a)",
     "(b,)"), ["a", "c", "w", "b"]),
    "a copy of what is written": ((FRESH, "c = aten.clone.default(a)", "w = aten.add_.Tensor(a, 1)", "b = aten.neg.default(c)",
     "(b,)"), ["a", "c", "w", "b"]),
    "a copy that is returned": ((FRESH, "c = aten.clone.default(a)", "(c,)"), ["a"]),
    "a copy that is returned with the original": ((FRESH, "c = aten.clone.default(a)", "(a, c)"), ["a", "c"]),
    "a view that is returned": (("a = aten.view.default(x, [2, 3])", "(a,)"), ["a"]),
    "a view of state that is returned": (("n = get n", "a = aten.view.default(n, [2, 3])", "(a,)"), ["n", "a"]),
    "copies of copies that are returned": ((FRESH, "c = aten.clone.default(a)", "d = aten.clone.default(c)", "(d,)"), ["a"]),
    "times one": ((FRESH, "c = aten.mul.Tensor(a, 1)", "b = aten.neg.default(c)", "(b,)"), ["a", "b"]),
    "times one of an input": (("c = aten.mul.Tensor(x, 1)", "b = aten.neg.default(c)", "(b,)"), ["c", "b"]),
    "times true": ((FRESH, "c = aten.mul.Tensor(a, True)", "b = aten.neg.default(c)", "(b,)"), ["a", "c", "b"]),
    "plus zero turns -0.0": ((FRESH, "c = aten.add.Tensor(a, 0)", "b = aten.neg.default(c)", "(b,)"), ["a", "c", "b"]),
    "minus zero": ((FRESH, "c = aten.sub.Tensor(a, 0)", "b = aten.neg.default(c)", "(b,)"), ["a", "b"]),
    "minus -0.0 turns -0.0": ((FRESH, "c = aten.sub.Tensor(a, -0.0)", "b = aten.neg.default(c)", "(b,)"), ["a", "c", "b"]),
    "whole numbers plus zero": (("i = aten.to.dtype(x, torch.int64)", "j = aten.abs.default(i)", "c = aten.add.Tensor(j, 0)",
     "b = aten.neg.default(c)", "(b,)"), ["i", "j", "b"]),
    "whole numbers by one": (("i = aten.to.dtype(x, torch.int64)", "j = aten.abs.default(i)", "c = aten.div.Tensor(j, 1)",
     "b = aten.neg.default(c)", "(b,)"), ["i", "j", "c", "b"]),
    "whole numbers plus 0.0": (("i = aten.to.dtype(x, torch.int64)", "j = aten.abs.default(i)", "c = aten.add.Tensor(j, 0.0)",
     "b = aten.neg.default(c)", "(b,)"), ["i", "j", "c", "b"]),
    "detach": (("a = aten.detach.default(x)", "b = aten.neg.default(a)", "(b,)"), ["a", "b"]),
}  # fmt: skip

BITS = torch.tensor([[0.0, -0.0, float("nan")], [float("inf"), -1.5, 2.0]])


@pytest.mark.parametrize("case", FLAT)
def test_of_one_graph(case: str) -> None:
    lines, left = FLAT[case]
    program = text(root(*lines), STATE, inputs="x: f32[2, 3]", outputs=len(lines[-1].strip("(),").split(",")))
    result = sound(NOOPS, program)
    assert nodes(result) == left
    first, second = px.lower(program), px.lower(result)
    for given in (BITS, BITS.t().contiguous().t(), BITS[:1].expand(2, 3)):
        torch.manual_seed(1)
        expected = first(given.clone() if "w" in left else given)
        torch.manual_seed(1)
        found = second(given.clone() if "w" in left else given)
        for mine, theirs in zip(found, expected, strict=True):
            assert torch.equal(mine.contiguous().view(torch.uint8), theirs.contiguous().view(torch.uint8))
            assert mine.stride() == theirs.stride()


def test_in_a_level_of_vmap_sizes_are_not_what_values_say() -> None:
    program = text(root("a = aten.view.default(x, [2, 3])", "b = aten.neg.default(a)", "(b,)"), inputs="x: f32[2, 3]")
    level = px.Node("level", px.Op("toy.enter", px.Effects(ordered=True, scope=1)))
    end = px.Node("end", px.Op("toy.leave", px.Effects(ordered=True, scope=-1)))
    inside = program.with_main(px.Graph(program.main.inputs, (level, *program.main.nodes, end), program.main.output))
    assert NOOPS(inside) is inside
