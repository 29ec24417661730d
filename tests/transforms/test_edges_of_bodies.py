"""Bodies and calls, and what all transformations share: small programs, each the smallest that one mistake would change.

One idea: generated programs find what is wrong in the middle; here is what they reach seldom or can not see.
"""

from __future__ import annotations

import inspect
import random

import pytest
import torch

import purefx as px
from purefx.laws import toy
from purefx.laws.toy import toy_meaning
from purefx.transforms.outline.schedule import strongly_connected
from tests.transforms.small import USER, buffers, number, program, ref


def shared(depth: int) -> px.Program:
    """Return a program in which each of some bodies calls the next one twice."""
    graphs: dict[str, px.Graph] = {f"g{depth}": px.Graph((px.Input("x"),), (px.Node("y", toy.NEG, (ref("x"),)),), ref("y"))}
    for level in reversed(range(depth)):
        inner = f"g{level + 1}"
        nodes = (
            px.Node("a", px.Call(px.Frame("a"), inner), (ref("x"),)),
            px.Node("b", px.Call(px.Frame("b"), inner), (ref("a"),)),
        )
        graphs[f"g{level}"] = px.Graph((px.Input("x"),), nodes, ref("b"))
    root = graphs.pop("g0")
    whole = px.Graph(root.inputs, root.nodes, (root.output,))
    return px.Program.of({"": whole, **graphs}, signature=px.Signature((USER,), (px.UserOutput(),)))


def test_what_expand_may_make_is_counted_to_the_node() -> None:
    """Two calls in the root, two in each of its two bodies, and four leaves."""
    assert len(list(px.expand(shared(2), at_most=10).nodes())) == 10
    for transformation in (px.expand, px.inline):
        with pytest.raises(px.UnsupportedProgram, match=r"10 nodes, more than 9.*at_most"):
            transformation(shared(2), at_most=9)


def test_expand_and_deduplicate_undo_one_another() -> None:
    expanded = px.expand(shared(3))
    assert len(expanded.order) == 1 + 2 + 4 + 8
    assert px.deduplicate(expanded) == shared(3)
    assert toy_meaning(px.inline(expanded)) == toy_meaning(shared(3))
    assert len(px.inline(shared(3)).main.nodes) == 8


def test_inlined_names_are_numbered_where_they_are_taken() -> None:
    names = [node.name for node in px.inline(shared(2)).main.nodes]
    assert names == ["y", "y_1", "y_2", "y_3"]


@pytest.mark.parametrize(("slot", "argument"), [((2,), (2,)), ((3,), (2,)), ((2,), (3,)), ((3,), (3,))])
def test_fake_values_hold_where_arguments_and_state_have_those_shapes(slot: tuple[int, ...], argument: tuple[int, ...]) -> None:
    """The body was traced in `a` with two elements; in `b` its values are those of `b`, or nothing is said of them."""
    sizes = {"a.w": (2,), "b.w": slot}
    slots = {name: px.Slot(px.SlotKind.BUFFER, torch.zeros(size), at, at) for at, (name, size) in enumerate(sizes.items())}
    inner = (px.Node("read", px.Get("w"), meta=number((2,))), px.Node("y", toy.ADD, (ref("x"), ref("read")), meta=number((2,))))
    body = px.Graph((px.Input("x", number((2,))),), inner, ref("y"))
    calls = tuple(px.Node(name, px.Call(px.Frame(name), "body"), (ref(given),)) for name, given in (("a", "p"), ("b", "q")))
    main = px.Graph((px.Input("p", number((2,))), px.Input("q", number(argument))), calls, (ref("a"), ref("b")))
    signature = px.Signature((USER, USER), (px.UserOutput(), px.UserOutput()))
    whole = px.Program.of({"": main, "body": body}, state=px.State(tuple(slots), px.pmap(slots)), signature=signature)
    first, second = (px.expand(whole).graphs[name] for name in ("body", "b"))
    assert first is body
    assert second.nodes[0].meta["val"].shape == slot
    assert second.inputs[0].meta["val"].shape == argument
    assert ("val" in second.nodes[1].meta) == (slot == argument == (2,))


def test_a_cut_call_beside_one_that_is_whole() -> None:
    """`a` needs what the root makes of its own result: two pieces; `b`, which stands between its nodes, stays one."""
    a, b = (px.Frame("a"),), (px.Frame("b"),)
    nodes = [
        px.Node("b0", toy.NEG, (ref("x"),), stack=b), px.Node("a0", toy.NEG, (ref("x"),), stack=a),
        px.Node("r0", toy.EMIT, (ref("a0"), "t")), px.Node("b1", toy.NEG, (ref("b0"),), stack=b),
        px.Node("r1", toy.NEG, (ref("a0"),)), px.Node("a1", toy.NEG, (ref("r1"),), stack=a),
    ]  # fmt: skip
    modules = tuple(px.Module(path) for path in ("", "a", "b"))
    flat = program(nodes, (ref("a1"), ref("b1")), {"x": USER}, modules=modules)
    result = px.outline(flat)
    assert sorted(name for name in result.order if name) == ["a", "a#1", "b"]
    assert [node.name for node in result.graphs["b"].nodes] == ["b0", "b1"]
    assert toy_meaning(result) == toy_meaning(flat)


def test_values_that_nobody_outside_needs_are_not_given_back() -> None:
    a = (px.Frame("a"),)
    nodes = [px.Node("a0", toy.NEG, (ref("x"),), stack=a), px.Node("a1", toy.NEG, (ref("a0"),), stack=a)]
    result = px.outline(program(nodes, (ref("a1"), ref("x")), {"x": USER}, modules=(px.Module(""), px.Module("a"))))
    assert result.graphs["a"].output == ref("a1")
    assert result.main.output == (ref("a1"), ref("x"))


def test_several_values_are_given_back_in_the_order_in_which_they_are_made() -> None:
    a = (px.Frame("a"),)
    nodes = [
        px.Node("a0", toy.NEG, (ref("x"),), stack=a), px.Node("a1", toy.NEG, (ref("x"),), stack=a),
        px.Node("y", toy.ADD, (ref("a1"), ref("a0"))),
    ]  # fmt: skip
    result = px.outline(program(nodes, (ref("y"),), {"x": USER}, modules=(px.Module(""), px.Module("a"))))
    assert result.graphs["a"].output == (ref("a0"), ref("a1"))
    call, first, second, _ = result.main.nodes
    assert call.name not in {"a0", "a1", "x", "y"}
    assert (first.name, first.args) == ("a0", (ref(call.name), 0))
    assert (second.name, second.args) == ("a1", (ref(call.name), 1))


def test_circles_are_those_of_the_definition() -> None:
    """Random graphs: two are in one circle if each reaches the other, and a circle comes after those that it needs."""
    draw = random.Random(7)
    for size in (2, 3, 4, 5, 6) * 20:
        edges = {at: {draw.randrange(size): None for _ in range(draw.randrange(3))} for at in range(size)}
        reach = {at: {at} for at in range(size)}
        for _ in range(size):
            for at, others in edges.items():
                reach[at].update(*(reach[other] for other in others))
        found = strongly_connected(edges)  # type: ignore[arg-type]
        circles = {frozenset(other for other in reach[at] if at in reach[other]) for at in reach}
        assert len(found) == len(circles)
        assert set(map(frozenset, found)) == circles
        place = {at: index for index, part in enumerate(found) for at in part}
        assert all(place[other] <= place[at] for at in place for other in reach[at])


def test_who_took_a_fact_away_is_named() -> None:
    nodes = [px.Node("y", toy.NEG, (ref("s"),), stack=(px.Frame("a"),))]
    modules = (px.Module(""), px.Module("a"))
    flat = program(nodes, (ref("y"),), {"s": "n", "x": USER}, state=buffers("n"), modules=modules)
    with pytest.raises(px.PipelineError, match=r"step 3, sink_state, requires .*'flat', but outline before it"):
        px.transform(flat, px.outline, px.deduplicate, px.sink_state)


def test_what_never_held_was_taken_by_nobody() -> None:
    body = px.Graph((px.Input("x"),), (), ref("x"))
    call = px.Node("y", px.Call(px.Frame("a"), "a"), (ref("s"),))
    flat = program([call], (ref("y"),), {"s": "n"}, state=buffers("n"), modules=(px.Module(""), px.Module("a")))
    called = flat.evolve(graphs=flat.graphs.set("a", body), facts=frozenset())
    with pytest.raises(px.PipelineError, match=r"step 2, sink_state, .* nothing before it establishes that"):
        px.transform(called, px.outline, px.sink_state)


def test_what_a_transformation_is_made_of() -> None:
    @px.transformation(
        requires=["flat"], establishes=["a"], forgets=["b"], inverse="back", laws=["it gives what it got"], proven=True
    )
    def idle(program: px.Program) -> px.Program:
        """Do nothing."""
        return program

    assert (idle.requires, idle.establishes, idle.forgets) == (frozenset({"flat"}), frozenset({"a"}), frozenset({"b"}))
    assert (idle.name, idle.inverse, idle.laws, idle.proven) == ("idle", "back", ("it gives what it got",), True)
    assert inspect.unwrap(idle) is idle.apply
    assert [vars(idle)[name] for name in ("__doc__", "__name__", "__module__")] == ["Do nothing.", "idle", __name__]


def test_a_transformation_is_its_function_to_those_who_ask() -> None:
    assert inspect.unwrap(px.outline).__name__ == vars(px.outline)["__name__"] == "outline"
    assert "fuel" in inspect.signature(inspect.unwrap(px.outline)).parameters


@pytest.mark.parametrize("name", [name for name in px.__all__ if isinstance(getattr(px, name), px.Transformation)])
def test_a_transformation_tells_what_it_promises(name: str) -> None:
    transformation = getattr(px, name)
    assert transformation.laws
    assert all(isinstance(law, str) and len(law.split()) > 2 for law in transformation.laws)
    assert transformation.inverse is None or isinstance(getattr(px, transformation.inverse), px.Transformation)
    assert transformation.establishes.isdisjoint(transformation.forgets)
