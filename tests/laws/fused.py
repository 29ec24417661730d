"""The law "steps done in one give what they give one after the other", and what is compared: everything but identity.

``transform`` does adjacent steps in one walk where it can (``transforms/pipeline.py``).  The results must agree in graphs and
their order, names, meta, origins, facts and trail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from purefx.ir.graph import Graph, Input, Node
from purefx.ir.inference import agrees
from purefx.ir.meta import ORIGIN
from purefx.ir.origins import Made, Origin
from purefx.ir.program import Program

__all__ = ["different_results", "fused_faults"]

Pass = Callable[[Program], Program]


def fused_faults(program: Program, steps: Sequence[Pass], together: Pass) -> list[str]:
    """Return how the result of steps done in one differs from that of the steps."""
    expected = program
    for step in steps:
        expected = step(expected)
    return list(different_results(together(program), expected))


def different_results(given: Program, expected: Program) -> Iterator[str]:
    """Yield how two results of one program differ."""
    if list(given.graphs) != list(expected.graphs) or given != expected or given.text() != expected.text():
        yield f"the program is\n{given}\nand not\n{expected}"
        return
    if given.checked != expected.checked:
        yield f"it is {'' if given.checked else 'not '}known to be valid"
    if given.trail != expected.trail:
        yield f"trail: {[*map(str, given.trail)]}, not {[*map(str, expected.trail)]}"
    for number, (mine, theirs) in enumerate(zip(given.trail, expected.trail, strict=False)):
        if mine.before is not theirs.before and mine.before != theirs.before:
            yield f"before step {number}, {mine}, the program is\n{mine.before}\nand not\n{theirs.before}"
    for name, graph in given.graphs.items():
        yield from _different_metas(name, graph, expected.graphs[name])


def _different_metas(name: str, given: Graph, expected: Graph) -> Iterator[str]:
    for mine, theirs in zip((*given.inputs, *given.nodes), (*expected.inputs, *expected.nodes), strict=True):
        if list(mine.meta) != list(theirs.meta):
            yield f"{name!r} / {mine.name}: meta has {list(mine.meta)}, not {list(theirs.meta)}"
            continue
        for key, value in mine.meta.items():
            if not (_same_origin if key == ORIGIN else _same)(value, theirs.meta[key]):
                yield f"{name!r} / {mine.name}: {_of(mine)} {key} is {value!r}, not {theirs.meta[key]!r}"


def _of(value: Node | Input) -> str:
    return "the input's" if isinstance(value, Input) else "its"


def _same(mine: Any, theirs: Any) -> bool:
    if mine is theirs:
        return True
    if isinstance(mine, tuple | torch.Tensor):
        return agrees(mine, theirs)
    return type(mine) is type(theirs) and bool(mine == theirs)


def _same_origin(mine: Origin, theirs: Origin) -> bool:
    todo = [(mine, theirs)]
    while todo:
        one, other = todo.pop()
        if one is other:
            continue
        if type(one) is not Made or type(other) is not Made or len(one.of) != len(other.of):
            return False
        if (one.by, one.is_one, one.is_body) != (other.by, other.is_one, other.is_body):
            return False
        todo += zip(one.of, other.of, strict=True)
    return True
