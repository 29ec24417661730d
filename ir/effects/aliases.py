"""Alias sets: which values of a graph may share memory.

A union-find over the values of one graph, joined by what operators declare and by what the state shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..graph import Graph, Node
from ..program import Program
from ..signature import StateInput
from .declared import NodeEffects


class UnionFind:
    """A union-find over any keys; a key that was never joined is in a set of its own.

    >>> unions = UnionFind()
    >>> unions.join("a", "b")
    >>> unions.find("a") == unions.find("b"), unions.find("c")
    (True, 'c')
    """

    def __init__(self) -> None:
        self._parent: dict[object, object] = {}

    def find(self, key: object) -> object:
        """Return the representative of the set that a key is in."""
        parent = self._parent
        root = key
        while root in parent:
            root = parent[root]
        while key != root:
            parent[key], key = root, parent[key]
        return root

    def join(self, left: object, right: object) -> None:
        """Merge the sets of two keys."""
        a, b = self.find(left), self.find(right)
        if a != b:
            self._parent[a] = b


def join_aliases(
    found: UnionFind, graph: Graph, done: Sequence[NodeEffects], slot_key: Callable[[str], object], *, sent: bool = True
) -> None:
    """Join the values of a graph that may share memory with one another and with state.

    Args:
        found: what is joined already; values go by their names.
        graph: the graph.
        done: what its nodes do.
        slot_key: the key of a slot that a node names.
        sent: whether what is under way counts as sharing the memory of what was sent, which it does not (``in_use``).
    """
    apart = taken_apart(graph, done)
    for node, node_effect in zip(graph.nodes, done, strict=True):
        if node.name in apart:
            for number, shared in enumerate(node_effect.results):
                found.join((node.name, number), (node.name, shared.first))
                _join_all(found, (node.name, number), (*shared.values, *map(slot_key, shared.slots)))
        elif apart and (item := item_of(node)) is not None and item[0] in apart:
            found.join(node.name, item)
        elif node_effect.aliases or node_effect.aliases_slots:
            shared = node_effect.aliases if sent or not node_effect.sends else _without(node_effect.aliases, node_effect.sends)
            _join_all(found, node.name, (*shared, *map(slot_key, node_effect.aliases_slots)))


def _without(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    return tuple([name for name in names if name not in others])


def _join_all(found: UnionFind, key: object, others: Sequence[object]) -> None:
    for other in others:
        found.join(key, other)


def taken_apart(graph: Graph, done: Sequence[NodeEffects]) -> set[str]:
    """Return the names of the calls with several results of which each use takes one."""
    apart = {node.name for node, node_effect in zip(graph.nodes, done, strict=True) if node_effect.results}
    if apart:
        apart.difference_update(graph.output_refs())
        for node in graph.nodes:
            if item_of(node) is None:
                apart.difference_update(node.refs())
    return apart


def item_of(node: Node) -> tuple[str, int] | None:
    """Return which result of which node a node takes; None if it does something else.

    >>> from purefx.ir import Op, Ref
    >>> item_of(Node("y", Op("operator.getitem"), (Ref("x"), 1)))
    ('x', 1)
    """
    item = node.projection
    return item if item is not None and item[1] >= 0 else None


def storages(program: Program, graph: Graph, done: list[NodeEffects], *, sent: bool = True) -> UnionFind:
    """Return which values of a graph may share memory.

    Args:
        program: its state says which slots are one storage; its signature which root inputs are state.
        graph: the graph.
        done: what ``node_effects`` says of it.
        sent: see ``join_aliases``.
    """
    found = UnionFind()
    if graph is program.main:
        for formal, spec in zip(graph.inputs, program.signature.inputs, strict=False):
            if type(spec) is StateInput:
                found.join(formal.name, slot_storage(program, spec.slot))
    for module, other in program.state.entangled:
        found.join(("storage", module), ("storage", other))
    join_aliases(found, graph, done, lambda slot: slot_storage(program, slot), sent=sent)
    return found


def views_of(program: Program, done: Sequence[NodeEffects]) -> dict[str, set[object]]:
    """Return what each value of the root graph may be a view of: inputs, storages of state, and values that are views of nothing.

    ``storages`` puts two inputs into one set where a value may be a view of either; here they stay apart.

    Args:
        program: its signature says which inputs of the root are state.
        done: what ``node_effects`` says of the root.

    >>> views_of(Program.of({"": Graph((), (), ())}), [])
    {}
    """
    found: dict[str, set[object]] = {}
    for formal, spec in zip(program.main.inputs, program.signature.inputs, strict=True):
        found[formal.name] = slot_views(program, spec.slot) if type(spec) is StateInput else {formal.name}
    results = {node.name: effects.results for node, effects in zip(program.main.nodes, done, strict=True)}
    for node, effects in zip(program.main.nodes, done, strict=True):
        values, slots, own = effects.aliases, effects.aliases_slots, object()
        item = item_of(node)
        if item is not None and results.get(item[0]):
            shared = results[item[0]][item[1]]
            values, slots, own = shared.values, shared.slots, (item[0], shared.first)
        of = [found[name] for name in values] + [slot_views(program, slot) for slot in slots]
        found[node.name] = set[object]().union(*of) if of else {own}
    return found


def slot_views(program: Program, slot: str) -> set[object]:
    """Return the storage of a slot, and those of modules that hold it as they are, or that it holds."""
    _, storage = slot_storage(program, slot)
    pairs = [pair for pair in program.state.entangled if storage in pair]
    return {("storage", one) for one in {storage, *(each for pair in pairs for each in pair)}}


def in_use(memory: UnionFind, graph: Graph, done: Sequence[NodeEffects]) -> dict[object, set[object]]:
    """Return for the memory of what is under way the memory that is read until it is waited for.

    Args:
        memory: what ``storages`` gives with ``sent=False``.
        graph: the graph.
        done: what its nodes do.

    >>> in_use(UnionFind(), Graph((), (), ()), [])
    {}
    """
    found: dict[object, set[object]] = {}
    for node, node_effect in zip(graph.nodes, done, strict=True):
        if node_effect.sends:
            found.setdefault(memory.find(node.name), set()).update(map(memory.find, node_effect.sends))
    return found


def slot_storage(program: Program, slot: str) -> tuple[str, object]:
    """Return the key of the memory of a slot in ``UnionFind``."""
    found = program.state.slots.get(slot)
    return ("storage", found.storage if found is not None else slot)
