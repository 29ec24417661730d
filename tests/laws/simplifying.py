"""Laws of the clean-up: what is left is needed, and once.

Each is asked of the result alone or of both programs, and shares no code with the transformations.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from purefx.ir.analysis.digest import digest
from purefx.ir.arguments import Ref, bodies_in
from purefx.ir.effects.declared import PURE
from purefx.ir.effects.resolved import node_effects, storages, views_of
from purefx.ir.graph import Call, Graph, Node, Op
from purefx.ir.own_operators import is_boundary
from purefx.ir.program import Program
from purefx.ir.state import SlotKind
from purefx.laws.law import Case, Transform
from tests.laws.aimed import law
from tests.laws.aims import (
    MADE,
    copied,
    repeated_for_nobody,
    viewed,
    with_copies,
    with_repetitions,
    with_views,
    without_writes,
)


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
            acts = (
                does.writes
                or does.writes_slots
                or does.random
                or does.ordered
                or does.domains
                or does.completes
            )
            if node.name not in used and not (
                acts or does.scope != (0, 0) or _stays(program, node)
            ):
                found.append(f"{name} / {node.name} is unused")
        if name not in handed and name != program.root:
            found += [
                f"{name} does not use its input {one.name}"
                for one in graph.inputs
                if one.name not in used
            ]
            if type(graph.output) is tuple and None not in taken[name]:
                found += [
                    f"nobody takes result {k} of {name}"
                    for k in range(len(graph.output))
                    if k not in taken[name]
                ]
    return found


def _stays(program: Program, node: Node) -> bool:
    # Boundaries and what contains them, and parts.
    if is_boundary(node):
        return True
    do = node.do
    if type(do) is Call and any(
        module.path == do.instance.path and module.type_name == "purefx.Part"
        for module in program.modules
    ):
        return True
    todo = node.callees
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
                    width = (
                        max(1, len(program.graphs[calls[used]].output)) if item is not None else 1
                    )
                    found[calls[used]].add(item[1] % width if item is not None else None)
        for used in graph.output_refs():
            if used in calls:
                found[calls[used]].add(None)
    return found


def _writes_nothing(transform: Transform, case: Case) -> bool:
    program = transform(case.program)
    effects = [
        does for name in program.order for does in node_effects(program, program.graphs[name])
    ]
    return not any(does.writes or does.writes_slots for does in effects)


@law(
    "no operator of no effects at all does what an earlier one did, in programs that write nothing",
    where=_writes_nothing,
    aim=repeated_for_nobody,
)
def computed_once(transform: Transform, case: Case) -> list[str]:
    program = transform(case.program)
    found: list[str] = []
    for name in program.order:
        graph, seen = program.graphs[name], dict[object, str]()
        memory = storages(program, graph, node_effects(program, graph))
        given = {memory.find(output) for output in graph.output_refs()}
        for node in graph.nodes:
            if type(node.do) is Op and node.do.effects == PURE:
                # A preserved call computes what it gives, and says by itself what it takes.
                within = tuple(frame for frame in node.stack if frame in program.call_signatures)
                first = seen.setdefault(
                    (Node("", node.do, node.args, node.kwargs), within), node.name
                )
                # Where both are handed out, or views of both, they are two tensors to whoever gets them.
                if first != node.name and not {memory.find(first), memory.find(node.name)} <= given:
                    found.append(f"{name} / {node.name} is computed a second time")
            elif type(node.do) is Op and node.do.effects.scope:
                seen.clear()
    return found


@law(
    "where nodes were repeated before, it is the program without the repetitions, and means the same"
)
def repeats_go(transform: Transform, case: Case) -> list[str]:
    result, again = transform(case.program), transform(with_repetitions(case.program))
    if digest(result) != digest(again):
        return [f"with nodes repeated it becomes another program:\n{again}"]
    return case.differences(case.meaning(again), case.meaning(case.program))


@law(
    "views to the same sizes that are put in go again, and the values are the same to the last bit"
)
def views_go(transform: Transform, case: Case) -> list[str]:
    dirty = with_views(case.program)
    result = transform(dirty)
    found = [f"{node.name} changes nothing" for _, node in result.nodes() if node.meta.get(MADE)]
    return found or case.differences(case.meaning(result), case.meaning(case.program))


@law(
    "used results of operators on constants are constants, with the same values", aim=without_writes
)
def copies_fold(transform: Transform, case: Case) -> list[str]:
    dirty = with_copies(case.program)
    result = transform(dirty)
    left = [
        node for name in dirty.order for node in result.graphs[name].nodes if node.meta.get(MADE)
    ]
    found = [f"{node.name} is computed of a constant" for node in left]
    return found or case.differences(case.meaning(result), case.meaning(case.program))


@law("existing state is unchanged, and only constants are added", aim=copied)
def constants_added(transform: Transform, case: Case) -> list[str]:
    before, after = case.program.state, transform(case.program).state
    found = [
        f"{name} is another"
        for name in before
        if name not in after or after[name] is not before[name]
    ]
    return found + [
        f"{name} is new"
        for name in after
        if name not in before and after[name].kind is not SlotKind.CONSTANT
    ]


@law("outputs share memory as they did", aim=viewed)
def sharing_stays(transform: Transform, case: Case) -> list[str]:
    before, after = _shared(case.program), _shared(transform(case.program))
    return [f"outputs {pair} come to share memory" for pair in sorted(after - before)]


def _shared(program: Program) -> set[tuple[int, int]]:
    # Two outputs may share memory where both may be views of one value; what holds two values is no bridge between them.
    views = views_of(program, node_effects(program, program.main))
    output = [
        views.get(arg.name, {arg.name}) if type(arg) is Ref else set()
        for arg in program.main.output
    ]
    return {
        (one, other)
        for one, other in combinations(range(len(output)), 2)
        if output[one] & output[other]
    }


@law("no node is added, and the remaining nodes keep their operators", aim=viewed)
def nothing_new(transform: Transform, case: Case) -> list[str]:
    def shown(program: Program) -> Counter[str]:
        graphs = {name: program.graphs[name] for name in program.order}
        return Counter(
            f"{name}: {node.do.instance if type(node.do) is Call else node.do!r}"
            for name, graph in graphs.items()
            for node in graph.nodes
        )

    return [
        f"{line} was not there" for line in shown(transform(case.program)) - shown(case.program)
    ]


@law("the inputs and outputs of the program stay", aim=viewed)
def boundary_stays(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    found: list[str] = []
    if [one.name for one in before.main.inputs] != [one.name for one in after.main.inputs]:
        found.append("the program has other inputs")
    if len(before.main.output) != len(after.main.output) or before.signature != after.signature:
        found.append("the program has other outputs, or another signature")
    return found
