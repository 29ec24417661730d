"""``Legality``: whether a replacement may replace a match, and where to insert it.

A match is skipped if a node between its nodes conflicts with them (``ir/effects/dependencies.py``), if other nodes use its inner
values and these cannot stay, or if the replacement would alias other memory.  Other effects are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import combinations

import torch

from ...ir.analysis.numbers import computed_of
from ...ir.arguments import Arg, Ref, refs_in, same_arg
from ...ir.effects.declared import NodeEffects
from ...ir.effects.dependencies import dependencies
from ...ir.effects.resolved import resolver
from ...ir.errors import RuleError
from ...ir.graph import Node, Op, place_of
from ...ir.program import Program
from ..memory import Memory, computes, is_view, output_aliases
from ..regions import is_check
from .draft import Draft
from .explanation import BETWEEN, TWO_NODES
from .match import Match
from .matching import Found, operands_of

DETACH = "aten.detach_.default"
"""Writes the autograd state of a tensor, but not its contents."""


class Legality:
    """The legality checks of one graph.

    Args:
        program: the program of the graph.
        name: the id of the graph.
        draft: the current graph.
        paths: returns its instances.
    """

    def __init__(self, program: Program, name: str, draft: Draft, paths: Callable[[], tuple[str, ...]]) -> None:
        self.program, self.name, self.draft, self.paths = program, name, draft, paths
        self.graph = program.graphs[name]

    def _is_movable(self, inner: Collection[str], root: str) -> bool:
        # Whether all nodes of a match can move to the last one: no node between must come after one of them.
        position = self.draft.position
        if len(inner) == 1 or not self.is_acting:
            return True
        if any(name not in position for name in inner):
            return False  # the dependencies of new nodes are unknown until the next walk
        first, last = min(position[name] for name in inner), position[root]
        acting = [node for node in self.graph.nodes[first : last + 1] if self.acts(node)]
        if not acting:
            return True
        written = {key for node in acting if node.name not in inner for key in self._sets.touched(self.effects_of(node))}
        # A node between may write to a view of an inner value that stays.
        if self._is_written_outside(first, last) or not written.isdisjoint(map(self._sets.find, inner)):
            return False
        moved = [name for name in inner if not is_check(self.graph.nodes[position[name]])]  # checks are removed with the match
        between = [(name, self.graph.nodes[number]) for name in moved for number in self._after[position[name]] if number < last]
        return all(other.name in inner or (name in other.refs() and not self.acts(other)) for name, other in between)

    def _is_written_outside(self, first: int, last: int) -> bool:
        # Whether a node of a body writes memory from outside of the body: its inputs may alias anything.
        if self.name == self.program.root:
            return False
        nodes = [node for node in self.graph.nodes[first:last] if type(node.do) is Op and node.do.effects.acts]
        return any(one.scope != (0, 0) or self._sets.reaches_outside(one) for one in map(self.effects_of, nodes))

    def is_changed(self, name: str) -> bool:
        """Return whether a node writes to the memory of a value."""
        return self.is_acting and self._sets.find(name) in self._changed

    def is_one(self, found: Found) -> bool:
        """Return whether each value of the pattern that has side effects matches exactly one node."""
        if not self.is_acting:
            return True
        pairs = {(id(part), node.name) for part, node in zip(found.parts, found.nodes, strict=True) if self.acts(node)}
        return len({part for part, _ in pairs}) == len(pairs) == len({name for _, name in pairs})

    def check_effects(self, rule: str, place: Match, made: Sequence[Node], *, any_effects: bool) -> None:
        """Check that a replacement has the effects of the match.

        Raises:
            RuleError: the effects differ and the rule does not allow it, or either writes.
        """
        gone, made = _without_kept(*([node for node in nodes if self.acts(node)] for nodes in (place.found.distinct, made)))
        before, after = (list(map(self.effects_of, nodes)) for nodes in (gone, made))
        writes = any(one.writes or one.writes_slots or one.scope != (0, 0) for one in (*before, *after))
        was, becomes = (sorted(filter(None, map(_in_words, each))) for each in (before, after))
        if (was == becomes or any_effects) and not writes:
            return
        old, new = (" and ".join(each) or "is pure" for each in (was, becomes))
        raise RuleError(
            f"{rule} at {place_of(place.root)}: the match {old}, but the replacement\n{new};\n"
            "both must have the same effects, and neither may write: declare them with px.declare, or pass any_effects=True"
        )

    def shares_alike(self, roots: Sequence[Node], inner: Sequence[Node], made: Sequence[Node], results: Sequence[Ref]) -> bool:
        """Return whether the results alias the same observable memory as the roots of the match."""
        is_written = self.is_acting and bool(self._sets.written)
        seen = [is_written or root.name in self._escaping for root in roots]
        if not any(seen):
            return True
        for is_seen, root, result in zip(seen, roots, results, strict=True):
            before, old, _ = self._memory(Ref(root.name), inner)
            after, new, _ = self._memory(result, made)
            # Operators that may or may not alias do so in the same runs only if they are the same operators.
            is_certain = all(map(is_view, (*old, *new))) or [_code(node) for node in old] == [_code(node) for node in new]
            if is_seen and (before != after or (before and not is_certain)):
                return False
        if len(roots) == 1:
            return True
        were, are = [self._memory(Ref(one.name), inner)[2] for one in roots], [self._memory(one, made)[2] for one in results]
        return all(one.isdisjoint(other) for several in (were, are) for one, other in combinations(several, 2))

    def _memory(self, arg: Arg, among: Sequence[Node]) -> tuple[frozenset[object], list[Node], frozenset[object]]:
        # The outside values and the state that a result may alias; the nodes on the way; and all values that it may alias.
        # Several results of one operator do not alias each other.
        nodes = {node.name: node for node in among}
        todo, seen, found = list(refs_in((arg,), ())), dict[str, None](), set[object]()
        while todo:
            name = todo.pop()
            if name not in nodes:
                found.add(name)
            elif name not in seen:
                seen[name] = None
                effects = self.effects_of(nodes[name])
                todo += () if self._is_other_type(nodes[name]) else effects.aliases
                found.update([("state", slot) for slot in effects.aliases_slots])
        through = [nodes[name] for name in seen]
        views = [node for node in through if self.effects_of(node).aliases and not self._is_other_type(node)]
        wholes = {node.projection[0] for node in views if node.projection is not None}
        return frozenset(found), views, frozenset({*found, *seen} - wholes)

    def _is_other_type(self, node: Node) -> bool:
        # Whether it casts to another dtype, which allocates memory.
        is_cast = type(node.do) is Op and node.do.name.startswith("aten.to.")
        before, after = self.draft.value(node.refs()[0]) if is_cast else None, node.meta.get("val")
        return isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor) and before.dtype is not after.dtype

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
        if any(type(do) is Op and do.effects.acts for do in self.graph.distinct):
            return True
        return any(map(self.acts, self.graph.callers))

    @cached_property
    def _sets(self) -> Memory:
        return Memory(self.program, self.name, [self.effects_of(node) for node in self.graph.nodes])

    @cached_property
    def _changed(self) -> frozenset[object]:
        nodes = [node for node in self.graph.nodes if self.acts(node) and not (type(node.do) is Op and node.do.name == DETACH)]
        return frozenset([key for node in nodes for key in self._sets.touched(self.effects_of(node))])

    @cached_property
    def _after(self) -> Mapping[int, set[int]]:
        # The nodes that must come after each node, at every call of the graph.
        found: dict[int, set[int]] = {number: set() for number in range(len(self.graph.nodes))}
        for path in self.paths():
            for after, earlier in enumerate(dependencies(self.program, self.graph, path=path)):
                for before in earlier:
                    found[before].add(after)
        return found

    @cached_property
    def _escaping(self) -> set[str]:
        # The returned values, and all values that share memory with them.
        nodes = self.graph.by_name
        return output_aliases(self.graph, lambda name: self.effects_of(nodes[name]).aliases if name in nodes else ())

    # -- the place of a replacement ---------------------------------------------------------------------------------------------

    def place_of(self, found: Found, *, keeps_inner: bool) -> tuple[dict[str, Node], str] | str:
        """Return the nodes to remove with a match if nothing else uses them, and the node to insert the replacement before.

        Args:
            found: the match.
            keeps_inner: whether to keep inner values for their other users.

        Returns:
            Both, or the reason to skip the match.
        """
        inner = self._inner(found)
        if not self._is_free(found, inner, keeps_inner=keeps_inner):
            return self._used(found, inner, keeps_inner=keeps_inner)
        if not self.is_one(found):
            return TWO_NODES
        before = self._spot(found, inner)
        return BETWEEN if before is None else (inner, before)

    def _used(self, found: Found, inner: Mapping[str, Node], *, keeps_inner: bool) -> str:
        # Name the other users of inner values, and the option if it helps.
        used = [name for name in inner if name not in found.root_names and self.draft.is_used_beyond(name, inner)]
        users = {name: ", ".join([user.name for user in self._others(name, inner)]) or "the caller" for name in used}
        uses = [f"{name} by {several}" for name, several in users.items()]
        advice = "; keeps_inner=True keeps these values for them" if self._is_free(found, inner, keeps_inner=True) else ""
        return f"other nodes use its inner values: {'; '.join(uses)}{'' if keeps_inner else advice}"

    def _spot(self, found: Found, inner: Mapping[str, Node]) -> str | None:
        # The node to insert the replacement before: the last of the match; with several results, maybe an earlier one.
        if not found.several:
            return found.nodes[0].name if self._is_movable(inner, found.nodes[0].name) else None
        span = self.draft.span(inner, found.nodes[0].name)
        if any(self.acts(node) for node in span if node.name not in inner):
            return None
        # Before the first other user of a result, and after all operands.
        roots, used = found.root_names, operands_of(found)
        users = [number for number, node in enumerate(span) if node.name not in inner and not roots.isdisjoint(node.refs())]
        place = users[0] if users else len(span) - 1
        return None if any(node.name in used for node in span[place:]) else span[place].name

    def _inner(self, found: Found) -> dict[str, Node]:
        # The nodes of a match, with assertions on the types of inner values and unused results of them, unless an inner value
        # has other users.
        matched, roots = {node.name: node for node in found.nodes}, found.root_names
        checks = {user.name: user for name in matched if name not in roots
                  for user in self._others(name, matched) if self._is_idle(user)}  # fmt: skip
        removable = matched | checks
        unused = {name: check for name, check in checks.items()
                  if not any(self.draft.is_used_beyond(name, removable) for name in check.refs())}  # fmt: skip
        return matched | unused

    def _is_idle(self, user: Node) -> bool:
        # Whether a user only asserts a type, or selects one of several results and is unused.
        return is_check(user) or (user.projection is not None and not self.draft.is_used_beyond(user.name, ()))

    def _is_free(self, found: Found, inner: Mapping[str, Node], *, keeps_inner: bool) -> bool:
        # Whether the match alone uses inner values, or these can stay for the others.
        roots = found.root_names
        kept = [name for name in inner if name not in roots and self.draft.is_used_beyond(name, inner)]
        if not keeps_inner:
            return not kept
        users = [user for name in inner.keys() - roots for user in self._others(name, inner)]
        if any(self.acts(user) and not is_check(user) for user in users):
            return False
        return len(roots) == 1 or roots.isdisjoint(computed_of(kept, inner))

    def _others(self, name: str, inner: Collection[str]) -> list[Node]:
        return [self.draft.nodes[user] for user in self.draft.users(name) if user not in inner]


def _without_kept(gone: Sequence[Node], new: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    # The nodes of a match and of its replacement, without those that the replacement keeps (m.value).
    rest, left = list(new), list[Node]()
    for node in gone:
        same = [each for each in rest if each.do == node.do and same_arg((each.args, each.kwargs), (node.args, node.kwargs))]
        if same:
            rest.remove(same[0])
        else:
            left.append(node)
    return left, rest


def _code(node: Node) -> object:
    return node.do, node.args, node.kwargs


def _in_words(effects: NodeEffects) -> str:
    # The side effects of a node; empty if it has none.
    found = {"writes": effects.writes or effects.writes_slots, "draws random numbers": effects.random}
    found |= {"is ordered": effects.ordered, "completes": effects.completes}
    found |= {f"is ordered in {' '.join(key)}": True for key in effects.domains}
    return ", ".join([words for words, holds in found.items() if holds])
