"""Outlining: bodies from stacks, and calls whose nodes do not stand side by side."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.own_operators import GIVES, TAKES
from purefx.ir.torch_private import pytree
from tests.programs import ADD, ADD_, NEG, calls, exported, flat, hierarchy, node, parent
from tests.transforms.small import lines, preserved, tree

# Outlining: by call identity and dependencies, whatever the order of the nodes.


A, B = px.Frame("a"), px.Frame("b")

BEFORE_MERGING = px.DEFAULT[: px.DEFAULT.index(px.deduplicate)]


def test_values_keep_their_names() -> None:
    """A call is named after the value that it gives back; a body's inputs after what they are given."""
    program = px.outline(flat([node("y", NEG, "x", stack=(A,)), node("z", ADD, "y", "x")], px.Ref("z"), "x"))
    assert [n.name for n in program.main.nodes] == ["y", "z"]
    assert program.main.nodes[0].do == px.Call(A, "a")
    assert program.graphs["a"] == px.Graph((px.Input("x"),), (node("y", NEG, "x"),), px.Ref("y"))


def test_several_results_are_projected() -> None:
    """A body that gives back two values gives a tuple, in the order of their definition."""
    program = px.outline(
        flat([node("y", NEG, "x", stack=(A,)), node("z", NEG, "y", stack=(A,)), node("w", ADD, "z", "y")], px.Ref("w"), "x")
    )
    assert program.graphs["a"].output == (px.Ref("y"), px.Ref("z"))
    assert [(n.name, n.args) for n in program.main.nodes[1:3]] == [("y", (px.Ref("a"), 0)), ("z", (px.Ref("a"), 1))]


def test_consecutive_calls_stay_two() -> None:
    """pytorch#132993: two calls of one module back to back are two calls."""
    nodes = [node("y", NEG, "x", stack=(A,)), node("z", NEG, "y", stack=(px.Frame("a", 1),))]
    program = px.outline(flat(nodes, px.Ref("z"), "x"))
    assert calls(program) == ["a", "a@1"]


def test_interleaved_calls_are_gathered() -> None:
    """Two independent calls whose nodes alternate become two calls."""
    nodes = [
        node("p", NEG, "x", stack=(A,)),
        node("q", NEG, "x", stack=(B,)),
        node("r", NEG, "p", stack=(A,)),
        node("s", NEG, "q", stack=(B,)),
    ]
    program = px.outline(flat([*nodes, node("t", ADD, "r", "s")], px.Ref("t"), "x"))
    assert calls(program) == ["a", "b"]


def test_a_call_that_is_cut_comes_in_two_parts() -> None:
    """a needs b's result and b needs a's: one of them must be cut, and the program still means the same."""
    nodes = [node("p", NEG, "x", stack=(A,)), node("q", NEG, "p", stack=(B,)), node("r", ADD, "q", "p", stack=(A,))]
    program = px.outline(flat(nodes, px.Ref("r"), "x"))
    assert calls(program) == ["a", "b", "a#1"]
    x = torch.randn(2)
    assert torch.equal(px.lower(px.deduplicate(program))(x)[0], x + -x)


def test_a_read_does_not_follow_its_module_over_a_write() -> None:
    """b's first node reads x before a's write and its second after: gathering b would move a read over the write."""
    nodes = [
        node("p", NEG, "x", stack=(B,)),
        node("w", ADD_, "x", 1, stack=(A,)),
        node("q", NEG, "x", stack=(B,)),
        node("r", ADD, "p", "q"),
    ]
    program = px.outline(flat(nodes, px.Ref("r"), "x"))
    assert calls(program) == ["b", "a", "b#1"]
    assert torch.equal(px.lower(program)(torch.tensor([1.0, 2.0]))[0], torch.tensor([-3.0, -5.0]))


def test_a_preserved_call_that_is_really_cut_is_refused() -> None:
    """Never silently: a is one call to the user, and another module stands between its two halves."""
    a, b = (px.Frame("a"),), (px.Frame("b"),)
    nodes = [
        px.Node("takes", TAKES, (px.Ref("x"),), stack=a),
        px.Node("first", NEG, (px.Ref("x"),), stack=a),
        px.Node("between", NEG, (px.Ref("first"),), stack=b),
        px.Node("last", NEG, (px.Ref("between"),), stack=a),
        px.Node("gives", GIVES, (px.Ref("last"),), stack=a),
    ]
    structure = pytree.tree_structure
    signatures = px.ir.pmap({a[0]: px.ir.CallSignature(structure(((0,), {})), structure(0))})
    with pytest.raises(px.errors.UnsupportedProgram, match=r"the call signature of a \(call 0\) was preserved"):
        px.outline(flat(nodes, (px.Ref("last"),), "x", call_signatures=signatures))


def test_modules_that_call_no_operator_of_their_own() -> None:
    """A module that only calls its child is still a call."""

    class Wrapper(parent(inner=lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4))))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    program = px.transform(px.import_ep(exported(Wrapper(), torch.ones(1, 4))), *BEFORE_MERGING)
    assert hierarchy(program) == ["", "inner", "inner.0", "inner.0.0"]


# Calls whose nodes do not stand side by side: which are cut, which stay whole, and how the pieces are numbered.


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
    with pytest.raises(
        px.errors.UnsupportedProgram, match=r"other modules need its results .* export again without preserving it"
    ):
        outlined(CIRCLE, preserved("a"), preserved("b"))
    with pytest.raises(px.errors.UnsupportedProgram, match=r"the call signature of a \(call 0\) was preserved"):
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
