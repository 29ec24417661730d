"""What must be in one part and has no tag of its own: a preserved call goes where one node would go.

Cause of a refusal: its nodes were placed one by one, and then all went to the last of the parts that any of them had, though what
uses the others had an earlier tag.
"""

from __future__ import annotations

import pytest

import purefx as px

TEXT = """
program {
  facts (flat)
  modules {
    "": toy.Module
    m: toy.Module
    n: toy.Module
  }
  takes {
    user x: i64[]
  }
  gives {
    user
    user
  }
  signature m {
    names ()
    in_spec ((*,), {})
    out_spec (*, *)
  }
  signature n {
    names ()
    in_spec ((*,), {})
    out_spec *
  }
  graph @""(x) {
    takes = purefx.takes(x)     in m
    a = toy.neg(x) ! pure       in m
    b = toy.neg(a) ! pure       in m
    gives = purefx.gives(a, b)  in m
    takes_1 = purefx.takes(b)   in n
    c = toy.neg(x) ! pure       in n
    gives_1 = purefx.gives(c)   in n
    early = toy.neg(a) ! pure
    late = toy.neg(b) ! pure
    return (early, late)
  }
}
"""


def parts_of(program: px.Program) -> dict[str, set[str]]:
    return {part.name: {node.name for node in program.graphs[part.graph].nodes} for part in px.parts(program)}


def test_a_call_that_depends_on_nothing_goes_to_the_first_part_that_uses_any_of_it() -> None:
    split = px.split_by_tags(px.parse(TEXT), ("t0", "t1"), tag_of={"early": "t0", "late": "t1"})
    assert px.verify(split) == ()
    found = parts_of(split)
    assert {"a", "b", "early"} <= found["t0"]
    assert "late" in found["t1"]


def test_a_call_goes_behind_the_last_that_it_depends_on() -> None:
    # It takes a value of the part behind, which none of its operators uses.
    text = TEXT.replace("takes_1 = purefx.takes(b)   in n", "mid = toy.neg(b) ! pure\n    takes_1 = purefx.takes(mid) in n")
    split = px.split_by_tags(px.parse(text), ("t0", "t1"), tag_of={"early": "t0", "mid": "t1"})
    found = parts_of(split)
    assert {"a", "b", "early"} <= found["t0"]
    assert {"mid", "takes_1", "c", "gives_1"} <= found["t1"]


def test_what_cannot_be_is_refused() -> None:
    # The call needs a value of the second part, and the first one needs the call.
    text = TEXT.replace("takes = purefx.takes(x)     in m", "mid = toy.neg(x) ! pure\n    takes = purefx.takes(mid)   in m")
    with pytest.raises(px.errors.PartitionError, match="early"):
        px.split_by_tags(px.parse(text), ("t0", "t1"), tag_of={"early": "t0", "mid": "t1"})
