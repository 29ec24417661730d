"""What crosses more than one boundary is handed on, once, by each part between; as text before and after."""

from __future__ import annotations

import pytest

import purefx as px
from tests.transforms.small import lines, shown
from tests.transforms.split_by_hand import split_tree

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


def test_a_user_input_is_taken_by_the_first_part_and_handed_on() -> None:
    given = program(
        """
        a = call @s0(x) as s0
        b = call @s1(a) as s1
        c = call @s2(b, x) as s2
        return (c,)
        """,
        NEG.format(name="s0"),
        NEG.format(name="s1"),
        ADD.format(name="s2"),
    )
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
    given = program(
        """
        a = call @s0(x) as s0
        b = call @s1(a) as s1
        return (a,)
        """,
        NEG.format(name="s0"),
        NEG.format(name="s1"),
    )
    assert lines(px.relay_skips(given))[-3:] == [
        "b = operator.getitem(s1, 0)",
        "a_1 = operator.getitem(s1, 1)",
        "return (a_1,)",
    ]


def test_an_input_that_is_given_back_goes_through_all_parts() -> None:
    given = program(
        """
        a = call @s0(x) as s0
        b = call @s1(a) as s1
        return (x,)
        """,
        NEG.format(name="s0"),
        NEG.format(name="s1"),
    )
    result = px.relay_skips(given)
    assert lines(result)[-1] == "return (x_2,)"
    assert px.relay_skips(result) is result


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


def test_values_go_in_the_order_in_which_they_are_made() -> None:
    given = program(
        """
        a = call @s0(x) as s0
        b = call @s1(a) as s1
        c = call @s2(a, x) as s2
        return (c,)
        """,
        NEG.format(name="s0"),
        NEG.format(name="s1"),
        ADD.format(name="s2"),
    )
    result = px.relay_skips(given)
    assert shown(result, "s1").splitlines()[0] == "graph @s1(a, x) {"
    assert shown(result, "s1").splitlines()[-2].strip() == "return (b, x, a)"


def test_with_fuel_some_values_are_relayed() -> None:
    given = program(
        """
        a = call @s0(x) as s0
        b = call @s1(a) as s1
        c = call @s2(a, x) as s2
        return (c,)
        """,
        NEG.format(name="s0"),
        NEG.format(name="s1"),
        ADD.format(name="s2"),
    )
    one = px.relay_skips(given, fuel=1)
    assert "c = call @s2(a, x_2) as s2" in lines(one)
    assert px.relay_skips(one) == px.relay_skips(given)


@pytest.mark.parametrize("step", [px.relay_skips, px.move_non_tensor_nodes])
def test_a_program_that_is_not_split_is_refused(step: px.Transformation) -> None:
    node = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),))
    flat = px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))})
    with pytest.raises(px.UnsupportedProgram, match=r"node y of the root is in no part; begin with split_by_tags"):
        step(flat)
