"""Corruptors of what operators get, and of what a caller passes.

One idea: an operator is given more than it takes, or all results where it takes one; the arguments of the program get a
structure or a type that no call can have.
"""

from __future__ import annotations

import operator

import torch
from attrs import evolve

from ...ir.arguments import Ref
from ...ir.node import Call, Node, Op
from ...ir.operators import op_of
from ...ir.program import Program
from ...ir.signature import NumberType, UserInput
from ...ir.torch_private import OpOverload, pytree
from .corruptor import Corruptor
from .places import changed, choose, places, with_specs

__all__ = ["IN_OPERANDS"]

RELU = op_of(torch.ops.aten.relu.default)


def _is_known(node: Node) -> bool:
    return type(node.do) is Op and (isinstance(node.do.target, OpOverload) or node.do.target is operator.getitem)


def _too_many(program: Program, seed: int) -> Program | None:
    place = choose(places(program, _is_known), seed)
    return changed(program, place, args=(*place.node.args, *[None] * 40)) if place is not None else None


def _whole(program: Program, seed: int) -> Program | None:
    calls = {name: {node.name for node in program.graphs[name].nodes if type(node.do) is Call} for name in program.order}
    options = [
        (place, source)
        for place in places(program, lambda node: type(node.do) is Op and node.do.target is operator.getitem)
        if type(source := place.node.args[0]) is Ref and source.name in calls[place.graph]
    ]
    chosen = choose(options, seed)
    return changed(program, chosen[0], do=RELU, args=(chosen[1],), kwargs=()) if chosen is not None else None


def _without_target(program: Program, seed: int) -> Program | None:
    # Operators that touch the outside are looked up for nobody.
    place = choose(places(program, lambda node: _is_known(node) and type(node.do) is Op and not node.do.effects.ordered), seed)
    if place is None or type(place.node.do) is not Op:
        return None
    return changed(program, place, do=evolve(place.node.do, target=None))


def _no_type(program: Program, seed: int) -> Program | None:
    inputs = list(program.signature.inputs)
    at = choose([index for index, spec in enumerate(inputs) if type(spec) is UserInput], seed)
    if at is None:
        return None
    inputs[at] = UserInput(NumberType("complex"), "x")
    return with_specs(program, inputs=tuple(inputs))


def _no_keywords(program: Program, seed: int) -> Program:
    count = sum(type(spec) is UserInput for spec in program.signature.inputs)
    return with_specs(program, in_spec=pytree.tree_structure((0,) * count if seed % 2 else [(0,) * count]))


def _unlisted(program: Program, seed: int) -> Program | None:
    owners = {name.rpartition(".")[0] for name in program.state.order} & {module.path for module in program.modules}
    leaves = sorted(path for path in owners if path and not any(m.path.startswith(f"{path}.") for m in program.modules))
    path = choose(leaves, seed)
    return program.evolve(modules=tuple(m for m in program.modules if m.path != path)) if path is not None else None


IN_OPERANDS: tuple[Corruptor, ...] = (
    Corruptor("too many operands", "verify:operands", "an operator is given more arguments than it takes", _too_many),
    Corruptor("all results", "verify:results", "an operator is given all results of a call as one value", _whole),
    Corruptor("no target", "verify:targets", "an operator of the registry has nothing to run", _without_target),
    Corruptor("argument without type", "verify:signature-arguments", "an argument is a number of no known kind", _no_type),
    Corruptor("arguments without keywords", "verify:pytrees", "the pytree of the arguments is not that of (args, kwargs)",
              _no_keywords),
    Corruptor("module unlisted", "verify:state-modules", "state is of a module that is not listed", _unlisted),
)  # fmt: skip
