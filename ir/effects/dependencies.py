"""The one dependency relation: which nodes of a graph must stay after which.

One idea: data edges plus conflicts.  Two nodes conflict when one writes a storage that the other reads or writes, when
both draw random numbers, when both are ordered (asserts, prints, tokens), when both are in order in one domain (communication
in a process group, operators of other libraries), or when one opens or closes a region; and nothing acts before the guards of
the inputs that stand before it.  Outline, split, match, CSE, DCE, inline and reorder all ask here, and none looks at data edges
alone.  It is linear in the arguments of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..arguments import refs_in
from ..borders import is_border
from ..graph import Graph
from ..node import Get, Node, Op
from ..opaque import CALL_GUARDS
from ..program import Program
from .happenings import resolver
from .resolved import NOTHING, Happening
from .storages import slot_storage, storages

__all__ = ["dependencies", "in_domains"]


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
    does = resolver(program, graph, path=path)
    done = [does(node) if _acts(node) else NOTHING for node in graph.nodes]
    edges = _data_edges(graph)
    _chain(edges, [index for index, happening in enumerate(done) if happening.random])
    _chain(edges, [index for index, happening in enumerate(done) if happening.ordered])
    if any(happening.domains for happening in done):
        for before, after in in_domains([happening.domains for happening in done]):
            edges[after].add(before)
    _guard_edges(graph, done, edges)
    if any(happening.writes or happening.writes_slots or happening.completes for happening in done):
        # Who shares storage with whom is asked only here, where something writes.
        done = [does(node) if known is NOTHING else known for node, known in zip(graph.nodes, done, strict=True)]
        _storage_edges(program, graph, done, edges)
    if any(happening.scope != (0, 0) for happening in done):
        _scope_edges(graph, done, edges)
    return [sorted(of) for of in edges]


def _acts(node: Node) -> bool:
    do = node.do
    return do.effects.acts if type(do) is Op else type(do) is not Get


def _data_edges(graph: Graph) -> list[set[int]]:
    defined: dict[str, int] = {}
    edges: list[set[int]] = []
    for index, node in enumerate(graph.nodes):
        mine: set[int] = set()
        for name in refs_in(node.args, node.kwargs):
            if name in defined:
                mine.add(defined[name])
        edges.append(mine)
        defined[node.name] = index
    return edges


def _chain(edges: list[set[int]], members: list[int]) -> None:
    for before, after in pairwise(members):
        edges[after].add(before)


def _guard_edges(graph: Graph, done: list[Happening], edges: list[set[int]]) -> None:
    guard = -1
    for index, (node, happening) in enumerate(zip(graph.nodes, done, strict=True)):
        if happening is NOTHING:
            continue
        if guard >= 0 and (happening.writes or happening.writes_slots or happening.random or happening.domains):
            edges[index].add(guard)
        if type(node.do) is Op and node.do.name == CALL_GUARDS.name:
            guard = index


def in_domains(members: list[tuple[tuple[str, ...], ...]]) -> Iterator[tuple[int, int]]:
    """Return pairs of members that are in order, first and second; pairs that follow from others may be left out.

    Args:
        members: for each the keys of the domains that it is in.  One that is longer names a group of the shorter one; () is
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


def _scope_edges(graph: Graph, done: list[Happening], edges: list[set[int]]) -> None:
    # What stands between two borders of a region stays between them.
    border, inside = -1, list[int]()
    for index, (node, happening) in enumerate(zip(graph.nodes, done, strict=True)):
        if _only_names(node):
            continue
        if border >= 0:
            edges[index].add(border)
        if happening.scope == (0, 0):
            inside.append(index)
        else:
            edges[index].update(inside)
            border, inside = index, []


def _only_names(node: Node) -> bool:
    # Naming a value is no read of its contents.
    return type(node.do) is Get or is_border(node)


def _storage_edges(program: Program, graph: Graph, done: list[Happening], edges: list[set[int]]) -> None:
    memory = storages(program, graph, done)
    written = {memory.find(name) for happening in done for name in happening.writes}
    written |= {memory.find(name) for happening in done for name in happening.completes}
    written |= {memory.find(slot_storage(program, slot)) for happening in done for slot in happening.writes_slots}
    writer: dict[object, int] = {}
    readers: dict[object, list[int]] = {}
    for index, (node, happening) in enumerate(zip(graph.nodes, done, strict=True)):
        if _only_names(node):
            continue
        writes: set[object] = set()
        touched = {storage for name in refs_in(node.args, node.kwargs) if (storage := memory.find(name)) in written}
        if happening is not NOTHING:
            writes.update([memory.find(name) for name in (*happening.writes, *happening.completes)])
            writes.update([memory.find(slot_storage(program, slot)) for slot in happening.writes_slots])
            read = [memory.find(slot_storage(program, slot)) for slot in happening.reads_slots]
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
