"""State, writes and tokens: small programs, each the smallest that one mistake would change.

One idea: generated programs find what is wrong in the middle; here is what they reach seldom or can not see.
"""

from __future__ import annotations

import operator
from types import MappingProxyType

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.ir.meta import Meta
from purefx.ir.operators import op_of
from purefx.laws import toy
from purefx.laws.toy import toy_meaning
from tests.transforms.small import USER, buffers, number, program, ref

WITH_EFFECTS = op_of(torch.ops.higher_order.with_effects)

MAX = torch.ops.aten.max.dim


def test_a_program_that_takes_nothing_but_state_is_sunk() -> None:
    flat = program([px.Node("y", toy.NEG, (ref("s"),))], (ref("y"),), {"s": "n"}, state=buffers("n"))
    assert px.sink_state(flat).signature.inputs == ()
    assert px.lift_state(px.sink_state(flat)) == flat


def test_each_module_call_reads_a_slot_once() -> None:
    one, two = (px.Frame("a"),), (px.Frame("a", 1),)
    stacks = [one, one, two, two, ()]
    nodes = [px.Node(f"y{number}", toy.NEG, (ref("s"),), stack=stack) for number, stack in enumerate(stacks)]
    flat = program(nodes, (ref("y0"),), {"s": "a.n"}, state=buffers("a.n"), modules=(px.Module(""), px.Module("a")))
    reads = [node.stack for node in px.sink_state(flat).main.nodes if isinstance(node.do, px.Get)]
    assert reads == [one, two, ()]


def test_a_name_that_a_read_would_take_is_left_to_its_owner() -> None:
    nodes = [px.Node("s_1", toy.NEG, (ref("s"),), stack=(px.Frame("a"),)), px.Node("y", toy.ADD, (ref("s"), ref("s_1")))]
    flat = program(nodes, (ref("y"),), {"s": "a.n"}, state=buffers("a.n"), modules=(px.Module(""), px.Module("a")))
    names = [node.name for node in px.sink_state(flat).main.nodes]
    assert len(set(names)) == len(names) == 4
    assert px.verify(px.sink_state(flat)) == ()


def test_unused_state_inputs_come_back_where_they_stood() -> None:
    inputs = {"s": "n", "x": USER, "t": "m", "u": "k"}
    flat = program([px.Node("y", toy.ADD, (ref("x"), ref("t")))], (ref("y"),), inputs, state=buffers("n", "m", "k"))
    back = px.lift_state(px.sink_state(flat))
    assert [str(spec) for spec in back.signature.inputs] == [str(spec) for spec in flat.signature.inputs]


def test_a_mutated_input_is_counted_anew_both_ways() -> None:
    nodes = [px.Node("y", toy.NEG, (ref("s"),))]
    flat = program(nodes, (ref("y"),), {"s": "n", "x": USER}, (px.InputMutation(1),), state=buffers("n"))
    sunk = px.sink_state(flat)
    assert sunk.signature.outputs == (px.InputMutation(0),)
    assert px.lift_state(sunk) == flat
    assert toy_meaning(sunk) == toy_meaning(flat)


def test_swapped_buffers_swap_and_come_back_without_clones() -> None:
    inputs = {"s": "n", "t": "m"}
    flat = program([], (ref("t"), ref("s")), inputs, (px.StateMutation("n"), px.StateMutation("m")), state=buffers("n", "m"))
    written = px.inplace_mutations(flat)
    assert [node.do for node in written.main.nodes] == [toy.CLONE, toy.CLONE, toy.COPY_, toy.COPY_]
    assert toy_meaning(written) == toy_meaning(flat)
    assert px.functionalize(written) == flat


def test_a_clone_that_the_user_wrote_stays() -> None:
    nodes = [px.Node("c", toy.CLONE, (ref("x"),)), px.Node("w", toy.COPY_, (ref("s"), ref("c")))]
    flat = program(nodes, (), {"s": "n", "x": USER}, state=buffers("n"))
    assert [node.name for node in px.functionalize(flat).main.nodes] == ["c"]


@pytest.mark.parametrize("after", [toy.NEG, toy.VIEW])
def test_a_write_that_is_read_later_stays_in_place(after: px.Op) -> None:
    nodes = [px.Node("c", toy.NEG, (ref("x"),)), px.Node("w", toy.COPY_, (ref("s"), ref("c"))), px.Node("y", after, (ref("s"),))]
    flat = program(nodes, (ref("y"),), {"s": "n", "x": USER}, state=buffers("n"))
    assert px.functionalize(flat) is flat


def test_returned_mutations_stand_before_what_the_user_gets_state_first() -> None:
    nodes = [
        px.Node("c", toy.NEG, (ref("x"),)), px.Node("w", toy.COPY_, (ref("x"), ref("c"))),
        px.Node("d", toy.NEG, (ref("c"),)), px.Node("v", toy.COPY_, (ref("t"), ref("d"))),
        px.Node("e", toy.NEG, (ref("d"),)), px.Node("u", toy.COPY_, (ref("s"), ref("e"))),
    ]  # fmt: skip
    flat = program(nodes, (ref("c"),), {"s": "n", "x": USER, "t": "m"}, state=buffers("n", "m"))
    result = px.functionalize(flat)
    assert result.signature.outputs == (px.StateMutation("n"), px.StateMutation("m"), px.InputMutation(1), px.UserOutput())
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


def test_state_that_nothing_reads_is_taken_again() -> None:
    flat = program([], (ref("x"),), {"s": "n", "x": USER}, state=buffers("n"))
    sunk = px.sink_state(flat)
    assert sunk.main.nodes == ()
    assert [str(spec) for spec in px.lift_state(sunk).signature.inputs] == [str(spec) for spec in flat.signature.inputs]


def test_calls_of_an_inner_module_read_for_themselves() -> None:
    stacks = [(px.Frame("a"), px.Frame("a.c")), (px.Frame("a"), px.Frame("a.c", 1))]
    nodes = [px.Node(f"y{number}", toy.NEG, (ref("s"),), stack=stack) for number, stack in enumerate(stacks)]
    modules = tuple(px.Module(path) for path in ("", "a", "a.c"))
    flat = program(nodes, (ref("y0"),), {"s": "a.c.n"}, state=buffers("a.c.n"), modules=modules)
    assert [node.stack for node in px.sink_state(flat).main.nodes if isinstance(node.do, px.Get)] == stacks


def threaded(*results: object, target: object = MAX, token: bool = True) -> px.Program:
    """Return a program that threads a token through one operator, and takes and gives the token only if told so."""
    values = tuple(f"v{index}" for index in range(len(results)))
    nodes = [
        px.Node("w", WITH_EFFECTS, (ref("token"), target, ref("x"), 0), meta=MappingProxyType({"val": ("token", *results)})),
        px.Node("t", toy.GETITEM, (ref("w"), 0)),
        *(px.Node(name, toy.GETITEM, (ref("w"), index + 1)) for index, name in enumerate(values)),
    ]
    inputs: dict[str, object] = {"token": px.Token() if token else USER, "x": USER}
    outputs = (px.Token(),) if token else (px.UserOutput(),)
    return program(nodes, (ref("t"), *map(ref, values)), inputs, outputs)


def test_an_operator_of_two_results_gives_both() -> None:
    result = px.remove_effect_tokens(threaded("largest", "where"))
    first, *rest = result.main.nodes
    assert (first.name, first.args, first.meta["val"]) == ("w", (ref("x"), 0), ("largest", "where"))
    assert isinstance(first.do, px.Op)
    assert (first.do.name, first.do.effects.ordered, first.do.target) == ("aten.max.dim", True, MAX)
    assert [(node.name, node.args) for node in rest] == [("v0", (ref("w"), 0)), ("v1", (ref("w"), 1))]
    assert result.main.output == (ref("v0"), ref("v1"))


def test_an_operator_of_one_result_is_that_result() -> None:
    result = px.remove_effect_tokens(threaded("value", target=torch.ops.aten.cumsum.default))
    (only,) = result.main.nodes
    assert (only.name, only.meta["val"]) == ("w", "value")
    assert result.main.output == (ref("w"),)
    assert result.signature.outputs == (px.UserOutput(),)


def test_an_operator_without_result_has_no_value() -> None:
    flat = threaded(target=torch.ops.aten._assert_async.default)
    (only,) = px.remove_effect_tokens(flat).main.nodes
    assert only.meta["val"] is None


def test_a_token_that_is_a_value_of_the_program_is_unthreaded_as_well() -> None:
    result = px.remove_effect_tokens(threaded("value", target=torch.ops.aten.cumsum.default, token=False))
    assert [node.do.name for node in result.main.nodes if isinstance(node.do, px.Op)] == ["aten.cumsum.default"]
    assert result.main.output == (ref("token"), ref("w"))


def test_other_getitems_stay_as_they_are() -> None:
    flat = threaded("largest", "where")
    pair = [px.Node("p", toy.PAIR, (ref("x"), ref("v1"))), px.Node("q", op_of(operator.getitem), (ref("p"), 1))]
    main = evolve(flat.main, nodes=(*flat.main.nodes, *pair), output=(*flat.main.output, ref("q")))
    more = flat.with_main(main, signature=evolve(flat.signature, outputs=(*flat.signature.outputs, px.UserOutput())))
    assert px.remove_effect_tokens(more).main.nodes[-1] is pair[1]


def test_a_threaded_function_that_is_no_operator_gives_one_value() -> None:
    result = px.remove_effect_tokens(threaded("value", target=operator.neg))
    assert [node.name for node in result.main.nodes] == ["w"]
    assert result.main.output == (ref("w"),)


def test_a_threaded_operator_keeps_its_keywords() -> None:
    flat = threaded("largest", "where")
    nodes = (evolve(flat.main.nodes[0], args=flat.main.nodes[0].args[:3], kwargs=(("dim", ref("x")),)), *flat.main.nodes[1:])
    result = px.remove_effect_tokens(flat.with_main(evolve(flat.main, nodes=nodes)))
    assert (result.main.nodes[0].args, result.main.nodes[0].kwargs) == ((ref("x"),), (("dim", ref("x")),))
