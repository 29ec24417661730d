"""``live``: a program without its dead code, so that what a transformation changed there alone is not taken for a check.

One backward walk over each body, callers first.  A node is live where a live node uses its value, or where it has an observable
effect: on state, inputs, random numbers, an order, or memory that a live node reads later.  Outputs of a body are live where a
call uses them, inputs where the body does.  The copy is for comparing; it is not a transformation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field

from ..ir.arguments import Arg, bodies_in, refs_in
from ..ir.effects.declared import NodeEffects
from ..ir.effects.resolved import UnionFind, item_of, node_effects, slot_storage, storages
from ..ir.graph import Call, Graph, Node
from ..ir.own_operators import is_boundary
from ..ir.persistent import pmap
from ..ir.program import Program
from .law import differs
from .variants import canonical

__all__ = ["changes_what_is_live", "live"]


def changes_what_is_live(result: Program, program: Program) -> bool:
    """Return whether two programs that differ do so in more than dead code.

    What stands in both is compared up to names; where nothing differs but names, those of live values are.

    Args:
        result: what a transformation gave.
        program: what it was given, another program.

    >>> from attrs import evolve
    >>> from purefx.ir import Input, Op, Ref
    >>> nodes = tuple(Node(name, Op("toy.neg"), (Ref("x"),)) for name in ("y", "unused"))
    >>> program = Program.of({"": Graph((Input("x"),), nodes, (Ref("y"),))})
    >>> without = lambda *kept: program.with_main(evolve(program.main, nodes=kept, output=(Ref(kept[0].name),)))
    >>> changes_what_is_live(without(nodes[0]), program), changes_what_is_live(without(evolve(nodes[1], args=(1,))), program)
    (False, True)
    """
    mine, theirs = live(result), live(program)
    if differs(canonical(mine), canonical(theirs)):
        return True
    return mine != theirs and canonical(result) == canonical(program)


def live(program: Program) -> Program:
    """Return a program without its dead code: the values that no output, no effect and no state depends on.

    Args:
        program: a valid program at any stage.

    >>> from purefx.ir import Input, Op, Ref
    >>> nodes = (Node("y", Op("toy.neg"), (Ref("x"),)), Node("unused", Op("toy.neg"), (Ref("y"),)))
    >>> [node.name for node in live(Program.of({"": Graph((Input("x"),), nodes, (Ref("y"),))})).main.nodes]
    ['y']
    """
    order = [name for name in reversed(program.bottom_up) if name in program.graphs]
    known = {name: _Known.of(program, name) for name in order}
    needs: dict[str, _Need] = {program.root: _Need(is_whole=True)}
    found: dict[str, frozenset[str]] = {}
    while True:
        before = dict(found)
        for name in order:
            if name in needs:
                found[name] = _walk(known[name], needs, found)
        if before == found:
            break
    copies = {name: _copy(program.graphs[name], needs[name], found[name]) for name in order if name in found}
    return program.evolve(graphs=pmap({name: copies[name] for name in program.graphs if name in copies}))


@define
class _Need:
    """What of the result of a call, or of a body, something live uses."""

    items: set[int] = field(factory=set)
    is_whole: bool = False

    def add(self, other: _Need) -> None:
        self.items |= other.items
        self.is_whole |= other.is_whole

    def refs(self, output: Arg) -> list[str]:
        if self.is_whole or (type(output) is not tuple and self.items):
            return refs_in((output,))
        return (
            refs_in(tuple([item for number, item in enumerate(output) if number in self.items])) if type(output) is tuple else []
        )


@define
class _Known:
    """What does not depend on who calls a body."""

    name: str
    graphs: Mapping[str, Graph]
    does: Sequence[NodeEffects]
    memory: UnionFind
    seen: frozenset[object]
    """The memory that is seen from outside: of inputs and of state."""

    @property
    def graph(self) -> Graph:
        return self.graphs[self.name]

    @classmethod
    def of(cls, program: Program, name: str) -> _Known:
        graph = program.graphs[name]
        does = node_effects(program, graph)
        memory = storages(program, graph, list(does))
        slots = [slot for node_effect in does for slot in node_effect.aliases_slots]
        slots += [slot for node_effect in does for shared in node_effect.results for slot in shared.slots]
        seen = [memory.find(formal.name) for formal in graph.inputs]
        return cls(
            name, program.graphs, does, memory, frozenset([*seen, *(memory.find(slot_storage(program, slot)) for slot in slots)])
        )


def _walk(known: _Known, needs: dict[str, _Need], found: Mapping[str, frozenset[str]]) -> frozenset[str]:
    # The names that are live; what the calls among them need of bodies is noted.
    memory = known.memory
    outer = needs[known.name].refs(known.graph.output)
    names, seen = set(outer), {*known.seen, *map(memory.find, outer)}
    wanted: dict[str, _Need] = {name: _Need(is_whole=True) for name in outer}
    for node, node_effect in zip(reversed(known.graph.nodes), reversed(known.does), strict=True):
        if is_boundary(node) or not (node.name in names or _is_seen(node_effect, memory, seen)):
            continue
        names.add(node.name)
        _note(node, wanted, needs)
        used = _used(node, known.graphs, found)
        names.update(used)
        seen.update(map(memory.find, used))
    return frozenset(names)


def _is_seen(node_effect: NodeEffects, memory: UnionFind, seen: set[object]) -> bool:
    if (
        node_effect.random
        or node_effect.ordered
        or node_effect.domains
        or node_effect.writes_slots
        or node_effect.scope != (0, 0)
    ):
        return True
    return any(memory.find(name) in seen for name in (*node_effect.writes, *node_effect.completes))


def _note(node: Node, wanted: dict[str, _Need], needs: dict[str, _Need]) -> None:
    item = item_of(node)
    for name in node.refs():
        need = _Need({item[1]}) if item is not None and item[0] == name else _Need(is_whole=True)
        wanted.setdefault(name, _Need()).add(need)
    if type(node.do) is Call:
        needs.setdefault(node.do.graph, _Need()).add(wanted.get(node.name, _Need()))
    for name in bodies_in(node.args, node.kwargs):
        needs.setdefault(name, _Need()).add(_Need(is_whole=True))


def _used(node: Node, graphs: Mapping[str, Graph], found: Mapping[str, frozenset[str]]) -> list[str]:
    # A call uses what its body uses; nothing is known of a body that is walked later, so the walks are done again.
    if type(node.do) is not Call:
        return node.refs()
    inputs, inside = graphs[node.do.graph].inputs, found.get(node.do.graph, frozenset())
    return refs_in(tuple([arg for formal, arg in zip(inputs, node.args, strict=False) if formal.name in inside]))


def _copy(graph: Graph, need: _Need, names: frozenset[str]) -> Graph:
    nodes = [node for node in graph.nodes if node.name in names or is_boundary(node)]
    dead: dict[str, Arg] = dict.fromkeys(node.name for node in graph.nodes if node.name not in names)
    output = graph.output
    if type(output) is tuple and not need.is_whole:
        output = tuple([item if number in need.items else None for number, item in enumerate(output)])
    elif not (need.is_whole or need.items):
        output = None
    return Graph(graph.inputs, tuple([node.using(dead) for node in nodes]), output)
