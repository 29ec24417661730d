"""Laws of single clean-up passes: runtime assertions, tracepoints, module stacks.

Wrong sizes are refused, and only those; tracepoints are taken out and what they say stays.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve, frozen

from purefx.ir.arguments import Arg, Ref, replace_refs
from purefx.ir.calls.call_graph import bodies_run_by
from purefx.ir.expression import Apply, Expr, InputDim, Sym, evaluate
from purefx.ir.graph import Frame, Graph, Input, Node, Op, Stack
from purefx.ir.names import Names, join
from purefx.ir.operators import GETITEM, op_of
from purefx.ir.own_operators import GIVES, TAKES, is_boundary
from purefx.ir.persistent import pmap
from purefx.ir.program import Module, Program
from purefx.ir.signature import Constraints, Range, TensorType, UserInput
from purefx.ir.torch_private import resolve_higher_order
from purefx.ir.verify import verify
from purefx.laws.evaluate import meaning_differences
from purefx.laws.law import Case, Transform, law

__all__ = ["CHECKED", "COLLECTED", "NORMAL_STACKS", "Traced", "with_other_numbers", "with_sizes", "with_tracepoints"]

S0, S1 = Sym("s0"), Sym("s1")

SIZES: tuple[Expr, ...] = (S0, S1, Apply("*", (2, S0)), Apply("+", (1, S0, S1)), S0, 3)

RANGES = ((None, None), (2, None), (3, None), (4, 6), (None, 5))


def with_sizes(program: Program, *, seed: int = 0) -> Program:
    """Return a program whose inputs are tensors of dynamic sizes, with ranges and guards, all chosen by a seed."""
    draw = random.Random(seed)
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
    draw = random.Random(seed)
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


@law("what is added fails exactly for sizes that the signature refuses")
def wrong_sizes_refused(transform: Transform, case: Case) -> list[str]:
    program = with_sizes(case.program, seed=case.seed)
    result = transform(program)
    added = [node for node in result.main.nodes if node.name not in program.main.by_name]
    formals = [formal for formal, spec in program.inputs if type(spec) is UserInput]
    return [
        f"sizes {sizes} are {'taken' if passes else 'refused'}:\n{result.text()}"
        for sizes in _tries(program, case.seed)
        if (passes := _passes(formals, added, sizes)) is not _holds(program, sizes)
    ]


@law("checks come first and once, and nothing else changes")
def checks_in_front(transform: Transform, case: Case) -> list[str]:
    program = with_sizes(case.program, seed=case.seed)
    result = transform(program)
    count = len(result.main.nodes) - len(program.main.nodes)
    rest = result.main.nodes[count:]
    same = len(rest) == len(program.main.nodes) and all(a is b for a, b in zip(rest, program.main.nodes, strict=True))
    found = [] if same else ["the nodes that were there are others, or others come between them"]
    if result.main.output != program.main.output or result.evolve(graphs=program.graphs) != program:
        found.append("something besides the nodes of the root has changed")
    return found if transform(result) is result else [*found, "the second time it adds checks again"]


CHECKED = (wrong_sizes_refused, checks_in_front)

TRACEPOINT = op_of(resolve_higher_order("_export_tracepoint"))


@frozen
class Traced:
    """A program with tracepoints around one call, and what the call is."""

    program: Program
    path: str = ""
    inside: frozenset[str] = frozenset()
    """The nodes of the call; none where the program has no place for one."""


def with_tracepoints(program: Program, *, seed: int = 0) -> Traced:
    """Return a program with tracepoints around nodes that stand side by side in one module call."""
    graph, draw = program.main, random.Random(seed)
    nodes = graph.nodes
    starts = [index for index, node in enumerate(nodes) if not is_boundary(node)]
    if not starts or any(node.do == TRACEPOINT for node in nodes):
        return Traced(program)
    start = draw.choice(starts)
    stack, end = nodes[start].stack, start
    while end < len(nodes) and nodes[end].stack == stack and not is_boundary(nodes[end]) and end - start < 4:
        end += 1
    inner, rest = nodes[start:end], nodes[end:]
    path = join(stack[-1].path if stack else "", "traced")
    names = Names([*(formal.name for formal in graph.inputs), *(node.name for node in nodes)])
    made = {node.name for node in inner}
    free = list(dict.fromkeys(name for node in inner for name in node.refs() if name not in made))
    used = {name for node in rest for name in node.refs()} | set(graph.output_refs())
    given = [node.name for node in inner if node.name in used]
    before, known = _around(names, free, path, "module_call_inputs", stack)
    after, known_after = _around(names, given, path, "module_call_outputs", stack)
    whole = (
        *nodes[:start], *before, *[node.using(known) for node in inner], *after, *[node.using(known_after) for node in rest],
    )  # fmt: skip
    modules = (*program.modules, Module(path)) if program.modules else ()
    traced = program.with_main(Graph(graph.inputs, whole, replace_refs(graph.output, known_after)), modules=modules)
    return Traced(traced, path, frozenset(made))


def _around(names: Names, leaves: list[str], path: str, kind: str, stack: tuple[Frame, ...]) -> tuple[list[Node], dict[str, Arg]]:
    point = names.fresh("tracepoint")
    made = [Node(point, TRACEPOINT, tuple(map(Ref, leaves)), (("kind", kind), ("path", path)), stack)]
    known: dict[str, Arg] = {}
    for index, leaf in enumerate(leaves):
        name = names.fresh("item")
        made.append(Node(name, GETITEM, (Ref(point), index), (), stack))
        known[leaf] = Ref(name)
    return made, known


@law("no tracepoint is left, and without them the program means what it meant")
def no_tracepoint(transform: Transform, case: Case) -> list[str]:
    traced = with_tracepoints(case.program, seed=case.seed)
    result = transform(traced.program)
    found = [f"{node.name} is left" for node in result.main.nodes if node.do == TRACEPOINT]
    found += [str(violation) for violation in verify(result)]
    rest = [evolve(node, stack=()) for node in result.main.nodes if node.name in case.program.main.by_name]
    same = rest == [evolve(node, stack=()) for node in case.program.main.nodes] and result.main.output == case.program.main.output
    if traced.inside and not same:
        found.append(f"without tracepoints it is another program:\n{result.text()}")
    return found or meaning_differences(case.meaning(result), case.meaning(case.program), tolerance=case.tolerance)


@law("the nodes between two tracepoints are one call, which has a signature")
def traced_calls(transform: Transform, case: Case) -> list[str]:
    traced = with_tracepoints(case.program, seed=case.seed)
    if not traced.inside:
        return []
    result = transform(traced.program)
    frame = Frame(traced.path)
    inside = {node.name for node in result.main.nodes if frame in node.stack and not is_boundary(node)}
    found = [] if inside == set(traced.inside) else [f"the call has the nodes {sorted(inside)}, not {sorted(traced.inside)}"]
    leaves = {node.do: len(node.args) for node in result.main.nodes if is_boundary(node) and node.stack[-1] == frame}
    signature = result.call_signatures.get(frame)
    if signature is None or leaves != {TAKES: signature.in_spec.num_leaves, GIVES: signature.out_spec.num_leaves}:
        found.append(f"what {frame} takes and gives is not its signature: {leaves}, {signature}")
    return found


COLLECTED = (no_tracepoint, traced_calls)


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
            for body in bodies_run_by(node):
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

    graphs = {name: evolve(graph, nodes=tuple(map(moved, graph.nodes))) for name, graph in program.graphs.items()}
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
    return [f"the calls of {path} are {numbers}" for path, numbers in met.items() if numbers != list(range(len(numbers)))]


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


@law("programs that differ in call numbers alone become equal")
def one_form(transform: Transform, case: Case) -> list[str]:
    expected, result = transform(case.program), transform(with_other_numbers(case.program, seed=case.seed))
    return [] if result == expected else [f"with other call numbers before, the result is another:\n{result.text()}"]


NORMAL_STACKS = (calls_numbered, calls_together, one_form)
