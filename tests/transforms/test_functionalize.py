"""Which writes are returned: those after which nothing looks at the memory, under any of its names or in any body.

One idea: a buffer ``n``, a value ``y`` that is copied into it, and something that stands in the way.
"""

from __future__ import annotations

import pytest

import purefx as px
from tests.transforms.small import lines

TEXT = """program {{
  state {{
    buffer n: f32[2]
    buffer other: f32[2] tied n
    buffer m: f32[2]
  }}
  takes {{
    {takes}
    state n
    user x: f32[2]
    state m
  }}
  gives {{
    {gives}
  }}
  graph @""({inputs}bn, x, bm) {{
    y = aten.neg.default(x)
    {nodes}
  }}
  {body}
}}"""

BODY = 'graph @"$t"(v) {{\n{nodes}\nreturn (v,)\n}}'


def parsed(nodes: str, *gives: str, body: str = "", token: bool = False) -> px.Program:
    """Return a program of these nodes, and of a body that an operator may be given."""
    text = TEXT.format(
        nodes=nodes, gives="\n".join(gives), body=BODY.format(nodes=body) if body else "",
        takes="token" if token else "", inputs="t, " if token else "",
    )  # fmt: skip
    program = px.parse(text)
    assert px.verify(program) == ()
    return program


def test_a_write_that_nothing_sees_is_returned() -> None:
    result = px.functionalize(parsed("c = aten.copy_.default(bn, y)\nreturn (y,)", "user"))
    assert lines(result) == ["y = aten.neg.default(x)", "return (y, y)"]
    assert result.signature.outputs == (px.StateMutation("n"), px.UserOutput())


WAYS = {
    "contents that are returned already": ("z = aten.abs.default(x)\nreturn (z, y)", ("state n", "user"), ""),
    "contents of a tied buffer": ("z = aten.abs.default(x)\nreturn (z, y)", ("state other", "user"), ""),
    "a branch that reads it": ('r = higher_order.cond(x, @"$t", @"$t", (x,))\nreturn (y,)', ("user",), "w = get n"),
    "a branch that reads a tied one": ('r = higher_order.cond(x, @"$t", @"$t", (x,))\nreturn (y,)', ("user",), "w = get other"),
    "a branch that writes it": (
        'r = higher_order.cond(x, @"$t", @"$t", (x,))\nreturn (y,)', ("user",), "w = get n\nz = aten.add_.Tensor(w, 1)",
    ),
    "the value is written later": ("z = aten.abs.default(x)\nw = aten.add_.Tensor(y, 1)\nreturn (z,)", ("user",), ""),
    "a keyword": ("return (y,)", ("user",), ""),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_write_that_something_sees_stays(way: str) -> None:
    nodes, gives, body = WAYS[way]
    copy = "c = aten.copy_.default(bn, y, non_blocking=True)" if way == "a keyword" else "c = aten.copy_.default(bn, y)"
    program = parsed(f"{copy}\n{nodes}", *gives, body=body)
    assert px.functionalize(program) is program


def test_an_input_that_is_returned_already_is_not_returned_twice() -> None:
    program = parsed("z = aten.abs.default(x)\nc = aten.copy_.default(x, y)\nreturn (z, y)", "input 1", "user")
    assert px.functionalize(program) is program


@pytest.mark.parametrize("body", ["w = get m", "w = get m\nz = aten.add_.Tensor(w, 1)"])
def test_branches_that_see_another_buffer_are_not_in_the_way(body: str) -> None:
    cond = 'r = higher_order.cond(x, @"$t", @"$t", (x,))\nreturn (y,)'
    result = px.functionalize(parsed(f"c = aten.copy_.default(bn, y)\n{cond}", "user", body=body))
    assert result.signature.outputs == (px.StateMutation("n"), px.UserOutput())


def test_a_value_that_a_branch_writes_later_is_not_returned() -> None:
    """What is copied is a buffer itself, and it is other contents at the end."""
    nodes = 'c = aten.copy_.default(bn, bm)\nr = higher_order.cond(x, @"$t", @"$t", (x,))\nreturn (y,)'
    program = parsed(nodes, "user", body="w = get m\nz = aten.add_.Tensor(w, 1)")
    assert px.functionalize(program) is program
    reads = parsed(nodes, "user", body="w = get m")
    assert px.functionalize(reads) is not reads


def test_returned_contents_stand_behind_tokens() -> None:
    program = parsed("c = aten.copy_.default(bn, y)\nd = aten.copy_.default(x, y)\nreturn (t, y)", "token", "user", token=True)
    result = px.functionalize(program)
    assert result.signature.outputs == (px.Token(), px.StateMutation("n"), px.InputMutation(2), px.UserOutput())
    assert lines(result)[-1] == "return (t, y, y, y)"
