"""Changes: pure functions from a valid program to one in which one fact differs.

The corruptors (``corruptors.py``) are made of these, each naming what it changes; nothing here says which rule breaks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen

from purefx import ir
from purefx.ir.operators import op_of
from purefx.ir.own_operators import CALL_MODULE, is_boundary
from purefx.ir.torch_private import pytree
from tests.laws import corruptions
from tests.laws.corruptions import with_graph, with_item, with_specs

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
        return with_graph(program, graph, nodes=tuple(evolve(n, **changes) if n.name == wanted else n for n in nodes))

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


def with_signature(**changes: Any) -> Corruption:
    """Return a corruption that changes fields of the signature."""
    return lambda program: with_specs(program, **changes)


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
        return with_specs(program, inputs=with_item(inputs, number, evolve(inputs[number], **changes)))

    return apply


def typed(kind: Any, number: int = 2) -> Corruption:
    """Return a corruption that gives a user input another type."""
    return with_user_input(number, type=kind)


def with_call_signature(in_spec: Any, out_spec: Any) -> Corruption:
    """Return a corruption that gives the preserved call other pytrees."""
    return with_fields(call_signatures=ir.pmap({ir.Frame("lin"): ir.CallSignature(in_spec, out_spec)}))


def with_slot(name: str, /, **changes: Any) -> Corruption:
    """Return a corruption that changes fields of one slot."""
    return lambda program: corruptions.with_slot(program, name, **changes)


def module_read_elsewhere(program: ir.Program) -> ir.Program:
    """Return the program with a call of a module inside another module, which is read outside of that."""
    nodes = (ir.Node("read", ir.Get("m")), ir.Node("ran", CALL_MODULE, (ir.Ref("read"), ir.Ref("x")), stack=(ir.Frame("lin"),)))
    return with_module("m")(with_graph(program, "", nodes=(*nodes, *program.main.nodes)))


def with_module(name: str) -> Corruption:
    """Return a corruption that puts a module as it is into the state."""

    def apply(program: ir.Program) -> ir.Program:
        slot = ir.Slot(ir.SlotKind.MODULE, torch.nn.Identity(), 90, 90)
        state = program.state
        return program.evolve(state=evolve(state, order=(*state.order, name), slots=state.slots.set(name, slot)))

    return apply


def doubled_input(program: ir.Program) -> ir.Program:
    """Give two inputs of a body one name."""
    graph = program.graphs["lin"]
    return with_graph(program, "lin", inputs=(*graph.inputs, ir.Input(graph.inputs[0].name)))


def with_state(**changes: Any) -> Corruption:
    """Return a corruption that changes fields of the state."""
    return lambda program: program.evolve(state=evolve(program.state, **changes))


def with_constraints(**changes: Any) -> Corruption:
    """Return a corruption that changes the constraints."""
    return lambda program: program.evolve(constraints=evolve(program.constraints, **changes))


def with_input(graph: str, number: int, **changes: Any) -> Corruption:
    """Return a corruption that changes fields of one input."""

    def apply(program: ir.Program) -> ir.Program:
        inputs = program.graphs[graph].inputs
        return with_graph(program, graph, inputs=with_item(inputs, number, evolve(inputs[number], **changes)))

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
        taken = ir.Node("taken", op_of(target), (ir.Ref("pair"), item) if target is operator.getitem else (item,))
        return with_graph(program, "", nodes=(pair, taken, *program.main.nodes))

    return apply


CAT = torch.ops.aten.cat.default
SUM = torch.ops.aten.sum.dim_IntList
RELU = torch.ops.aten.relu.default
ADD_ = torch.ops.aten.add_.Tensor
