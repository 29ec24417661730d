"""Corruptors: for each rule, pure functions ``Program -> Program`` that break exactly it.

One idea: each takes a valid program (``programs.py``) and changes one fact.  The rule that must name it stands beside it.
"""

from __future__ import annotations

import torch
from attrs import evolve

from purefx.ir import (
    PURE,
    Apply,
    Body,
    Call,
    Constraints,
    Effects,
    Frame,
    Get,
    Graph,
    InputDim,
    InputGradient,
    InputMutation,
    InputValue,
    Items,
    LiteralType,
    LossOutput,
    Module,
    Node,
    NumberType,
    Op,
    Range,
    Record,
    Ref,
    RestType,
    SlotKind,
    StateGradient,
    StateInput,
    StateMutation,
    Sym,
    TensorType,
    Token,
    UserOutput,
    pmap,
)  # fmt: skip
from purefx.ir.calls.parts import PART
from purefx.ir.own_operators import CALL_MODULE, GIVES
from purefx.ir.signature import SunkInput
from purefx.ir.torch_private import pytree
from tests.verify.changes import (
    ADD_,
    RELU,
    Corruption,
    Corruptor,
    circle,
    doubled_input,
    doubled_node,
    module_read_elsewhere,
    named_f,
    outputs_of,
    result_of_topk,
    swapped_nodes,
    typed,
    with_call_signature,
    with_constraints,
    with_fields,
    with_graph,
    with_input,
    with_module,
    with_node,
    with_outputs,
    with_shared,
    with_signature,
    with_slot,
    with_state,
    with_user_input,
    without_graph,
)
from tests.verify.operands import OPERANDS

__all__ = ["CORRUPTORS", "TABLE"]

TABLE: dict[str, dict[str, tuple[str, Corruption]]] = {
    "well-formed": {
        "graphs-dict": ("flat", with_fields(graphs={})),
        "root-number": ("flat", with_fields(root=3)),
        "graph-text": ("flat", lambda p: p.evolve(graphs=p.graphs.set("x", "graph"))),
        "nodes-list": ("flat", lambda p: with_graph(p, "", nodes=list(p.main.nodes))),
        "nodes-number": ("flat", lambda p: with_graph(p, "", nodes=7)),
        "node-none": ("flat", lambda p: with_graph(p, "", nodes=(*p.main.nodes, None))),
        "input-text": ("tree", lambda p: with_graph(p, "lin", inputs=("x", *p.graphs["lin"].inputs[1:]))),
        "name-number": ("flat", with_node("unused", name=5)),
        "name-empty": ("flat", with_node("unused", name="")),
        "args-list": ("flat", with_node("unused", args=[Ref("x")])),
        "kwargs-dict": ("flat", with_node("unused", kwargs={"a": 1})),
        "kwargs-triple": ("flat", with_node("unused", kwargs=(("a", 1, 2),))),
        "do-none": ("flat", with_node("unused", do=None)),
        "do-effects": ("flat", with_node("unused", do=Op("toy.neg", None))),  # type: ignore[arg-type]
        "do-target": ("flat", with_node("unused", do=Op("toy.neg", PURE, 7))),  # type: ignore[arg-type]
        "call-number": ("tree", with_node("lin", do=Call(Frame("lin", "0"), "lin"))),  # type: ignore[arg-type]
        "call-graph": ("tree", with_node("lin", do=Call(Frame("lin"), ["lin"]))),  # type: ignore[arg-type]
        "get-slot": ("tree", with_node("w", graph="lin", do=Get(None))),  # type: ignore[arg-type]
        "get-args": ("tree", with_node("w", graph="lin", args=(Ref("x"),))),
        "stack-list": ("flat", with_node("unused", stack=[Frame("lin")])),
        "stack-text": ("flat", with_node("unused", stack=("lin",))),
        "stack-empty-path": ("flat", with_node("unused", stack=(Frame(""),))),
        "slot-kind": ("flat", with_slot("lin.w", kind="parameter")),
        "slot-cell": ("flat", with_slot("lin.w", cell="0")),
        "modules-text": ("flat", with_fields(modules=("lin",))),
        "trail-text": ("flat", with_fields(trail=("step",))),
        "call-signature": ("flat", with_fields(call_signatures=pmap({"lin": 1}))),
    },
    "unique-names": {
        "node": ("flat", doubled_node),
        "input": ("tree", doubled_input),
        "clash": ("flat", with_node("unused", name="x")),
    },
    "defined-values": {
        "undefined": ("flat", with_node("unused", args=(Ref("nowhere"),))),
        "nested": ("flat", with_node("unused", args=((1, Record((("k", Items([Ref("nowhere")])),))),))),
        "keyword": ("flat", with_node("unused", kwargs=(("k", Ref("nowhere")),))),
        "output": ("flat", lambda p: with_graph(p, "", output=(*p.main.output[:-1], Ref("nowhere")))),
        "other-graph": ("tree", with_node("out", args=(Ref("w"),))),
    },
    "earlier-values": {
        "late": ("flat", swapped_nodes),
        "itself": ("flat", with_node("unused", args=(Ref("unused"),))),
    },
    "argument-kinds": {
        "list": ("flat", with_node("unused", args=([1, 2],))),
        "dict": ("flat", with_node("unused", args=(Ref("x"), {"a": 1}))),
        "tensor": ("flat", with_node("unused", args=(torch.ones(2),))),
        "module": ("flat", with_node("unused", args=((torch.nn.Linear(1, 1),),))),
        "set-in-slice": ("flat", with_node("unused", args=(slice({1}, 2),))),
        "record-number": ("flat", with_node("unused", args=(Record(3),))),  # type: ignore[arg-type]
        "ref-number": ("flat", with_node("unused", args=(Ref(3),))),  # type: ignore[arg-type]
        "ref-list": ("flat", with_node("unused", args=(Ref([3]),))),  # type: ignore[arg-type]
        "keyword": ("flat", with_node("unused", kwargs=(("k", [1]),))),
        "size": ("flat", with_node("unused", args=(torch.Size([1]),))),
        "output-body": ("tree", lambda p: with_graph(p, "", output=(*p.main.output[:-1], Body("lin")))),
    },
    "keywords": {
        "twice": ("flat", with_node("unused", kwargs=(("k", 1), ("k", 2)))),
        "number": ("flat", with_node("unused", kwargs=((1, 1),))),
    },
    "meta": {
        "number": ("flat", with_node("unused", meta=7)),
        "key": ("flat", with_node("unused", meta={1: 2})),
        "val-function": ("flat", with_node("unused", meta={"val": print})),
        "val-nested": ("flat", with_node("unused", meta={"val": (None, [torch.nn.Linear])})),
        "val-ref": ("flat", with_node("unused", meta={"val": Ref("x")})),
        "trace": ("flat", with_node("unused", meta={"stack_trace": 3})),
        "input": ("flat", with_input("", 1, meta={"val": {1}})),
    },
    "root": {"unknown": ("tree", with_fields(root="nowhere"))},
    "known-callees": {"call": ("tree", without_graph("lin")), "body": ("branch", without_graph("$yes"))},
    "reachable-graphs": {"orphan": ("tree", lambda p: p.evolve(graphs=p.graphs.set("orphan", Graph((), ()))))},
    "acyclic-calls": {"itself": ("tree", circle)},
    "call-arguments": {
        "missing": ("tree", with_node("lin", args=())),
        "extra": ("tree", with_node("lin", args=(Ref("x"), 1, 2))),
        "keyword": ("tree", with_node("lin", kwargs=(("k", 1),))),
    },
    "projections": {
        "beyond": ("tree", with_node("first", args=(Ref("lin"), 2))),
        "bool": ("tree", with_node("first", args=(Ref("lin"), True))),
        "of-an-operator": ("flat", result_of_topk(2)),
        "text-of-an-operator": ("flat", result_of_topk("0")),
        "of-text": ("tree", with_node("first", args=("lin", 0))),
        "of-a-literal": ("tree", with_node("first", args=((Ref("x"),), 1))),
    },
    "operator-bodies": {
        "effects": ("branch", with_node("branch", do=Op("toy.cond", PURE))),
        "output": ("branch", lambda p: with_graph(p, "$yes", output=3)),
    },
    **OPERANDS,
    "effects": {
        "forgotten-write": ("flat", with_node("unused", do=Op("aten.add_.Tensor", PURE, ADD_), args=(Ref("x"), 1))),
        "invented-random": ("flat", with_node("unused", do=Op("aten.relu.default", Effects(random=True), RELU))),
        "invented-order": ("flat", with_node("unused", do=Op("aten.relu.default", Effects(random=True, ordered=True), RELU))),
    },
    "operator-names": {
        "wrong": ("flat", with_node("unused", do=Op("aten.add.Tensor", PURE, RELU), args=(Ref("x"),))),
        "two": ("flat", lambda p: with_node("unused", do=named_f(torch.sym_not))(with_node("y", do=named_f(torch.sym_max))(p))),
    },
    "stacks": {
        "repeated": ("flat", with_node("unused", stack=(Frame("lin"), Frame("lin")))),
        "inside-another": ("flat", with_node("unused", stack=(Frame("lin"), Frame("act"), Frame("lin")))),
        "from-the-root": ("flat", with_node("unused", stack=(Frame("/lin"),))),
    },
    "scopes": {
        "divided": ("flat", with_node("unused", stack=(Frame("act", 1), Frame("act.in", 1)))),
        "skipped": ("flat", with_node("unused", stack=(Frame("act.in", 1),))),
    },
    "module-paths": {
        "twice": ("flat", lambda p: p.evolve(modules=(*p.modules, Module("lin")))),
        "orphan": ("flat", lambda p: p.evolve(modules=(*p.modules, Module("a.b")))),
        "number": ("flat", lambda p: p.evolve(modules=(*p.modules, Module(3)))),  # type: ignore[arg-type]
        "no-root": ("flat", lambda p: p.evolve(modules=p.modules[1:])),
        "slash": ("flat", lambda p: p.evolve(modules=(*p.modules, Module("/a")))),
    },
    "known-modules": {
        "stack": ("flat", with_node("unused", stack=(Frame("nowhere"),))),
        "outer": ("flat", with_node("unused", stack=(Frame("li"), Frame("act", 7)))),
        "call": ("tree", lambda p: p.evolve(modules=tuple(m for m in p.modules if m.path != "lin"))),
    },
    "parts": {
        "state": ("split", lambda p: p.evolve(state=evolve(p.state, order=("w",), slots=pmap({"w": p.state["a.lin.w"]})))),
        "module": ("split", lambda p: p.evolve(modules=(*p.modules, Module("lin")))),
        "deep": ("split", lambda p: p.evolve(modules=(*p.modules, Module("a.c", PART)))),
        "twice": ("split", with_node("z", do=Call(Frame("a", 1), "b"))),
        "elsewhere": ("split", with_node("z", graph="b", do=Call(Frame("/a"), "a"))),
        "unsplit": ("flat", lambda p: p.evolve(modules=(*p.modules, Module("part", PART)))),
    },
    "call-labels": {
        "siblings": ("tree", with_node("act", do=Call(Frame("lin"), "act"))),
        "deeper": ("nested", with_node("again", graph="other", do=Call(Frame("in"), "negated"))),
    },
    "boundaries": {
        "unknown": ("kept", with_node("in_takes", stack=(Frame("act"),))),
        "fewer": ("kept", with_node("in_takes", args=())),
        "more": ("kept", with_node("in_gives", args=(Ref("x"), 1))),
        "keyword": ("kept", with_node("in_gives", kwargs=(("k", 1),))),
        "twice": ("kept", with_node("in_takes", do=GIVES)),
        "no-signature": ("kept", with_fields(call_signatures=pmap())),
        "as-a-value": ("kept", with_node("unused", args=(Ref("in_takes"),))),
        "given-back": ("kept", lambda p: with_graph(p, "", output=(*p.main.output[:-1], Ref("in_takes")))),
    },
    "shared-signatures": {
        "plain": ("kept", with_shared(Frame("lin", 1), alone=True)),
        "apart": ("kept", with_shared(Frame("lin", 1))),
        "called": ("tree", with_shared(Frame("tied", 1))),
    },
    "opaque-modules": {
        "state-below": ("flat", with_module("lin")),
        "body-there": ("tree", with_module("act")),
        "body-below": ("nested", with_module("out")),
        "stack-there": ("flat", lambda p: with_module("act.in")(with_node("deep", stack=(Frame("act"), Frame("act.in")))(p))),
        "no-module": ("flat", with_node("unused", do=CALL_MODULE)),
        "literal": ("flat", with_node("unused", do=CALL_MODULE, args=(1,))),
        "nothing": ("flat", with_node("unused", do=CALL_MODULE, args=())),
        "as-a-value": ("flat", with_slot("lin.w", kind=SlotKind.MODULE, value=torch.nn.Identity())),
        "read-elsewhere": ("flat", module_read_elsewhere),
    },
    "signature-inputs": {
        "missing": ("flat", lambda p: with_signature(inputs=p.signature.inputs[:-1])(p)),
        "kind": ("flat", lambda p: with_signature(inputs=(*p.signature.inputs[:-2], UserOutput(), *p.signature.inputs[-1:]))(p)),
        "list": ("tree", lambda p: with_signature(inputs=list(p.signature.inputs))(p)),
    },
    "signature-outputs": {
        "missing": ("flat", lambda p: with_signature(outputs=outputs_of(p)[:-1])(p)),
        "single": ("tree", lambda p: with_graph(p, "", output=Ref("out"))),
        "items": ("tree", lambda p: with_graph(p, "", output=Items(p.main.output))),
        "kind": ("flat", lambda p: with_signature(outputs=(*outputs_of(p)[:-1], 3))(p)),
    },
    "signature-slots": {
        "input": ("flat", lambda p: with_signature(inputs=(StateInput("nowhere"), *p.signature.inputs[1:]))(p)),
        "mutation": ("flat", lambda p: with_signature(outputs=(StateMutation("nowhere"), *outputs_of(p)[1:]))(p)),
        "unhashable": ("flat", lambda p: with_signature(outputs=(StateMutation([]), *outputs_of(p)[1:]))(p)),
        "twice": ("flat", lambda p: with_signature(inputs=(StateInput("only"), *p.signature.inputs[1:]))(p)),
        "lifted-twice": ("flat", with_signature(lifted=(SunkInput("only"), SunkInput("only")))),
    },
    "mutations": {
        "state-input": ("flat", lambda p: with_signature(outputs=(outputs_of(p)[0], InputMutation(0), *outputs_of(p)[2:]))(p)),
        "beyond": ("flat", lambda p: with_signature(outputs=(outputs_of(p)[0], InputMutation(99), *outputs_of(p)[2:]))(p)),
        "twice": ("flat", lambda p: with_signature(outputs=(outputs_of(p)[0], outputs_of(p)[0], *outputs_of(p)[2:]))(p)),
        "literal": ("flat", lambda p: with_graph(p, "", output=(3, *p.main.output[1:]))),
    },
    "mutation-contents": {
        "shape": ("flat", with_node("new", meta={"val": torch.ones(3)})),
        "dtype": ("flat", with_node("new", meta={"val": torch.ones(2, 2).double()})),
        "input": ("flat", lambda p: with_input("", 2, meta={"val": torch.ones(2, 3)})(p)),
    },
    "gradients": {
        "slot": ("tree", with_outputs((None, LossOutput()), (None, StateGradient("nowhere")))),
        "buffer": ("tree", with_outputs((None, LossOutput()), (None, StateGradient("count")))),
        "unhashable": ("tree", with_outputs((None, LossOutput()), (None, StateGradient([])))),
        "leaf": ("tree", with_outputs((None, LossOutput()), (None, InputGradient(2)))),
        "garbage": ("tree", with_outputs((None, LossOutput()), (None, InputGradient("x")))),
        "twice": ("tree", with_outputs((None, LossOutput()), (None, InputGradient(0)), (None, InputGradient(0)))),
        "no-loss": ("tree", with_outputs((None, StateGradient("lin.w")))),
        "losses": ("tree", with_outputs((None, LossOutput()), (None, LossOutput()))),
        "shape": ("flat", with_outputs((None, LossOutput()), (Ref("y"), StateGradient("lin.w")))),
    },
    "signature-types": {
        "rank": ("tree", with_input("", 0, meta={"val": torch.ones(2)})),
        "size": ("tree", with_input("", 0, meta={"val": torch.ones(3, 3)})),
        "dtype": ("tree", with_input("", 0, meta={"val": torch.ones(2, 3).int()})),
    },
    "signature-arguments": {
        "number": ("flat", typed(NumberType("complex"))),
        "device": ("flat", typed(TensorType(torch.float32, (2,), "nowhere"))),
        "no-type": ("flat", typed("float")),
        "size": ("flat", typed(TensorType(torch.float32, (-1,)))),
        "size-operator": ("flat", typed(TensorType(torch.float32, (Apply("range", (2,)),)))),
        "argument": ("flat", with_user_input(argument=Ref("x"))),
        "default-value": ("flat", with_user_input(default=LiteralType(Ref("x")))),
        "default-of-another": ("flat", with_user_input(default=LiteralType(None), argument="other")),
        "two-rests": ("flat", lambda p: typed(RestType(), 2)(typed(RestType(), 3)(p))),
    },
    "pytrees": {
        "leaf": ("flat", with_signature(in_spec=pytree.tree_structure((0, 0)))),
        "list": ("flat", with_signature(in_spec=pytree.tree_structure(([0, 0], {})))),
        "keyword": ("flat", with_signature(in_spec=pytree.tree_structure(((0,), {3: 0})))),
        "keys": ("flat", with_signature(in_spec=pytree.tree_structure((({Ref("k"): 0}, 0), {})))),
        "names": ("flat", with_signature(arg_names=("x", "x"))),
        "call": ("kept", with_call_signature(pytree.tree_structure(0), pytree.tree_structure(0))),
    },
    "signature-leaves": {
        "inputs": ("flat", lambda p: with_signature(in_spec=pytree.tree_structure(((1, 2, 3), {})))(p)),
        "outputs": ("flat", lambda p: with_signature(out_spec=pytree.tree_structure((1, 2)))(p)),
        "garbage": ("flat", with_signature(out_spec="tree")),
    },
    "state-order": {
        "missing": ("flat", lambda p: with_state(order=p.state.order[1:])(p)),
        "twice": ("flat", lambda p: with_state(order=(*p.state.order, "lin.w"))(p)),
        "unknown": ("flat", lambda p: with_state(order=(*p.state.order, "nowhere"))(p)),
        "list": ("flat", lambda p: with_state(order=list(p.state.order))(p)),
        "number": ("flat", lambda p: with_state(order=(*p.state.order, 3))(p)),
    },
    "state-modules": {"unlisted": ("flat", lambda p: p.evolve(modules=tuple(m for m in p.modules if m.path != "tied")))},
    "state-values": {
        "none": ("flat", with_slot("lin.w", value=None)),
        "text": ("flat", with_slot("count", value="tensor")),
        "plain-parameter": ("flat", lambda p: with_slot("lin.w", value=torch.ones(2, 2), cell=70, storage=70)(p)),
    },
    "state-ties": {
        "storage": ("flat", lambda p: with_slot("tied.w", storage=9, value=p.state["tied.w"].value)(p)),
        "shape": ("flat", lambda p: with_slot("tied.w", value=p.state["lin.w"].value.detach()[:1])(p)),
        "offset": ("flat", lambda p: with_slot("count", cell=p.state["view"].cell)(p)),
    },
    "state-memory": {
        "cloned": ("flat", lambda p: with_slot("view", value=p.state["view"].value.clone())(p)),
        "undeclared": ("flat", with_slot("view", storage=8)),
    },
    "state-geometry": {
        "input-shape": ("flat", lambda p: with_slot("only", value=torch.ones(7))(p)),
        "input-dtype": ("flat", lambda p: with_slot("only", value=torch.ones(2).double())(p)),
        "read-shape": ("tree", with_node("w", graph="lin", meta={"val": torch.ones(9, 9)})),
    },
    "reads": {
        "unknown": ("tree", with_node("w", graph="lin", do=Get("nowhere"))),
        "absolute": ("tree", with_node("w", graph="lin", do=Get("lin.w"))),
        "instance": ("tree", lambda p: with_node("lin", do=Call(Frame("act"), "lin"))(p)),
    },
    "constraints": {
        "input": ("flat", with_constraints(guards=(Apply("==", (InputDim(5, 0), 3)),))),
        "value": ("flat", with_constraints(guards=(InputValue(-1),))),
        "dim": ("flat", with_constraints(guards=(Apply("==", (InputDim(0, 4), 3)),))),
        "operator": ("flat", with_constraints(guards=(Apply("import", (1,)),))),
        "text": ("flat", with_constraints(guards=("x > 3",))),
        "range": ("flat", with_constraints(ranges=(Range(Sym("s0"), 5, 2),))),
        "range-bound": ("flat", with_constraints(ranges=(Range(Sym("s0"), "2", None),))),  # type: ignore[arg-type]
        "list": ("flat", with_fields(constraints=Constraints([]))),  # type: ignore[arg-type]
        "zero": ("flat", with_constraints(guards=(Apply("//", (InputDim(0, 1), 0)),))),
        "symbol": ("flat", with_constraints(guards=(Apply("<", (Sym("s0"), 3)),))),
        "operands": ("flat", with_constraints(guards=(Apply("if", (True,)),))),
        "digits": ("flat", with_constraints(guards=(Apply("<", (InputDim(0, 1), 10**5000)),))),
    },
    "known-facts": {
        "empty": ("flat", with_fields(facts=frozenset({""}))),
        "number": ("flat", with_fields(facts=frozenset({3}))),
    },
    "facts": {
        "flat": ("tree", with_fields(facts=frozenset({"flat"}))),
        "outlined": ("flat", with_fields(facts=frozenset({"outlined"}))),
        "state": (
            "tree",
            lambda p: with_graph(p, "", nodes=(Node("r", Get("only")), *p.main.nodes)).evolve(
                facts=frozenset({"state as inputs"})
            ),
        ),
        "sunk": ("flat", with_fields(facts=frozenset({"state sunk"}))),
        "in-place": ("flat", with_fields(facts=frozenset({"mutations in place"}))),
        "token-input": (
            "tree",
            lambda p: with_signature(inputs=(Token(), *p.signature.inputs[1:]))(p).evolve(facts=frozenset({"token free"})),
        ),
        "token-op": ("tokens", with_fields(facts=frozenset({"token free"}))),
    },
}
"""Rule, then name of the corruption, then the program that it starts from and what it does."""


CORRUPTORS = [Corruptor(rule, name, start, apply) for rule, entries in TABLE.items() for name, (start, apply) in entries.items()]
"""All corruptors of the table."""
