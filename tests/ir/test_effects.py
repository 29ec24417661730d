"""Effects and the dependency relation: what must stay after what, and what need not."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir import ANYTHING, PURE, ArgAt, Effects
from purefx.ir.effects.declared import Unless
from purefx.ir.effects.dependencies import dependencies
from purefx.ir.effects.registered import effects_of
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
        px.Node("view", VIEW, (px.Ref("x"), px.ir.Items([2]))),
        px.Node("r", NEG, (px.Ref("x"),)),
        px.Node("w", ADD_, (px.Ref("view"), 1)),
        px.Node("s", NEG, (px.Ref("x"),)),
        px.Node("other", NEG, (px.Ref("y"),)),
    ]
    assert before(nodes, "x", "y") == [[], [], [0, 1], [2], []]


def test_state_that_shares_memory_conflicts() -> None:
    """Two slots on one storage are one memory."""
    tensor = torch.zeros(4)
    slots = {
        name: px.ir.Slot(px.ir.SlotKind.BUFFER, value, cell, 0) for name, value, cell in [("a", tensor, 0), ("b", tensor[1:], 1)]
    }
    state = px.ir.State(("a", "b"), px.ir.pmap(slots))
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
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.zeros(()), 0, 0)
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
        {"": main, "m": writes_operand, "n": writes_state}, state=px.ir.State(("n.count",), px.ir.pmap({"n.count": slot}))
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
    """Also where no value ties it to what is there; a body that closes what it opens is no boundary."""
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


TALK: Any = torch.ops._c10d_functional if torch.distributed.is_available() else None


def test_communication_is_in_order_within_its_group() -> None:
    """Of one group, of one whose name is no literal with all, and a wait keeps what it completes on its side."""
    reduce, wait = op_of(TALK.all_reduce.default), op_of(TALK.wait_tensor.default)
    nodes = [
        px.Node("a", reduce, (px.Ref("x"), "sum", "0")),
        px.Node("b", reduce, (px.Ref("y"), "sum", "1")),
        px.Node("c", reduce, (px.Ref("z"), "sum", "0")),
        px.Node("d", reduce, (px.Ref("x"), "sum", px.Ref("g"))),
        px.Node("e", reduce, (px.Ref("y"), "sum", "1")),
    ]
    assert before(nodes, "x", "y", "z", "g") == [[], [], [0], [1, 2], [3]]
    nodes = [
        px.Node("a", reduce, (px.Ref("x"), "sum", "0")),
        px.Node("v", VIEW, (px.Ref("a"), px.ir.Items([2]))),
        px.Node("w", wait, (px.Ref("a"),)),
        px.Node("r", NEG, (px.Ref("v"),)),
        px.Node("s", NEG, (px.Ref("w"),)),
        px.Node("u", ADD_, (px.Ref("x"), 1)),
        px.Node("o", NEG, (px.Ref("y"),)),
    ]
    found = before(nodes, "x", "y")
    assert 2 in found[3], "a view that was taken before is read after the wait"
    assert 2 in found[5], "what was given is in use until the wait"
    assert found[6] == []


def test_a_buffer_is_read_after_its_wait() -> None:
    """In place, the wait is all that says when the buffer is there, and nobody uses what it gives; also in a body."""
    reduce_, wait = op_of(TALK.all_reduce_.default), op_of(TALK.wait_tensor.default)
    body = px.Graph((px.Input("p"),), (px.Node("w", wait, (px.Ref("p"),)),), ())
    starts = px.Graph((px.Input("p"),), (px.Node("a", reduce_, (px.Ref("p"), "sum", "0")),), ())
    for waits in (px.Node("w", wait, (px.Ref("x"),)), px.Node("w", px.Call(px.Frame("m"), "m"), (px.Ref("x"),))):
        for begins in (
            px.Node("a", reduce_, (px.Ref("x"), "sum", "0")),
            px.Node("a", px.Call(px.Frame("n"), "n"), (px.Ref("x"),)),
        ):
            later = px.Node("b", reduce_, (px.Ref("y"), "sum", "0"))
            main = px.Graph((px.Input("x"), px.Input("y")), (begins, waits, px.Node("r", NEG, (px.Ref("x"),)), later), ())
            program = px.Program.of({"": main, "m": body, "n": starts})
            assert dependencies(program, main) == [[], [0], [1], [0]]


def test_operators_of_other_libraries_keep_their_order() -> None:
    """Their schema does not say whether they log; what is declared pure moves, and asserts of torch pass them."""
    torch.library.define("purefx_effects::log", "(Tensor x) -> Tensor")
    target = torch.ops.purefx_effects.log.default
    log = op_of(target)
    nodes = [px.Node("a", log, (px.Ref("x"),)), px.Node("p", PRINT, ("a",)), px.Node("b", log, (px.Ref("x"),))]
    assert before(nodes, "x") == [[], [], [0]]
    strange = px.Op("mine", effects_of(print), print)
    assert before([*nodes, px.Node("u", strange, ())], "x") == [[], [], [0], [1, 2]], "what may do anything may log too"
    px.declare(torch.ops.purefx_effects.log, px.PURE)
    try:
        assert op_of(target).effects == px.PURE
        assert px.verify(flat(nodes, px.Ref("b"), "x")) == (), "programs that exist keep what they say"
    finally:
        px.declare(target, None)
    assert op_of(target) == log


def test_effects_of_other_libraries_are_said_for_one_import() -> None:
    """``effects=`` says it without anything that a process remembers; the text of the program has it."""
    torch.library.define("purefx_effects::shout", "(Tensor x) -> Tensor")
    target = torch.ops.purefx_effects.shout.default
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(target, (x,)), graph.call_function(len, (x,))))
    traced = torch.fx.GraphModule({}, graph)
    plain, said = px.import_fx(traced), px.import_fx(traced, effects={torch.ops.purefx_effects.shout: px.PURE, len: px.PURE})
    assert [node.do.effects.domain for node in plain.main.nodes if isinstance(node.do, px.Op)] == ["libraries", ""]
    assert [node.do.effects for node in said.main.nodes if isinstance(node.do, px.Op)] == [px.PURE, px.PURE]
    assert plain != said
    assert px.digest(plain) != px.digest(said), "what a pass may do with them is not the same"
    again = px.import_fx(traced, effects={torch.ops.purefx_effects.shout: px.Effects(), len: px.PURE})
    assert (again, px.digest(again)) == (said, px.digest(said))
    assert px.verify(said) == ()
    assert "purefx_effects.shout.default(x) ! pure" in str(said)
    assert "purefx_effects.shout.default(" in str(plain)


SAID = [
    PURE, ANYTHING, Effects(random=True), Effects(ordered=True), Effects(domain="libraries"), Effects(scope=1),
    Effects(writes=(ArgAt(0, "x"),)), Effects(aliases=(ArgAt(0, "x"),)), Effects(completes=(ArgAt(0, "x"),)),
    Effects(random=True, random_unless=(Unless(ArgAt(1, "p"), 0.0, None),)),
    Effects(random=True, random_unless=(Unless(ArgAt(1, "p"), value=False, default=None),)),
    Effects(random=True, random_unless=(Unless(ArgAt(1, "p"), 0.0, 0.5),)),
]  # fmt: skip


def test_equal_effects_are_equal_digests() -> None:
    """Two programs that differ in what an operator does differ in both, and a switch at False is one at 0.0."""
    programs = [flat([px.Node("a", px.Op("mine", effects), (px.Ref("x"),))], px.Ref("a"), "x") for effects in SAID]
    for left in programs:
        for right in programs:
            assert (left == right) is (px.digest(left) == px.digest(right))
    assert len({px.digest(program) for program in programs}) == len(SAID) - 1


def test_declarations_cannot_contradict_a_schema() -> None:
    """Nor are operators of torch declared."""
    torch.library.define("purefx_effects::put", "(Tensor(a!) x) -> ()")
    target = torch.ops.purefx_effects.put.default
    with pytest.raises(px.errors.EffectsError, match="writes 'x'"):
        px.declare(target, px.PURE)
    with pytest.raises(px.errors.EffectsError, match="operator of torch"):
        px.declare(torch.ops.aten.relu, px.PURE)
    with pytest.raises(px.errors.EffectsError):
        px.declare(torch.ops.higher_order.cond, px.PURE)
    px.declare(target, px.Effects(writes=(px.ir.ArgAt(0, "x"),)))
    try:
        assert not op_of(target).effects.domain
    finally:
        px.declare(target, None)
    lie = px.Op("purefx_effects.put.default", px.PURE, target)
    assert [found.rule for found in px.verify(flat([px.Node("a", lie, (px.Ref("x"),))], (), "x"))] != []


def test_operators_that_torch_orders_are_ordered_before_they_are_decomposed() -> None:
    """Registered by a library, and taken back; the registry is only read."""
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
    from torch._library.simple_registry import singleton

    torch.library.define("purefx_effects::loud", "(Tensor x) -> Tensor")
    target = torch.ops.purefx_effects.loud.default
    entries = len(singleton._data)
    assert not op_of(target).effects.ordered
    assert len(singleton._data) == entries
    handle = _register_effectful_op(target, _EffectType.ORDERED)
    assert op_of(target).effects.ordered
    handle.destroy()
    assert not op_of(target).effects.ordered
