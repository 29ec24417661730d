"""``weight``: how large a program is, so that a search that only accepts smaller ones ends.

What a reader has to understand first counts first: operators, then bodies and calls, reads of state, outputs, inputs, symbols,
numbers in tensors, dtypes, literals, and at last what only describes.  Nothing here changes a program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from ...ir.arguments import CONTAINERS, Arg, Body, Ref, children_of
from ...ir.expression import symbols_in
from ...ir.graph import Call, Get, Node, Op
from ...ir.program import Program
from ...ir.signature import LiteralType, NumberType, StateInput, TensorType, UserInput

__all__ = ["literals_in", "operators_in", "weight"]

USUAL = frozenset({torch.float32, torch.int64, torch.bool})
"""What a program is written in that says nothing else."""


def operators_in(program: Program) -> int:
    """Return how many operators a program has, those in bodies once for each body.

    >>> from purefx.ir import Graph
    >>> operators_in(Program.of({"": Graph((), (Node("y", Op("toy.neg")), Node("w", Get("w")))) }))
    1
    """
    return sum(type(node.do) is Op for _, node in program.nodes())


def weight(program: Program) -> tuple[int, ...]:
    """Return how large a program is; the smaller of two is the one to show.

    >>> from purefx.ir import Graph
    >>> weight(Program.of({"": Graph((), ())})) < weight(Program.of({"": Graph((), (Node("y", Op("toy.neg")),))}))
    True
    """
    kinds = [type(node.do) for _, node in program.nodes()]
    inputs = program.signature.inputs
    values = [slot.value for _, slot in program.state.pairs if isinstance(slot.value, torch.Tensor)]
    types = [spec.type for spec in inputs if type(spec) is UserInput]
    tensors = [kind for kind in types if type(kind) is TensorType]
    sizes = [size for kind in tensors for size in kind.shape]
    literals = [literal for _, node in program.nodes() for literal in literals_in(node)]
    said = [kind.value for kind in types if type(kind) is LiteralType]
    return (
        kinds.count(Op),
        kinds.count(Call) + len(program.graphs),
        kinds.count(Get) + sum(type(spec) is StateInput for spec in inputs) + len(program.state),
        len(program.signature.outputs),
        len(inputs),
        len({name for size in sizes for name in symbols_in(size)}) + sum(type(kind) is NumberType for kind in types),
        sum(math.prod(size if type(size) is int else 2 for size in kind.shape) for kind in tensors)
        + sum(value.numel() for value in values),
        sum(dtype not in USUAL for dtype in [one.dtype for one in (*tensors, *values)])
        + sum(isinstance(literal, torch.dtype) and literal not in USUAL for literal in literals),
        len(literals) + len(said),
        sum(map(_effort, [*literals, *said])),
        _description(program),
    )


def literals_in(node: Node) -> Iterator[Arg]:
    """Iterate over the literals among the arguments of a node.

    >>> list(literals_in(Node("y", Op("toy.mul"), (Ref("x"), (2, 3)))))
    [2, 3]
    """
    todo: list[Arg] = [*reversed([arg for _, arg in node.kwargs]), *reversed(node.args)]
    while todo:
        arg = todo.pop()
        if type(arg) in CONTAINERS:
            todo.extend(reversed(children_of(arg)))
        elif type(arg) not in (Ref, Body):
            yield arg


def _effort(literal: Any) -> int:
    if literal is None or literal is False:
        return 0
    if type(literal) is int:
        return abs(literal).bit_length() + (literal < 0)
    if type(literal) is float:
        return 2 if literal == 1.0 else 2 + len(repr(literal))
    return 1


def _description(program: Program) -> int:
    signature, bounds = program.signature, program.constraints
    frames = sum(len(node.stack) for _, node in program.nodes())
    trees = (signature.in_spec is not None) + (signature.out_spec is not None) + len(signature.arg_names) + len(signature.lifted)
    return frames + len(program.modules) + len(program.call_signatures) + len(bounds.ranges) + len(bounds.guards) + trees
