"""Numbers are computed where they are used: the rules of torch's own tests, and what is asked here beyond them.

Torch's is ``move_non_tensor_nodes_on_boundary``; each rule has a program of our own.  The parts after the move are
compared as lists of the names of their nodes.
"""

from __future__ import annotations

import pytest

import purefx as px
from tests.transforms.split_by_hand import split_tree

ONE_TARGET = """
    graph @""(x) {
      n = call @s0(x) as s0
      y = call @s1(x, n) as s1
      return (y,)
    }
    graph @s0(x) {
      size = aten.sym_size.int(x, 0)
      return size
    }
    graph @s1(x, n) {
      a = aten.mul.Scalar(x, n)
      b = aten.add.Scalar(a, n)
      return b
    }
"""
TWO_TARGETS = """
    graph @""(x) {
      n = call @s0(x) as s0
      y = call @s1(x, n) as s1
      z = call @s2(y, n) as s2
      return (z,)
    }
    graph @s0(x) {
      size = aten.sym_size.int(x, 0)
      return size
    }
    graph @s1(x, n) {
      a = aten.mul.Scalar(x, n)
      return a
    }
    graph @s2(x, n) {
      c = aten.mul.Scalar(x, n)
      return c
    }
"""
CHAIN = """
    graph @""(x) {
      p = call @s0(x) as s0
      n = operator.getitem(p, 0)
      z = operator.getitem(p, 1)
      y = call @s1(z, n) as s1
      return (y,)
    }
    graph @s0(x) {
      size = aten.sym_size.int(x, 0)
      twice = operator.mul(size, 2)
      more = operator.add(twice, size)
      w = aten.mul.Scalar(x, size)
      return (more, w)
    }
    graph @s1(x, n) {
      a = aten.mul.Scalar(x, n)
      return a
    }
"""
ROUND_A_WRITE = """
    graph @""(x, y) {
      n = call @s0(y) as s0
      p = call @s1(x) as s1
      t = operator.getitem(p, 0)
      u = operator.getitem(p, 1)
      w = call @s2(t) as s2
      z = call @s3(n, u, w) as s3
      return (z,)
    }
    graph @s0(y) {
      n = aten.sym_size.int(y, 0)
      return n
    }
    graph @s1(x) {
      t = aten.neg.default(x)
      u = aten.abs.default(x)
      return (t, u)
    }
    graph @s2(t) {
      s = aten.add_.Scalar(t, 1)
      return s
    }
    graph @s3(n, u, w) {
      a = aten.add.Scalar(w, n)
      z = aten.add.Tensor(a, u)
      return z
    }
"""
MOVED: dict[str, tuple[str, dict[str, list[str]]]] = {
    "one target": (ONE_TARGET, {"s0": [], "s1": ["size", "a", "b"]}),
    "computed again in each": (TWO_TARGETS, {"s0": [], "s1": ["size", "a"], "s2": ["size", "c"]}),
    "a chain, in order, what a tensor needs stays": (CHAIN, {"s0": ["size", "w"], "s1": ["size", "twice", "more", "a"]}),
    "a part that writes elsewhere": (ROUND_A_WRITE, {"s0": [], "s1": ["t", "u"], "s2": ["s"], "s3": ["n", "a", "z"]}),
}


@pytest.mark.parametrize("name", MOVED)
def test_numbers_are_computed_where_they_are_used(name: str) -> None:
    text, expected = MOVED[name]
    takes = "user x: f32[2]\nuser y: f32[2]" if text is ROUND_A_WRITE else "user x: f32[2]"
    result = px.move_non_tensor_nodes(split_tree(text, takes=takes))
    assert px.verify(result) == ()
    assert px.move_non_tensor_nodes(result) is result
    found = {part.name: [node.name for node in result.graphs[part.graph].nodes] for part in px.parts(result)}
    assert {part: [name.removesuffix("_1").removesuffix("_2") for name in names] for part, names in found.items()} == expected


A_WRITE_BETWEEN = """
    graph @""(x) {
      n = call @s0(x) as s0
      w = call @s1(x) as s1
      y = call @s2(x, n) as s2
      return (y,)
    }
    graph @s0(x) {
      size = aten.item.default(x)
      return size
    }
    graph @s1(x) {
      w = aten.add_.Scalar(x, 1)
      return ()
    }
    graph @s2(x, n) {
      a = aten.mul.Scalar(x, n)
      return a
    }
"""
SIZE = "size = aten.sym_size.int(x, 0)"
WRITTEN_LATER = "t = aten.sum.default(x)\n      size = aten.item.default(t)\n      w = aten.add_.Scalar(t, 1)"
STAYING = {
    "a tensor": ONE_TARGET.replace("aten.sym_size.int(x, 0)", "aten.sum.default(x)").replace(".Scalar", ".Tensor"),
    "read before a write in its part": ONE_TARGET.replace(SIZE, WRITTEN_LATER),
    "read before a write of a part between": A_WRITE_BETWEEN,
}


@pytest.mark.parametrize("name", STAYING)
def test_what_cannot_be_computed_elsewhere_stays(name: str) -> None:
    program = split_tree(STAYING[name])
    assert px.move_non_tensor_nodes(program) is program
