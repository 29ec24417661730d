"""``overlap_communication``: what moves where, what stays, and how much is under way."""

from __future__ import annotations

from typing import Any

import pytest

import purefx as px
from purefx.laws.toy import ADD_, NEG, SEND, VIEW, WAIT

OVERLAP = px.training.overlap_communication


def program(*nodes: tuple[str, px.Op, tuple[Any, ...]], outputs: str = "", inputs: str = "xyz", **graphs: px.Graph) -> px.Program:
    """Return a program of these nodes; operands of one letter are values."""
    made = [
        px.Node(name, do, tuple([px.Ref(one) if isinstance(one, str) and not one.isdigit() else one for one in args]))
        for name, do, args in nodes
    ]
    return px.Program.of({"": px.Graph(tuple(map(px.Input, inputs)), made, tuple(map(px.Ref, outputs))), **graphs})


def order(made: px.Program, graph: str = "") -> str:
    """Return the names of the nodes of a graph, one letter each."""
    return "".join([node.name for node in made.graphs[graph].nodes])


def test_starts_come_early_and_waits_late() -> None:
    """a is sent, waited for at once and used; c is computed, sent and waited for: c is computed while a is under way."""
    given = program(
        ("a", SEND, ("x", "0")), ("b", WAIT, ("a",)), ("u", NEG, ("b",)),
        ("c", NEG, ("y",)), ("d", SEND, ("c", "0")), ("e", WAIT, ("d",)),
        outputs="ue",
    )  # fmt: skip
    once = OVERLAP(given)
    assert order(once) == "acdbue"
    assert OVERLAP(once) is once


def test_groups_keep_their_order_and_pass_one_another() -> None:
    """The second of a group is ready first, and waits for its turn; another group does not."""
    given = program(
        ("w", NEG, ("x",)),
        ("v", NEG, ("w",)),
        ("a", SEND, ("v", "0")),
        ("b", SEND, ("y", "0")),
        ("c", SEND, ("z", "1")),
        outputs="w",
    )
    assert order(OVERLAP(given)) == "cwvab"


def test_what_only_starts_need_comes_with_them() -> None:
    """A chain before a start is computed before what others need."""
    given = program(
        ("u", NEG, ("x",)), ("v", NEG, ("u",)), ("p", NEG, ("y",)), ("q", NEG, ("p",)), ("a", SEND, ("q", "0")),
        ("b", WAIT, ("a",)),
        outputs="bv",
    )  # fmt: skip
    assert order(OVERLAP(given)) == "pqauvb"


def test_a_buffer_that_is_read_and_written_stays_on_its_side() -> None:
    """What was sent is read through a view after the wait; a write stays behind the start that reads it."""
    given = program(
        ("a", SEND, ("x", "0")), ("v", VIEW, ("a",)), ("w", WAIT, ("a",)), ("r", NEG, ("v",)), ("i", ADD_, ("x", 1)),
        ("n", NEG, ("y",)),
        outputs="rn",
    )  # fmt: skip
    assert order(OVERLAP(given)) == "avinwr"


def test_no_more_is_under_way_than_said() -> None:
    """Without a limit all four are sent first."""
    nodes: list[tuple[str, px.Op, tuple[Any, ...]]] = []
    for start, wait, use in ("abc", "def", "ghi", "jkl"):
        nodes += [(start, SEND, ("x", "0")), (wait, WAIT, (start,)), (use, NEG, (wait,))]
    given = program(*nodes, outputs="cfil")
    assert order(OVERLAP(given)) == "adgjbcefhikl"
    assert order(OVERLAP(given, in_flight=2)) == "adbgcejfhikl"
    assert order(OVERLAP(given, in_flight=1)) == "abdcegfhjikl"
    once = OVERLAP(given, in_flight=2)
    assert OVERLAP(once, in_flight=2) is once


def test_a_limit_that_the_program_exceeds_is_kept() -> None:
    """It sends twice before it waits; with a limit the first is waited for before the second is sent."""
    given = program(
        ("a", SEND, ("x", "0")),
        ("b", SEND, ("y", "1")),
        ("v", VIEW, ("a",)),
        ("w", WAIT, ("a",)),
        ("u", WAIT, ("b",)),
        outputs="wuv",
    )
    assert order(OVERLAP(given, in_flight=1)) == "avwbu"


def test_a_message_that_nobody_waits_for_is_not_counted() -> None:
    given = program(("a", SEND, ("x", "0")), ("b", SEND, ("y", "0")), ("n", NEG, ("z",)), outputs="n")
    assert OVERLAP(given, in_flight=1) is given


def test_bodies_are_treated_each_by_itself() -> None:
    """A call of a body that talks stays in order with what talks around it."""
    inside = program(("a", SEND, ("x", "0")), ("b", WAIT, ("a",)), ("n", NEG, ("x",)), outputs="bn", inputs="x").main
    given = program(("s", SEND, ("x", "0")), ("t", WAIT, ("s",)), ("m", px.Call(px.Frame("m"), "body"), ("y",)), body=inside)
    made = OVERLAP(given)
    assert order(made, "body") == "anb"
    assert order(made) == "smt"


def test_nothing_that_talks_is_the_same_object() -> None:
    given = program(("n", NEG, ("x",)), ("m", NEG, ("n",)), outputs="m")
    assert OVERLAP(given) is given


@pytest.mark.parametrize("wrong", [0, -1, 2.0, "2", True])
def test_what_is_no_number_of_collectives(wrong: Any) -> None:
    with pytest.raises(px.errors.ArgumentError, match="overlap_communication takes in_flight="):
        OVERLAP(px.Program.of({"": px.Graph((), (), ())}), in_flight=wrong)
