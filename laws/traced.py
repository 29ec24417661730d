"""What holds of tracepoints: ``collect_call_signatures`` takes them out and leaves what they say.

One idea: tracepoints are put around some nodes that stand side by side, chosen by a seed, as a tracer puts them around a call;
without them the program must mean what it meant.
"""

from __future__ import annotations

import operator
import random

from attrs import evolve, frozen

from ..ir.arguments import Arg, Ref, replace_refs
from ..ir.borders import GIVES, TAKES, is_border
from ..ir.graph import Graph
from ..ir.names import Names
from ..ir.node import Frame, Node
from ..ir.operators import op_of
from ..ir.paths import join
from ..ir.program import Module, Program
from ..ir.torch_private import resolve_higher_order
from ..ir.verify import verify
from .evaluate import meaning_differences
from .law import Case, Law, Transform

__all__ = ["COLLECTED", "Traced", "with_tracepoints"]

TRACEPOINT, GETITEM = op_of(resolve_higher_order("_export_tracepoint")), op_of(operator.getitem)


@frozen
class Traced:
    """A program with tracepoints around one call, and what the call is."""

    program: Program
    path: str = ""
    inside: frozenset[str] = frozenset()
    """The nodes of the call; none where the program has no place for one."""


def with_tracepoints(program: Program, *, seed: int = 0) -> Traced:
    """Return a program with tracepoints around nodes that stand side by side in one module call.

    Args:
        program: a flat program.
        seed: chooses the nodes.

    >>> from purefx.ir import Op
    >>> with_tracepoints(Program.of({"": Graph((), (Node("y", Op("toy.neg")),), ())})).inside
    frozenset({'y'})
    """
    graph, draw = program.main, random.Random(seed)  # noqa: S311  no secret
    nodes = graph.nodes
    starts = [index for index, node in enumerate(nodes) if not is_border(node)]
    if not starts or any(node.do == TRACEPOINT for node in nodes):
        return Traced(program)
    start = draw.choice(starts)
    stack, end = nodes[start].stack, start
    while end < len(nodes) and nodes[end].stack == stack and not is_border(nodes[end]) and end - start < 4:
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


def _none_left(transform: Transform, case: Case) -> list[str]:
    traced = with_tracepoints(case.program, seed=case.seed)
    result = transform(traced.program)
    found = [f"{node.name} is left" for node in result.main.nodes if node.do == TRACEPOINT]
    found += [str(violation) for violation in verify(result)]
    rest = [evolve(node, stack=()) for node in result.main.nodes if node.name in case.program.main.by_name]
    same = rest == [evolve(node, stack=()) for node in case.program.main.nodes] and result.main.output == case.program.main.output
    if traced.inside and not same:
        found.append(f"without tracepoints it is another program:\n{result}")
    return found or meaning_differences(case.meaning(result), case.meaning(case.program), tolerance=case.tolerance)


def _in_the_call(transform: Transform, case: Case) -> list[str]:
    traced = with_tracepoints(case.program, seed=case.seed)
    if not traced.inside:
        return []
    result = transform(traced.program)
    frame = Frame(traced.path)
    inside = {node.name for node in result.main.nodes if frame in node.stack and not is_border(node)}
    found = [] if inside == set(traced.inside) else [f"the call has the nodes {sorted(inside)}, not {sorted(traced.inside)}"]
    leaves = {node.do: len(node.args) for node in result.main.nodes if is_border(node) and node.stack[-1] == frame}
    signature = result.call_signatures.get(frame)
    if signature is None or leaves != {TAKES: signature.in_spec.num_leaves, GIVES: signature.out_spec.num_leaves}:
        found.append(f"what {frame} takes and gives is not its signature: {leaves}, {signature}")
    return found


NONE_LEFT = Law("no tracepoint", "no tracepoint is left, and without them the program means what it meant", _none_left)
IN_THE_CALL = Law("traced calls", "the nodes between two tracepoints are one call, which has a signature", _in_the_call)
COLLECTED = (NONE_LEFT, IN_THE_CALL)
