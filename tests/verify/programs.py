"""Small valid programs that the corruptors start from: a flat one, a tree, one with an operator body, one with tokens."""

from __future__ import annotations

import operator
from typing import Any

import torch

from purefx.ir import (
    Apply,
    Body,
    Call,
    CallSignature,
    Constraints,
    Effects,
    Frame,
    Get,
    Graph,
    Input,
    InputDim,
    InputMutation,
    Module,
    Node,
    Op,
    Program,
    Range,
    Ref,
    Signature,
    Slot,
    SlotKind,
    State,
    StateInput,
    StateMutation,
    Sym,
    TensorType,
    UserInput,
    UserOutput,
    pmap,
)  # fmt: skip  # isort: skip
from purefx.ir.calls.parts import PART
from purefx.ir.effects.registered import effects_of
from purefx.ir.own_operators import GIVES, TAKES
from purefx.ir.torch_private import pytree

NEG = Op("toy.neg")
ADD = Op("aten.add.Tensor", effects_of(torch.ops.aten.add.Tensor), torch.ops.aten.add.Tensor)
GETITEM = Op("operator.getitem", effects_of(operator.getitem), operator.getitem)
USER = UserInput(TensorType(torch.float32, (2, Sym("s0"))), "x")
TRACE = '  File "model.py", line 12, in forward\n    return self.lin(x)\n'


def modules(*paths: str) -> tuple[Module, ...]:
    """Return modules with these paths, the root first."""
    return tuple(Module(path, "torch.nn.Module") for path in ("", *paths))


def state() -> State:
    """Return state with a tie and a view."""
    weight, count, only = torch.nn.Parameter(torch.ones(2, 2)), torch.zeros(4), torch.ones(2)
    slots = {
        "lin.w": Slot(SlotKind.PARAMETER, weight, 0, 0),
        "tied.w": Slot(SlotKind.PARAMETER, weight, 0, 0),
        "count": Slot(SlotKind.BUFFER, count, 1, 1),
        "view": Slot(SlotKind.BUFFER, count[2:], 2, 1, persistent=False),
        "only": Slot(SlotKind.CONSTANT, only, 3, 2, persistent=False),
    }
    return State(tuple(slots), pmap(slots))


def flat() -> Program:
    """Return a flat program that mutates state and an input."""
    held = state()
    meta = {"val": torch.ones(2), "stack_trace": TRACE}
    inputs = (Input("p_w", {"val": held["lin.w"].value}), Input("c", {"val": torch.ones(2)}), Input("x"), Input("z"))
    lin = (Frame("lin"),)
    nodes = (
        Node("unused", NEG, (Ref("x"),), (), lin, meta),
        Node("y", ADD, (Ref("x"), Ref("p_w")), (("alpha", 1),), lin, meta),
        Node("deep", Op("toy.cat"), ((Ref("y"), Ref("x")), slice(None, 2)), (), (Frame("act"), Frame("act.in", 1)), meta),
        Node("new", ADD, (Ref("deep"), 1.5)),
    )
    specs = (StateInput("lin.w"), StateInput("only"), USER, USER)
    outputs = (StateMutation("lin.w"), InputMutation(2), UserOutput())
    return Program.of(
        {"": Graph(inputs, nodes, (Ref("new"), Ref("y"), Ref("deep")))},
        state=held,
        signature=Signature(specs, outputs, *specs_of_trees(), ("x", "z")),
        modules=modules("lin", "tied", "act", "act.in"),
        constraints=Constraints((Range(Sym("s0"), 2, None),), (Apply("<", (InputDim(0, 1), 9)),)),
        facts=frozenset({"flat"}),
    )


def kept() -> Program:
    """Return the flat program with a preserved call, whose boundaries are ``in_takes`` and ``in_gives``."""
    program = flat()
    lin = (Frame("lin"),)
    takes, gives = Node("in_takes", TAKES, (Ref("x"),), (), lin), Node("in_gives", GIVES, (Ref("y"),), (), lin)
    nodes = (takes, *program.main.nodes[:2], gives, *program.main.nodes[2:])
    structure = pytree.tree_structure
    signatures = pmap({lin[0]: CallSignature(structure(((0,), {})), structure(0))})
    return program.evolve(
        graphs=program.graphs.set("", Graph(program.main.inputs, nodes, program.main.output)), call_signatures=signatures
    )


def specs_of_trees() -> tuple[Any, Any]:
    """Return the pytrees of two inputs and one output."""
    structure = pytree.tree_structure
    return structure(((0, 0), {})), structure(0)


def tree() -> Program:
    """Return a program of two calls of one body that reads state."""
    body = Graph(
        (Input("a"),),
        (
            Node("w", Get("w"), meta={"val": torch.ones(2, 2)}),
            Node("y", ADD, (Ref("a"), Ref("w")), (), (), {"stack_trace": TRACE}),
        ),
        (Ref("y"), Ref("a")),
    )
    nodes = (
        Node("lin", Call(Frame("lin"), "lin"), (Ref("x"),)),
        Node("first", GETITEM, (Ref("lin"), 0)),
        Node("tied", Call(Frame("tied"), "lin"), (Ref("first"),)),
        Node("act", Call(Frame("act", 1), "act"), (Ref("first"),)),
        Node("out", NEG, (Ref("act"),)),
    )
    act = Graph((Input("a"),), (Node("b", NEG, (Ref("a"),)),), Ref("b"))
    return Program.of(
        {"": Graph((Input("x"),), nodes, (Ref("out"),)), "lin": body, "act": act},
        state=state(),
        signature=Signature((USER,), (UserOutput(),)),
        modules=modules("lin", "tied", "act"),
        facts=frozenset({"outlined", "state sunk", "mutations in place", "token free", "deduplicated"}),
    )


def branch() -> Program:
    """Return a program with a higher-order operator."""
    cond = Op("toy.cond", Effects(through_bodies=True))
    body = Graph((Input("a"),), (Node("b", NEG, (Ref("a"),)),), (Ref("b"),))
    other = Graph((Input("a"),), (), (Ref("a"),))
    nodes = (Node("branch", cond, (Ref("x"), Body("$yes"), Body("$no"), (Ref("x"),))), Node("y", GETITEM, (Ref("branch"), 0)))
    graphs = {"": Graph((Input("x"),), nodes, (Ref("y"),)), "$yes": body, "$no": other}
    return Program.of(graphs, signature=Signature((USER,), (UserOutput(),)))


def tokens() -> Program:
    """Return a program with a node that threads a token, whose signature has none."""
    threading = Op("higher_order.with_effects", Effects(ordered=True, through_bodies=True))
    graph = Graph((Input("x"),), (Node("y", threading, (Ref("x"), Ref("x"))),), (Ref("y"),))
    return Program.of({"": graph}, signature=Signature((USER,), (UserOutput(),)))


def nested() -> Program:
    """Return a program of one module that is called twice, with different bodies that both call what is inside."""
    body, other = (
        Graph((Input("a"),), (Node("again", Call(Frame("in", number), name), (Ref("a"),)),), Ref("again"))
        for number, name in enumerate(("same", "negated"))
    )
    same, negated = Graph((Input("a"),), (), Ref("a")), Graph((Input("a"),), (Node("b", NEG, (Ref("a"),)),), Ref("b"))
    nodes = (Node("y", Call(Frame("out"), "body"), (Ref("x"),)), Node("z", Call(Frame("out", 1), "other"), (Ref("y"),)))
    graphs = {"": Graph((Input("x"),), nodes, (Ref("z"),)), "body": body, "other": other, "same": same, "negated": negated}
    return Program.of(graphs, signature=Signature((USER,), (UserOutput(),)), modules=modules("out", "out.in"))


def split() -> Program:
    """Return a program of two parts that are flat inside; one reads state."""
    held = {"a.lin.w": Slot(SlotKind.PARAMETER, torch.nn.Parameter(torch.ones(2, 2)), 0, 0)}
    lin = (Frame("lin"),)
    first = Graph((Input("x"),), (Node("w", Get("lin.w"), (), (), lin), Node("y", ADD, (Ref("x"), Ref("w")), (), lin)), Ref("y"))
    second = Graph((Input("y"),), (Node("z", NEG, (Ref("y"),)),), Ref("z"))
    nodes = (Node("y", Call(Frame("a"), "a"), (Ref("x"),)), Node("z", Call(Frame("b"), "b"), (Ref("y"),)))
    parts = (Module("a", PART), Module("b", PART), Module("a.lin", "torch.nn.Linear"))
    return Program.of(
        {"": Graph((Input("x"),), nodes, (Ref("z"),)), "a": first, "b": second},
        state=State(tuple(held), pmap(held)),
        signature=Signature((USER,), (UserOutput(),)),
        modules=(*modules(), *parts),
    )


PROGRAMS = {"flat": flat, "kept": kept, "tree": tree, "branch": branch, "tokens": tokens, "nested": nested, "split": split}
