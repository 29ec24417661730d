"""``relay_skips`` and ``move_non_tensor_nodes`` where drawn programs do not reach: shared bodies, chains of numbers, writes."""

from __future__ import annotations

import pytest

import purefx as px
from tests.transforms.small import lines, split_tree

NEG = """
    graph @s0(a) {
      b = aten.neg.default(a)
      return b
    }"""

ADD = """
    graph @s2(a, b) {
      c = aten.add.Tensor(a, b)
      return c
    }"""


def relayed(root: str, *bodies: str) -> px.Program:
    """Return the program of these parts after ``relay_skips``, which is valid and does not change again."""
    result = px.relay_skips(split_tree('graph @""(x) {' + root + "}" + "".join(bodies)))
    assert px.verify(result) == ()
    assert px.relay_skips(result) is result
    return result


def test_a_body_that_others_call_is_left_to_them() -> None:
    result = relayed(
        """
        a = call @s0(x) as s0
        b = call @s0(a) as s1
        c = call @s2(b, a) as s2
        d = call @s0(c) as s3
        return (d,)
        """,
        NEG,
        ADD,
    )
    assert [part.graph for part in px.parts(result)] == ["s0", "s0_1", "s2", "s0"]
    assert lines(result) == [
        "a = call @s0(x) as s0",
        "s1 = call @s0_1(a) as s1",
        "b = operator.getitem(s1, 0)",
        "a_1 = operator.getitem(s1, 1)",
        "c = call @s2(b, a_1) as s2",
        "d = call @s0(c) as s3",
        "return (d,)",
    ]
    every_call_changes = (
        "\na = call @s0(x) as s0\nb = call @s0(a) as s1\nc = call @s2(b, x) as s2\nreturn (c,)\n"
    )
    assert [part.graph for part in px.parts(relayed(every_call_changes, NEG, ADD))] == [
        "s0_1",
        "s0",
        "s2",
    ]


def test_a_result_that_was_taken_twice_is_taken_once() -> None:
    result = relayed(
        """
        p = call @s3(x) as s0
        a = operator.getitem(p, 0)
        b = operator.getitem(p, 1)
        again = operator.getitem(p, 0)
        c = call @s0(b) as s1
        d = call @s2(c, again) as s2
        return (d,)
        """,
        NEG,
        ADD,
        """
        graph @s3(a) {
          b = aten.neg.default(a)
          c = aten.abs.default(a)
          return (b, c)
        }""",
    )
    assert [line for line in lines(result) if "getitem(p, 0)" in line] == [
        "a = operator.getitem(p, 0)"
    ]


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


def test_a_chain_of_numbers_is_computed_where_it_is_used() -> None:
    """In order, and what a tensor needs stays."""
    result = px.move_non_tensor_nodes(split_tree(CHAIN))
    assert px.verify(result) == ()
    assert px.move_non_tensor_nodes(result) is result
    names = {
        part.name: [node.name for node in result.graphs[part.graph].nodes]
        for part in px.parts(result)
    }
    assert names == {"s0": ["size", "w"], "s1": ["size_1", "twice_1", "more_1", "a"]}


STAYING = """
    graph @""(x) {
      n = call @s0(x) as s0
      w = call @s1(x) as s1
      y = call @s2(x, n) as s2
      return (y,)
    }
    graph @s0(x) {
      FIRST
      return size
    }
    graph @s1(x) {
      w = BETWEEN
      return ()
    }
    graph @s2(x, n) {
      a = aten.mul.LAST(x, n)
      return a
    }
"""


@pytest.mark.parametrize(
    ("first", "between", "last"),
    [
        (["size = aten.sum.default(x)"], "aten.neg.default(x)", "Tensor"),
        (
            ["t = aten.sum.default(x)", "size = aten.item.default(t)", "v = aten.neg_.default(t)"],
            "aten.neg.default(x)",
            "Scalar",
        ),
        (["size = aten.item.default(x)"], "aten.add_.Scalar(x, 1)", "Scalar"),
    ],
    ids=["a tensor", "read before a write in its part", "read before a write of a part between"],
)
def test_what_cannot_be_computed_elsewhere_stays(first: list[str], between: str, last: str) -> None:
    program = split_tree(
        STAYING.replace("FIRST", "\n".join(first)).replace("BETWEEN", between).replace("LAST", last)
    )
    assert px.move_non_tensor_nodes(program) is program
