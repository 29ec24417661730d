"""What crosses more than one boundary, and the effects of parts."""

from __future__ import annotations

import purefx as px
from tests.transforms.small import lines, shown
from tests.transforms.split_by_hand import split_tree

# What crosses more than one boundary is handed on, once, by each part between; as text before and after.


NEG = """
    graph @{name}(a) {{
      b = aten.neg.default(a)
      return b
    }}"""

ADD = """
    graph @{name}(a, b) {{
      c = aten.add.Tensor(a, b)
      return c
    }}"""


def program(root: str, *bodies: str) -> px.Program:
    return split_tree('graph @""(x) {' + root + "}" + "".join(bodies))


def three_parts(*end: str) -> px.Program:
    """Return a program that begins with two parts, each negating what the one before gives; a third part adds."""
    root = "\n".join(["", "a = call @s0(x) as s0", "b = call @s1(a) as s1", *end, ""])
    third = [ADD.format(name="s2")] if "@s2" in root else []
    return program(root, NEG.format(name="s0"), NEG.format(name="s1"), *third)


def test_a_user_input_is_taken_by_the_first_part_and_handed_on() -> None:
    given = three_parts("c = call @s2(b, x) as s2", "return (c,)")
    result = px.relay_skips(given)
    assert px.verify(result) == ()
    assert lines(result) == [
        "s0 = call @s0(x) as s0",
        "a = operator.getitem(s0, 0)",
        "x_1 = operator.getitem(s0, 1)",
        "s1 = call @s1(a, x_1) as s1",
        "b = operator.getitem(s1, 0)",
        "x_2 = operator.getitem(s1, 1)",
        "c = call @s2(b, x_2) as s2",
        "return (c,)",
    ]
    assert shown(result, "s0").splitlines()[-2].strip() == "return (b, a)", "what is taken already is not taken twice"
    assert result.graphs["s2"] is given.graphs["s2"]
    assert px.relay_skips(result) is result
    assert px.alpha_equal(px.join(result), px.join(given))


def test_a_result_of_an_early_part_reaches_the_caller_from_the_last() -> None:
    given = three_parts("return (a,)")
    assert lines(px.relay_skips(given))[-3:] == [
        "b = operator.getitem(s1, 0)",
        "a_1 = operator.getitem(s1, 1)",
        "return (a_1,)",
    ]


def test_a_body_that_others_call_is_left_to_them() -> None:
    given = program(
        """
        a = call @s0(x) as s0
        b = call @s0(a) as s1
        c = call @s2(b, a) as s2
        d = call @s0(c) as s3
        return (d,)
        """,
        NEG.format(name="s0"),
        ADD.format(name="s2"),
    )
    result = px.relay_skips(given)
    assert [part.graph for part in px.parts(result)] == ["s0", "s0_1", "s2", "s0"]
    assert result.graphs["s0"] is given.graphs["s0"]


def test_a_result_that_was_taken_twice_is_taken_once() -> None:
    given = program(
        """
        p = call @s0(x) as s0
        a = operator.getitem(p, 0)
        b = operator.getitem(p, 1)
        again = operator.getitem(p, 0)
        c = call @s1(b) as s1
        d = call @s2(c, again) as s2
        return (d,)
        """,
        """
        graph @s0(a) {
          b = aten.neg.default(a)
          c = aten.abs.default(a)
          return (b, c)
        }""",
        NEG.format(name="s1"),
        ADD.format(name="s2"),
    )
    result = px.relay_skips(given)
    assert px.verify(result) == ()
    assert [line for line in lines(result) if "getitem(p, 0)" in line] == ["a = operator.getitem(p, 0)"]
    assert px.relay_skips(result) is result


# Drawn programs of operators whose schema says too little, split along drawn tags: numbers, state and draws are those of fx.
