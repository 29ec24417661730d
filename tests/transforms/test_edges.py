"""Small programs, each the smallest that one mistake of a transformation would change."""

from __future__ import annotations

from types import MappingProxyType

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.ir.meta import Meta
from purefx.ir.operators import op_of
from purefx.laws import toy
from tests.transforms.small import USER, buffers, number, program, ref

# Bodies and calls, and what all transformations share: small programs, each the smallest that one mistake would change.


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
    return px.Program.of({"": whole, **graphs}, signature=px.ir.Signature((USER,), (px.ir.UserOutput(),)))


def test_what_expand_may_make_is_counted_to_the_node() -> None:
    """Two calls in the root, two in each of its two bodies, and four leaves."""
    assert len(list(px.expand(shared(2), at_most=10).nodes())) == 10
    for transformation in (px.expand, px.inline):
        with pytest.raises(px.errors.UnsupportedProgram, match=r"10 nodes, more than 9.*at_most"):
            transformation(shared(2), at_most=9)


@pytest.mark.parametrize(("slot", "argument"), [((2,), (2,)), ((3,), (2,)), ((2,), (3,)), ((3,), (3,))])
def test_fake_values_hold_where_arguments_and_state_have_those_shapes(slot: tuple[int, ...], argument: tuple[int, ...]) -> None:
    """The body was traced in `a` with two elements; in `b` its values are those of `b`, or nothing is said of them."""
    sizes = {"a.w": (2,), "b.w": slot}
    slots = {name: px.ir.Slot(px.ir.SlotKind.BUFFER, torch.zeros(size), at, at) for at, (name, size) in enumerate(sizes.items())}
    inner = (px.Node("read", px.Get("w"), meta=number((2,))), px.Node("y", toy.ADD, (ref("x"), ref("read")), meta=number((2,))))
    body = px.Graph((px.Input("x", number((2,))),), inner, ref("y"))
    calls = tuple(px.Node(name, px.Call(px.Frame(name), "body"), (ref(given),)) for name, given in (("a", "p"), ("b", "q")))
    main = px.Graph((px.Input("p", number((2,))), px.Input("q", number(argument))), calls, (ref("a"), ref("b")))
    signature = px.ir.Signature((USER, USER), (px.ir.UserOutput(), px.ir.UserOutput()))
    whole = px.Program.of({"": main, "body": body}, state=px.ir.State(tuple(slots), px.ir.pmap(slots)), signature=signature)
    first, second = (px.expand(whole).graphs[name] for name in ("body", "b"))
    assert first is body
    assert second.nodes[0].meta["val"].shape == slot
    assert second.inputs[0].meta["val"].shape == argument
    assert ("val" in second.nodes[1].meta) == (slot == argument == (2,))


def test_who_took_a_fact_away_is_named() -> None:
    nodes = [px.Node("y", toy.NEG, (ref("s"),), stack=(px.Frame("a"),))]
    modules = (px.ir.Module(""), px.ir.Module("a"))
    flat = program(nodes, (ref("y"),), {"s": "n", "x": USER}, state=buffers("n"), modules=modules)
    with pytest.raises(px.errors.PipelineError, match=r"step 3, sink_state, requires .*'flat', but outline before it"):
        px.transform(flat, px.outline, px.deduplicate, px.sink_state)


# State, writes and tokens: small programs, each the smallest that one mistake would change.


WITH_EFFECTS = op_of(torch.ops.higher_order.with_effects)

MAX = torch.ops.aten.max.dim


def test_returned_mutations_stand_before_what_the_user_gets_state_first() -> None:
    nodes = [
        px.Node("c", toy.NEG, (ref("x"),)), px.Node("w", toy.COPY_, (ref("x"), ref("c"))),
        px.Node("d", toy.NEG, (ref("c"),)), px.Node("v", toy.COPY_, (ref("t"), ref("d"))),
        px.Node("e", toy.NEG, (ref("d"),)), px.Node("u", toy.COPY_, (ref("s"), ref("e"))),
    ]  # fmt: skip
    flat = program(nodes, (ref("c"),), {"s": "n", "x": USER, "t": "m"}, state=buffers("n", "m"))
    result = px.functionalize(flat)
    assert result.signature.outputs == (
        px.ir.StateMutation("n"),
        px.ir.StateMutation("m"),
        px.ir.InputMutation(1),
        px.ir.UserOutput(),
    )
    assert result.main.output == (ref("e"), ref("d"), ref("c"), ref("c"))


@pytest.mark.parametrize(
    ("value", "stays"),
    [(number((2,)), False), (number((1,)), True), (number((2,), torch.float64), True)],
    ids=["same", "shape", "dtype"],
)
def test_only_a_copy_of_one_kind_becomes_a_returned_value(value: Meta, stays: bool) -> None:
    """copy_ broadcasts and converts; a returned mutation does not."""
    nodes = [px.Node("c", toy.NEG, (ref("x"),), meta=value), px.Node("w", toy.COPY_, (ref("s"), ref("c")))]
    flat = program(nodes, (), {"s": "n", "x": USER}, state=buffers("n"))
    typed = flat.with_main(evolve(flat.main, inputs=(px.Input("s", number((2,))), px.Input("x", value))))
    assert (px.functionalize(typed) is typed) == stays


def threaded(*results: object, target: object = MAX, token: bool = True) -> px.Program:
    """Return a program that threads a token through one operator, and takes and gives the token only if told so."""
    values = tuple(f"v{index}" for index in range(len(results)))
    nodes = [
        px.Node("w", WITH_EFFECTS, (ref("token"), target, ref("x"), 0), meta=MappingProxyType({"val": ("token", *results)})),
        px.Node("t", toy.GETITEM, (ref("w"), 0)),
        *(px.Node(name, toy.GETITEM, (ref("w"), index + 1)) for index, name in enumerate(values)),
    ]
    inputs: dict[str, object] = {"token": px.ir.Token() if token else USER, "x": USER}
    outputs = (px.ir.Token(),) if token else (px.ir.UserOutput(),)
    return program(nodes, (ref("t"), *map(ref, values)), inputs, outputs)


def test_an_operator_of_two_results_gives_both() -> None:
    result = px.remove_effect_tokens(threaded("largest", "where"))
    first, *rest = result.main.nodes
    assert (first.name, first.args, first.meta["val"]) == ("w", (ref("x"), 0), ("largest", "where"))
    assert isinstance(first.do, px.Op)
    assert (first.do.name, first.do.effects.ordered, first.do.target) == ("aten.max.dim", True, MAX)
    assert [(node.name, node.args) for node in rest] == [("v0", (ref("w"), 0)), ("v1", (ref("w"), 1))]
    assert result.main.output == (ref("v0"), ref("v1"))
