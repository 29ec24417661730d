"""``Legality``: whether a replacement may replace a match, and where to insert it.

A match is skipped if a node between its nodes conflicts with them (``ir/effects/dependencies.py``), if other nodes use its inner
values and these cannot stay, or if the replacement would alias other memory.  Other effects are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch

from ...ir.analysis.numbers import computed_of
from ...ir.arguments import Ref
from ...ir.effects.declared import NodeEffects
from ...ir.effects.dependencies import dependencies
from ...ir.effects.resolved import resolver
from ...ir.errors import RuleError
from ...ir.forks import cached_property
from ...ir.graph import Graph, Node, Op, place_of
from ...ir.program import Program
from ..dispatch import is_check
from ..memory import (
    Memory,
    aliased,
    computes,
    has_other_strides,
    is_layout_observed,
    is_view,
    output_aliases,
)
from .draft import Draft
from .explanation import BETWEEN, MEMORY, STRIDES, TWO_NODES, Skip
from .match import Match
from .matching import Found, operands_of

DETACH = "aten.detach_.default"
"""Writes the autograd state of a tensor, but not its contents."""


class Legality:
    """The legality checks of one graph.

    Args:
        scope: the graph while it is rewritten (``application.Sweep``).
    """

    def __init__(self, scope: Any) -> None:
        self.scope, self.name = scope, scope.name
        self.program: Program = scope.program
        self.graph: Graph = scope.graph
        self.draft: Draft = scope.draft

    def _is_movable(self, inner: Collection[str], root: str) -> bool:
        # Whether all nodes of a match can move to the last one: no node between must come after one of them.
        if len(inner) == 1 or not self.is_acting:
            return True
        position = self.graph.position
        if any(name not in position for name in inner):
            return False  # the dependencies of new nodes are unknown until the next walk
        first, last = min(position[name] for name in inner), position[root]
        acting = {
            node.name: self.effects_of(node)
            for node in self.graph.nodes[first : last + 1]
            if self.acts(node)
        }
        if not acting:
            return True
        # The inputs of a body may alias anything.
        if self.name != self.program.root and any(
            effects.scope != (0, 0) or self._sets.reaches_outside(effects)
            for effects in acting.values()
        ):
            return False
        # A node between may write to a view of an inner value that stays.
        written = {
            key
            for name, effects in acting.items()
            if name not in inner
            for key in self._sets.touched(effects)
        }
        if not written.isdisjoint(map(self._sets.find, inner)):
            return False
        moved = [
            name for name in inner if not is_check(self.graph.nodes[position[name]])
        ]  # checks are removed with the match
        between = [
            (name, self.graph.nodes[number])
            for name in moved
            for number in self._after[position[name]]
            if number < last
        ]
        return all(
            other.name in inner or (name in other.refs() and not self.acts(other))
            for name, other in between
        )

    def is_changed(self, name: str) -> bool:
        """Return whether a node writes to the memory of a value."""
        return self.is_acting and self._sets.find(name) in self._changed

    def is_one(self, found: Found) -> bool:
        """Return whether each value of the pattern that has side effects matches exactly one node."""
        if not self.is_acting:
            return True
        pairs = {
            (id(part), node.name)
            for part, node in zip(found.parts, found.nodes, strict=True)
            if self.acts(node)
        }
        return len({part for part, _ in pairs}) == len(pairs) == len({name for _, name in pairs})

    def check_effects(
        self, rule: str, place: Match, made: Sequence[Node], *, any_effects: bool
    ) -> None:
        """Check that a replacement has the effects of the match.

        Raises:
            RuleError: the effects differ and the rule does not allow it, or either writes.
        """
        gone, new = (
            [_code(node) for node in nodes if self.acts(node)]
            for nodes in (place.found.distinct, made)
        )
        for node in [*gone]:
            if node in new:  # the replacement keeps it (m.value)
                gone.remove(node)
                new.remove(node)
        before, after = (list(map(self.effects_of, nodes)) for nodes in (gone, new))
        writes = any(
            one.writes or one.writes_slots or one.scope != (0, 0) for one in (*before, *after)
        )
        was, becomes = (sorted(filter(None, map(_in_words, each))) for each in (before, after))
        if (was == becomes or any_effects) and not writes:
            return
        mine, theirs = (" and ".join(each) or "is pure" for each in (was, becomes))
        raise RuleError(
            f"{rule} at {place_of(place.root)}: the match {mine}, but the replacement\n{theirs};\n"
            "both must have the same effects, and neither may write: declare them with px.declare, or pass any_effects=True"
        )

    def check_memory(
        self,
        roots: Sequence[Node],
        inner: Sequence[Node],
        made: Sequence[Node],
        results: Sequence[Ref],
    ) -> None:
        """Check that the results have the strides of the roots of the match, and alias the same memory, where this is observable.

        Raises:
            Skip: they have other strides, or alias other memory.
        """
        values = {node.name: node.meta.get("val") for node in made}
        for root, result in zip(roots, results, strict=True):
            now = values[result.name] if result.name in values else self.draft.value(result.name)
            self.check_strides(root, root.meta.get("val"), now)
        if not self.is_acting and self._escaping.isdisjoint([root.name for root in roots]):
            return
        were = [aliased(root.name, inner, self.effects_of, self._is_other_type) for root in roots]
        are = [
            aliased(result.name, made, self.effects_of, self._is_other_type) for result in results
        ]
        for root, (before, old, _), (after, new, _) in zip(roots, were, are, strict=True):
            # Operators that may or may not alias do so in the same runs only if they are the same operators.
            is_certain = all(map(is_view, (*old, *new))) or list(map(_code, old)) == list(
                map(_code, new)
            )
            if (before != after or (before and not is_certain)) and self._is_observed(root.name):
                raise Skip(MEMORY)
        pairs = [*combinations(were, 2), *combinations(are, 2)]
        are_apart = all(one.isdisjoint(other) for (_, _, one), (_, _, other) in pairs)
        if not are_apart and any(self._is_observed(root.name) for root in roots):
            raise Skip(MEMORY)

    def check_strides(self, root: Node, was: Any, now: Any) -> None:
        """Check that a value has the strides of the root that it replaces, where this is observable.

        Raises:
            Skip: it has others.
        """
        # With other strides, an operator may refuse the value, and a reshape may copy where it aliased.
        if has_other_strides(now, was) and is_layout_observed(root, self._others, self.is_changed):
            raise Skip(STRIDES)

    def _is_observed(self, name: str) -> bool:
        # Whether a value escapes, or something in the graph is written.
        return name in self._escaping or (self.is_acting and bool(self._sets.written))

    def _is_other_type(self, node: Node) -> bool:
        # Whether it casts to another dtype, which allocates memory.
        is_cast = type(node.do) is Op and node.do.name.startswith("aten.to.")
        before, after = self.draft.value(node.refs()[0]) if is_cast else None, node.meta.get("val")
        return (
            isinstance(before, torch.Tensor)
            and isinstance(after, torch.Tensor)
            and before.dtype is not after.dtype
        )

    @cached_property
    def effects_of(self) -> Callable[[Node], NodeEffects]:
        """Returns the effects of a node of this graph, or of a new one."""
        return resolver(self.program, self.graph)

    def acts(self, node: Node) -> bool:
        """Return whether a node has side effects."""
        return node.do.effects.acts if type(node.do) is Op else not computes(self.effects_of(node))

    @cached_property
    def is_acting(self) -> bool:
        """Whether any node has side effects."""
        return any(type(do) is Op and do.effects.acts for do in self.graph.distinct) or any(
            map(self.acts, self.graph.callers)
        )

    @cached_property
    def _sets(self) -> Memory:
        return Memory(self.program, self.name, [self.effects_of(node) for node in self.graph.nodes])

    @cached_property
    def _changed(self) -> frozenset[object]:
        nodes = [
            node
            for node in self.graph.nodes
            if self.acts(node) and not (type(node.do) is Op and node.do.name == DETACH)
        ]
        return frozenset(
            [key for node in nodes for key in self._sets.touched(self.effects_of(node))]
        )

    @cached_property
    def _after(self) -> Mapping[int, set[int]]:
        # The nodes that must come after each node, at every call of the graph.
        found: dict[int, set[int]] = {number: set() for number in range(len(self.graph.nodes))}
        for path in self.scope.paths:
            for after, earlier in enumerate(dependencies(self.program, self.graph, path=path)):
                for before in earlier:
                    found[before].add(after)
        return found

    @cached_property
    def _escaping(self) -> set[str]:
        # The returned values, and all values that share memory with them.
        nodes = self.graph.by_name
        return output_aliases(
            self.graph, lambda name: self.effects_of(nodes[name]).aliases if name in nodes else ()
        )

    # -- the place of a replacement ---------------------------------------------------------------------------------------------

    def place_of(self, found: Found, *, keeps_inner: bool) -> tuple[dict[str, Node], str]:
        """Return the nodes to remove with a match if nothing else uses them, and the node to insert the replacement before.

        Args:
            found: the match.
            keeps_inner: whether to keep inner values for their other users.

        Raises:
            Skip: there is no place for it.
        """
        inner = self._inner(found)
        kept = [
            name
            for name in inner
            if name not in found.root_names and self.draft.is_used_beyond(name, inner)
        ]
        may_stay = self._may_stay(found, inner, kept)
        if kept and not (keeps_inner and may_stay):
            users = {
                name: ", ".join([user.name for user in self._others(name, inner)]) or "the caller"
                for name in kept
            }
            uses = "; ".join([f"{name} by {several}" for name, several in users.items()])
            advice = "; keeps_inner=True keeps these values for them" if may_stay else ""
            raise Skip(f"other nodes use its inner values: {uses}{advice}")
        if not self.is_one(found):
            raise Skip(TWO_NODES)
        before = self._spot(found, inner)
        if before is None:
            raise Skip(BETWEEN)
        return inner, before

    def _spot(self, found: Found, inner: Mapping[str, Node]) -> str | None:
        # The node to insert the replacement before: the last of the match; with several results, maybe an earlier one.
        if not found.several:
            return found.nodes[0].name if self._is_movable(inner, found.nodes[0].name) else None
        span = self.draft.span(inner, found.nodes[0].name)
        if any(self.acts(node) for node in span if node.name not in inner):
            return None
        # Before the first other user of a result, and after all operands.
        roots, used = found.root_names, operands_of(found)
        users = [
            number
            for number, node in enumerate(span)
            if node.name not in inner and not roots.isdisjoint(node.refs())
        ]
        place = users[0] if users else len(span) - 1
        return None if any(node.name in used for node in span[place:]) else span[place].name

    def _inner(self, found: Found) -> dict[str, Node]:
        # The nodes of a match, with assertions on the types of inner values and unused results of them, unless an inner value
        # has other users.
        matched, roots = {node.name: node for node in found.nodes}, found.root_names
        others = [
            user for name in matched if name not in roots for user in self._others(name, matched)
        ]
        # Those that only assert a type, or select one of several results and are unused.
        checks = {user.name: user for user in others if is_check(user) or
                  (user.projection is not None and not self.draft.is_used_beyond(user.name, ()))}  # fmt: skip
        removable = matched | checks
        unused = {name: check for name, check in checks.items()
                  if not any(self.draft.is_used_beyond(name, removable) for name in check.refs())}  # fmt: skip
        return matched | unused

    def _may_stay(self, found: Found, inner: Mapping[str, Node], kept: Sequence[str]) -> bool:
        # Whether inner values can stay for their other users: these do not act, and the values are not computed from results.
        users = [user for name in kept for user in self._others(name, inner)]
        if any(self.acts(user) and not is_check(user) for user in users):
            return False
        return not found.several or found.root_names.isdisjoint(computed_of(kept, inner))

    def _others(self, name: str, inner: Collection[str] = ()) -> list[Node]:
        return [self.draft.nodes[user] for user in self.draft.users(name) if user not in inner]


def _code(node: Node) -> Node:
    # A node without its name and place, to compare it.
    return node.evolve(name="_", stack=())


def _in_words(effects: NodeEffects) -> str:
    # The side effects of a node; empty if it has none.
    found = {
        "writes": effects.writes or effects.writes_slots,
        "draws random numbers": effects.random,
    }
    found |= {"is ordered": effects.ordered, "completes": effects.completes}
    found |= {f"is ordered in {' '.join(key)}": True for key in effects.domains}
    return ", ".join([words for words, holds in found.items() if holds])
