"""A call that is cut into pieces, one of which equals the same piece of another call.  Found by "outline after inline".

Cause: ``deduplicate`` chose the call number of each piece by itself, so ``e@1`` and ``e@1#1``, whose first piece alone equals
the first piece of ``e``, became ``e`` and ``e@1#1``; ``inline`` took those for pieces of two calls.  The number is now that of
the first call all of whose pieces are equal.
"""

from __future__ import annotations

import torch

import purefx as px
from purefx.laws import behaviour_differences
from purefx.laws.law import Case
from tests.laws.specific import pieces_stay
from tests.programs import NEG, flat

D, E, E1 = (px.Frame("d"),), (px.Frame("e"),), (px.Frame("e", 1),)


def chain(*stacks: tuple[px.Frame, ...]) -> px.Program:
    """Return an outlined program of negations, each of the one before."""
    nodes = [px.Node(f"n{at}", NEG, (px.Ref(f"n{at - 1}" if at else "x"),), stack=stack) for at, stack in enumerate(stacks)]
    return px.outline(flat(nodes, (px.Ref(f"n{len(nodes) - 1}"),), "x"))


def calls_of(program: px.Program, path: str) -> list[str]:
    """Return how a module is called, as the text says it, in order of execution."""
    calls = [node.do.instance for _, node in program.nodes() if type(node.do) is px.Call]
    return [str(call) for call in calls if call.path == path]


def test_a_call_with_an_equal_first_piece_keeps_its_number() -> None:
    """Both calls of ``e`` begin with one negation; the second piece of the second call is longer."""
    program = chain(E, D, E, E1, D, E1, E1)
    merged = px.deduplicate(program)
    assert calls_of(merged, "e") == ["e", "e#1", "e@1", "e@1#1"]
    assert px.alpha_equal(px.outline(px.inline(merged)), program)


def test_equal_calls_whose_pieces_cross_keep_their_numbers() -> None:
    """Pieces that are called alike belong together in the order in which they run, which is the wrong one here."""
    program = chain(E1, E, D, E, E1)
    merged = px.deduplicate(program)
    assert calls_of(merged, "e") == ["e@1", "e", "e#1", "e@1#1"] and len(merged.order) < len(program.order)
    assert pieces_stay.check(px.deduplicate, Case(program)) == []
    assert px.deduplicate(merged) is merged and px.alpha_equal(px.deduplicate(px.expand(merged)), merged)


def test_pieces_in_pieces_of_the_call_around_them() -> None:
    """The callers of the second piece nest less deep than the first piece does: they come after it all the same."""
    outer, inner, deep = px.Frame("a"), px.Frame("a.c"), px.Frame("a.c.e")
    again = px.Frame("a", 1), px.Frame("a.c", 1), px.Frame("a.c.e", 1)
    first = ((outer, inner, deep), D, (outer, inner))
    second = (again, D, again[:2], again[:2])
    program = chain(*first, *second)
    merged = px.deduplicate(program)
    assert calls_of(merged, "a") == ["a", "a#1", "a@1", "a@1#1"]
    assert px.alpha_equal(px.outline(px.inline(merged)), program)
    assert calls_of(px.deduplicate(chain(*first, again, D, again[:2])), "a") == ["a", "a#1", "a", "a#1"]


def test_pieces_that_need_one_another() -> None:
    """A piece of ``a`` calls one of ``c``, whose other piece calls the other of ``a``: no exporter writes it, and it is valid."""

    def body(*calls: tuple[px.Frame, str]) -> px.Graph:
        nodes = [px.Node(f"y{at}", px.Call(*call), (px.Ref(f"y{at - 1}" if at else "x"),)) for at, call in enumerate(calls)]
        return px.Graph((px.Input("x"),), tuple(nodes), px.Ref(nodes[-1].name))

    leaf = px.Graph((px.Input("x"),), (px.Node("y", NEG, (px.Ref("x"),)),), px.Ref("y"))
    main = body((px.Frame("a"), "a"), (px.Frame("a.c", 0, 1), "c#1"))
    program = flat(main.nodes, (main.output,), "x")
    graphs = {"a": body((px.Frame("c"), "c")), "c": leaf, "c#1": body((px.Frame("/a", 0, 1), "a#1")), "a#1": leaf}
    program = program.evolve(graphs=program.graphs.update(graphs), facts=frozenset[str]())
    assert px.verify(program) == ()
    merged = px.deduplicate(program)
    assert px.verify(merged) == () and len(merged.order) < len(program.order)
    assert calls_of(merged, "/a") == ["/a#1"] and calls_of(merged, "a.c") == ["a.c#1"]
    calls = [((torch.arange(2.0) - number,), {}) for number in range(3)]
    assert behaviour_differences(px.lower(merged), px.lower(program), calls) == []
