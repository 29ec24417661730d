"""How ``split_by_tags`` explains that a node cannot be in an earlier part than one that it depends on, step by step."""

from __future__ import annotations

import pytest
import torch

import purefx as px
from purefx.ir.effects.declared import COMMUNICATION, LIBRARIES, ArgAt, Effects
from tests.programs import ADD, ADD_, NEG, PRINT, flat, node

RAND = px.Op("toy.rand", Effects(random=True))
LIBRARY = px.Op("toy.library", Effects(domain=LIBRARIES))
SEND = px.Op("toy.send", Effects(domain=COMMUNICATION))
STRANGE = px.Op("toy.strange", Effects(domain="strange"))
WAIT = px.Op("toy.wait", Effects(completes=(ArgAt(0, "self"),)))
LOUD = px.Op("toy.loud", Effects(ordered=True, random=True, domain=LIBRARIES, writes=(ArgAt(0, "self"),)))
OPEN = px.Op("toy.open", Effects(scope=1))
SHUT = px.Op("toy.shut", Effects(scope=-1))
DECLARE = "operators of other libraries may log or count; where one does not, say so with px.declare(op, px.PURE)"


def said(*nodes: px.Node, allow_reuse: bool = False) -> list[str]:
    """Return the lines of the refusal, where the part of a node is its first letter if that is a or b."""

    def tag_of(of: px.Node) -> str | None:
        return of.name[0] if of.name[0] in "ab" else None

    program = flat(list(nodes), px.Ref(nodes[-1].name), "x")
    with pytest.raises(px.errors.PartitionError) as found:
        px.split_by_tags(program, ("a", "b"), tag_of=tag_of, allow_reuse=allow_reuse)
    return str(found.value).split("\n")


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (node("b", NEG, "x"), node("a", NEG, "b"), "uses 'b'"),
        (node("b", RAND), node("a", RAND), "draws random numbers after 'b' does"),
        (px.Node("b", PRINT, ("one",)), px.Node("a", PRINT, ("two",)), "is an ordered effect after 'b'"),
        (node("b", LIBRARY), node("a", LIBRARY), f"stays in order with 'b': {DECLARE}"),
        (node("b", SEND), node("a", SEND), "stays in order with 'b': both communicate"),
        (node("b", STRANGE), node("a", STRANGE), "stays in order with 'b': nothing is known of one of them"),
        (node("b", NEG, "x"), node("a", WAIT, "x"), "waits for what 'b' uses before it"),
        (node("b", WAIT, "x"), node("a", NEG, "x"), "uses what 'b' waits for"),
        (node("b", NEG, "x"), node("a", ADD_, "x", 1), "writes what 'b' reads or writes before it"),
        (node("b", ADD_, "x", 1), node("a", ADD_, "x", 1), "writes what 'b' reads or writes before it"),
        (node("b", ADD_, "x", 1), node("a", NEG, "x"), "reads what 'b' writes"),
        (node("b", LOUD, "x"), node("a", NEG, "x"), "reads what 'b' writes"),
        (node("b", NEG, "x"), node("a", LOUD, "x"), "writes what 'b' reads or writes before it"),
    ],
)
def test_the_reason_is_told(first: px.Node, second: px.Node, why: str) -> None:
    assert said(first, second) == [
        "node 'a' has the tag 'a', which comes before 'b', but it depends on node 'b' of 'b':",
        f"    node 'a' {why}",
        "put 'b' before 'a' in the tags, or tag differently",
    ]


def test_the_boundary_of_a_region_is_a_reason() -> None:
    lines = said(node("o", OPEN), node("b", NEG, "x"), node("s", SHUT), node("a", NEG, "x"))
    assert lines[1] == "    node 'a' is kept behind 's' by the boundary of a region"


def test_a_write_of_state_is_a_reason() -> None:
    nodes = [px.Node("w", px.Get("n")), node("b", ADD_, "w", 1), node("a", NEG, "w")]
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0, True)
    program = flat(nodes, px.Ref("a"), state=px.ir.State(("n",), px.ir.pmap({"n": slot})))
    with pytest.raises(px.errors.PartitionError, match="node 'a' reads what 'b' writes"):
        px.split_by_tags(program, ("a", "b"), tag_of={"a": "a", "b": "b"})


def test_a_circle_is_told() -> None:
    """Also where the way back goes over nodes without a tag; what only stands beside makes no circle."""
    circle = (
        "'b' depends on 'a' as well, so neither can run before the other: tag differently, or pass allow_reuse=True, "
        "which makes another part of what comes back to 'a'"
    )
    assert said(node("a1", NEG, "x"), node("b", NEG, "a1"), node("a", NEG, "b"))[-1] == circle
    assert said(node("a1", NEG, "x"), node("c", NEG, "a1"), node("b", NEG, "c"), node("a", NEG, "b"))[-1] == circle
    assert said(node("a1", NEG, "x"), node("b", NEG, "x"), node("a", ADD, "a1", "b"))[-1].startswith("put 'b' before 'a'")
