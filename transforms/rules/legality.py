"""``Legality``: whether a match may be replaced by the nodes of a replacement, and the place of those.

A match is refused where something between its nodes conflicts with them (``ir/effects/dependencies.py``), where others use its
inner values, unless those may stay for them, and where the replacement has other effects or shares other memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import torch
from attrs import evolve

from ...ir.analysis.numbers import computed_of
from ...ir.arguments import Arg, Ref, refs_in, same_arg
from ...ir.effects.declared import NOTHING, NodeEffects
from ...ir.effects.dependencies import dependencies
from ...ir.effects.resolved import resolver
from ...ir.errors import RuleError
from ...ir.graph import Call, Node, Op
from ...ir.program import Program
from ...ir.torch_private import OpOverload, schema_of
from ..memory import Memory, handed_out, is_view
from ..regions import is_check
from .draft import Draft
from .explanation import BETWEEN, TWO_NODES
from .match import Match
from .matching import Found, operands_of
from .operators import arranged

__all__ = ["Legality"]

WITHOUT_SHARING: Mapping[str, Any] = {"aliases": (), "aliases_slots": (), "results": (), "reads_slots": ()}

DETACH = "aten.detach_.default"
"""Writes what autograd knows of a tensor, and not its contents."""


class Legality:
    """What may be done in one graph.

    Args:
        program: the program of the graph.
        name: the id of the graph.
        draft: the graph as it is by now.
        paths: returns its instances.
    """

    def __init__(self, program: Program, name: str, draft: Draft, paths: Callable[[], tuple[str, ...]]) -> None:
        self.program, self.name, self.draft, self.paths = program, name, draft, paths
        self.graph = program.graphs[name]

    def _is_movable(self, inner: Collection[str], at: str) -> bool:
        # Whether all nodes of a match can be computed where the last one is: no node between must come after one of them.
        position = self.draft.position
        if len(inner) == 1 or not self.is_acting:
            return True
        if any(name not in position for name in inner):
            return False  # new nodes have no relation to others yet: the next walk sees it
        first, last = min(position[name] for name in inner), position[at]
        acting = [node for node in self.graph.nodes[first : last + 1] if self.acts(node)]
        if not acting:
            return True
        written = {key for node in acting if node.name not in inner for key in self._sets.touched(self.does(node))}
        # A view of an inner value that stays may be written in between.
        if self._is_written_outside(first, last) or not written.isdisjoint(map(self._sets.find, inner)):
            return False
        moved = [name for name in inner if not is_check(self.graph.nodes[position[name]])]  # those go with the match
        between = [(name, self.graph.nodes[number]) for name in moved for number in self._after[position[name]] if number < last]
        return all(other.name in inner or (name in other.refs() and not self.acts(other)) for name, other in between)

    def _is_written_outside(self, first: int, last: int) -> bool:
        # Whether a node of a body writes what the body did not make: whose memory the inputs are, its callers decide.
        if self.name == self.program.root:
            return False
        nodes = [node for node in self.graph.nodes[first:last] if type(node.do) is Op and node.do.effects.acts]
        return any(one.scope != (0, 0) or self._sets.reaches_outside(one) for one in map(self.does, nodes))

    def is_changed(self, name: str) -> bool:
        """Return whether anything changes what is in the memory of a value."""
        return self.is_acting and self._sets.find(name) in self._changed

    def is_one(self, found: Found) -> bool:
        """Return whether one value of a pattern is one value of the graph, where a node does more than compute it."""
        if not self.is_acting:
            return True
        pairs = {(id(part), node.name) for part, node in zip(found.parts, found.nodes, strict=True) if self.acts(node)}
        return len({part for part, _ in pairs}) == len(pairs) == len({name for _, name in pairs})

    def check_effects(self, rule: str, place: Match, made: Sequence[Node], *, any_effects: bool) -> None:
        """Check that what a rule puts in the place of a match does what that did.

        Raises:
            RuleError: it does not, and the rule does not say that it may.
        """
        gone, new = _without_kept(*([node for node in nodes if self.acts(node)] for nodes in (place.found.distinct, made)))
        if not gone and not new:
            return
        before, after = ([self.does(node) for node in nodes] for nodes in (gone, new))
        writes = any(one.writes or one.writes_slots or one.scope != (0, 0) for one in (*before, *after))
        was, becomes = sorted(filter(None, map(_said, before))), sorted(filter(None, map(_said, after)))
        if (was == becomes or any_effects) and not writes:
            return
        raise RuleError(
            f"{rule} at {place.place}: what it matched {' and '.join(was) or 'only computes'},\n"
            f"and what stands there instead {' and '.join(becomes) or 'only computes'}. A rule replaces operators by others\n"
            "with the same effects, and none that write. Declare what an operator of a library does (px.declare), or say\n"
            "any_effects=True where the rule is right all the same."
        )

    def shares_alike(self, roots: Sequence[Node], inner: Sequence[Node], made: Sequence[Node], results: Sequence[Ref]) -> bool:
        """Return whether nobody can see that results share other memory than the roots of the match did."""
        seen = [self._is_written or root.name in self._escaping for root in roots]
        if not any(seen):
            return True
        for is_seen, root, result in zip(seen, roots, results, strict=True):
            before, old, _ = self._memory(Ref(root.name), inner)
            after, new, _ = self._memory(result, made)
            # What may share memory, and may not, does so in the same runs only where it is the same operators.
            is_certain = all(map(is_view, (*old, *new))) or [_code(node) for node in old] == [_code(node) for node in new]
            if is_seen and (before != after or (before and not is_certain)):
                return False
        if len(roots) == 1:
            return True
        were, are = [self._memory(Ref(one.name), inner)[2] for one in roots], [self._memory(one, made)[2] for one in results]
        return all(one.isdisjoint(other) for several in (were, are) for one, other in combinations(several, 2))

    def _memory(self, arg: Arg, among: Sequence[Node]) -> tuple[frozenset[object], list[Node], frozenset[object]]:
        # The values from outside of some nodes, and the state, that a result of them may share memory with; through which nodes;
        # and all that it may share memory with.  Results that one operator computes are new memory each.
        nodes = {node.name: node for node in among}
        todo, seen, found = list(refs_in((arg,), ())), dict[str, None](), set[object]()
        while todo:
            name = todo.pop()
            if name not in nodes:
                found.add(name)
            elif name not in seen:
                seen[name] = None
                does = self.does(nodes[name])
                todo += () if self._is_other_type(nodes[name]) else does.aliases
                found.update([("state", slot) for slot in does.aliases_slots])
        through = [nodes[name] for name in seen]
        views = [node for node in through if self.does(node).aliases and not self._is_other_type(node)]
        wholes = {node.projection[0] for node in views if node.projection is not None}
        return frozenset(found), views, frozenset({*found, *seen} - wholes)

    def _is_other_type(self, node: Node) -> bool:
        # Whether it is a cast to another type than its operand has, which is new memory.
        target = node.do.target if type(node.do) is Op else None
        if not isinstance(target, OpOverload) or schema_of(target).name != "aten::to":
            return False
        given = arranged(target, node.args, dict(node.kwargs)) or {}
        operand = given.get("self")
        value = self.draft.value(operand.name) if type(operand) is Ref else None
        dtype = given.get("dtype")
        return isinstance(value, torch.Tensor) and isinstance(dtype, torch.dtype) and value.dtype is not dtype

    @cached_property
    def does(self) -> Callable[[Node], NodeEffects]:
        """Gives the effects of a node, of this graph or a new one."""
        return resolver(self.program, self.graph)

    def acts(self, node: Node) -> bool:
        """Return whether a node does more than compute its value."""
        if type(node.do) is Op:
            return node.do.effects.acts
        return type(node.do) is Call and evolve(self.does(node), **WITHOUT_SHARING) != NOTHING

    @cached_property
    def is_acting(self) -> bool:
        """Whether any node does more than compute its value."""
        if any(type(do) is Op and do.effects.acts for do in self.graph.distinct):
            return True
        return any(map(self.acts, self.graph.callers))

    @cached_property
    def _sets(self) -> Memory:
        return Memory(self.program, self.name, [self.does(node) for node in self.graph.nodes])

    @cached_property
    def _is_written(self) -> bool:
        does = [self.does(node) for node in self.graph.nodes if self.acts(node)] if self.is_acting else []
        return any(one.writes or one.writes_slots or one.completes for one in does)

    @cached_property
    def _changed(self) -> frozenset[object]:
        nodes = [node for node in self.graph.nodes if self.acts(node) and not (type(node.do) is Op and node.do.name == DETACH)]
        return frozenset([key for node in nodes for key in self._sets.touched(self.does(node))])

    @cached_property
    def _after(self) -> Mapping[int, set[int]]:
        # Which nodes must come after each, wherever the graph stands.
        found: dict[int, set[int]] = {number: set() for number in range(len(self.graph.nodes))}
        for path in self.paths():
            for after, earlier in enumerate(dependencies(self.program, self.graph, path=path)):
                for before in earlier:
                    found[before].add(after)
        return found

    @cached_property
    def _escaping(self) -> set[str]:
        # The values whose memory others can see: what is returned, and what shares memory with it.
        nodes = self.graph.by_name
        return handed_out(self.graph, lambda name: self.does(nodes[name]).aliases if name in nodes else ())

    # -- the place of a replacement ---------------------------------------------------------------------------------------------

    def place_of(self, found: Found, at: str, *, keeps_inner: bool) -> tuple[dict[str, Node], str] | str:
        """Return the nodes that go with a match if nothing else uses them, and the node before which the replacement goes.

        Args:
            found: the match.
            at: the node of the graph where it was found.
            keeps_inner: whether inner values that others use stay for them.

        Returns:
            Both, or the reason why the match is not replaced.
        """
        if len(found.nodes) == 1:
            root = found.nodes[0]
            return {root.name: root}, root.name
        inner = self._inner(found)
        if not self._is_free(found, inner, keeps_inner=keeps_inner):
            return self._used(found, inner, keeps_inner=keeps_inner)
        if not self.is_one(found):
            return TWO_NODES
        before = self._spot(found, inner, at)
        return BETWEEN if before is None else (inner, before)

    def _used(self, found: Found, inner: Mapping[str, Node], *, keeps_inner: bool) -> str:
        # The other users of inner values, and whether an option keeps these values for them.
        roots = {root.name for root in found.roots}
        users = {name: [user.name for user in self._others(name, inner)] for name in inner if name not in roots}
        said = [f"{name} by {', '.join(several)}" for name, several in users.items() if several]
        said += [f"{name} by the caller" for name in users if not users[name] and self.draft.is_used_beyond(name, inner)]
        advice = "; keeps_inner=True keeps these values for them" if self._is_free(found, inner, keeps_inner=True) else ""
        return f"other nodes use its inner values: {'; '.join(said)}{'' if keeps_inner else advice}"

    def _spot(self, found: Found, inner: Mapping[str, Node], at: str) -> str | None:
        # The node before which the replacement goes: the last of the match, or for several results another.
        if not found.several:
            return found.nodes[0].name if self._is_movable(inner, at) else None
        span = self.draft.span(inner, found.nodes[0].name, at)
        if any(self.acts(node) for node in span if node.name not in inner):
            return None
        # Before the first other user of a result, and behind all operands.
        roots, used = {root.name for root in found.roots}, operands_of(found)
        users = [number for number, node in enumerate(span) if node.name not in inner and not roots.isdisjoint(node.refs())]
        place = users[0] if users else len(span) - 1
        return None if any(node.name in used for node in span[place:]) else span[place].name

    def _inner(self, found: Found) -> dict[str, Node]:
        # The nodes of a match; and what torch asserts about the types of inner values, and results of them that nothing uses,
        # which go with them; where others use them, they stay.
        matched = {node.name: node for node in found.nodes}
        roots = {root.name for root in found.roots}
        checks = {user.name: user for name in matched if name not in roots
                  for user in self._others(name, matched) if self._is_idle(user)}  # fmt: skip
        if not checks:
            return matched
        taken = matched | checks
        unused = {name: check for name, check in checks.items()
                  if not any(self.draft.is_used_beyond(name, taken) for name in check.refs())}  # fmt: skip
        return matched | unused

    def _is_idle(self, user: Node) -> bool:
        # Whether nothing is computed of a use: it asserts a type, or takes one of several results that nobody wants.
        return is_check(user) or (user.projection is not None and not self.draft.is_used_beyond(user.name, ()))

    def _is_free(self, found: Found, inner: Mapping[str, Node], *, keeps_inner: bool) -> bool:
        # Inner values are used by the match alone, or stay for the others.
        roots = {root.name for root in found.roots}
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
    # The nodes of a match and those of its replacement, without those that the replacement keeps, as m.value does.
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


def _said(does: NodeEffects) -> str:
    # The effects of a node beside its result, in words; empty if it has none.
    ordered = [f"is in order in {' '.join(key) or 'everything'}" for key in does.domains]
    told = {"writes": does.writes or does.writes_slots, "draws random numbers": does.random, "is in order": does.ordered}
    told.update(dict.fromkeys(ordered, True), completes=does.completes)
    return ", ".join([words for words, holds in told.items() if holds])
