"""What an operator does besides computing decides what must stay after what, and what need not."""

from __future__ import annotations

import re

import pytest
import torch

import purefx as px
from purefx.ir import ANYTHING, PURE, ArgAt, Effects
from purefx.ir.effects.declared import Unless
from purefx.ir.effects.registered import effects_of
from purefx.ir.operators import op_of
from tests.models import PRINT, flat

TALKS = [
    f"_c10d_functional.{name}.default"
    for name in ("all_reduce", "all_reduce_", "wait_tensor", "isend")
]
NAMES = {
    "neg": "aten.neg.default", "add": "aten.add.Tensor", "add_": "aten.add_.Tensor", "copy_": "aten.copy_.default",
    "view": "aten.view.default", "dropout": "aten.dropout.default", "print": "aten._print.default",
    "norm": "aten.batch_norm.default", "item": "operator.getitem", "reduce": TALKS[0], "reduce_": TALKS[1], "wait": TALKS[2],
    "send": TALKS[3], "cond": "higher_order.cond", "no_grad": "higher_order.wrap_with_set_grad_enabled",
    "autocast": "higher_order.wrap_with_autocast", "checkpoint": "higher_order.tag_activation_checkpoint",
}  # fmt: skip
"""Operators as the texts below write them."""


def parsed(main: str, *bodies: str, **fields: object) -> px.Program:
    """Return a program of graphs, with one line each: nodes, with semicolons between."""
    lines = [f'graph @""(x, y, z) {{; {main}; return (); }}', *bodies]
    text = re.sub(r"\b(\w+)(?=\()", lambda name: NAMES.get(name[1], name[1]), "; ".join(lines))
    return px.parse(
        f"program {{\n{text.replace('; ', chr(10))}\n}}", allow=[*TALKS, NAMES["print"]]
    ).evolve(**fields)


def before(main: str, *bodies: str) -> list[list[int]]:
    """Return what must come before what in the root."""
    program = parsed(main, *bodies)
    return px.ir.dependencies(program, program.main)


WRITES = "graph @w(p) {; w = add_(p, 1); return (); }"
ADDS = "graph @e(p, q) {; w = add_(p, q); return (); }"
WAITS, STARTS = (
    "graph @m(p) {; w = wait(p); return (); }",
    'graph @n(p) {; a = reduce_(p, "sum", "0"); return (); }',
)
APART = "graph @m(x) {; p = view(x, [-1]); q = neg(x); return (p, q); }"
TOGETHER = "graph @m(x) {; p = neg(x); q = view(p, [-1]); return (p, q); }"
PAIR = "both = call @m(x) as m; p = item(both, 0); q = item(both, 1); w = add_(p, 1); r = neg(q); s = neg(x)"
SENDS, DELAYS = (
    'graph @n(p) {; q = send(p, 1, 0, "1"); return (); }',
    "graph @m(p) {; w = wait(p); return (); }",
)
BEGINS = 'graph @m(p) {; q = reduce(p, "sum", "2"); w = wait(q); return (); }'
TALKS_TO = 'graph @t(p) {; b = reduce(p, "sum", "0"); return (); }'
ASKS = 'graph @u(p, g) {; b = reduce(p, "sum", g); return (); }'
NORM = "r = neg(y); n = norm(x, None, None, y, z, {}, 0.1, 1e-05, False); s = neg(y)"

ORDERS: dict[str, tuple[list[list[int]], str, tuple[str, ...]]] = {
    "pure operators depend on operands alone": ([[], [], [0, 1]], "a = neg(x); b = neg(x); c = add(a, b)", ()),
    "reads stay on their side of a write": ([[], [0], [1], [1, 2]], "r = neg(x); w = add_(x, 1); s = neg(x); v = add_(x, 1)", ()),
    "a write of a view": ([[], [], [0, 1], [2], []], "v = view(x, [2]); r = neg(x); w = add_(v, 1); s = neg(x); o = neg(y)", ()),
    "draws and prints, each in order; no draw without training": (
        [[], [], [], [0], [1]],
        'd = dropout(x, 0.5, True); p = print("a"); e = dropout(x, 0.5, False); f = dropout(x, 0.5, True); q = print("b")', (),
    ),
    "batch_norm writes in training": ([[], [0], [1]], NORM.format(True), ()),
    "batch_norm writes nothing else": ([[], [], []], NORM.format(False), ()),
    "a source is read, a target written": ([[], [0], [0]], "c = copy_(x, y); w = add_(y, 1); r = neg(x)", ()),
    "a call writes what its body writes": ([[], [0], [1]], "r = neg(x); m = call @w(x) as m; s = neg(x)", (WRITES,)),
    "results of a call are apart, one is a view of the operand": ([[], [0], [0], [0, 1], [2], [3]], PAIR, (APART,)),
    "results of a call are one memory": ([[], [0], [0], [1], [2, 3], []], PAIR, (TOGETHER,)),
    "what takes all results keeps them together": (
        [[], [0], [0], [0, 1, 2], [1, 3], [2, 4], [4]], PAIR.replace("; w", "; all = toy.all(both); w"), (APART,),
    ),
    "a region writes what its body writes": (
        [[], [0], [1], [2], [3], [], [1, 2, 3, 5]],
        ('a = neg(x); m = no_grad(False, @e, x, y); n = autocast("cpu", None, True, None, @e, x, y); '
         "o = checkpoint(@e, x, y); b = neg(x); c = neg(y); w = add_(y, 1)"), (ADDS,),
    ),
    "a branch may write each operand": ([[], [0], [1]], "a = neg(y); m = cond(z, @e, @e, (x, y)); b = neg(y)", (ADDS,)),
    "results of a region are apart": (
        [[], [0], [0], [0, 1], [2], [3]], PAIR.replace("call @m(x) as m", "no_grad(False, @m, x)"), (APART,),
    ),
    "groups of processes, one of them no literal": (
        [[], [], [0], [1, 2], [3]],
        ('a = reduce(x, "sum", "0"); b = reduce(y, "sum", "1"); c = reduce(z, "sum", "0"); d = reduce(x, "sum", z); '
         'e = reduce(y, "sum", "1")'), (),
    ),
    "a buffer after its wait": ([[], [0], [1]], 'a = reduce_(x, "sum", "0"); w = wait(x); r = neg(x)', ()),
    "a buffer after a wait in a body": ([[], [0], [1]], "a = call @n(x) as n; w = call @m(x) as m; r = neg(x)", (WAITS, STARTS)),
    "messages pass no wait, collectives may": (
        [[], [], [0, 1], [], [2], [0, 2, 4]],
        ('a = reduce(x, "sum", "0"); b = send(y, 1, 0, "1"); v = wait(a); c = reduce(z, "sum", "2"); d = send(y, 1, 0, "3")'
         "; w = wait(a)"), (),
    ),
    "a message passes no body that waits": ([[], [0]], 'b = send(y, 1, 0, "1"); m = call @m(x) as m', (DELAYS,)),
    "nor one that waits for its own": ([[], [0]], 'b = send(y, 1, 0, "1"); m = call @m(x) as m', (BEGINS,)),
    "nor do messages of bodies": ([[], [0]], "n = call @n(z) as n; m = call @m(x) as m", (SENDS, DELAYS)),
    "nor the other way round": ([[], [0]], "m = call @m(x) as m; n = call @n(z) as n", (SENDS, DELAYS)),
    "calls and their groups; one is an operand": (
        [[], [0], [], [1, 2], [3]],
        ('a = reduce(y, "sum", "0"); m = call @t(x) as m; c = reduce(y, "sum", "1"); n = call @u(x, "1") as n; '
         'd = reduce(y, "sum", "0")'), (TALKS_TO, ASKS),
    ),
    "branches and their groups": (
        [[], [0], [], [1, 2], [3]],
        ('a = reduce(y, "sum", "0"); m = cond(z, @t, @t, (x,)); c = reduce(y, "sum", "1"); n = cond(z, @u, @u, (x, z)); '
         'd = reduce(y, "sum", "0")'), (TALKS_TO, ASKS),
    ),
    "nothing moves into a region or out of it": (
        [[], [0], [1], [1, 2], [3]],
        "a = neg(x); i = toy.enter() ! opens; b = neg(x); o = toy.leave() ! closes; c = neg(x)", (),
    ),
    "a body that closes what it opens is no boundary": (
        [[], []], "m = call @m(x) as m; d = neg(x)",
        ("graph @m(x) {; i = toy.enter() ! opens; b = neg(x); o = toy.leave() ! closes; return (b,); }",),
    ),
    "a body that opens is": (
        [[], [0]], "m = call @m(x) as m; d = neg(x)", ("graph @m(x) {; i = toy.enter() ! opens; b = neg(x); return (b,); }",),
    ),
}  # fmt: skip
"""What must come before each node, the root, and the bodies."""


@pytest.mark.parametrize("what", ORDERS)
def test_what_must_stay_after_what(what: str) -> None:
    expected, main, bodies = ORDERS[what]
    assert before(main, *bodies) == expected


def test_state_that_shares_memory_conflicts() -> None:
    """Two slots on one storage are one memory; a call writes its own state."""
    tensor = torch.zeros(4)
    numbers = {"a": (tensor, 0), "b": (tensor[1:], 1)}
    slots = {
        name: px.ir.Slot(px.ir.SlotKind.BUFFER, value, cell, 0)
        for name, (value, cell) in numbers.items()
    }
    state = px.ir.State(("a", "b"), px.ir.pmap(slots))
    program = parsed("a = get a; b = get b; r = neg(a); w = add_(b, 1)", state=state)
    assert px.ir.dependencies(program, program.main) == [[], [], [0], [1, 2]]
    body = "graph @n() {; c = get b; w = add_(c, 1); return (); }"
    state = px.ir.State(("n.b",), px.ir.pmap({"n.b": slots["b"]}))
    program = parsed("g = get n.b; s = neg(g); n = call @n() as n; t = neg(g)", body, state=state)
    assert px.ir.dependencies(program, program.main) == [[], [0], [1], [0, 2]]


def test_a_wait_keeps_what_it_completes_on_its_side() -> None:
    text = 'a = reduce(x, "sum", "0"); v = view(a, [2]); w = wait(a); r = neg(v); s = neg(w); u = add_(x, 1); o = neg(y)'
    found = before(text)
    assert 2 in found[3], "a view that was taken before is read after the wait"
    assert 2 in found[5], "what was given is in use until the wait"
    assert found[6] == []


def test_unknown_functions_are_taken_to_do_anything() -> None:
    """A function without a schema may write its operands: reads of them do not pass it."""
    unknown = px.Node("u", px.Op("mine", effects_of(print), print), (px.Ref("x"),))
    program = parsed("r = neg(x); s = neg(x)")
    program = program.with_main(
        program.main.with_nodes([program.main.nodes[0], unknown, program.main.nodes[1]])
    )
    assert px.ir.dependencies(program, program.main) == [[], [0], [1]]


def before_nodes(nodes: list[px.Node]) -> list[list[int]]:
    """Return the dependencies of a flat program of these nodes."""
    program = flat(nodes, (), "x")
    return px.ir.dependencies(program, program.main)


def test_operators_of_other_libraries_keep_their_order() -> None:
    """Their schema does not say whether they log; what is declared pure moves, and asserts of torch pass them."""
    torch.library.define("purefx_effects::log", "(Tensor x) -> Tensor")
    target = torch.ops.purefx_effects.log.default
    log = op_of(target)
    nodes = [
        px.Node("a", log, (px.Ref("x"),)),
        px.Node("p", PRINT, ("a",)),
        px.Node("b", log, (px.Ref("x"),)),
    ]
    assert before_nodes(nodes) == [[], [], [0]]
    strange = px.Op("mine", effects_of(print), print)
    assert before_nodes([*nodes, px.Node("u", strange, ())]) == [[], [], [0], [1, 2]], (
        "what may do anything may log too"
    )
    px.declare(torch.ops.purefx_effects.log, px.PURE)
    try:
        assert op_of(target).effects == px.PURE
        assert px.verify(flat(nodes, px.Ref("b"), "x")) == (), (
            "programs that exist keep what they say"
        )
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
    plain, said = (
        px.import_fx(traced),
        px.import_fx(traced, effects={torch.ops.purefx_effects.shout: px.PURE, len: px.PURE}),
    )
    assert [node.do.effects.domain for node in plain.main.nodes if isinstance(node.do, px.Op)] == [
        "libraries",
        "",
    ]
    assert [node.do.effects for node in said.main.nodes if isinstance(node.do, px.Op)] == [
        px.PURE,
        px.PURE,
    ]
    assert plain != said
    assert px.digest(plain) != px.digest(said), "what a pass may do with them is not the same"
    again = px.import_fx(
        traced, effects={torch.ops.purefx_effects.shout: px.Effects(), len: px.PURE}
    )
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
    programs = [
        flat([px.Node("a", px.Op("mine", effects), (px.Ref("x"),))], px.Ref("a"), "x")
        for effects in SAID
    ]
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
    assert [
        found.rule for found in px.verify(flat([px.Node("a", lie, (px.Ref("x"),))], (), "x"))
    ] != []


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
