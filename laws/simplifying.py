"""Laws of the clean-up: what is left is needed, once, and in one order.

Each is asked of the result alone or of both programs, and shares no code with the transformations.
"""

from __future__ import annotations

from collections import Counter

from ..ir.arguments import bodies_in
from ..ir.effects.resolved import node_effects
from ..ir.graph import Call, Graph, Node
from ..ir.own_operators import is_boundary
from ..ir.program import Program
from .law import Case, Transform, law

__all__ = ["all_needed", "boundary_stays", "nothing_new"]


@law("every node is used or does something, and every input and result of a body is used")
def all_needed(transform: Transform, case: Case) -> list[str]:
    program = transform(case.program)
    handed = {body for _, node in program.nodes() for body in bodies_in(node.args, node.kwargs)}
    taken = _results_taken(program)
    found: list[str] = []
    for name in program.order:
        graph = program.graphs[name]
        used = {*graph.users, *graph.output_refs()}
        for node, does in zip(graph.nodes, node_effects(program, graph), strict=True):
            acts = does.writes or does.writes_slots or does.random or does.ordered or does.domains or does.completes
            if node.name not in used and not (acts or does.scope != (0, 0) or _stays(program, node)):
                found.append(f"{name} / {node.name} is unused")
        if name not in handed and name != program.root:
            found += [f"{name} does not use its input {one.name}" for one in graph.inputs if one.name not in used]
            if type(graph.output) is tuple and None not in taken[name]:
                found += [f"nobody takes result {k} of {name}" for k in range(len(graph.output)) if k not in taken[name]]
    return found


def _stays(program: Program, node: Node) -> bool:
    # Boundaries and what contains them, and parts.
    if is_boundary(node):
        return True
    do = node.do
    if type(do) is Call and any(
        module.path == do.instance.path and module.type_name == "purefx.Part" for module in program.modules
    ):
        return True
    todo = [do.graph] if type(do) is Call else bodies_in(node.args, node.kwargs)
    bodies: list[Graph] = []
    while todo:
        bodies.append(program.graphs[todo.pop()])
        todo.extend(bodies[-1].callees)
    return any(is_boundary(inner) for body in bodies for inner in body.nodes)


def _results_taken(program: Program) -> dict[str, set[int | None]]:
    # Which results of each body its calls use; None where one uses them as one value.
    found: dict[str, set[int | None]] = {name: set() for name in program.order}
    for name in program.order:
        graph = program.graphs[name]
        calls = {node.name: node.do.graph for node in graph.nodes if type(node.do) is Call}
        for node in graph.nodes:
            item = node.projection
            for used in node.refs():
                if used in calls:
                    width = max(1, len(program.graphs[calls[used]].output)) if item is not None else 1
                    found[calls[used]].add(item[1] % width if item is not None else None)
        for used in graph.output_refs():
            if used in calls:
                found[calls[used]].add(None)
    return found


@law("no node is added, and none does something else")
def nothing_new(transform: Transform, case: Case) -> list[str]:
    def shown(program: Program) -> Counter[str]:
        graphs = {name: program.graphs[name] for name in program.order}
        return Counter(
            f"{name}: {node.do.instance if type(node.do) is Call else node.do!r}"
            for name, graph in graphs.items()
            for node in graph.nodes
        )

    return [f"{line} was not there" for line in shown(transform(case.program)) - shown(case.program)]


@law("the inputs and outputs of the program stay")
def boundary_stays(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    found: list[str] = []
    if [one.name for one in before.main.inputs] != [one.name for one in after.main.inputs]:
        found.append("the program has other inputs")
    if len(before.main.output) != len(after.main.output) or before.signature != after.signature:
        found.append("the program has other outputs, or another signature")
    return found
