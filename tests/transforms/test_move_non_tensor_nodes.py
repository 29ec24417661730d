"""Numbers are computed where they are used: the ten rules of torch's own tests, and what is asked here beyond them.

Torch's is ``move_non_tensor_nodes_on_boundary``; each rule has a program of our own.  The parts after the move are
compared as lists of the names of their nodes.
"""

from __future__ import annotations

import contextlib
import io

import pytest

import purefx as px
from tests.transforms.split_by_hand import split_tree

BOTH = pytest.mark.parametrize("recompute", [True, False])


def nodes(program: px.Program) -> dict[str, list[str]]:
    """Return the names of the nodes of each part."""
    return {part.name: [node.name for node in program.graphs[part.graph].nodes] for part in px.parts(program)}


def moved(program: px.Program, **options: object) -> px.Program:
    """Return what the transformation gives, after looking whether it is valid, was quiet, and is done."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        result = px.move_non_tensor_nodes(program, **options)
    assert said.getvalue() == ""
    assert px.verify(result) == ()
    assert px.move_non_tensor_nodes(result, **options) is result
    return result


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


@BOTH
def test_1_a_number_that_one_other_part_needs_moves_there(recompute: bool) -> None:
    result = moved(split_tree(ONE_TARGET), recompute=recompute)
    assert nodes(result) == {"s0": [], "s1": ["n", "a", "b"]}
    assert result.graphs["s0"].output == ()
    assert [formal.name for formal in result.graphs["s1"].inputs] == ["x"]


@BOTH
def test_2_tensors_never_move(recompute: bool) -> None:
    program = split_tree(ONE_TARGET.replace("aten.sym_size.int(x, 0)", "aten.sum.default(x)").replace(".Scalar", ".Tensor"))
    assert moved(program, recompute=recompute) is program


@BOTH
def test_3_nothing_leaves_a_part_that_may_not_give(recompute: bool) -> None:
    program = split_tree(ONE_TARGET)
    assert moved(program, keep=["s0"], recompute=recompute) is program


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
      a = aten.mul.Scalar(x, n)
      return a
    }
"""


def test_4_a_number_that_several_parts_need_does_not_move() -> None:
    program = split_tree(TWO_TARGETS)
    assert moved(program, recompute=False) is program


def test_4_it_is_computed_again_in_each() -> None:
    result = moved(split_tree(TWO_TARGETS))
    assert nodes(result) == {"s0": [], "s1": ["n", "a"], "s2": ["n", "a"]}


CHAIN = """
    graph @""(x) {
      n = call @s0(x) as s0
      y = call @s1(x, n) as s1
      return (y,)
    }
    graph @s0(x) {
      size = aten.sym_size.int(x, 0)
      twice = operator.mul(size, 2)
      more = operator.add(twice, size)
      return more
    }
    graph @s1(x, n) {
      a = aten.mul.Scalar(x, n)
      return a
    }
"""


@BOTH
def test_5_a_chain_moves_whole_and_in_order(recompute: bool) -> None:
    result = moved(split_tree(CHAIN), recompute=recompute)
    assert nodes(result) == {"s0": [], "s1": ["size", "twice", "n", "a"]}
    assert str(result.graphs["s1"].nodes[2]) == "n = operator.add(twice, size)"


@BOTH
def test_6_the_numbers_that_it_is_made_of_follow(recompute: bool) -> None:
    """As far as they are only for it: one that a tensor of its own part needs stays, and is computed twice or crosses."""
    kept = CHAIN.replace("return more", "z = aten.mul.Scalar(x, size)\n      return (more, z)").replace(
        "n = call @s0(x) as s0\n      y = call @s1(x, n) as s1",
        "p = call @s0(x) as s0\n      n = operator.getitem(p, 0)\n      z = operator.getitem(p, 1)\n"
        "      y = call @s1(z, n) as s1",
    )
    result = moved(split_tree(kept), recompute=recompute)
    here = ["size", "twice", "n", "a"] if recompute else ["twice", "n", "a"]
    assert nodes(result) == {"s0": ["size", "z"], "s1": here}


THIRD_PART = """
    graph @""(x) {
      p = call @s0(x) as s0
      n = operator.getitem(p, 0)
      b = operator.getitem(p, 1)
      d = call @s1(b) as s1
      y = call @s2(d, n) as s2
      return (y,)
    }
    graph @s0(x) {
      n = aten.sym_size.int(x, 0)
      b = aten.mul.Scalar(x, n)
      return (n, b)
    }
    graph @s1(b) {
      d = aten.neg.default(b)
      return d
    }
    graph @s2(d, n) {
      y = aten.mul.Scalar(d, n)
      return y
    }
"""


def test_9_what_depends_on_it_and_goes_to_a_third_part_holds_it() -> None:
    program = split_tree(THIRD_PART)
    assert moved(program, recompute=False) is program


def test_9_it_is_computed_a_second_time_beside_its_tensor() -> None:
    assert nodes(moved(split_tree(THIRD_PART))) == {"s0": ["n", "b"], "s1": ["d"], "s2": ["n", "y"]}


# Beyond the ten.


@pytest.mark.parametrize("number", ["aten.sym_size.int(t, 0)", "aten.item.default(t)"])
@BOTH
def test_what_is_written_later_in_its_part_is_read_there(number: str, recompute: bool) -> None:
    """In a part behind, another number would come out."""
    program = split_tree(
        ONE_TARGET.replace(
            "size = aten.sym_size.int(x, 0)",
            f"t = aten.sum.default(x)\n      size = {number}\n      w = aten.add_.Scalar(t, 1)",
        )
    )
    assert moved(program, recompute=recompute) is program


@BOTH
@pytest.mark.parametrize("first", [True, False])
def test_nothing_moves_over_a_part_that_writes(first: bool, recompute: bool) -> None:
    """Whether its part is the first, or stands behind another one."""
    program = split_tree(
        """
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
        """.replace("n = call", "n = call" if first else "z = call @z() as z\n          n = call")
        + ("" if first else "graph @z() {\n return ()\n}")
    )
    assert moved(program, recompute=recompute) is program


def test_a_part_that_writes_holds_only_what_runs_before_it() -> None:
    """The first part has nothing to do with the third, which writes into what the second gives."""
    program = split_tree(
        """
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
        """,
        takes="user x: f32[2]\nuser y: f32[2]",
    )
    assert nodes(moved(program)) == {"s0": [], "s1": ["t", "u"], "s2": ["s"], "s3": ["n", "a", "z"]}
