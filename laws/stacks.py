"""What holds of the stacks that ``normalize_stacks`` writes.

One idea: stacks are read off nodes as they stand, those of operators' bodies where the operator stands; a variant with other call
numbers is made without any transformation.  It shares no code with the transformation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve

from ..ir.arguments import bodies_in
from ..ir.graph import Graph
from ..ir.node import Frame, Node, Op, Stack
from ..ir.paths import join
from ..ir.persistent import pmap
from ..ir.program import Program
from .law import Case, Law, Transform

__all__ = ["NORMAL_STACKS", "with_other_numbers"]


def _stacks(program: Program) -> Iterator[Stack]:
    # From the root on; a body is looked at once, where it is first given to an operator.
    seen: set[str] = set()

    def below(graph: Graph, outer: Stack) -> Iterator[Stack]:
        for node in graph.nodes:
            stack = (
                *outer,
                *[evolve(frame, path=join(outer[-1].path, frame.path) if outer else frame.path) for frame in node.stack],
            )
            yield stack
            for body in _given(node):
                if body not in seen:
                    seen.add(body)
                    yield from below(program.graphs[body], stack)

    return below(program.main, ())


def _given(node: Node) -> list[str]:
    return bodies_in(node.args, node.kwargs) if type(node.do) is Op and node.do.effects.through_bodies else []


def with_other_numbers(program: Program, *, seed: int = 0) -> Program:
    """Return a program whose calls have other numbers, with gaps and in another order.

    Args:
        program: a flat program.
        seed: chooses.

    >>> node = Node("y", Op("toy.neg"), stack=(Frame("a"),))
    >>> with_other_numbers(Program.of({"": Graph((), (node,), ())}), seed=1).main.nodes[0].stack
    (Frame(path='a', call=100, part=0),)
    """

    def other(frame: Frame) -> Frame:
        return evolve(frame, call=100 - 3 * frame.call if seed % 2 else 2 * frame.call + 1)

    def moved(node: Node) -> Node:
        return evolve(node, stack=tuple(map(other, node.stack))) if node.stack else node

    graphs = {name: evolve(graph, nodes=tuple(map(moved, graph.nodes))) for name, graph in program.graphs.items()}
    signatures = {other(frame): program.call_signatures[frame] for frame in program.call_signatures}
    return program.evolve(graphs=pmap(graphs), call_signatures=pmap(signatures))


def _numbered(transform: Transform, case: Case) -> list[str]:
    met: dict[str, list[int]] = {}
    for stack in _stacks(transform(case.program)):
        for frame in stack:
            numbers = met.setdefault(frame.path, [])
            if frame.call not in numbers:
                numbers.append(frame.call)
    return [f"the calls of {path} are {numbers}" for path, numbers in met.items() if numbers != list(range(len(numbers)))]


def _together(transform: Transform, case: Case) -> list[str]:
    program, result = case.program, transform(case.program)
    forth: dict[Frame, Frame] = {}
    back: dict[Frame, Frame] = {}
    found: list[str] = []
    for old, new in zip(_stacks(program), _stacks(result), strict=True):
        if len(old) != len(new):
            found.append(f"{_said(old)} is {_said(new)} now")
        for mine, theirs in zip(old, new, strict=False):
            if forth.setdefault(mine, theirs) != theirs or back.setdefault(theirs, mine) != mine or mine.path != theirs.path:
                found.append(f"{mine} is {theirs} in one place, and not in another")
    return found + _signatures_left(program, result, forth)


def _said(stack: Stack) -> str:
    return " / ".join(map(str, stack)) or "the root"


def _signatures_left(before: Program, after: Program, forth: Mapping[Frame, Frame]) -> list[str]:
    return [
        f"the signature of {frame} is not that of {forth[frame]}"
        for frame in before.call_signatures
        if frame in forth and after.call_signatures.get(forth[frame]) is not before.call_signatures[frame]
    ]


def _one_form(transform: Transform, case: Case) -> list[str]:
    expected, result = transform(case.program), transform(with_other_numbers(case.program, seed=case.seed))
    return [] if result == expected else [f"with other call numbers before, the result is another:\n{result}"]


NUMBERED = Law("calls numbered", "calls of a module are numbered from 0 without gaps, in the order of the nodes", _numbered)
TOGETHER = Law("calls together", "nodes of one call stay in one call, which keeps its module and its signature", _together)
ONE_FORM = Law("one form", "programs that differ in call numbers alone become equal", _one_form)
NORMAL_STACKS = (NUMBERED, TOGETHER, ONE_FORM)
