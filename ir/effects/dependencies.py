"""The one dependency relation: which nodes of a graph must stay after which.

One idea: data edges plus conflicts.  Two nodes conflict when one writes a storage that the other reads or writes, when
both draw random numbers, or when both are ordered (asserts, prints, tokens).  Storages are found by following
aliases from state, inputs and fresh results.  Outline, split, match, CSE, DCE, inline and reorder all ask here, and
none looks at data edges alone.  It is linear in the arguments of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from attrs import frozen

from ..arguments import bodies_in
from ..borders import BORDERS
from ..graph import Graph
from ..node import Call, Get, Node, Op
from ..paths import FROM_ROOT, join, nested
from ..program import Program
from ..signature import StateInput
from .declared import Effects

__all__ = ["Happening", "Storages", "dependencies", "happenings", "storages"]


@frozen
class Happening:
    """What one node does to the world, by name of value: resolved from its op, call or bodies."""

    writes: tuple[str, ...] = ()
    """Values whose storage it changes."""
    writes_slots: tuple[str, ...] = ()
    """State that it changes without being handed it (a call whose body reads its own state)."""
    reads_slots: tuple[str, ...] = ()
    """State that it reads without being handed it."""
    aliases: tuple[str, ...] = ()
    """Values that its result may share storage with."""
    aliases_slots: tuple[str, ...] = ()
    """State that its result may share storage with without being handed it."""
    random: bool = False
    ordered: bool = False


NOTHING = Happening()


def happenings(program: Program, graph: Graph, *, path: str = "") -> list[Happening]:
    """Return what each node of a graph does to the world.

    Args:
        program: where the bodies that the graph calls are.
        graph: the graph, one of the program or not.
        path: the module whose state the graph's ``Get`` nodes name, from the root.

    >>> from purefx.ir import Get, Graph, Node, Program
    >>> graph = Graph((), (Node("w", Get("weight")),))
    >>> happenings(Program.of({"": graph}), graph)[0].aliases_slots
    ('weight',)
    """
    summaries: dict[str, Happening] = {}
    for name in _bodies_first(program, graph):
        body = program.graphs[name]
        summaries[name] = _summary(body, [_happening(node, program, summaries) for node in body.nodes])
    return [_from_root(_happening(node, program, summaries), path) for node in graph.nodes]


def _bodies_first(program: Program, graph: Graph) -> list[str]:
    order: dict[str, None] = {}
    todo = [(name, False) for name in _called(graph)]
    while todo:
        name, done = todo.pop()
        if done:
            order.setdefault(name)
        elif name not in order and name in program.graphs:
            todo.append((name, True))
            todo.extend((inner, False) for inner in _called(program.graphs[name]) if inner not in order)
    return list(order)


def _called(graph: Graph) -> list[str]:
    found: list[str] = []
    for node in graph.nodes:
        if type(node.do) is Call:
            found.append(node.do.graph)
        elif type(node.do) is not Get and node.do.effects.through_bodies:
            found.extend(bodies_in(node.args, node.kwargs))
    return list(dict.fromkeys(found))


def _happening(node: Node, program: Program, summaries: dict[str, Happening]) -> Happening:
    do = node.do
    if type(do) is Get:
        return Happening(aliases_slots=(do.slot,))
    if type(do) is Call:
        summary = summaries.get(do.graph, NOTHING)
        return _through(summary, node, program, (do.graph,), prefix=do.instance.path)
    effects = do.effects
    if effects.unknown:
        refs = tuple(dict.fromkeys(node.refs()))
        return Happening(writes=refs, aliases=refs, random=effects.random, ordered=effects.ordered)
    if effects.through_bodies:
        return _of_bodies(node, effects, summaries)
    return _of_op(node, effects)


def _of_op(node: Node, effects: Effects) -> Happening:
    args, kwargs = node.args, node.kwargs
    if not (effects.writes or effects.aliases or effects.random or effects.ordered):
        return NOTHING
    writes = effects.writes
    if any(flag.spares(args, kwargs) for flag in effects.writes_unless):
        writes = ()
    return Happening(
        writes=tuple(name for at in writes for name in _names(at.find(args, kwargs))),
        aliases=tuple(name for at in effects.aliases for name in _names(at.find(args, kwargs))),
        random=effects.random and not any(flag.spares(args, kwargs) for flag in effects.random_unless),
        ordered=effects.ordered,
    )


def _names(arg: object) -> list[str]:
    from ..arguments import refs_in

    return refs_in((arg,))


def _of_bodies(node: Node, effects: Effects, summaries: dict[str, Happening]) -> Happening:
    # Which operand is which input of which body differs by operator: what a body does to one input, the node may do
    # to every operand, and what it gives back may be any of them.
    bodies = [summaries.get(name, NOTHING) for name in bodies_in(node.args, node.kwargs)]
    refs = tuple(dict.fromkeys(node.refs()))
    return Happening(
        writes=refs if any(body.writes for body in bodies) else (),
        writes_slots=tuple(slot for body in bodies for slot in body.writes_slots),
        reads_slots=tuple(slot for body in bodies for slot in body.reads_slots),
        aliases=refs,
        aliases_slots=tuple(slot for body in bodies for slot in body.aliases_slots),
        random=effects.random or any(body.random for body in bodies),
        ordered=effects.ordered or any(body.ordered for body in bodies),
    )


def _through(summary: Happening, node: Node, program: Program, bodies: tuple[str, ...], *, prefix: str) -> Happening:
    formal = {name: arg for body in bodies for name, arg in zip(_input_names(program, body), node.args, strict=False)}
    placed = _placed(summary, prefix)
    return Happening(
        writes=tuple(actual for name in summary.writes for actual in _names(formal.get(name))),
        writes_slots=placed.writes_slots,
        reads_slots=placed.reads_slots,
        aliases=tuple(actual for name in summary.aliases for actual in _names(formal.get(name))),
        aliases_slots=placed.aliases_slots,
        random=summary.random,
        ordered=summary.ordered,
    )


def _input_names(program: Program, body: str) -> list[str]:
    return [formal.name for formal in program.graphs[body].inputs] if body in program.graphs else []


def _placed(happening: Happening, path: str) -> Happening:
    # The slots as the caller writes them, which calls the body as this module.
    return _with_slots(happening, lambda slot: nested(path, slot))


def _from_root(happening: Happening, path: str) -> Happening:
    slots = (*happening.writes_slots, *happening.reads_slots, *happening.aliases_slots)
    if not slots or not (path or any(slot.startswith(FROM_ROOT) for slot in slots)):
        return happening
    return _with_slots(happening, lambda slot: join(path, slot))


def _with_slots(happening: Happening, place: Callable[[str], str]) -> Happening:
    return Happening(
        writes=happening.writes,
        writes_slots=tuple(map(place, happening.writes_slots)),
        reads_slots=tuple(map(place, happening.reads_slots)),
        aliases=happening.aliases,
        aliases_slots=tuple(map(place, happening.aliases_slots)),
        random=happening.random,
        ordered=happening.ordered,
    )


def _summary(graph: Graph, inner: list[Happening]) -> Happening:
    # What a whole body does, in terms of its inputs and of the state it reads.
    from_inputs: dict[str, set[str]] = {formal.name: {formal.name} for formal in graph.inputs}
    from_slots: dict[str, set[str]] = {}
    writes: dict[str, None] = {}
    writes_slots: dict[str, None] = {}
    reads_slots: dict[str, None] = {}
    for node, happening in zip(graph.nodes, inner, strict=True):
        for name in happening.writes:
            writes.update(dict.fromkeys(sorted(from_inputs.get(name, ()))))
            writes_slots.update(dict.fromkeys(sorted(from_slots.get(name, ()))))
        writes_slots.update(dict.fromkeys(happening.writes_slots))
        reads_slots.update(dict.fromkeys((*happening.reads_slots, *happening.aliases_slots)))
        roots = set[str]().union(*(from_inputs.get(name, ()) for name in happening.aliases))
        slots = set(happening.aliases_slots).union(*(from_slots.get(name, ()) for name in happening.aliases))
        if roots:
            from_inputs[node.name] = roots
        if slots:
            from_slots[node.name] = slots
    given = graph.output_refs()
    return Happening(
        writes=tuple(writes),
        writes_slots=tuple(writes_slots),
        reads_slots=tuple(reads_slots),
        aliases=tuple(sorted(set[str]().union(*(from_inputs.get(name, ()) for name in given)))),
        aliases_slots=tuple(sorted(set[str]().union(*(from_slots.get(name, ()) for name in given)))),
        random=any(happening.random for happening in inner),
        ordered=any(happening.ordered for happening in inner),
    )


class Storages:
    """Which values may share memory: a union of names, state storages and results."""

    def __init__(self) -> None:
        self._parent: dict[object, object] = {}

    def find(self, key: object) -> object:
        """Return the representative of the memory that a value or state storage lives in."""
        parent = self._parent
        root = key
        while root in parent:
            root = parent[root]
        while key != root:
            parent[key], key = root, parent[key]
        return root

    def join(self, left: object, right: object) -> None:
        """Say that two may share memory."""
        a, b = self.find(left), self.find(right)
        if a != b:
            self._parent[a] = b


def storages(program: Program, graph: Graph, done: list[Happening]) -> Storages:
    """Return which values of a graph may share memory.

    Args:
        program: its state says which slots are one storage; its signature which root inputs are state.
        graph: the graph.
        done: what ``happenings`` says of it.
    """
    found = Storages()
    if graph is program.main:
        for formal, spec in zip(graph.inputs, program.signature.inputs, strict=False):
            if type(spec) is StateInput:
                found.join(formal.name, slot_storage(program, spec.slot))
    for node, happening in zip(graph.nodes, done, strict=True):
        for name in happening.aliases:
            found.join(node.name, name)
        for slot in happening.aliases_slots:
            found.join(node.name, slot_storage(program, slot))
    return found


def slot_storage(program: Program, slot: str) -> tuple[str, object]:
    """Return the key under which ``Storages`` knows the memory of a slot."""
    found = program.state.slots.get(slot)
    return ("storage", found.storage if found is not None else slot)


def dependencies(program: Program, graph: Graph, *, path: str = "") -> list[list[int]]:
    """Return, for each node of a graph, the numbers of the nodes that must come before it.

    Transitive edges may be left out; every edge points backwards.  Any order of the nodes that respects the relation
    is legal: it means the same.

    Args:
        program: where the bodies and the state are.
        graph: the graph.
        path: the module whose state the graph's ``Get`` nodes name, from the root.

    >>> from purefx.ir import Graph, Input, Node, Op, Program, Ref
    >>> nodes = (Node("a", Op("toy.neg"), (Ref("x"),)), Node("b", Op("toy.neg"), (Ref("a"),)))
    >>> graph = Graph((Input("x"),), nodes, Ref("b"))
    >>> dependencies(Program.of({"": graph}), graph)
    [[], [0]]
    """
    done = happenings(program, graph, path=path)
    edges = _data_edges(graph)
    _chain(edges, [index for index, happening in enumerate(done) if happening.random])
    _chain(edges, [index for index, happening in enumerate(done) if happening.ordered])
    if any(happening.writes or happening.writes_slots for happening in done):
        _storage_edges(program, graph, done, edges)
    return [sorted(of) for of in edges]


def _data_edges(graph: Graph) -> list[set[int]]:
    defined: dict[str, int] = {}
    edges: list[set[int]] = []
    for index, node in enumerate(graph.nodes):
        edges.append({defined[name] for name in node.refs() if name in defined})
        defined[node.name] = index
    return edges


def _chain(edges: list[set[int]], members: list[int]) -> None:
    for before, after in pairwise(members):
        edges[after].add(before)


def _storage_edges(program: Program, graph: Graph, done: list[Happening], edges: list[set[int]]) -> None:
    memory = storages(program, graph, done)
    written = {memory.find(name) for happening in done for name in happening.writes}
    written |= {memory.find(slot_storage(program, slot)) for happening in done for slot in happening.writes_slots}
    writer: dict[object, int] = {}
    readers: dict[object, list[int]] = {}
    for index, (node, happening) in enumerate(zip(graph.nodes, done, strict=True)):
        if type(node.do) is Get or (type(node.do) is Op and node.do.name in BORDERS):
            continue  # naming a value is no read of its contents
        writes = {memory.find(name) for name in happening.writes}
        writes |= {memory.find(slot_storage(program, slot)) for slot in happening.writes_slots}
        touched = {memory.find(name) for name in node.refs()} & written
        touched |= {memory.find(slot_storage(program, slot)) for slot in happening.reads_slots} & written
        for storage in touched | writes:
            if storage in writer:
                edges[index].add(writer[storage])
            if storage in writes:
                edges[index].update(readers.pop(storage, ()))
                writer[storage] = index
            else:
                readers.setdefault(storage, []).append(index)
        edges[index].discard(index)
