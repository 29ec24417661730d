"""``Legality``: whether a replacement may replace a match, and where to insert it.

A match is skipped if a node between its nodes conflicts with them (``ir/effects/dependencies.py``), if other nodes use its inner
values and these cannot stay, or if the replacement would alias other memory.  Other effects are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from attrs import frozen

from ...ir.analysis.numbers import computed_of
from ...ir.arguments import Ref
from ...ir.effects.declared import LIBRARIES, NodeEffects
from ...ir.effects.dependencies import dependencies
from ...ir.effects.resolved import item_of, resolver
from ...ir.errors import RuleError
from ...ir.forks import cached_property
from ...ir.graph import Graph, Node, Op, place_of
from ...ir.program import Program
from ..dispatch import is_check
from ..memory import (
    Aliases,
    Memory,
    aliased,
    computes,
    has_other_strides,
    is_layout_observed,
)
from .draft import Draft
from .explanation import BETWEEN, MEMORY, SAME, STRIDES, TWO_NODES, Skip
from .match import Match, Notes
from .matching import Found, operands_of
from .pattern import is_commutative


@frozen
class Spot:
    """Where to insert a replacement."""

    before: str
    """The node to insert it before."""
    moved: tuple[str, ...] = ()
    """Assertions and inner values that use its results and stand before its operands; they move behind it."""


DETACH = "aten.detach_.default"
"""Writes the autograd state of a tensor, but not its contents."""

WRITING = "neither may write, also with any_effects=True: compute a new value, or edit the graph in an fx pass (px.from_fx_pass)"
OTHER_EFFECTS = (
    "both must have the same effects: declare them with px.declare, or pass any_effects=True"
)


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
        if self._may_reach_callers([*acting.values()]):
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
        return all(other.name in inner or self._only_uses(other, name) for name, other in between)

    def _only_uses(self, user: Node, name: str) -> bool:
        # Whether a node must come after a value only because it uses the value.
        return name in user.refs() and (is_check(user) or not self.acts(user))

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
        pairs = (was, gone), (becomes, new)
        mine, theirs = (_with_callees(words, nodes) for words, nodes in pairs)
        raise RuleError(
            f"{rule} at {place_of(place.root)}: the match {mine}, but the replacement {theirs}; "
            f"{WRITING if writes else OTHER_EFFECTS}"
        )

    def check_progress(
        self,
        found: Found,
        inner: Mapping[str, Node],
        made: Sequence[Node],
        results: Sequence[Ref],
    ) -> None:
        """Check that a replacement of several results changes one of them that is used; otherwise rules would not terminate.

        Raises:
            Skip: it computes the used results as before, and other results are unused.
        """
        gone = {*inner} - self._staying(inner, found.root_names).keys()
        pairs = zip(found.roots, results, strict=True)
        used = [pair for pair in pairs if self.draft.is_used_beyond(pair[0].name, gone)]
        if not used or len(used) == len(found.roots):
            return
        codes: dict[str, Ref] = {}
        span = self.draft.span(inner, found.nodes[0].name)
        before = _numbered([node for node in span if node.name in inner], codes)
        after = _numbered(made, codes)
        if all(before[root.name] == after.get(result.name) for root, result in used):
            raise Skip(SAME)

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
        values = {node.name: node.val for node in made}
        for root, result in zip(roots, results, strict=True):
            now = values[result.name] if result.name in values else self.draft.value(result.name)
            self.check_strides(root, root.val, now)
        if not self.is_acting and not any(self.escapes(root.name) for root in roots):
            return
        were = [self._aliased(root.name, inner) for root in roots]
        are = [self._aliased(result.name, (*made, *inner)) for result in results]
        for root, before, after in zip(roots, were, are, strict=True):
            is_other = before.outside != after.outside
            if before.outside and not _is_certain(before, after):
                is_other = True
            if is_other and self._is_observed(root.name):
                raise Skip(MEMORY)
        pairs = [*combinations(were, 2), *combinations(are, 2)]
        are_apart = all(one.values.isdisjoint(other.values) for one, other in pairs)
        if not are_apart and any(self._is_observed(root.name) for root in roots):
            raise Skip(MEMORY)
        self._check_kept(roots, inner, were, are)

    def _check_kept(
        self,
        roots: Sequence[Node],
        inner: Sequence[Node],
        were: Sequence[Aliases],
        are: Sequence[Aliases],
    ) -> None:
        # Inner values that stay share memory with the results as before.  What they compute from a result, they compute from
        # the new one, so the memory of results is left out.
        by_name = {node.name: node for node in inner}
        root_names = {root.name for root in roots}
        computed = [node for node in inner if node.name not in root_names]
        kept = self._kept(by_name, root_names)
        for observer in [each for name in kept for each in self._observers(name, by_name)]:
            owned = self._aliased(observer.name, (*computed, observer)).owned
            for root, before, after in zip(roots, were, are, strict=True):
                shared = before.shares(owned)
                is_other = shared != after.shares(owned)
                if shared and not _is_certain(before, after):
                    is_other = True
                if is_other and self._is_pair_observed(root.name, observer.name, by_name):
                    raise Skip(MEMORY)

    def _observers(self, name: str, inner: Mapping[str, Node]) -> list[Node]:
        # A value that stays, or its results if the other users select them.
        users = self._others(name, inner)
        if users and not self.draft.is_returned(name) and all(map(item_of, users)):
            return users
        return [inner[name]]

    def _aliased(self, name: str, among: Sequence[Node]) -> Aliases:
        return aliased(name, among, self.effects_of, self._is_other_type)

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
        return self.escapes(name) or (self.is_acting and bool(self._sets.written))

    def _is_pair_observed(self, one: str, other: str, without: Collection[str]) -> bool:
        # Whether a write to one of two values may reach the other: in this graph, or by the caller, who has both.
        # The other one may escape through nodes that stay.
        if self.is_acting and any(map(self._sets.is_written, (one, other))):
            return True
        return self.escapes(one) and self.escapes(other, without)

    def note_replacement(self, made: Sequence[Node], results: Mapping[str, str]) -> None:
        """Note the memory of new nodes: what wrote a replaced value writes the value that it becomes.

        Args:
            made: the new nodes.
            results: the value that each replaced value becomes.
        """
        if self.is_acting:
            changed = self._changed
            self._sets.replace([(node.name, self.effects_of(node)) for node in made], results)
            self._changed = frozenset([self._sets.find(key) for key in changed])

    def _is_other_type(self, node: Node) -> bool:
        # Whether it casts to another dtype, which allocates memory.
        is_cast = type(node.do) is Op and node.do.name.startswith("aten.to.")
        before, after = self.draft.value(node.refs()[0]) if is_cast else None, node.val
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

    def escapes(self, name: str, without: Collection[str] = ()) -> bool:
        """Return whether the graph returns a value, or a value that may alias it.

        Args:
            name: the value.
            without: users to leave out.
        """
        todo, seen = [name], {name, *without}
        while todo:
            here = todo.pop()
            if self.draft.is_returned(here):
                return True
            for user in self._others(here):
                if user.name not in seen and here in self.effects_of(user).aliases:
                    seen.add(user.name)
                    todo.append(user.name)
        return False

    # -- the place of a replacement ---------------------------------------------------------------------------------------------

    def note_place(self, notes: Notes, found: Found, *, keeps_inner: bool) -> None:
        """Note the nodes to remove with a match if nothing else uses them, and where to insert the replacement.

        Args:
            notes: the notes of the match.
            found: its nodes.
            keeps_inner: whether to keep inner values for their other users.

        Raises:
            Skip: there is no place for it.
        """
        inner = self._inner(found)
        kept = self._kept(inner, found.root_names)
        may_stay = self._may_stay(inner, kept)
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
        spot = self._spot(found, inner)
        if spot is None:
            raise Skip(BETWEEN)
        notes.inner, notes.before, notes.moved = inner, spot.before, spot.moved

    def _spot(self, found: Found, inner: Mapping[str, Node]) -> Spot | None:
        # The node to insert the replacement before: the last of the match; with several results, maybe an earlier one.
        root = found.nodes[0].name
        if not found.several:
            return Spot(root) if self._is_movable(inner, root) else None
        span, operands = self.draft.span(inner, root), operands_of(found)
        position = {node.name: number for number, node in enumerate(span)}
        # Behind all operands, and before the users of the results.  Assertions, and inner values that stay, move behind it.
        after = [position[name] + 1 for name in operands if name in position]
        users = self._users_of_results(found, inner, span)
        first = min([position[name] for name in users], default=len(span) - 1)
        place = max([first, *after])
        moved = [name for name in users if position[name] < place]
        if any(name not in inner and not is_check(self.draft.nodes[name]) for name in moved):
            return None
        if not operands.isdisjoint(moved) or not self._is_free(span, inner, place, moved):
            return None
        return Spot(span[place].name, tuple(moved))

    def _users_of_results(
        self, found: Found, inner: Mapping[str, Node], span: Sequence[Node]
    ) -> list[str]:
        # The nodes that stay and are computed from a result, in order; inner values that others use are among them.
        staying = self._staying(inner, found.root_names)
        computed, users = set(found.root_names), list[str]()
        for node in span:
            is_staying = node.name not in inner or node.name in staying
            if is_staying and not computed.isdisjoint(node.refs()):
                computed.add(node.name)
                users.append(node.name)
        return users

    def _is_free(
        self, span: Sequence[Node], inner: Collection[str], place: int, moved: Collection[str]
    ) -> bool:
        # Whether the nodes of a match, and some behind them, can move to one place.  Assertions of types do not bar it.
        acting = [node for node in span if self.acts(node) and not is_check(node)]
        between = [node for node in acting if node.name not in inner]
        if not between:
            return True  # only data must be in order
        if len(between) < len(acting) or any(node.name in moved for node in between):
            return False
        if any(node.name not in self.graph.position for node in span):
            return False  # the dependencies of new nodes are unknown until the next walk
        effects = [self.effects_of(node) for node in between]
        if self._may_reach_callers(effects):
            return False
        touched = {key for each in effects for key in self._sets.touched(each)}
        if not touched.isdisjoint([self._sets.find(name) for name in (*inner, *moved)]):
            return False
        rank = {node.name: 0 if at < place else 3 for at, node in enumerate(span)}
        rank |= dict.fromkeys(inner, 1) | dict.fromkeys(moved, 2)
        return all(rank[node.name] <= rank[after.name] for node, after in self._conflicts(span))

    def _conflicts(self, span: Sequence[Node]) -> Iterator[tuple[Node, Node]]:
        # The pairs of nodes that must stay in order, but for assertions and the users of a value.
        numbers = {self.graph.position[node.name]: node for node in span}
        for number, node in numbers.items():
            for later in self._after[number] & numbers.keys():
                user = numbers[later]
                if not (is_check(node) or is_check(user) or self._only_uses(user, node.name)):
                    yield node, user

    def _may_reach_callers(self, effects: Sequence[NodeEffects]) -> bool:
        # The inputs of a body may alias anything.
        return self.name != self.program.root and any(
            each.scope != (0, 0) or self._sets.reaches_outside(each) for each in effects
        )

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

    def _kept(self, inner: Mapping[str, Node], roots: Collection[str]) -> list[str]:
        # The inner values that others use; they stay with what they are computed from.
        return [
            name for name in inner if name not in roots and self.draft.is_used_beyond(name, inner)
        ]

    def _staying(self, inner: Mapping[str, Node], roots: Collection[str]) -> dict[str, Node]:
        # The inner values that others use, and those that they are computed from up to the results.
        own = {name: node for name, node in inner.items() if name not in roots}
        computed = computed_of(self._kept(inner, roots), own)
        return {name: node for name, node in own.items() if name in computed}

    def _may_stay(self, inner: Mapping[str, Node], kept: Sequence[str]) -> bool:
        # Whether inner values can stay for their other users: these do not act.
        users = [user for name in kept for user in self._others(name, inner)]
        return not any(self.acts(user) and not is_check(user) for user in users)

    def _others(self, name: str, inner: Collection[str] = ()) -> list[Node]:
        return [self.draft.nodes[user] for user in self.draft.users(name) if user not in inner]


def _is_certain(before: Aliases, after: Aliases) -> bool:
    # Operators that may or may not alias do so in the same runs only if they are the same operators.
    if before.is_certain and after.is_certain:
        return True
    return list(map(_code, before.views)) == list(map(_code, after.views))


def _numbered(nodes: Iterable[Node], codes: dict[str, Ref]) -> dict[str, Ref]:
    # A number for the value of each node; equal ones are computed by the same operators of the same operands.
    known: dict[str, Ref] = {}
    for node in nodes:
        code = _code(node.using(known))
        if type(code.do) is Op and not code.kwargs and is_commutative(code.do):
            code = code.evolve(args=(*sorted(code.args[:2], key=repr), *code.args[2:]))
        known[node.name] = codes.setdefault(str(code), Ref(f"%{len(codes)}"))
    return known


def _code(node: Node) -> Node:
    # A node without its name and place, to compare it.
    return node.evolve(name="_", stack=())


def _with_callees(words: Sequence[str], nodes: Iterable[Node]) -> str:
    # The side effects of nodes, with the names of undeclared operators.
    names = [
        node.do.name
        for node in nodes
        if type(node.do) is Op and node.do.effects.domain == LIBRARIES
    ]
    unknown = f"calls {' and '.join(dict.fromkeys(names))}, whose side effects are unknown"
    told = [part.replace(f"is ordered in {LIBRARIES}", unknown) for part in words]
    return " and ".join(dict.fromkeys(told)) or "is pure"


def _in_words(effects: NodeEffects) -> str:
    # The side effects of a node; empty if it has none.
    found = {
        "writes": effects.writes or effects.writes_slots,
        "draws random numbers": effects.random,
    }
    found |= {"is ordered": effects.ordered, "completes": effects.completes}
    found |= {f"is ordered in {' '.join(key)}": True for key in effects.domains}
    return ", ".join([words for words, holds in found.items() if holds])
