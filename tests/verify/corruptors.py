"""Corruptions of small programs: other values and places than those of ``tests.laws.corruptions``, which break every rule."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attrs import evolve, frozen

from purefx import ir
from purefx.ir.calls.parts import PART
from purefx.ir.operators import op_of
from purefx.ir.own_operators import CALL_MODULE, PACK, is_boundary
from purefx.ir.signature import SunkInput
from purefx.ir.torch_private import pytree
from tests.laws import corruptions
from tests.laws.corruptions import with_graph, with_item, with_specs
from tests.verify.programs import GETITEM

Corruption = Callable[[ir.Program], ir.Program]


@frozen
class Corruptor:
    """A corruption, the rule that names it, and the program that it starts from."""

    rule: str
    name: str
    start: str
    apply: Corruption

    def __str__(self) -> str:
        return f"{self.rule}-{self.name}"


def with_node(wanted: str, /, *, graph: str = "", **changes: Any) -> Corruption:
    """Return a corruption that changes fields of one node."""

    def apply(program: ir.Program) -> ir.Program:
        nodes = program.graphs[graph].nodes
        return with_graph(
            program,
            graph,
            nodes=tuple(evolve(n, **changes) if n.name == wanted else n for n in nodes),
        )

    return apply


def with_shared(frame: ir.Frame, *, alone: bool = False) -> Corruption:
    """Return a corruption that lets a call share a callable, as the only one with a signature or besides those there are."""

    def apply(program: ir.Program) -> ir.Program:
        structure = pytree.tree_structure
        shared = ir.CallSignature(structure(((0,), {})), structure(0), shared=True)
        if not alone:
            return program.evolve(call_signatures=program.call_signatures.set(frame, shared))
        nodes = tuple(node for node in program.main.nodes if not is_boundary(node))
        return with_graph(program, "", nodes=nodes).evolve(call_signatures=ir.pmap({frame: shared}))

    return apply


def with_fields(**changes: Any) -> Corruption:
    """Return a corruption that changes fields of the program."""
    return lambda program: program.evolve(**changes)


def with_part(part: str, /, **changes: Any) -> Corruption:
    """Return a corruption that changes fields of a part of the program."""
    return lambda program: program.evolve(**{part: evolve(getattr(program, part), **changes)})


with_signature, with_state, with_constraints = (
    partial(with_part, part) for part in ("signature", "state", "constraints")
)


def with_outputs(*more: tuple[Any, Any]) -> Corruption:
    """Return a corruption that gives back more: pairs of a value and its spec."""

    def corrupted(program: ir.Program) -> ir.Program:
        output = (*program.main.output, *[value for value, _ in more])
        outputs = (*program.signature.outputs, *[spec for _, spec in more])
        return with_signature(outputs=outputs)(with_graph(program, "", output=output))

    return corrupted


def with_user_input(number: int = 2, **changes: Any) -> Corruption:
    """Return a corruption that changes fields of one input of the signature."""

    def apply(program: ir.Program) -> ir.Program:
        inputs = program.signature.inputs
        return with_specs(
            program, inputs=with_item(inputs, number, evolve(inputs[number], **changes))
        )

    return apply


def typed(kind: Any, number: int = 2) -> Corruption:
    """Return a corruption that gives a user input another type."""
    return with_user_input(number, type=kind)


def with_call_signature(in_spec: Any, out_spec: Any) -> Corruption:
    """Return a corruption that gives the preserved call other pytrees."""
    return with_fields(
        call_signatures=ir.pmap({ir.Frame("lin"): ir.CallSignature(in_spec, out_spec)})
    )


def with_slot(name: str, /, **changes: Any) -> Corruption:
    """Return a corruption that changes fields of one slot."""
    return lambda program: corruptions.with_slot(program, name, **changes)


def module_read_elsewhere(program: ir.Program) -> ir.Program:
    """Return the program with a call of a module inside another module, which is read outside of that."""
    nodes = (
        ir.Node("read", ir.Get("m")),
        ir.Node("ran", CALL_MODULE, (ir.Ref("read"), ir.Ref("x")), stack=(ir.Frame("lin"),)),
    )
    return with_module("m")(with_graph(program, "", nodes=(*nodes, *program.main.nodes)))


def with_module(name: str) -> Corruption:
    """Return a corruption that puts a module as it is into the state."""

    def apply(program: ir.Program) -> ir.Program:
        slot = ir.Slot(ir.SlotKind.MODULE, torch.nn.Identity(), 90, 90)
        state = program.state
        return program.evolve(
            state=evolve(state, order=(*state.order, name), slots=state.slots.set(name, slot))
        )

    return apply


def doubled_input(program: ir.Program) -> ir.Program:
    """Give two inputs of a body one name."""
    graph = program.graphs["lin"]
    return with_graph(program, "lin", inputs=(*graph.inputs, ir.Input(graph.inputs[0].name)))


def with_input(graph: str, number: int, **changes: Any) -> Corruption:
    """Return a corruption that changes fields of one input."""

    def apply(program: ir.Program) -> ir.Program:
        inputs = program.graphs[graph].inputs
        return with_graph(
            program, graph, inputs=with_item(inputs, number, evolve(inputs[number], **changes))
        )

    return apply


def outputs_of(program: ir.Program) -> tuple[Any, ...]:
    """Return the output specs of a program."""
    return program.signature.outputs


def named_f(target: Any) -> ir.Op:
    """Return an operator with a name that says nothing."""
    return ir.Op("f", ir.PURE, target)


def result_of_topk(item: Any, target: Any = operator.getitem) -> Corruption:
    """Return a corruption that takes a result of an operator that gives two, before all that the root does."""

    def apply(program: ir.Program) -> ir.Program:
        pair = ir.Node("pair", op_of(torch.ops.aten.topk.default), (ir.Ref("x"), 1))
        taken = ir.Node(
            "taken",
            op_of(target),
            (ir.Ref("pair"), item) if target is operator.getitem else (item,),
        )
        return with_graph(program, "", nodes=(pair, taken, *program.main.nodes))

    return apply


CAT = torch.ops.aten.cat.default
SUM = torch.ops.aten.sum.dim_IntList
RELU = torch.ops.aten.relu.default
ADD_ = torch.ops.aten.add_.Tensor


def packing(change: Corruption) -> Corruption:
    """Return a corruption that first puts an object of a registered type together."""
    made = ir.Node("packed", PACK, (ir.Items([ir.Ref("x")]), pytree.tree_structure(deque([1]))))
    return lambda program: change(with_graph(program, "", nodes=(made, *program.main.nodes)))


TABLE: dict[str, dict[str, tuple[str, Corruption]]] = {
    "well-formed": {
        "state-order-twice": ("flat", lambda p: with_state(order=(*p.state.order, "lin.w"))(p)),
        "keywords-number": ("flat", with_node("unused", kwargs=((1, 1),))),
        "graphs-dict": ("flat", with_fields(graphs={})),
        "root-number": ("flat", with_fields(root=3)),
        "graph-text": ("flat", lambda p: p.evolve(graphs=p.graphs.set("x", "graph"))),
        "nodes-number": ("flat", lambda p: with_graph(p, "", nodes=7)),
        "node-none": ("flat", lambda p: with_graph(p, "", nodes=(*p.main.nodes, None))),
        "input-text": (
            "tree",
            lambda p: with_graph(p, "lin", inputs=("x", *p.graphs["lin"].inputs[1:])),
        ),
        "name-number": ("flat", with_node("unused", name=5)),
        "name-empty": ("flat", with_node("unused", name="")),
        "kwargs-dict": ("flat", with_node("unused", kwargs={"a": 1})),
        "do-none": ("flat", with_node("unused", do=None)),
        "do-target": ("flat", with_node("unused", do=ir.Op("toy.neg", ir.PURE, 7))),  # type: ignore[arg-type]
        "call-number": ("tree", with_node("lin", do=ir.Call(ir.Frame("lin", "0"), "lin"))),  # type: ignore[arg-type]
        "get-slot": ("tree", with_node("w", graph="lin", do=ir.Get(None))),  # type: ignore[arg-type]
        "get-args": ("tree", with_node("w", graph="lin", args=(ir.Ref("x"),))),
        "stack-list": ("flat", with_node("unused", stack=[ir.Frame("lin")])),
        "stack-empty-path": ("flat", with_node("unused", stack=(ir.Frame(""),))),
        "slot-kind": ("flat", with_slot("lin.w", kind="parameter")),
        "modules-text": ("flat", with_fields(modules=("lin",))),
        "trail-text": ("flat", with_fields(trail=("step",))),
        "signature-slots-unhashable": (
            "flat",
            lambda p: with_signature(outputs=(ir.StateMutation([]), *outputs_of(p)[1:]))(p),
        ),
        "gradients-unhashable": (
            "tree",
            with_outputs((None, ir.LossOutput()), (None, ir.StateGradient([]))),
        ),
        "signature-arguments-no-type": ("flat", typed("float")),
        "signature-leaves-garbage": ("flat", with_signature(out_spec="tree")),
        "constraints-range-bound": (
            "flat",
            with_constraints(ranges=(ir.Range(ir.Sym("s0"), "2", None),)),
        ),  # type: ignore[arg-type]
        "call-signature": ("flat", with_fields(call_signatures=ir.pmap({"lin": 1}))),
    },
    "unique-names": {
        "input": ("tree", doubled_input),
        "clash": ("flat", with_node("unused", name="x")),
    },
    "defined-values": {
        "nested": (
            "flat",
            with_node("unused", args=((1, ir.Record((("k", ir.Items([ir.Ref("nowhere")])),))),)),
        ),
        "keyword": ("flat", with_node("unused", kwargs=(("k", ir.Ref("nowhere")),))),
        "output": (
            "flat",
            lambda p: with_graph(p, "", output=(*p.main.output[:-1], ir.Ref("nowhere"))),
        ),
        "other-graph": ("tree", with_node("out", args=(ir.Ref("w"),))),
    },
    "earlier-values": {"itself": ("flat", with_node("unused", args=(ir.Ref("unused"),)))},
    "argument-kinds": {
        "dict": ("flat", with_node("unused", args=(ir.Ref("x"), {"a": 1}))),
        "module": ("flat", with_node("unused", args=((torch.nn.Linear(1, 1),),))),
        "record-number": ("flat", with_node("unused", args=(ir.Record(3),))),  # type: ignore[arg-type]
        "ref-number": ("flat", with_node("unused", args=(ir.Ref(3),))),  # type: ignore[arg-type]
        "keyword": ("flat", with_node("unused", kwargs=(("k", [1]),))),
    },
    "meta": {
        "number": ("flat", with_node("unused", meta=7)),
        "key": ("flat", with_node("unused", meta={1: 2})),
        "val-nested": ("flat", with_node("unused", meta={"val": (None, [torch.nn.Linear])})),
        "val-ref": ("flat", with_node("unused", meta={"val": ir.Ref("x")})),
        "trace": ("flat", with_node("unused", meta={"stack_trace": 3})),
        "input": ("flat", with_input("", 1, meta={"val": {1}})),
    },
    "call-arguments": {"keyword": ("tree", with_node("lin", kwargs=(("k", 1),)))},
    "operands": {
        "too-few": ("flat", with_node("y", args=(ir.Ref("x"),))),
        "literal-for-a-body": ("tree", with_node("tied", args=(b"a",))),
        "keyword": ("flat", with_node("y", kwargs=(("beta", 1),))),
        "keyword-and-position": ("flat", with_node("y", kwargs=(("other", ir.Ref("x")),))),
        "text": ("flat", with_node("y", args=(ir.Ref("x"), "p_w"))),
        "list": ("flat", with_node("y", args=(ir.Ref("x"), ir.Items([ir.Ref("p_w")])))),
        "text-in-keyword": ("flat", with_node("y", kwargs=(("alpha", "1"),))),
        "number-for-a-tensor": ("flat", with_node("unused", do=op_of(RELU), args=(1,))),
        "text-in-a-list": (
            "flat",
            with_node("unused", do=op_of(SUM), args=(ir.Ref("x"), ir.Items([0, "1"]))),
        ),
        "number-for-a-list": ("flat", with_node("unused", do=op_of(CAT), args=(ir.Ref("x"), 0, 1))),
    },
    "results": {
        "projections-bool": ("tree", with_node("first", args=(ir.Ref("lin"), True))),
        "projections-of-an-operator": ("flat", result_of_topk(2)),
        "projections-of-a-literal": ("tree", with_node("first", args=((ir.Ref("x"),), 1))),
        "of-an-operator": ("flat", result_of_topk(ir.Ref("pair"), RELU)),
    },
    "packed-values": {
        "item": ("tree", packing(with_node("first", do=GETITEM, args=(ir.Ref("packed"), 0)))),
        "in-a-list": (
            "tree",
            packing(with_node("first", do=ir.Op("toy.f"), args=(ir.Items([ir.Ref("packed")]),))),
        ),
        "handed": ("tree", packing(with_node("act", args=(ir.Ref("packed"),)))),
    },
    "effects": {
        "forgotten-write": (
            "flat",
            with_node("unused", do=ir.Op("aten.add_.Tensor", ir.PURE, ADD_), args=(ir.Ref("x"), 1)),
        ),
        "invented-order": (
            "flat",
            with_node(
                "unused", do=ir.Op("aten.relu.default", ir.Effects(random=True, ordered=True), RELU)
            ),
        ),
    },
    "operator-names": {
        "wrong": (
            "flat",
            with_node("unused", do=ir.Op("aten.add.Tensor", ir.PURE, RELU), args=(ir.Ref("x"),)),
        ),
        "plain": ("flat", with_node("unused", do=ir.Op("operator.neg"))),
        "two": (
            "flat",
            lambda p: with_node("unused", do=named_f(torch.sym_not))(
                with_node("y", do=named_f(torch.sym_max))(p)
            ),
        ),
    },
    "stacks": {
        "inside-another": (
            "flat",
            with_node("unused", stack=(ir.Frame("lin"), ir.Frame("act"), ir.Frame("lin"))),
        ),
        "from-the-root": ("flat", with_node("unused", stack=(ir.Frame("/lin"),))),
        "reads-from-the-root": ("flat", with_node("unused", do=ir.Get("/only"), args=())),
        "calls-from-the-root": ("tree", with_node("act", do=ir.Call(ir.Frame("/act"), "act"))),
    },
    "scopes": {
        "divided": ("flat", with_node("unused", stack=(ir.Frame("act", 1), ir.Frame("act.in", 1)))),
        "skipped": ("flat", with_node("unused", stack=(ir.Frame("act.in", 1),))),
    },
    "module-paths": {
        "no-root": ("flat", lambda p: p.evolve(modules=p.modules[1:])),
        "slash": ("flat", lambda p: p.evolve(modules=(*p.modules, ir.Module("/a")))),
    },
    "known-modules": {
        "call": (
            "tree",
            lambda p: p.evolve(modules=tuple(m for m in p.modules if m.path != "lin")),
        ),
        "outer": ("flat", with_node("unused", stack=(ir.Frame("li"), ir.Frame("act", 7)))),
    },
    "parts": {
        "state": (
            "split",
            lambda p: p.evolve(
                state=evolve(p.state, order=("w",), slots=ir.pmap({"w": p.state["a.lin.w"]}))
            ),
        ),
        "deep": ("split", lambda p: p.evolve(modules=(*p.modules, ir.Module("a.c", PART)))),
        "elsewhere": ("split", with_node("z", graph="b", do=ir.Call(ir.Frame("/a"), "a"))),
        "unsplit": ("flat", lambda p: p.evolve(modules=(*p.modules, ir.Module("part", PART)))),
    },
    "call-labels": {
        "siblings": ("tree", with_node("act", do=ir.Call(ir.Frame("lin"), "act"))),
        "deeper": (
            "nested",
            with_node("again", graph="other", do=ir.Call(ir.Frame("in"), "negated")),
        ),
    },
    "boundaries": {
        "unknown": ("kept", with_node("in_takes", stack=(ir.Frame("act"),))),
        "more": ("kept", with_node("in_gives", args=(ir.Ref("x"), 1))),
        "keyword": ("kept", with_node("in_gives", kwargs=(("k", 1),))),
        "no-signature": ("kept", with_fields(call_signatures=ir.pmap())),
        "as-a-value": ("kept", with_node("unused", args=(ir.Ref("in_takes"),))),
        "given-back": (
            "kept",
            lambda p: with_graph(p, "", output=(*p.main.output[:-1], ir.Ref("in_takes"))),
        ),
    },
    "shared-signatures": {
        "plain": ("kept", with_shared(ir.Frame("lin", 1), alone=True)),
        "apart": ("kept", with_shared(ir.Frame("lin", 1))),
        "called": ("tree", with_shared(ir.Frame("tied", 1))),
    },
    "opaque-modules": {
        "state-below": ("flat", with_module("lin")),
        "body-there": ("tree", with_module("act")),
        "body-below": ("nested", with_module("out")),
        "stack-there": (
            "flat",
            lambda p: with_module("act.in")(
                with_node("deep", stack=(ir.Frame("act"), ir.Frame("act.in")))(p)
            ),
        ),
        "literal": ("flat", with_node("unused", do=CALL_MODULE, args=(1,))),
        "nothing": ("flat", with_node("unused", do=CALL_MODULE, args=())),
        "as-a-value": (
            "flat",
            with_slot("lin.w", kind=ir.SlotKind.MODULE, value=torch.nn.Identity()),
        ),
        "read-elsewhere": ("flat", module_read_elsewhere),
        "was-an-input": (
            "flat",
            lambda p: with_signature(lifted=(SunkInput("m"),))(with_module("m")(p)),
        ),
    },
    "signature-outputs": {
        "single": ("tree", lambda p: with_graph(p, "", output=ir.Ref("out"))),
        "items": ("tree", lambda p: with_graph(p, "", output=ir.Items(p.main.output))),
    },
    "signature-slots": {
        "twice": (
            "flat",
            lambda p: with_signature(inputs=(ir.StateInput("only"), *p.signature.inputs[1:]))(p),
        ),
        "lifted-twice": ("flat", with_signature(lifted=(SunkInput("only"), SunkInput("only")))),
    },
    "mutations": {
        "mutation-contents-shape": ("flat", with_node("new", meta={"val": torch.ones(3)})),
        "mutation-contents-dtype": (
            "flat",
            with_node("new", meta={"val": torch.ones(2, 2).double()}),
        ),
        "mutation-contents-input": (
            "flat",
            lambda p: with_input("", 2, meta={"val": torch.ones(2, 3)})(p),
        ),
        "state-input": (
            "flat",
            lambda p: with_signature(
                outputs=(outputs_of(p)[0], ir.InputMutation(0), *outputs_of(p)[2:])
            )(p),
        ),
        "literal": ("flat", lambda p: with_graph(p, "", output=(3, *p.main.output[1:]))),
    },
    "gradients": {
        "slot": (
            "tree",
            with_outputs((None, ir.LossOutput()), (None, ir.StateGradient("nowhere"))),
        ),
        "buffer": (
            "tree",
            with_outputs((None, ir.LossOutput()), (None, ir.StateGradient("count"))),
        ),
        "twice": (
            "tree",
            with_outputs(
                (None, ir.LossOutput()), (None, ir.InputGradient(0)), (None, ir.InputGradient(0))
            ),
        ),
        "losses": ("tree", with_outputs((None, ir.LossOutput()), (None, ir.LossOutput()))),
        "shape": (
            "flat",
            with_outputs((None, ir.LossOutput()), (ir.Ref("y"), ir.StateGradient("lin.w"))),
        ),
    },
    "tangents": {
        "negative": ("flat", with_user_input(3, tangent_of=-1)),
        "twice": (
            "flat",
            lambda p: with_user_input(2, tangent_of=0)(with_user_input(3, tangent_of=0)(p)),
        ),
        "not-last": ("flat", with_user_input(2, tangent_of=0)),
        "shape": (
            "flat",
            lambda p: with_input("", 3, meta={"val": torch.ones(5)})(
                with_user_input(3, tangent_of=0)(p)
            ),
        ),
    },
    "signature-types": {
        "rank": ("tree", with_input("", 0, meta={"val": torch.ones(2)})),
        "size": ("tree", with_input("", 0, meta={"val": torch.ones(3, 3)})),
        "dtype": ("tree", with_input("", 0, meta={"val": torch.ones(2, 3).int()})),
    },
    "signature-arguments": {
        "device": ("flat", typed(ir.TensorType(torch.float32, (2,), "nowhere"))),
        "default-value": ("flat", with_user_input(default=ir.LiteralType(ir.Ref("x")))),
        "default-of-another": (
            "flat",
            with_user_input(default=ir.LiteralType(None), argument="other"),
        ),
        "two-rests": ("flat", lambda p: typed(ir.RestType(), 2)(typed(ir.RestType(), 3)(p))),
    },
    "pytrees": {
        "list": ("flat", with_signature(in_spec=pytree.tree_structure(([0, 0], {})))),
        "keyword": ("flat", with_signature(in_spec=pytree.tree_structure(((0,), {3: 0})))),
        "keys": (
            "flat",
            with_signature(in_spec=pytree.tree_structure((({ir.Ref("k"): 0}, 0), {}))),
        ),
        "names": ("flat", with_signature(arg_names=("x", "x"))),
        "call": ("kept", with_call_signature(pytree.tree_structure(0), pytree.tree_structure(0))),
    },
    "state-values": {
        "text": ("flat", with_slot("count", value="tensor")),
        "plain-parameter": (
            "flat",
            lambda p: with_slot("lin.w", value=torch.ones(2, 2), cell=70, storage=70)(p),
        ),
    },
    "state-memory": {
        "state-ties-storage": (
            "flat",
            lambda p: with_slot("tied.w", storage=9, value=p.state["tied.w"].value)(p),
        ),
        "state-ties-shape": (
            "flat",
            lambda p: with_slot("tied.w", value=p.state["lin.w"].value.detach()[:1])(p),
        ),
        "state-ties-offset": ("flat", lambda p: with_slot("count", cell=p.state["view"].cell)(p)),
    },
    "state-geometry": {
        "input-shape": ("flat", lambda p: with_slot("only", value=torch.ones(7))(p)),
        "input-dtype": ("flat", lambda p: with_slot("only", value=torch.ones(2).double())(p)),
        "read-shape": ("tree", with_node("w", graph="lin", meta={"val": torch.ones(9, 9)})),
        "read-in-one-call": ("tree", with_slot("tied.w", value=torch.ones(9, 9))),
    },
    "reads": {
        "absolute": ("tree", with_node("w", graph="lin", do=ir.Get("lin.w"))),
        "instance": ("tree", lambda p: with_node("lin", do=ir.Call(ir.Frame("act"), "lin"))(p)),
    },
    "constraints": {
        "size": ("flat", typed(ir.TensorType(torch.float32, (-1,)))),
        "size-operator": ("flat", typed(ir.TensorType(torch.float32, (ir.Apply("range", (2,)),)))),
        "value": ("flat", with_constraints(guards=(ir.InputValue(-1),))),
        "dim": ("flat", with_constraints(guards=(ir.Apply("==", (ir.InputDim(0, 4), 3)),))),
        "operator": ("flat", with_constraints(guards=(ir.Apply("import", (1,)),))),
        "range": ("flat", with_constraints(ranges=(ir.Range(ir.Sym("s0"), 5, 2),))),
        "zero": ("flat", with_constraints(guards=(ir.Apply("//", (ir.InputDim(0, 1), 0)),))),
        "symbol": ("flat", with_constraints(guards=(ir.Apply("<", (ir.Sym("s0"), 3)),))),
        "operands": ("flat", with_constraints(guards=(ir.Apply("if", (True,)),))),
        "digits": (
            "flat",
            with_constraints(guards=(ir.Apply("<", (ir.InputDim(0, 1), 10**5000)),)),
        ),
    },
    "facts": {
        "state": (
            "tree",
            lambda p: with_graph(p, "", nodes=(ir.Node("r", ir.Get("only")), *p.main.nodes)).evolve(
                facts=frozenset({"state as inputs"})
            ),
        ),
        "in-place": ("flat", with_fields(facts=frozenset({"mutations in place"}))),
        "token-input": (
            "tree",
            lambda p: with_signature(inputs=(ir.Token(), *p.signature.inputs[1:]))(p).evolve(
                facts=frozenset({"token free"})
            ),
        ),
        "token-op": ("tokens", with_fields(facts=frozenset({"token free"}))),
    },
}
"""Rule, then name of the corruption, then the program that it starts from and what it does."""


VARIANTS = [
    Corruptor(rule, name, start, apply)
    for rule, entries in TABLE.items()
    for name, (start, apply) in entries.items()
]
"""All corruptors of this table."""
