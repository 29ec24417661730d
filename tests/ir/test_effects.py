"""Effects and the dependency relation: what must stay after what, and what need not."""

from __future__ import annotations

import operator

import pytest
import torch

import purefx as px
from purefx.ir.effects.dependencies import dependencies
from purefx.ir.effects.schema import effects_of
from purefx.ir.operators import op_of
from tests.programs import ADD, ADD_, COPY_, DROPOUT, MUL, NEG, PRINT, flat

GETITEM = op_of(operator.getitem)
VIEW = op_of(torch.ops.aten.view.default)
BATCH_NORM = op_of(torch.ops.aten.batch_norm.default)


def before(nodes: list[px.Node], *inputs: str, **fields: object) -> list[list[int]]:
    """Return the dependencies of a flat program of these nodes."""
    program = flat(nodes, (), *inputs, **fields)
    return dependencies(program, program.main)


def test_pure_operators_depend_on_their_operands_alone() -> None:
    """No order among independent pure operators."""
    nodes = [px.Node("a", NEG, (px.Ref("x"),)), px.Node("b", NEG, (px.Ref("x"),)), px.Node("c", ADD, (px.Ref("a"), px.Ref("b")))]
    assert before(nodes, "x") == [[], [], [0, 1]]


def test_reads_stay_on_their_side_of_a_write() -> None:
    """read, write, read, write of one tensor: each stays where it is, though no value flows between them."""
    nodes = [
        px.Node("r", NEG, (px.Ref("x"),)),
        px.Node("w", ADD_, (px.Ref("x"), 1)),
        px.Node("s", NEG, (px.Ref("x"),)),
        px.Node("v", ADD_, (px.Ref("x"), 1)),
    ]
    assert before(nodes, "x") == [[], [0], [1], [1, 2]]


def test_writes_are_seen_through_views() -> None:
    """Writing a view of x is writing x; another tensor is not touched."""
    nodes = [
        px.Node("view", VIEW, (px.Ref("x"), px.Items([2]))),
        px.Node("r", NEG, (px.Ref("x"),)),
        px.Node("w", ADD_, (px.Ref("view"), 1)),
        px.Node("s", NEG, (px.Ref("x"),)),
        px.Node("other", NEG, (px.Ref("y"),)),
    ]
    assert before(nodes, "x", "y") == [[], [], [0, 1], [2], []]


def test_state_that_shares_memory_conflicts() -> None:
    """Two slots on one storage are one memory."""
    tensor = torch.zeros(4)
    slots = {name: px.Slot(px.SlotKind.BUFFER, value, cell, 0) for name, value, cell in [("a", tensor, 0), ("b", tensor[1:], 1)]}
    state = px.State(("a", "b"), px.pmap(slots))
    nodes = [
        px.Node("a", px.Get("a")), px.Node("b", px.Get("b")),
        px.Node("r", NEG, (px.Ref("a"),)), px.Node("w", ADD_, (px.Ref("b"), 1)),
    ]  # fmt: skip
    assert before(nodes, state=state) == [[], [], [0], [1, 2]]


def test_random_and_ordered_operators_keep_their_order() -> None:
    """Draws follow draws and prints follow prints; a dropout in evaluation mode draws nothing."""
    nodes = [
        px.Node("d", DROPOUT, (px.Ref("x"), 0.5, True)), px.Node("p", PRINT, ("a",)),
        px.Node("e", DROPOUT, (px.Ref("x"), 0.5, False)), px.Node("f", DROPOUT, (px.Ref("x"), 0.5, True)),
        px.Node("q", PRINT, ("b",)),
    ]  # fmt: skip
    assert before(nodes, "x") == [[], [], [], [0], [1]]


@pytest.mark.parametrize(("training", "writes"), [(True, True), (False, False)])
def test_batch_norm_writes_its_statistics_only_in_training(training: bool, writes: bool) -> None:
    """The schema of aten.batch_norm is silent about the write."""
    args = (px.Ref("x"), None, None, px.Ref("m"), px.Ref("v"), training, 0.1, 1e-5, False)
    nodes = [px.Node("r", NEG, (px.Ref("m"),)), px.Node("n", BATCH_NORM, args), px.Node("s", NEG, (px.Ref("m"),))]
    assert before(nodes, "x", "m", "v") == ([[], [0], [1]] if writes else [[], [], []])


def test_calls_do_what_their_bodies_do() -> None:
    """A call whose body writes its operand, or its own state, conflicts like the write itself."""
    writes_operand = px.Graph((px.Input("p"),), (px.Node("w", ADD_, (px.Ref("p"), 1)),), ())
    writes_state = px.Graph((), (px.Node("c", px.Get("count")), px.Node("w", ADD_, (px.Ref("c"), 1))), ())
    slot = px.Slot(px.SlotKind.BUFFER, torch.zeros(()), 0, 0)
    nodes = (
        px.Node("r", NEG, (px.Ref("x"),)),
        px.Node("m", px.Call(px.Frame("m"), "m"), (px.Ref("x"),)),
        px.Node("g", px.Get("n.count")),
        px.Node("s", NEG, (px.Ref("g"),)),
        px.Node("n", px.Call(px.Frame("n"), "n")),
        px.Node("t", NEG, (px.Ref("g"),)),
    )
    main = px.Graph((px.Input("x"),), nodes, ())
    program = px.Program.of(
        {"": main, "m": writes_operand, "n": writes_state}, state=px.State(("n.count",), px.pmap({"n.count": slot}))
    )
    assert dependencies(program, main) == [[], [0], [], [2], [3], [2, 4]]


def test_unknown_functions_are_taken_to_do_anything() -> None:
    """A function without a schema may write its operands: reads of them do not pass it."""
    unknown = px.Op("mine", effects_of(print), print)
    assert before(
        [px.Node("r", NEG, (px.Ref("x"),)), px.Node("u", unknown, (px.Ref("x"),)), px.Node("s", MUL, (px.Ref("x"), 2))], "x"
    ) == [[], [0], [1]]


def test_copy_reads_its_source_and_writes_its_target() -> None:
    """copy_(x, y): later reads of x wait for it, later writes of y too."""
    nodes = [
        px.Node("c", COPY_, (px.Ref("x"), px.Ref("y"))),
        px.Node("w", ADD_, (px.Ref("y"), 1)),
        px.Node("r", NEG, (px.Ref("x"),)),
    ]
    assert before(nodes, "x", "y") == [[], [0], [0]]


def pair(second: px.Node) -> px.Program:
    """Return a program that calls a body with two results, writes the first and then reads the second."""
    body = px.Graph((px.Input("x"),), (px.Node("p", NEG, (px.Ref("x"),)), second), (px.Ref("p"), px.Ref("q")))
    nodes = [
        px.Node("both", px.Call(px.Frame("m"), "m"), (px.Ref("x"),)),
        px.Node("p", GETITEM, (px.Ref("both"), 0)),
        px.Node("q", GETITEM, (px.Ref("both"), 1)),
        px.Node("w", ADD_, (px.Ref("p"), 1)),
        px.Node("r", NEG, (px.Ref("q"),)),
    ]
    return px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), ()), "m": body})


def test_a_write_to_one_result_of_a_call_leaves_the_others_alone() -> None:
    """But not where both are one memory inside of the body."""
    apart = pair(px.Node("q", NEG, (px.Ref("x"),)))
    assert dependencies(apart, apart.main)[4] == [2]
    together = pair(px.Node("q", VIEW, (px.Ref("p"), (-1,))))
    assert dependencies(together, together.main)[4] == [2, 3]
    handed_on = (*apart.main.nodes[:3], px.Node("all", px.Op("toy.all"), (px.Ref("both"),)), *apart.main.nodes[3:])
    whole = apart.with_main(px.Graph(apart.main.inputs, handed_on, ()))
    assert dependencies(whole, whole.main)[5] == [2, 4], "what takes all results at once may keep them together"


def test_nothing_moves_into_a_region_or_out_of_it() -> None:
    """Also where no value ties it to what is there; a body that closes what it opens is no border."""
    opens, closes = px.Op("toy.enter", px.Effects(scope=1)), px.Op("toy.leave", px.Effects(scope=-1))
    nodes = [
        px.Node("a", NEG, (px.Ref("x"),)),
        px.Node("in", opens),
        px.Node("b", NEG, (px.Ref("x"),)),
        px.Node("out", closes),
        px.Node("c", NEG, (px.Ref("x"),)),
    ]
    assert before(nodes, "x") == [[], [0], [1], [1, 2], [3]]
    balanced = px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("c"),))
    open_ended = px.Graph((px.Input("x"),), tuple(nodes[:3]), (px.Ref("b"),))
    calls = (px.Node("m", px.Call(px.Frame("m"), "m"), (px.Ref("x"),)), px.Node("d", NEG, (px.Ref("x"),)))
    main = px.Graph((px.Input("x"),), calls, ())
    assert dependencies(px.Program.of({"": main, "m": balanced}), main) == [[], []]
    assert dependencies(px.Program.of({"": main, "m": open_ended}), main) == [[], [0]]
