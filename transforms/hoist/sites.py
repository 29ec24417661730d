"""What the calls of bodies pass, and which of them pass the same: then what is computed from that is the same value.

Operands of two calls are the same where they are one value and nothing has written its memory in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import frozen

from ...ir.arguments import Arg, refs_in
from ...ir.calls.call_graph import all_instances
from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import program_effects
from ...ir.graph import Call, Node, Op, Stack
from ...ir.names import FROM_ROOT, join
from ...ir.program import Program
from ..memory import Memory
from .movable import Leaves, Movable, adjustable, canonical_slot, shared_slots

__all__ = ["Site", "Survey"]

SAME = Op("same")
"""For operands as keys: two are the same where nodes with them are equal."""


@frozen
class Site:
    """One call of a body whose inputs may change."""

    body: str
    caller: str
    number: int
    """Which node of its caller it is."""
    node: Node
    known: Mapping[str, Arg]
    """What it passes, by input."""
    memory: Mapping[str, frozenset[object]]
    """What memory of the caller holds each input, and the state that the body reads."""
    versions: Mapping[str, tuple[int, ...]]
    """How often that has been written by then."""
    region: tuple[int, Stack]
    """Calls that agree in this can use one value."""

    def key(self, leaves: Leaves) -> object:
        """Return what is equal for calls that give a body the same."""
        told = sorted(leaves)
        operands = [Node("", SAME, (self.known.get(name),)) for name in told]
        return self.region, tuple(operands), tuple([self.versions[name] for name in told])


class Survey:
    """All that is asked of a program before anything moves.

    Args:
        program: a program at any stage.

    >>> from purefx.ir import Graph
    >>> Survey(Program.of({"": Graph((), (), ())})).movable
    {}
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.effects: Mapping[str, Sequence[NodeEffects]] = program_effects(program)
        self.paths = all_instances(program)
        self.movable: dict[str, Movable] = {}
        """What callers could compute, of each body whose inputs may change."""
        is_open = adjustable(program)
        for name in program.order:
            if name in is_open:
                reads = shared_slots(program, program.graphs[name], self.paths[name])
                self.movable[name] = Movable(program, name, self.effects[name], reads)
        self.sites: dict[str, list[Site]] = {name: [] for name in self.movable}
        """The calls of those bodies, in order."""
        for name in program.order if any(found.values for found in self.movable.values()) else ():
            if not self.sites.keys().isdisjoint(program.graphs[name].callees):
                self._visit(name)
        self._worth: dict[_Question, bool] = {}

    def _visit(self, name: str) -> None:
        memory = self.movable[name].memory if name in self.movable else Memory(self.program, name, self.effects[name])
        written: Counter[object] = Counter()
        region, stacks_matter = 0, bool(len(self.program.call_signatures))
        for number, (node, does) in enumerate(zip(memory.graph.nodes, self.effects[name], strict=True)):
            do = node.do
            if type(do) is Call and do.graph in self.sites:
                known = dict(zip([formal.name for formal in self.program.graphs[do.graph].inputs], node.args, strict=True))
                held = self._held(name, memory, does, known)
                versions = {leaf: tuple(sorted([written[key] for key in keys])) for leaf, keys in held.items()}
                place = region, node.stack if stacks_matter else ()
                self.sites[do.graph].append(Site(do.graph, name, number, node, known, held, versions, place))
            region += does.scope != (0, 0)
            written.update(memory.touched(does))

    def _held(self, name: str, memory: Memory, does: NodeEffects, known: Mapping[str, Arg]) -> dict[str, frozenset[object]]:
        held = {formal: frozenset([memory.find(ref) for ref in refs_in((arg,))]) for formal, arg in known.items()}
        for slot in (*does.reads_slots, *does.aliases_slots):
            leaf = FROM_ROOT + canonical_slot(self.program, join(self.paths[name][0], slot))
            held[leaf] = held.get(leaf, frozenset()) | memory.of_slots([slot])
        return held

    def is_worth(self, name: str, value: str) -> bool:
        """Return whether a value of a body is computed less often if callers compute it.

        That is where one caller passes the same for it in two calls, or where its callers could pass that on: one caller of
        theirs, or further up, calls them twice with the same.
        """
        body = self.movable[name]
        start: _Question = (name, body.leaves[value], body.shares(value))
        seen, todo = {start}, [start]
        while todo:
            question = todo.pop()
            if self._worth.get(question) or (question not in self._worth and self._is_shared(*question[:2])):
                self._worth[start] = True
                return True
            above = [] if question in self._worth else self._above(*question[:2], shares=question[2])
            todo += [one for one in above if one not in seen]
            seen.update(above)
        self._worth.update(dict.fromkeys(seen, False))
        return False

    def _is_shared(self, name: str, leaves: Leaves) -> bool:
        keys = [(site.caller, site.key(leaves)) for site in self.sites[name]]
        return len(set(keys)) < len(keys)

    def _above(self, name: str, leaves: Leaves, *, shares: bool) -> list[_Question]:
        # The same question of the callers that could let their own callers compute it.
        found: list[_Question] = []
        for site in self.sites[name]:
            outer = self.movable.get(site.caller)
            if outer is None or site.region[0] or any(any(site.versions[leaf]) for leaf in leaves):
                continue
            if shares and any(not outer.memory.written.isdisjoint(site.memory[leaf]) for leaf in leaves):
                continue
            passed = refs_in(tuple([site.known[leaf] for leaf in leaves if leaf in site.known]))
            if all(ref in outer.leaves for ref in passed):
                state = [leaf for leaf in leaves if leaf not in site.known]
                found.append((site.caller, frozenset(state).union(*[outer.leaves[ref] for ref in passed]), shares))
        return found


_Question = tuple[str, Leaves, bool]
"""A body, what a value of it is computed from, and whether that shares memory with those."""
