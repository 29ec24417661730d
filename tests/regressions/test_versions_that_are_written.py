"""A value that crosses a preserved call is read from the state that it was stored in only while both stay what they were.

One idea: ``insert_ivals`` took a version of state for a value that nobody writes.  Found by fresh seeds of "meaning"; each
program here is the smallest that one of them found.
"""

from __future__ import annotations

import pytest

import purefx as px
from purefx.laws import toy

WHOLE = """program {{
  facts (flat)
  modules {{
    "": toy.Module
    a: toy.Module
  }}
  takes {{
    user x0: i64[]
  }}
  {gives}
  signature a {{
    names ()
    in_spec ((*,), {{}})
    out_spec (*,)
  }}
  graph @""(x0) {{
{nodes}
  }}
}}
"""

ADD = "! writes(0:a), returns(0:a), aliases(0:a)"

PROGRAMS = {
    "the value is written after it was stored": f"""
    y = toy.neg(x0) ! pure     in a
    z = toy.add_(y, 1) {ADD}   in a
    g = purefx.gives(z)        in a
    t = purefx.takes(x0)       in a
    n = toy.neg(y) ! pure
    return (n,)""",
    "who uses the value writes to it": f"""
    y = toy.add(x0, x0) ! pure
    t = purefx.takes(x0)       in a
    z = toy.add_(y, 1) {ADD}   in a
    g = purefx.gives(z)        in a
    n = toy.neg(y) ! pure
    return (n,)""",
    "the value is the state": f"""
    y = toy.add_(x0, 1) {ADD}
    c = aten.copy_.default(x0, y)
    t = purefx.takes(c)        in a
    z = toy.add_(y, 1) {ADD}   in a
    g = purefx.gives(z)        in a
    return ()""",
    "the state is written again": f"""
    y = toy.neg(x0) ! pure
    c = aten.copy_.default(x0, y)
    t = purefx.takes(c)        in a
    z = toy.add_(c, 1) {ADD}   in a
    n = toy.add(z, y) ! pure   in a
    g = purefx.gives(n)        in a
    return ()""",
}


@pytest.mark.parametrize("which", PROGRAMS)
def test_the_meaning_is_kept(which: str) -> None:
    nodes = PROGRAMS[which]
    gives = "gives {\n    input 0\n  }" if "(n,)" in nodes else ""
    program = px.parse(WHOLE.format(gives=gives, nodes=nodes.strip("\n")))
    assert px.verify(program) == ()
    assert toy.toy_meaning(px.transform(program)) == toy.toy_meaning(program)
