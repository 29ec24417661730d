"""Small valid programs that the corruptors start from: a flat one, a tree, one with an operator body, one with tokens."""

from __future__ import annotations

import operator
from typing import Any

import torch

from purefx import ir
from purefx.ir.calls.parts import PART
from purefx.ir.effects.registered import effects_of
from purefx.ir.own_operators import GIVES, TAKES
from purefx.ir.torch_private import pytree

NEG = ir.Op("toy.neg")
ADD = ir.Op("aten.add.Tensor", effects_of(torch.ops.aten.add.Tensor), torch.ops.aten.add.Tensor)
GETITEM = ir.Op("operator.getitem", effects_of(operator.getitem), operator.getitem)
USER = ir.UserInput(ir.TensorType(torch.float32, (2, ir.Sym("s0"))), "x")
TRACE = '  File "model.py", line 12, in forward\n    return self.lin(x)\n'


def modules(*paths: str) -> tuple[ir.Module, ...]:
    """Return modules with these paths, the root first."""
    return tuple(ir.Module(path, "torch.nn.Module") for path in ("", *paths))


def state() -> ir.State:
    """Return state with a tie and a view."""
    weight, count, only = torch.nn.Parameter(torch.ones(2, 2)), torch.zeros(4), torch.ones(2)
    slots = {
        "lin.w": ir.Slot(ir.SlotKind.PARAMETER, weight, 0, 0),
        "tied.w": ir.Slot(ir.SlotKind.PARAMETER, weight, 0, 0),
        "count": ir.Slot(ir.SlotKind.BUFFER, count, 1, 1),
        "view": ir.Slot(ir.SlotKind.BUFFER, count[2:], 2, 1, persistent=False),
        "only": ir.Slot(ir.SlotKind.CONSTANT, only, 3, 2, persistent=False),
    }
    return ir.State(tuple(slots), ir.pmap(slots))


def flat() -> ir.Program:
    """Return a flat program that mutates state and an input."""
    held = state()
    meta = {"val": torch.ones(2), "stack_trace": TRACE}
    inputs = (
        ir.Input("p_w", {"val": held["lin.w"].value}),
        ir.Input("c", {"val": torch.ones(2)}),
        ir.Input("x"),
        ir.Input("z"),
    )
    lin = (ir.Frame("lin"),)
    nodes = (
        ir.Node("unused", NEG, (ir.Ref("x"),), (), lin, meta),
        ir.Node("y", ADD, (ir.Ref("x"), ir.Ref("p_w")), (("alpha", 1),), lin, meta),
        ir.Node(
            "deep",
            ir.Op("toy.cat"),
            ((ir.Ref("y"), ir.Ref("x")), slice(None, 2)),
            (),
            (ir.Frame("act"), ir.Frame("act.in", 1)),
            meta,
        ),
        ir.Node("new", ADD, (ir.Ref("deep"), 1.5)),
    )
    specs = (ir.StateInput("lin.w"), ir.StateInput("only"), USER, USER)
    outputs = (ir.StateMutation("lin.w"), ir.InputMutation(2), ir.UserOutput())
    return ir.Program.of(
        {"": ir.Graph(inputs, nodes, (ir.Ref("new"), ir.Ref("y"), ir.Ref("deep")))},
        state=held,
        signature=ir.Signature(specs, outputs, *specs_of_trees(), ("x", "z")),
        modules=modules("lin", "tied", "act", "act.in"),
        constraints=ir.Constraints(
            (ir.Range(ir.Sym("s0"), 2, None),), (ir.Apply("<", (ir.InputDim(0, 1), 9)),)
        ),
        facts=frozenset({"flat"}),
    )


def kept() -> ir.Program:
    """Return the flat program with a preserved call, whose boundaries are ``in_takes`` and ``in_gives``."""
    program = flat()
    lin = (ir.Frame("lin"),)
    takes, gives = (
        ir.Node("in_takes", TAKES, (ir.Ref("x"),), (), lin),
        ir.Node("in_gives", GIVES, (ir.Ref("y"),), (), lin),
    )
    nodes = (takes, *program.main.nodes[:2], gives, *program.main.nodes[2:])
    structure = pytree.tree_structure
    signatures = ir.pmap({lin[0]: ir.CallSignature(structure(((0,), {})), structure(0))})
    return program.evolve(
        graphs=program.graphs.set("", ir.Graph(program.main.inputs, nodes, program.main.output)),
        call_signatures=signatures,
    )


def specs_of_trees() -> tuple[Any, Any]:
    """Return the pytrees of two inputs and one output."""
    structure = pytree.tree_structure
    return structure(((0, 0), {})), structure(0)


def tree() -> ir.Program:
    """Return a program of two calls of one body that reads state."""
    body = ir.Graph(
        (ir.Input("a"),),
        (
            ir.Node("w", ir.Get("w"), meta={"val": torch.ones(2, 2)}),
            ir.Node("y", ADD, (ir.Ref("a"), ir.Ref("w")), (), (), {"stack_trace": TRACE}),
        ),
        (ir.Ref("y"), ir.Ref("a")),
    )
    nodes = (
        ir.Node("lin", ir.Call(ir.Frame("lin"), "lin"), (ir.Ref("x"),)),
        ir.Node("first", GETITEM, (ir.Ref("lin"), 0)),
        ir.Node("tied", ir.Call(ir.Frame("tied"), "lin"), (ir.Ref("first"),)),
        ir.Node("act", ir.Call(ir.Frame("act", 1), "act"), (ir.Ref("first"),)),
        ir.Node("out", NEG, (ir.Ref("act"),)),
    )
    act = ir.Graph((ir.Input("a"),), (ir.Node("b", NEG, (ir.Ref("a"),)),), ir.Ref("b"))
    return ir.Program.of(
        {"": ir.Graph((ir.Input("x"),), nodes, (ir.Ref("out"),)), "lin": body, "act": act},
        state=state(),
        signature=ir.Signature((USER,), (ir.UserOutput(),)),
        modules=modules("lin", "tied", "act"),
        facts=frozenset(
            {"outlined", "state sunk", "mutations in place", "token free", "deduplicated"}
        ),
    )


def branch() -> ir.Program:
    """Return a program with a higher-order operator."""
    cond = ir.Op("toy.cond", ir.Effects(through_bodies=True))
    body = ir.Graph((ir.Input("a"),), (ir.Node("b", NEG, (ir.Ref("a"),)),), (ir.Ref("b"),))
    other = ir.Graph((ir.Input("a"),), (), (ir.Ref("a"),))
    nodes = (
        ir.Node("branch", cond, (ir.Ref("x"), ir.Body("$yes"), ir.Body("$no"), (ir.Ref("x"),))),
        ir.Node("y", GETITEM, (ir.Ref("branch"), 0)),
    )
    graphs = {"": ir.Graph((ir.Input("x"),), nodes, (ir.Ref("y"),)), "$yes": body, "$no": other}
    return ir.Program.of(graphs, signature=ir.Signature((USER,), (ir.UserOutput(),)))


def tokens() -> ir.Program:
    """Return a program with a node that threads a token, whose signature has none."""
    threading = ir.Op("higher_order.with_effects", ir.Effects(ordered=True, through_bodies=True))
    graph = ir.Graph(
        (ir.Input("x"),), (ir.Node("y", threading, (ir.Ref("x"), ir.Ref("x"))),), (ir.Ref("y"),)
    )
    return ir.Program.of({"": graph}, signature=ir.Signature((USER,), (ir.UserOutput(),)))


def nested() -> ir.Program:
    """Return a program of one module that is called twice, with different bodies that both call what is inside."""
    body, other = (
        ir.Graph(
            (ir.Input("a"),),
            (ir.Node("again", ir.Call(ir.Frame("in", number), name), (ir.Ref("a"),)),),
            ir.Ref("again"),
        )
        for number, name in enumerate(("same", "negated"))
    )
    same, negated = (
        ir.Graph((ir.Input("a"),), (), ir.Ref("a")),
        ir.Graph((ir.Input("a"),), (ir.Node("b", NEG, (ir.Ref("a"),)),), ir.Ref("b")),
    )
    nodes = (
        ir.Node("y", ir.Call(ir.Frame("out"), "body"), (ir.Ref("x"),)),
        ir.Node("z", ir.Call(ir.Frame("out", 1), "other"), (ir.Ref("y"),)),
    )
    graphs = {
        "": ir.Graph((ir.Input("x"),), nodes, (ir.Ref("z"),)),
        "body": body,
        "other": other,
        "same": same,
        "negated": negated,
    }
    return ir.Program.of(
        graphs,
        signature=ir.Signature((USER,), (ir.UserOutput(),)),
        modules=modules("out", "out.in"),
    )


def split() -> ir.Program:
    """Return a program of two parts that are flat inside; one reads state."""
    held = {"a.lin.w": ir.Slot(ir.SlotKind.PARAMETER, torch.nn.Parameter(torch.ones(2, 2)), 0, 0)}
    lin = (ir.Frame("lin"),)
    first = ir.Graph(
        (ir.Input("x"),),
        (
            ir.Node("w", ir.Get("lin.w"), (), (), lin),
            ir.Node("y", ADD, (ir.Ref("x"), ir.Ref("w")), (), lin),
        ),
        ir.Ref("y"),
    )
    second = ir.Graph((ir.Input("y"),), (ir.Node("z", NEG, (ir.Ref("y"),)),), ir.Ref("z"))
    nodes = (
        ir.Node("y", ir.Call(ir.Frame("a"), "a"), (ir.Ref("x"),)),
        ir.Node("z", ir.Call(ir.Frame("b"), "b"), (ir.Ref("y"),)),
    )
    parts = (ir.Module("a", PART), ir.Module("b", PART), ir.Module("a.lin", "torch.nn.Linear"))
    return ir.Program.of(
        {"": ir.Graph((ir.Input("x"),), nodes, (ir.Ref("z"),)), "a": first, "b": second},
        state=ir.State(tuple(held), ir.pmap(held)),
        signature=ir.Signature((USER,), (ir.UserOutput(),)),
        modules=(*modules(), *parts),
    )


PROGRAMS = {
    "flat": flat,
    "kept": kept,
    "tree": tree,
    "branch": branch,
    "tokens": tokens,
    "nested": nested,
    "split": split,
}
