"""What holds of checks in the graph: ``add_runtime_assertions`` refuses wrong sizes, and only those.

One idea: a program gets sizes, ranges and guards that a seed chooses; what is put in front of its nodes is run by itself, on
tensors without contents, and must fail exactly where the expressions say so.  It shares no code with the transformation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from ..ir.arguments import Ref
from ..ir.expression import Apply, Expr, InputDim, Sym, evaluate
from ..ir.graph import Input
from ..ir.node import Node, Op
from ..ir.program import Program
from ..ir.signature import Constraints, Range, TensorType, UserInput
from .law import Case, Law, Transform

__all__ = ["CHECKED", "with_sizes"]

S0, S1 = Sym("s0"), Sym("s1")

SIZES: tuple[Expr, ...] = (S0, S1, Apply("*", (2, S0)), Apply("+", (1, S0, S1)), S0, 3)

RANGES = ((None, None), (2, None), (3, None), (4, 6), (None, 5))


def with_sizes(program: Program, *, seed: int = 0) -> Program:
    """Return a program whose inputs are tensors of dynamic sizes, with ranges and guards, all chosen by a seed.

    Args:
        program: a program at any stage; what its nodes do with such inputs does not matter.
        seed: chooses.

    >>> from purefx.ir import Graph
    >>> with_sizes(Program.of({"": Graph((), (), ())})).constraints.guards
    ()
    """
    draw = random.Random(seed)  # noqa: S311  no secret
    shapes: list[tuple[Expr, ...]] = []
    inputs: list[Any] = []
    for spec in program.signature.inputs:
        if type(spec) is UserInput:
            first = S0 if not shapes else draw.choice(SIZES)
            shapes.append((first, draw.choice(SIZES)))
            spec = evolve(spec, type=TensorType(torch.float32, shapes[-1]))
        inputs.append(spec)
    ranges = [Range(symbol, *draw.choice(RANGES)) for symbol in (S0, S1)] if shapes else []
    guards = [_guard(draw, len(shapes)) for _ in range(draw.randrange(3))] if shapes else []
    formals = tuple([evolve(formal, meta=MappingProxyType({})) for formal in program.main.inputs])
    return program.with_main(
        evolve(program.main, inputs=formals),
        signature=evolve(program.signature, inputs=tuple(inputs)),
        constraints=Constraints(tuple(ranges), tuple(guards)),
    )


def _guard(draw: random.Random, count: int) -> Expr:
    one, other = (InputDim(draw.randrange(count), draw.randrange(2)) for _ in range(2))
    return draw.choice(
        (
            Apply("==", (Apply("%", (one, 2)), 0)),
            Apply("<=", (one, Apply("*", (2, other)))),
            Apply("!=", (Apply("//", (one, 2)), 1)),
            Apply("and", (Apply("<", (one, 7)), Apply(">", (other, 1)))),
            Apply("or", (Apply("<", (one, 4)), Apply("==", (Apply("max", (one, other, 5)), 5)))),
            Apply("not", (Apply("==", (Apply("ceildiv", (one, 2)), 3)),)),
            Apply("<", (Apply("if", (Apply("<", (one, other)), one, Apply("neg", (other,)))), 5)),
        )
    )


def _tries(program: Program, seed: int) -> list[list[tuple[int, ...]]]:
    # Sizes that agree with the symbols, and the same with one size that need not.
    draw = random.Random(seed)  # noqa: S311
    shapes = [spec.type.shape for spec in program.signature.inputs if type(spec) is UserInput and type(spec.type) is TensorType]
    found: list[list[tuple[int, ...]]] = []
    for number in range(12):
        known = {S0: draw.randrange(1, 8), S1: draw.randrange(1, 8)}
        sizes = [[int(evaluate(size, known)) for size in shape] for shape in shapes]
        if number % 3 == 2 and sizes:
            draw.choice(sizes)[draw.randrange(2)] = draw.randrange(1, 9)
        found.append([tuple(shape) for shape in sizes])
    return found


def _holds(program: Program, sizes: list[tuple[int, ...]]) -> bool:
    known: dict[Any, int] = {}
    pairs: list[tuple[int, Expr]] = []
    for index, (spec, shape) in enumerate(zip(_types(program), sizes, strict=True)):
        pairs += zip(shape, spec.shape, strict=True)
        known.update((InputDim(index, dim), size) for dim, size in enumerate(shape))
    for size, symbol in pairs:
        if type(symbol) is Sym:
            known.setdefault(symbol, size)
    told = [(size, expr) for size, expr in pairs if type(expr) is not int and _is_known(expr, known)]
    ranges = [(known[span.expr], span) for span in program.constraints.ranges if span.expr in known]
    return (
        all(evaluate(expr, known) == size for size, expr in told)
        and all((span.low or 0) <= 2 or size >= (span.low or 0) for size, span in ranges)
        and all(span.high is None or size <= span.high for size, span in ranges)
        and all(evaluate(guard, known) for guard in program.constraints.guards)
    )


def _types(program: Program) -> list[TensorType]:
    kinds = [spec.type for spec in program.signature.inputs if type(spec) is UserInput]
    return [kind for kind in kinds if type(kind) is TensorType]


def _is_known(expr: Expr, known: Mapping[Any, int]) -> bool:
    if type(expr) is Apply:
        return all(_is_known(arg, known) for arg in expr.args)
    return type(expr) is int or expr in known


def _passes(formals: list[Input], nodes: list[Node], sizes: list[tuple[int, ...]]) -> bool:
    known: dict[str, Any] = {formal.name: torch.empty(shape, device="meta") for formal, shape in zip(formals, sizes, strict=True)}
    for node in nodes:
        assert type(node.do) is Op and node.do.target is not None
        try:
            known[node.name] = node.do.target(*[known[arg.name] if type(arg) is Ref else arg for arg in node.args])
        except RuntimeError:
            return False
    return True


def _refused(transform: Transform, case: Case) -> list[str]:
    program = with_sizes(case.program, seed=case.seed)
    result = transform(program)
    added = [node for node in result.main.nodes if node.name not in program.main.by_name]
    specs = zip(program.main.inputs, program.signature.inputs, strict=True)
    formals = [formal for formal, spec in specs if type(spec) is UserInput]
    return [
        f"sizes {sizes} are {'taken' if passes else 'refused'}:\n{result}"
        for sizes in _tries(program, case.seed)
        if (passes := _passes(formals, added, sizes)) is not _holds(program, sizes)
    ]


def _in_front(transform: Transform, case: Case) -> list[str]:
    program = with_sizes(case.program, seed=case.seed)
    result = transform(program)
    count = len(result.main.nodes) - len(program.main.nodes)
    rest = result.main.nodes[count:]
    same = len(rest) == len(program.main.nodes) and all(a is b for a, b in zip(rest, program.main.nodes, strict=True))
    found = [] if same else ["the nodes that were there are others, or others come between them"]
    if result.main.output != program.main.output or result.evolve(graphs=program.graphs) != program:
        found.append("something besides the nodes of the root has changed")
    return found if transform(result) is result else [*found, "the second time it adds checks again"]


REFUSED = Law("wrong sizes refused", "what is added fails exactly for sizes that the signature refuses", _refused)
IN_FRONT = Law("checks in front", "checks come first and once, and nothing else changes", _in_front)
CHECKED = (REFUSED, IN_FRONT)
