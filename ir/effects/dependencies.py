"""The dependency relation of a graph: a partial order of its nodes.

It has data edges and conflicts.  Two nodes conflict if
- one writes a storage that the other reads or writes, or both draw random numbers;
- both are ordered (asserts, prints, tokens), or ordered in one domain (a process group, operators of other libraries);
- one opens or closes a region, one is an input guard before an effect, or a message to one process and a wait.
Every transformation that reorders nodes uses this relation.  The time is linear in the operands of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..arguments import refs_in
from ..graph import Get, Graph, Node, Op
from ..own_operators import CALL_GUARDS, is_boundary
from ..program import Program
from .declared import NOTHING, NodeEffects
from .resolved import in_use, resolver, slot_storage, storages


def dependencies(program: Program, graph: Graph, *, path: str = "") -> list[list[int]]:
    """Return, for each node of a graph, the numbers of the nodes that must come before it.

    Transitive edges may be left out; every edge points backwards.  Any order of the nodes that respects the relation
    is legal; in a body, for calls whose arguments and state do not share memory.

    Args:
        program: the program with the bodies and the state.
        graph: the graph.
        path: the module of the graph, from the root.

    >>> from purefx.ir import Graph, Input, Node, Op, Program, Ref
    >>> nodes = (Node("a", Op("toy.neg"), (Ref("x"),)), Node("b", Op("toy.neg"), (Ref("a"),)))
    >>> graph = Graph((Input("x"),), nodes, Ref("b"))
    >>> dependencies(Program.of({"": graph}), graph)
    [[], [0]]
    """
    effects_of = resolver(program, graph, path=path)
    effects = [effects_of(node) if _acts(node) else NOTHING for node in graph.nodes]
    edges = _data_edges(graph)
    _chain(edges, [index for index, node_effect in enumerate(effects) if node_effect.random])
    _chain(edges, [index for index, node_effect in enumerate(effects) if node_effect.ordered])
    if any(node_effect.domains for node_effect in effects):
        for before, after in in_domains([node_effect.domains for node_effect in effects]):
            edges[after].add(before)
        _message_edges(effects, edges)
    _guard_edges(graph, effects, edges)
    if any(
        node_effect.writes or node_effect.writes_slots or node_effect.completes
        for node_effect in effects
    ):
        # Alias sets are needed only if a node writes.
        effects = [
            effects_of(node) if known is NOTHING else known
            for node, known in zip(graph.nodes, effects, strict=True)
        ]
        _storage_edges(program, graph, effects, edges)
    if any(node_effect.scope != (0, 0) for node_effect in effects):
        _scope_edges(graph, effects, edges)
    return list(map(sorted, edges))


def _acts(node: Node) -> bool:
    do = node.do
    return do.effects.acts if type(do) is Op else type(do) is not Get


def _data_edges(graph: Graph) -> list[set[int]]:
    position = graph.position
    edges: list[set[int]] = [set() for _ in graph.nodes]
    for name, users in graph.users.items():
        for user in users if name in position else ():
            edges[position[user]].add(position[name])
    return edges


def _chain(edges: list[set[int]], members: list[int]) -> None:
    for before, after in pairwise(members):
        edges[after].add(before)


def _guard_edges(graph: Graph, effects: list[NodeEffects], edges: list[set[int]]) -> None:
    guard = -1
    for index, (node, node_effect) in enumerate(zip(graph.nodes, effects, strict=True)):
        if node_effect is NOTHING:
            continue
        if guard >= 0 and (
            node_effect.writes
            or node_effect.writes_slots
            or node_effect.random
            or node_effect.domains
        ):
            edges[index].add(guard)
        if node.op_name == CALL_GUARDS.name:
            guard = index


def in_domains(members: list[tuple[tuple[str, ...], ...]]) -> Iterator[tuple[int, int]]:
    """Return the ordered pairs of members; pairs that follow from others may be left out.

    Args:
        members: the keys of the domains of each.  A longer key names a group of the shorter one; () is
            everything.

    >>> list(in_domains([(("talk", "a"),), (("talk", "b"),), (("talk", "a"),), (("talk",),), (("log",),)]))
    [(0, 2), (1, 3), (2, 3)]
    """
    last: dict[tuple[str, ...], int] = {}
    for number, keys in enumerate(members):
        for key in keys:
            for other in list(last):
                if other[: len(key)] != key[: len(other)]:
                    continue
                if last[other] != number:
                    yield last[other], number
                if len(other) >= len(key):
                    del last[other]
            last[key] = number


def _message_edges(effects: list[NodeEffects], edges: list[set[int]]) -> None:
    # The awaited process may itself wait for a message from or to this one, so messages do not pass waits.  Messages
    # and waits form alternating runs; each node comes after all nodes of the run before.
    if not any(node_effect.message for node_effect in effects):
        return
    run, before, waiting = (
        list[int](),
        list[int](),
        False,
    )  # the last run, the run before, the kind of the last
    for index, node_effect in enumerate(effects):
        for waits in [
            kind for kind, has in ((True, node_effect.waits), (False, node_effect.message)) if has
        ]:
            if waits is not waiting:
                run, before, waiting = [], run, waits
            edges[index].update([earlier for earlier in before if earlier != index])
            run.append(index)


def _scope_edges(graph: Graph, effects: list[NodeEffects], edges: list[set[int]]) -> None:
    # Nodes between two boundaries of a region stay between them.
    boundary, inside = -1, list[int]()
    for index, (node, node_effect) in enumerate(zip(graph.nodes, effects, strict=True)):
        if _only_names(node):
            continue
        if boundary >= 0:
            edges[index].add(boundary)
        if node_effect.scope == (0, 0):
            inside.append(index)
        else:
            edges[index].update(inside)
            boundary, inside = index, []


def _only_names(node: Node) -> bool:
    # A boundary names values without reading their contents.
    return type(node.do) is Get or is_boundary(node)


def _storage_edges(
    program: Program, graph: Graph, effects: list[NodeEffects], edges: list[set[int]]
) -> None:
    memory = storages(program, graph, effects, sent=False)
    held = in_use(memory, graph, effects)
    written = {memory.find(name) for node_effect in effects for name in node_effect.writes}
    written |= {memory.find(name) for node_effect in effects for name in node_effect.completes}
    written |= {
        memory.find(slot_storage(program, slot))
        for node_effect in effects
        for slot in node_effect.writes_slots
    }
    writer: dict[object, int] = {}
    readers: dict[object, list[int]] = {}
    for index, (node, node_effect) in enumerate(zip(graph.nodes, effects, strict=True)):
        if _only_names(node):
            continue
        writes: set[object] = set()
        touched = {
            storage
            for name in refs_in(node.args, node.kwargs)
            if (storage := memory.find(name)) in written
        }
        if node_effect is not NOTHING:
            writes.update(
                [memory.find(name) for name in (*node_effect.writes, *node_effect.completes)]
            )
            writes.update(
                [memory.find(slot_storage(program, slot)) for slot in node_effect.writes_slots]
            )
            read = [memory.find(slot_storage(program, slot)) for slot in node_effect.reads_slots]
            read += [
                each for name in node_effect.completes for each in held.get(memory.find(name), ())
            ]
            touched.update(writes, written.intersection(read))
        for storage in touched:
            if storage in writer:
                edges[index].add(writer[storage])
            if storage in writes:
                edges[index].update(readers.pop(storage, ()))
                writer[storage] = index
            else:
                readers.setdefault(storage, []).append(index)
        edges[index].discard(index)
