"""Laws of ``normalize_stacks``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve

from purefx.ir.graph import Frame, Graph, Node, Stack
from purefx.ir.names import join
from purefx.ir.persistent import pmap
from purefx.ir.program import Program
from purefx.laws.law import Case, Transform, law


def _stacks(program: Program) -> Iterator[Stack]:
    # From the root on; a body is looked at once, where it is first given to an operator.
    seen: set[str] = set()

    def below(graph: Graph, outer: Stack) -> Iterator[Stack]:
        for node in graph.nodes:
            stack = (
                *outer,
                *[
                    evolve(frame, path=join(outer[-1].path, frame.path) if outer else frame.path)
                    for frame in node.stack
                ],
            )
            yield stack
            for body in node.bodies:
                if body not in seen:
                    seen.add(body)
                    yield from below(program.graphs[body], stack)

    return below(program.main, ())


def with_other_numbers(program: Program, *, seed: int = 0) -> Program:
    """Return a program whose calls have other numbers, with gaps and in another order."""

    def other(frame: Frame) -> Frame:
        return evolve(frame, call=100 - 3 * frame.call if seed % 2 else 2 * frame.call + 1)

    def moved(node: Node) -> Node:
        return evolve(node, stack=tuple(map(other, node.stack))) if node.stack else node

    graphs = {
        name: evolve(graph, nodes=tuple(map(moved, graph.nodes)))
        for name, graph in program.graphs.items()
    }
    signatures = {other(frame): program.call_signatures[frame] for frame in program.call_signatures}
    return program.evolve(graphs=pmap(graphs), call_signatures=pmap(signatures))


@law("calls of a module are numbered from 0 without gaps, in the order of the nodes")
def calls_numbered(transform: Transform, case: Case) -> list[str]:
    met: dict[str, list[int]] = {}
    for stack in _stacks(transform(case.program)):
        for frame in stack:
            numbers = met.setdefault(frame.path, [])
            if frame.call not in numbers:
                numbers.append(frame.call)
    return [
        f"the calls of {path} are {numbers}"
        for path, numbers in met.items()
        if numbers != list(range(len(numbers)))
    ]


@law("nodes of one call stay in one call, which keeps its module and its signature")
def calls_together(transform: Transform, case: Case) -> list[str]:
    program, result = case.program, transform(case.program)
    forth: dict[Frame, Frame] = {}
    back: dict[Frame, Frame] = {}
    found: list[str] = []
    for old, new in zip(_stacks(program), _stacks(result), strict=True):
        if len(old) != len(new):
            found.append(f"{_said(old)} is {_said(new)} now")
        for mine, theirs in zip(old, new, strict=False):
            if (
                forth.setdefault(mine, theirs) != theirs
                or back.setdefault(theirs, mine) != mine
                or mine.path != theirs.path
            ):
                found.append(f"{mine} is {theirs} in one place, and not in another")
    return found + _signatures_left(program, result, forth)


def _said(stack: Stack) -> str:
    return " / ".join(map(str, stack)) or "the root"


def _signatures_left(before: Program, after: Program, forth: Mapping[Frame, Frame]) -> list[str]:
    return [
        f"the signature of {frame} is not that of {forth[frame]}"
        for frame in before.call_signatures
        if frame in forth
        and after.call_signatures.get(forth[frame]) is not before.call_signatures[frame]
    ]


@law("programs that differ in call numbers alone become equal")
def one_form(transform: Transform, case: Case) -> list[str]:
    expected, result = (
        transform(case.program),
        transform(with_other_numbers(case.program, seed=case.seed)),
    )
    return (
        []
        if result == expected
        else [f"with other call numbers before, the result is another:\n{result.text()}"]
    )


NORMAL_STACKS = (calls_numbered, calls_together, one_form)
