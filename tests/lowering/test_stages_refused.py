"""What cannot be stages: errors that name every fault and what to do; on split programs written by hand."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import purefx as px
from tests.transforms.split_by_hand import split_tree

ERRORS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a skip": (
        """
        graph @""(x) {
          a = call @neg(x) as s0
          b = call @neg(a) as s1
          c = call @two(b, a) as s2
          return (c,)
        }""",
        {},
        "s2 takes a from s0, which is not the part before it: run relay_skips",
    ),
    "a result of an early part": (
        """
        graph @""(x) {
          a = call @neg(x) as s0
          b = call @neg(a) as s1
          return (a,)
        }""",
        {},
        "the result a is made by s0, which is not the last part: run relay_skips",
    ),
    "a number": (
        """
        graph @""(x) {
          n = call @size(x) as s0
          c = call @scaled(n) as s1
          return (c,)
        }""",
        {},
        "s0 gives n, which is a number, and only tensors can be sent: run move_non_tensor_nodes, then relay_skips",
    ),
    "a number for the caller": (
        """
        graph @""(x) {
          n = call @size(x) as s0
          return (n,)
        }""",
        {},
        "the program returns n, a number, and the last stage can give tensors only",
    ),
    "a write into what is given": (
        """
        graph @""(x) {
          a = call @neg(x) as s0
          b = call @add_(a) as s1
          return (b,)
        }""",
        {},
        "s1 writes into a, which is its input",
    ),
    "an input that is a number": (
        """
        graph @""(x, n) {
          b = call @neg(x) as s0
          return (b,)
        }""",
        {"takes": "user x: f32[2]\nuser n: number int"},
        "the input n is a number (int), and stages take tensors",
    ),
}

BODIES = """
    graph @neg(a) {
      b = aten.neg.default(a)
      return b
    }
    graph @two(a, b) {
      c = aten.add.Tensor(a, b)
      return c
    }
    graph @size(x) {
      n = aten.sym_size.int(x, 0)
      return n
    }
    graph @scaled(n) {
      c = aten.full.default([2], n)
      return c
    }
    graph @add_(a) {
      b = aten.add_.Scalar(a, 1)
      return b
    }
"""


@pytest.mark.parametrize("name", ERRORS)
def test_what_torch_can_not_carry_is_refused_with_advice(name: str) -> None:
    graphs, options, said = ERRORS[name]
    text = graphs + "".join(f"\n    graph {part}" for part in BODIES.split("graph ")[1:] if part.split("(")[0].strip() in graphs)
    program = split_tree(text, **options)
    with pytest.raises(px.errors.StageError) as caught:
        px.lower_stages(program)
    assert said in str(caught.value)
    assert caught.value.faults
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


def test_state_that_one_part_writes_is_of_no_other() -> None:
    graphs = """
        graph @""(x) {
          a = call @s0(x) as s0
          b = call @s1(a) as s1
          return (b,)
        }
        graph @s0(x) {
          n = get n
          w = aten.add_.Scalar(n, 1)
          a = aten.add.Tensor(x, n)
          return a
        }
        graph @s1(a) {
          n = get n
          b = aten.add.Tensor(a, n)
          return b
        }"""
    program = split_tree(graphs, "state {\nbuffer s0.n: f32[2]\nbuffer s1.n: f32[2] tied s0.n\n}")
    with pytest.raises(px.errors.StageError, match="s0 writes n, which s1 has too, and the two would drift apart"):
        px.lower_stages(program, shared="copy")
