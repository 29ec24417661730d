"""Application: rules on one graph, operands first, as often as they match.

A graph is walked once in the order of its nodes.  Where a rule matches, what it builds stands where the root of the match was,
and takes part in the walk; what only the match used goes.  A match is refused where something between its nodes conflicts with
them (``ir/effects/dependencies.py``), where others use its inner values, and where other memory would visibly be shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

from attrs import evolve

from ...ir.arguments import Arg, Ref, refs_in
from ...ir.calls.call_graph import all_instances
from ...ir.effects.declared import NOTHING, NodeEffects
from ...ir.effects.dependencies import dependencies
from ...ir.effects.resolved import resolver
from ...ir.errors import RuleError
from ...ir.graph import Call, Graph, Node, Op
from ...ir.inference import values_of
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ..transformation import Fuel
from .matching import Found, match
from .replacement import Builder, Match

__all__ = ["Hits", "Sweep"]

WITHOUT_SHARING: Mapping[str, Any] = {"aliases": (), "aliases_slots": (), "results": (), "reads_slots": ()}

OFTEN = 64
"""How many matches there may be for each node before rules are taken to go round in a circle."""


class _Rule(Protocol):
    """What is asked of a rule here: what it looks for, and what it puts there (``rule.py``)."""

    @property
    def name(self) -> str: ...
    @property
    def term(self) -> Any: ...
    @property
    def conditions(self) -> Sequence[Callable[[Match], bool]]: ...
    @property
    def keeps_inner(self) -> bool: ...
    @property
    def any_effects(self) -> bool: ...
    def build(self, found: Match) -> Any: ...


class Hits:
    """What matched in one graph, over all walks: where it is too much, the rules go round in a circle."""

    def __init__(self, name: str, graph: Graph) -> None:
        self.where = f"the body {name!r}" if name else "the root"
        self.most = OFTEN * (len(graph.nodes) + 1)
        self.found: list[str] = []

    def add(self, rule: str, root: str) -> None:
        """Count a match of a rule.

        Raises:
            RuleError: there are too many.
        """
        self.found.append(rule)
        if len(self.found) > self.most:
            names = ", ".join(dict.fromkeys(self.found[-OFTEN:]))
            raise RuleError(
                f"the rules come to no end in {self.where}: {names} matched {len(self.found)} times, at last at {root}.\n"
                "What one of them builds is what another, or itself, looks for; say in `where=` when it is enough."
            )


class Sweep:
    """One walk over a graph.

    Args:
        program: the program of the graph.
        name: the id of the graph.
        rules: by the operator at their root.
        fuel: each match is one rewrite.
        hits: what matches is counted here, over all walks.
    """

    def __init__(self, program: Program, name: str, rules: Mapping[Any, Sequence[_Rule]], fuel: Fuel, hits: Hits) -> None:
        self.program = program
        self.name = name
        self.graph = program.graphs[name]
        self.rules = rules
        self.fuel = fuel
        self.nodes: dict[str, Node] = dict(self.graph.by_name)
        """The nodes as they are now, and none that went."""
        self.edit = Rewriter(self.graph)
        self.made: dict[str, list[str]] = {}
        """What stands before a node of the graph, or in its place, in order."""
        self.known: dict[str, Arg] = {}
        """What is used in place of values whose node went."""
        self.hits = hits

    def run(self) -> Graph:
        """Return the graph after the rules; the same object if none matched."""
        for node in self.graph.nodes:
            if self.known and node.name in self.nodes:
                self._update(node.name)
            todo = [node.name]
            while todo and not self.fuel.refused:
                name = todo.pop()
                if name in self.nodes:
                    todo += reversed(self._rewritten(name, node.name))
        return self._result() if self.known else self.graph

    def _update(self, name: str) -> None:
        # A user of a value that went uses what stands for it; that use was counted when it went.
        node = self.nodes[name]
        known = {used: self._settled(self.known[used]) for used in node.refs() if used in self.known}
        if known:
            self.nodes[name] = node.using(known)

    def _rewritten(self, name: str, at: str) -> list[str]:
        # The names of the nodes that are new, where a rule matched.
        do = self.nodes[name].do
        for rule in self.rules.get(do.target if type(do) is Op else None, ()):
            for found in match(rule.term, Ref(name), self.nodes.get):
                if (made := self._applied(rule, found, at)) is not None:
                    return made
        return []

    def _applied(self, rule: _Rule, found: Found, at: str) -> list[str] | None:
        inner = {node.name: node for node in found.nodes}
        root = found.nodes[0]
        if not self._is_free(rule, root, inner) or not self._is_movable(inner, at):
            return None
        place = Match(self.program, self.name, tuple(inner.values()), found.values, self._values)
        if not all(condition(place) for condition in rule.conditions):
            return None
        builder = Builder(place, self.edit.names)
        result = builder.result(rule.build(place))
        if result == Ref(root.name) or not self._keeps_effects(rule, place, builder.nodes):
            return None
        if not self._shares_alike(root, inner, builder.nodes, result) or not self.fuel.burn("apply", rule.name, "at", root.name):
            return None
        self.hits.add(rule.name, root.name)
        self._take(root, inner, builder.nodes, result, at)
        return [node.name for node in builder.nodes if node.name in self.nodes]

    # -- whether it may be ------------------------------------------------------------------------------------------------------

    def _is_free(self, rule: _Rule, root: Node, inner: Mapping[str, Node]) -> bool:
        # Inner values are used by the match alone, or stay for the others.
        if rule.keeps_inner:
            return all(not self._acts(user) for name in inner if name != root.name for user in self._others(name, inner))
        counted = Counter(name for node in inner.values() for name in node.refs())
        return all(self._uses[name] == counted[name] for name in inner if name != root.name)

    def _others(self, name: str, inner: Mapping[str, Node]) -> Iterator[Node]:
        for user in self.graph.users.get(name, ()):
            if user in self.nodes and user not in inner:
                yield self.nodes[user]

    def _is_movable(self, inner: Mapping[str, Node], at: str) -> bool:
        # All nodes of the match can stand where the last one does: nothing between must come after one of them.
        if len(inner) == 1 or not self._is_acting:
            return True
        position = self.edit.position
        if any(name not in position for name in inner):
            return False  # what is new has no relation to others yet: the next walk sees it
        first, last = min(position[name] for name in inner), position[at]
        if self.name != self.program.root and any(_writes(node) for node in self.graph.nodes[first:last]):
            return False  # whose memory the inputs of a body are, its callers decide
        between = [(name, self.graph.nodes[number]) for name in inner for number in self._after[position[name]] if number < last]
        return all(other.name in inner or (name in other.refs() and not self._acts(other)) for name, other in between)

    def _keeps_effects(self, rule: _Rule, place: Match, made: Sequence[Node]) -> bool:
        before, after = ([self._does(node) for node in nodes] for nodes in (place.nodes, made))
        writes = any(one.writes or one.writes_slots or one.scope != (0, 0) for one in (*before, *after))
        was, becomes = sorted(filter(None, map(_said, before))), sorted(filter(None, map(_said, after)))
        if (was == becomes or rule.any_effects) and not writes:
            return True
        raise RuleError(
            f"{rule.name} at {place.place}: what it matched {' and '.join(was) or 'only computes'},\n"
            f"and what stands there instead {' and '.join(becomes) or 'only computes'}. A rule replaces operators by others\n"
            "with the same effects, and none that write. Declare what an operator of a library does (px.declare), or say\n"
            "any_effects=True where the rule is right all the same."
        )

    def _shares_alike(self, root: Node, inner: Mapping[str, Node], made: Sequence[Node], result: Arg) -> bool:
        new = {node.name: node for node in made}
        before, after = self._memory(Ref(root.name), inner), self._memory(result, new)
        return before == after or not (self._is_written or root.name in self._escaping)

    def _memory(self, arg: Arg, nodes: Mapping[str, Node]) -> frozenset[str]:
        # The values from outside of some nodes that a result of them may share memory with.
        todo, seen, found = list(refs_in((arg,), ())), set[str](), set[str]()
        while todo:
            name = todo.pop()
            if name not in nodes:
                found.add(name)
            elif name not in seen:
                seen.add(name)
                todo += self._does(nodes[name]).aliases
        return frozenset(found)

    # -- what is known of the graph ---------------------------------------------------------------------------------------------

    @cached_property
    def _values(self) -> Mapping[str, Any]:
        return MappingProxyType(values_of(self.graph))

    @cached_property
    def _uses(self) -> Counter[str]:
        return Counter([*(name for node in self.graph.nodes for name in node.refs()), *self.graph.output_refs()])

    @cached_property
    def _does(self) -> Callable[[Node], NodeEffects]:
        return resolver(self.program, self.graph)

    def _acts(self, node: Node) -> bool:
        if type(node.do) is Op:
            return node.do.effects.acts
        return type(node.do) is Call and evolve(self._does(node), **WITHOUT_SHARING) != NOTHING

    @cached_property
    def _is_acting(self) -> bool:
        return any(map(self._acts, self.graph.nodes))

    @cached_property
    def _is_written(self) -> bool:
        does = [self._does(node) for node in self.graph.nodes if self._acts(node)]
        return any(one.writes or one.writes_slots for one in does)

    @cached_property
    def _after(self) -> Mapping[int, set[int]]:
        # Which nodes must come after each, wherever the graph stands.
        found: dict[int, set[int]] = {number: set() for number in range(len(self.graph.nodes))}
        for path in all_instances(self.program).get(self.name, ("",)):
            for after, earlier in enumerate(dependencies(self.program, self.graph, path=path)):
                for before in earlier:
                    found[before].add(after)
        return found

    @cached_property
    def _escaping(self) -> frozenset[str]:
        # The values whose memory others can see: what is returned, and what shares memory with it.
        todo, found = list(self.graph.output_refs()), set[str]()
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += self._does(self.graph.by_name[name]).aliases if name in self.graph.by_name else ()
        return frozenset(found)

    # -- the edit ---------------------------------------------------------------------------------------------------------------

    def _take(self, root: Node, inner: Mapping[str, Node], made: Sequence[Node], result: Arg, at: str) -> None:
        there = self.made.setdefault(at, [at])
        spot = there.index(root.name)
        there[spot:spot] = [node.name for node in made]
        for node in made:
            self.nodes[node.name] = node
            self._count(node, 1)
        self.known[root.name] = result
        for name in refs_in((result,), ()):
            self._uses[name] += self._uses[root.name]
        self._uses[root.name] = 0
        # Of the nodes of the match goes what nothing uses any more, the last first.
        while unused := [name for name in inner if name in self.nodes and not self._uses[name]]:
            for name in unused:
                self._count(self.nodes.pop(name), -1)

    def _count(self, node: Node, by: int) -> None:
        for name in node.refs():
            self._uses[name] += by

    def _result(self) -> Graph:
        edit = self.edit
        known = {name: self._settled(arg) for name, arg in self.known.items()}
        for at, names in self.made.items():
            made = [self.nodes[name] for name in names if name != at and name in self.nodes]
            edit.before(edit.position[at], *[node.using(known) for node in made])
        edit.erase(*[node.name for node in self.graph.nodes if node.name not in self.nodes])
        for name, arg in known.items():
            edit.replace(name, arg)
        return edit.graph()

    def _settled(self, arg: Arg) -> Arg:
        # What a value is in the end, where what stands for it went too.
        while type(arg) is Ref and arg.name in self.known:
            arg = self.known[arg.name]
        return arg


def _said(does: NodeEffects) -> str:
    # The effects of a node beside its result, in words; empty if it has none.
    ordered = [f"is in order in {' '.join(key) or 'everything'}" for key in does.domains]
    told = {"writes": does.writes or does.writes_slots, "draws random numbers": does.random, "is in order": does.ordered}
    told.update(dict.fromkeys(ordered, True), completes=does.completes)
    return ", ".join([words for words, holds in told.items() if holds])


def _writes(node: Node) -> bool:
    effects = node.do.effects if type(node.do) is Op else None
    return effects is not None and bool(effects.writes or effects.unknown or effects.scope or effects.through_bodies)
