"""Realistic mistakes in transformations, and the law that finds each.

One idea: a suite of laws is worth what it can find.  Each mistake is written as small as it can be on top of what is
right, and none is a typing error: all are misunderstandings that real compilers have had.  It asserts nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from attrs import evolve, frozen

import purefx as px
from purefx.ir.arguments import map_refs
from purefx.ir.digest import graph_digest
from purefx.ir.node import common_prefix
from purefx.laws import toy
from purefx.laws.strategies import Stage
from purefx.laws.variants import reordered

Nodes = list[px.Node]


@frozen
class Bug:
    """A mistake, the programs that it is made on, and the name of the law that finds it."""

    transform: Callable[[px.Program], px.Program]
    stage: Stage
    law: str


def with_nodes(program: px.Program, nodes: Nodes) -> px.Program:
    """Return the program with other nodes in its root; the same object where they are equal."""
    if nodes == list(program.main.nodes):
        return program
    return program.with_main(evolve(program.main, nodes=tuple(nodes)))


def merged(program: px.Program, key: Callable[[px.Graph], str]) -> px.Program:
    """Return the program with bodies of one key made one."""
    first: dict[str, str] = {}
    ids = {name: first.setdefault(key(program.graphs[name]), name) for name in program.order if name != program.root}
    graphs: dict[str, px.Graph] = {}
    for name in (program.root, *dict.fromkeys(ids.values())):
        nodes = [
            evolve(node, do=px.Call(node.do.instance, ids[node.do.graph])) if type(node.do) is px.Call else node
            for node in program.graphs[name].nodes
        ]
        graphs[name] = evolve(program.graphs[name], nodes=tuple(nodes))
    whole = program.evolve(graphs=px.pmap(graphs))
    return whole.evolve(graphs=px.pmap({name: graphs[name] for name in whole.order}))


def merges_whatever_the_callees(program: px.Program) -> px.Program:
    callees = dict.fromkeys(program.order, "")
    return merged(program, lambda graph: graph_digest(graph, callees))


def merges_whatever_the_state(program: px.Program) -> px.Program:
    def key(graph: px.Graph) -> str:
        nodes = [evolve(node, do=px.Get("")) if type(node.do) is px.Get else node for node in graph.nodes]
        return graph_digest(evolve(graph, nodes=tuple(nodes)), {})

    return merged(program, key)


def outlines_runs_of_nodes(program: px.Program) -> px.Program:
    runs: dict[px.Frame, int] = {}
    last: tuple[px.Frame, ...] = ()
    now: tuple[px.Frame, ...] = ()
    nodes: Nodes = []
    for node in program.main.nodes:
        if node.stack != last:
            shared = len(common_prefix([last, node.stack]))
            fresh = [evolve(frame, call=100 * frame.call + count(runs, frame)) for frame in node.stack[shared:]]
            last, now = node.stack, (*now[:shared], *fresh)
        nodes.append(evolve(node, stack=now))
    return px.outline(with_nodes(program, nodes))


def count(runs: dict[px.Frame, int], frame: px.Frame) -> int:
    """Return how often a frame was counted before."""
    runs[frame] = runs.get(frame, -1) + 1
    return runs[frame]


def loses_call_numbers(program: px.Program) -> px.Program:
    nodes = [evolve(node, stack=tuple(evolve(frame, call=0) for frame in node.stack)) for node in program.main.nodes]
    return px.outline(with_nodes(program, nodes))


def loses_parts(program: px.Program) -> px.Program:
    result = px.outline(program)
    graphs = {
        name: evolve(graph, nodes=tuple(map(without_part, graph.nodes)))
        for name, graph in ((name, result.graphs[name]) for name in result.order)
    }
    return result.evolve(graphs=px.pmap(graphs))


def without_part(node: px.Node) -> px.Node:
    """Return a call as if it were the first piece."""
    if type(node.do) is not px.Call:
        return node
    return evolve(node, do=px.Call(evolve(node.do.instance, part=0), node.do.graph))


def writes_at_once(program: px.Program) -> px.Program:
    result = px.inplace_mutations(program)
    made = {node.name: index for index, node in enumerate(program.main.nodes)}
    old = [node for node in result.main.nodes if node.name in made]
    for node in reversed([node for node in result.main.nodes if node.name not in made and node.do == toy.COPY_]):
        names = [other.name for other in old]
        value = node.args[1].name
        old.insert(names.index(value) + 1 if value in names else 0, node)
    clones = [node for node in result.main.nodes if node.name not in made and node.do == toy.CLONE]
    return result if clones else with_nodes(result, old)


def saves_nothing(program: px.Program) -> px.Program:
    result = px.inplace_mutations(program)
    known = {node.name for node in program.main.nodes}
    saved = {node.name: node.args[0] for node in result.main.nodes if node.name not in known and node.do == toy.CLONE}

    def use(arg: object) -> object:
        return map_refs(arg, lambda ref: saved.get(ref.name, ref) if type(ref) is px.Ref else ref)

    nodes = [evolve(node, args=use(node.args)) for node in result.main.nodes if node.name not in saved]
    return result if not saved else result.with_main(px.Graph(result.main.inputs, tuple(nodes), use(result.main.output)))


def forgets_a_mutation(program: px.Program) -> px.Program:
    for index, spec in enumerate(program.signature.outputs):
        if type(spec) is px.StateMutation:
            outputs = (*program.signature.outputs[:index], *program.signature.outputs[index + 1 :])
            output = (*program.main.output[:index], *program.main.output[index + 1 :])
            return program.with_main(evolve(program.main, output=output), signature=evolve(program.signature, outputs=outputs))
    return program


def sinks_to_the_first_user(program: px.Program) -> px.Program:
    result = px.sink_state(program)
    stacks = {name: node.stack for node in reversed(result.main.nodes) for name in node.refs()}
    nodes = [
        evolve(node, stack=stacks.get(node.name, ())) if type(node.do) is px.Get else node for node in result.main.nodes
    ]  # fmt: skip
    return with_nodes(result, nodes)


def sinks_without_counting_anew(program: px.Program) -> px.Program:
    result = px.sink_state(program)
    return (
        result.evolve(signature=evolve(result.signature, outputs=program.signature.outputs)) if result is not program else result
    )


def unties_state(program: px.Program) -> px.Program:
    seen: set[int] = set()
    slots: dict[str, px.Slot] = {}
    for number, (name, slot) in enumerate(program.state.pairs):
        own = slot.storage in seen
        value = slot.value.detach().clone() if own else slot.value
        slots[name] = evolve(slot, value=value, cell=100 + number, storage=100 + number) if own else slot
        seen.add(slot.storage)
    return program.evolve(state=px.State(program.state.order, px.pmap(slots)))


def removes_unused_writes(program: px.Program) -> px.Program:
    used = {name for node in program.main.nodes for name in node.refs()} | set(program.main.output_refs())
    return with_nodes(program, [node for node in program.main.nodes if node.name in used or node.do != toy.ADD_])


def removes_what_gives_nothing(program: px.Program) -> px.Program:
    used = {name for node in program.main.nodes for name in node.refs()} | set(program.main.output_refs())
    return with_nodes(program, [node for node in program.main.nodes if node.name in used or node.do != toy.EMIT])


def hoists_pure_operators(program: px.Program) -> px.Program:
    # It knows that they compute only, and not that others write what they read.
    nodes: Nodes = []
    for node in program.main.nodes:
        place = len(nodes)
        if node.do in (toy.NEG, toy.MUL, toy.CLONE):
            while place and nodes[place - 1].name not in node.refs():
                place -= 1
        nodes.insert(place, node)
    return with_nodes(program, nodes)


def exchanged(program: px.Program, op: px.Op) -> px.Program:
    """Return the program with two nodes of an operator exchanged that no value holds in order."""
    nodes = list(program.main.nodes)
    places = [index for index, node in enumerate(nodes) if node.do == op]
    for one, other in itertools.pairwise(places):
        swapped = [*nodes]
        swapped[one], swapped[other] = nodes[other], nodes[one]
        result = with_nodes(program, swapped)
        if not px.verify(result):
            return result
    return program


def exchanges_random_draws(program: px.Program) -> px.Program:
    return exchanged(program, toy.RAND)


def exchanges_prints(program: px.Program) -> px.Program:
    return exchanged(program, toy.PRINT)


def exchanges_operators_with_bodies(program: px.Program) -> px.Program:
    return exchanged(program, toy.COND)


def computes_equal_things_once(program: px.Program) -> px.Program:
    first: dict[object, str] = {}
    other: dict[str, str] = {}
    nodes: Nodes = []

    def use(arg: object) -> object:
        return map_refs(arg, lambda ref: px.Ref(other.get(ref.name, ref.name)) if type(ref) is px.Ref else ref)

    for node in program.main.nodes:
        node = evolve(node, args=use(node.args))
        if node.do == toy.NEG and node.args in first:
            other[node.name] = first[node.args]
            continue
        first.setdefault(node.args if node.do == toy.NEG else node.name, node.name)
        nodes.append(node)
    return program if not other else program.with_main(px.Graph(program.main.inputs, tuple(nodes), use(program.main.output)))


def sorts_by_name(program: px.Program) -> px.Program:
    orders = [reordered(program, seed=seed) for seed in range(4)]
    return min(orders, key=lambda other: [node.name for node in other.main.nodes])


def makes_everything_anew(program: px.Program) -> px.Program:
    return program.evolve(graphs=px.pmap({name: evolve(program.graphs[name]) for name in program.order}))


NUMBERS = itertools.count()


def counts_on(program: px.Program) -> px.Program:
    if not program.main.nodes or program.main.nodes[0].name.startswith("made"):
        return program
    node = program.main.nodes[0]
    made = evolve(node, name=f"made{next(NUMBERS)}")
    rest = [
        evolve(other, args=map_refs(other.args, lambda ref: renamed_ref(ref, node.name, made.name)))
        for other in program.main.nodes[1:]
    ]
    output = map_refs(program.main.output, lambda ref: renamed_ref(ref, node.name, made.name))
    return program.with_main(px.Graph(program.main.inputs, (made, *rest), output))


def renamed_ref(ref: object, old: str, new: str) -> object:
    """Return a reference to the new name where it is one to the old."""
    return px.Ref(new) if type(ref) is px.Ref and ref.name == old else ref


BUGS = (
    Bug(merges_whatever_the_callees, "tree", "meaning"),
    Bug(merges_whatever_the_state, "tree", "meaning"),
    Bug(outlines_runs_of_nodes, "sunk", "order"),
    Bug(loses_call_numbers, "sunk", "inlines"),
    Bug(loses_parts, "sunk", "one body a label"),
    Bug(writes_at_once, "flat", "meaning"),
    Bug(saves_nothing, "flat", "meaning"),
    Bug(forgets_a_mutation, "flat", "meaning"),
    Bug(sinks_to_the_first_user, "in place", "reads below"),
    Bug(sinks_without_counting_anew, "flat", "valid"),
    Bug(unties_state, "sunk", "meaning"),
    Bug(removes_unused_writes, "in place", "meaning"),
    Bug(removes_what_gives_nothing, "flat", "effects"),
    Bug(hoists_pure_operators, "in place", "meaning"),
    Bug(exchanges_random_draws, "sunk", "effects"),
    Bug(exchanges_prints, "flat", "effects"),
    Bug(exchanges_operators_with_bodies, "flat", "effects"),
    Bug(computes_equal_things_once, "in place", "meaning"),
    Bug(sorts_by_name, "flat", "equivariant"),
    Bug(makes_everything_anew, "outlined", "frame"),
    Bug(counts_on, "flat", "deterministic"),
)
