"""Calls whose nodes do not stand side by side: which are cut, which stay whole, and how the pieces are numbered.

One idea: two modules ``a`` and ``b`` that need one another's results; the result is the list of calls, and the meaning.
"""

from __future__ import annotations

import pytest

import purefx as px
from tests.programs import calls
from tests.transforms.small import lines, preserved, tree


def outlined(nodes: str, *sections: str) -> px.Program:
    """Return the program of these nodes after ``outline``, which is valid."""
    result = px.outline(tree('graph @""(x) {\n' + nodes + "\n}", *sections))
    assert px.verify(result) == ()
    return result


CIRCLE = """
    p = aten.neg.default(x)  in a
    q = aten.abs.default(x)  in b
    r = aten.add.Tensor(p, q)  in a
    s = aten.mul.Tensor(q, r)  in b
    return (s,)
"""


def test_the_first_by_name_is_begun_first() -> None:
    """As far as it goes, then the other; the order of the nodes decides only where pieces stand that may stand anywhere."""
    assert calls(outlined(CIRCLE)) == ["a", "b", "a#1", "b#1"]
    p, q, r, s, end = CIRCLE.strip().splitlines()
    assert calls(outlined(f"{q}\n{p}\n{r}\n{s}\n{end}")) == ["b", "a", "a#1", "b#1"]
    renamed = CIRCLE.replace("in a", "in z")
    assert calls(outlined(renamed)) == ["b", "z", "b#1"]


def test_a_call_with_a_preserved_signature_is_not_begun_before_it_can_be_finished() -> None:
    """The other one is cut for it, whichever is first by name."""
    assert calls(outlined(CIRCLE, preserved("a"))) == ["b", "a", "b#1"]
    other = CIRCLE.replace("in a", "in c")
    assert calls(outlined(other, preserved("c"))) == ["b", "c", "b#1"]


def test_a_preserved_call_inside_another_is_whole_as_well() -> None:
    """What is cut around it is cut beside it."""
    nodes = """
        p = aten.neg.default(x)  in a / .c
        q = aten.abs.default(x)  in b
        r = aten.add.Tensor(p, q)  in a / .c
        s = aten.mul.Tensor(q, r)  in b
        t = aten.neg.default(s)  in a
        return (t,)
    """
    result = outlined(nodes, preserved("a.c"))
    assert calls(result) == ["b", "a", "b#1", "a#1"]
    assert [calls(result, name) for name in ("a", "a#1")] == [["c"], []]
    assert [str(name) for name in outlined(nodes).order if "c" in name] == ["a.c", "a.c#1"]


VISITS = """
    p = aten.neg.default(x)  in a
    q = aten.abs.default(p)
    r = aten.add.Tensor(p, q)  in a
    s = aten.mul.Tensor(q, r)
    t = aten.add.Tensor(s, r)  in a
    return (t,)
"""


def test_of_two_preserved_calls_that_need_one_another_none_is_whole() -> None:
    """That is said; export it without preserving one."""
    with pytest.raises(px.UnsupportedProgram, match=r"other modules need its results .* export again without preserving it"):
        outlined(CIRCLE, preserved("a"), preserved("b"))
    with pytest.raises(px.UnsupportedProgram, match=r"the call signature of a \(call 0\) was preserved"):
        outlined(VISITS, preserved("a"))


def test_calls_that_are_no_part_of_the_circle_stay_whole_and_where_they_are() -> None:
    nodes = CIRCLE.replace("return (s,)", "u = aten.neg.default(s)  in d\n    v = aten.neg.default(u)  in d\n    return (v,)")
    assert calls(outlined("o = aten.abs.default(x)  in d@1\n" + nodes)) == ["d@1", "a", "b", "a#1", "b#1", "d"]
    w = "w = aten.sin.default(x)  in d\n"
    assert calls(outlined(w + nodes.replace("neg.default(u)", "add.Tensor(u, w)"))) == ["a", "b", "a#1", "b#1", "d"]


def test_pieces_of_three_visits_are_numbered_one_after_another() -> None:
    result = outlined(VISITS)
    assert lines(result) == [
        "p = call @a(x) as a",
        "q = aten.abs.default(p)",
        'r = call @"a#1"(p, q) as a#1',
        "s = aten.mul.Tensor(q, r)",
        't = call @"a#2"(s, r) as a#2',
        "return (t,)",
    ]


@pytest.mark.parametrize("sections", [(), (preserved("m"),)], ids=["plain", "preserved"])
def test_circles_inside_a_call_are_cut_there(sections: tuple[str, ...]) -> None:
    """The call around them stays whole, whether its signature is preserved or not."""
    inside = CIRCLE.replace("in a", "in m / .a").replace("in b", "in m / .b")
    result = outlined(inside, *sections)
    assert calls(result) == ["m"]
    assert calls(result, "m") == ["a", "b", "a#1", "b#1"]


def test_runs_that_alternate_are_brought_together_where_the_first_stands() -> None:
    nodes = """
        p = aten.neg.default(x)  in b
        q = aten.abs.default(x)  in a
        o = aten.sin.default(x)
        r = aten.neg.default(p)  in b
        s = aten.add.Tensor(r, q)  in a
        u = aten.add.Tensor(o, s)
        return (u,)
    """
    assert [line.partition(" = ")[0] for line in lines(outlined(nodes))[:-1]] == ["r", "s", "o", "u"]
