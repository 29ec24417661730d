"""Outlining: bodies from stacks, and calls whose nodes do not stand side by side."""

from __future__ import annotations

import pytest
import torch

import purefx as px
from tests.models import ADD, NEG, calls, flat, node
from tests.transforms.small import preserved, shown, tree

A, B = px.Frame("a"), px.Frame("b")


def flatly(program: px.Program, *names: str) -> px.Program:
    """Return the outlined program, of which these calls stay flat."""
    with pytest.warns(px.errors.FlatCallWarning) as caught:
        result = px.outline(program)
    assert px.verify(result) == ()
    said = "the call {} stays" if len(names) == 1 else "the calls {} stay"
    assert [str(each.message).partition(" flat")[0] for each in caught] == [
        said.format(", ".join(names))
    ]
    return result


def test_a_call_that_is_no_single_run_stays_flat() -> None:
    """a needs b's result and b needs a's: neither is one run, and the program still means the same."""
    nodes = [
        node("p", NEG, "x", stack=(A,)),
        node("q", NEG, "p", stack=(B,)),
        node("r", ADD, "q", "p", stack=(A,)),
    ]
    program = flatly(flat(nodes, px.Ref("r"), "x"), "a", "b")
    assert calls(program) == [] and [node.stack for node in program.main.nodes] == [
        (A,),
        (B,),
        (A,),
    ]
    x = torch.randn(2)
    assert torch.equal(px.lower(px.deduplicate(program))(x)[0], x + -x)


def outlined(nodes: str, *sections: str, flat: str = "") -> px.Program:
    """Return the program of these nodes after ``outline``, which is valid."""
    program = tree('graph @""(x) {\n' + nodes + "\n}", *sections)
    if flat:
        return flatly(program, *flat.split())
    result = px.outline(program)
    assert px.verify(result) == ()
    return result


CIRCLE = """
    p = aten.neg.default(x)  in a
    q = aten.abs.default(x)  in b
    r = aten.add.Tensor(p, q)  in a
    s = aten.mul.Tensor(q, r)  in b
    t = aten.neg.default(s)
    return (t,)
"""


def test_a_call_with_a_preserved_signature_stays_whole() -> None:
    """The other one is dissolved for it, whichever is first by name."""
    assert calls(outlined(CIRCLE, flat="a b")) == []
    inside = outlined(CIRCLE.replace("in ", "in m / ."), flat="m.a m.b").graphs["m"]
    assert [node.stack for node in inside.nodes] == [(A,), (B,), (A,), (B,)]
    assert calls(outlined(CIRCLE, preserved("a"), flat="b")) == ["a"]
    assert calls(outlined(CIRCLE.replace("in a", "in c"), preserved("c"), flat="b")) == ["c"]


def test_calls_inside_one_that_stays_flat_are_calls() -> None:
    nodes = """
        p = aten.neg.default(x)  in a / .c
        q = aten.abs.default(x)  in b
        r = aten.add.Tensor(p, q)  in a / .c
        s = aten.mul.Tensor(q, r)  in b / .d
        u = aten.abs.default(s)  in b / .d
        t = aten.neg.default(u)  in a
        return (t,)
    """
    result = outlined(nodes, flat="a b")
    assert calls(result) == ["a.c", "b.d"]
    assert calls(outlined(nodes, preserved("a.c"), flat="a b")) == ["a.c", "b.d"]
    assert [node.stack for node in result.main.nodes] == [(B,), (A,), (B,), (A,)]
    assert calls(px.outline(tree('graph @""(x) {\n' + nodes + "\n}"), fuel=1)) == ["a.c"]


VISITS = """
    p = aten.neg.default(x)  in a
    q = aten.abs.default(p)
    r = aten.add.Tensor(p, q)  in a
    s = aten.mul.Tensor(q, r)
    t = aten.add.Tensor(s, r)  in a
    return (t,)
"""


def test_of_two_preserved_calls_that_need_one_another_none_is_whole() -> None:
    """That is refused; export it without preserving one."""
    for program in ((CIRCLE, preserved("a"), preserved("b")), (VISITS, preserved("a"))):
        with pytest.raises(
            px.errors.UnsupportedProgram,
            match=r"signature of a \(call 0\).* export again without preserving it",
        ):
            outlined(*program)


@pytest.mark.parametrize("frame", ["c", "c@1"])
def test_calls_that_are_outlined_already_are_named_in_the_module(frame: str) -> None:
    """With their number; and so are reads."""
    program = tree(
        f"""
        graph @""(x) {{
          w = get a.w  in a
          y = call @c(x) as a.{frame}  in a
          z = aten.add.Tensor(y, w)  in a
          o = get b.w  in a
          u = aten.add.Tensor(z, o)  in a
          return (u,)
        }}
        graph @c(v) {{
          return v
        }}
        """,
        "state {\nbuffer a.w: f32[2]\nbuffer b.w: f32[2]\n}",
    )
    result = px.outline(program)
    assert px.verify(result) == ()
    assert [line.strip() for line in shown(result, "a").splitlines()[1:-1]] == [
        "w = get w",
        f"y = call @c(x) as {frame}",
        "z = aten.add.Tensor(y, w)",
        'o = get "/b.w"',
        "u = aten.add.Tensor(z, o)",
        "return u",
    ]
    assert result.graphs["c"] is program.graphs["c"]


PARTLY_OUTLINED = {
    "call 1 of a module whose call 0 is flat": (
        """
        a = aten.neg.default(x)  in w
        y = call @w(a) as w@1
        return (y,)
        """,
        ["w", "w@1"],
    ),
    "a call of another module": (
        """
        a = aten.neg.default(x)  in v
        y = call @w(a) as w  in v
        z = aten.sin.default(y)  in v
        return (z,)
        """,
        ["v", "/w"],
    ),
    "a call of a module below": (
        """
        a = aten.neg.default(x)  in v
        y = call @w(a) as v.w  in v
        z = call @w(y) as v.w@1  in v
        return (z,)
        """,
        ["v", "w", "w"],
    ),
    "a call in two calls": (
        """
        a = aten.neg.default(x)  in v / v.u
        y = call @w(a) as w  in v / v.u
        z = call @w(y) as w@1  in v
        return (z,)
        """,
        ["v", "u", "/w", "/w"],
    ),
}


@pytest.mark.parametrize("case", PARTLY_OUTLINED)
def test_a_program_with_calls_and_stacks_becomes_a_tree(case: str) -> None:
    nodes, expected = PARTLY_OUTLINED[case]
    body = "graph @w(a) {\n y = aten.exp.default(a)\n return y\n}"
    program = tree('graph @""(x) {\n' + nodes + "\n}", body)
    assert px.verify(program) == ()
    result = px.transform(program)
    assert px.verify(result) == () and not any(node.stack for _, node in result.nodes())
    called = [node.do.instance for _, node in result.nodes() if isinstance(node.do, px.Call)]
    assert sorted(map(str, called)) == sorted(expected)
    x = torch.randn(2)
    assert torch.equal(px.lower(result)(x)[0], px.lower(program)(x)[0])
    for again in (px.inline(result), px.expand(result), px.transform(px.inline(program))):
        assert px.verify(again) == () and torch.equal(px.lower(again)(x)[0], px.lower(result)(x)[0])
