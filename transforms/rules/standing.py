"""``Standing``: whether the nodes of a match may be taken together, and where what replaces them stands.

A match is refused where something between its nodes conflicts with them (``ir/effects/dependencies.py``), and where others use
its inner values, unless those may stay for them.  What is built, and whether it may take their place, is not looked at here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ...ir.analysis.numbers import computed_of
from ...ir.graph import Node
from ..regions import is_check
from .draft import Draft
from .explanation import BETWEEN, TOLD_APART
from .legality import Legality
from .matching import Found
from .several import spot

__all__ = ["Standing"]


class Standing:
    """Where matches stand in a graph that is rewritten.

    Args:
        draft: the graph as it is by now.
        legality: what may be done in it.
    """

    def __init__(self, draft: Draft, legality: Legality) -> None:
        self.draft = draft
        self.legality = legality

    def of(self, found: Found, at: str, *, keeps_inner: bool) -> tuple[dict[str, Node], str] | Callable[[], str]:
        """Return the nodes that go with a match if nothing else uses them, and the node before which what replaces them stands.

        Args:
            found: the match.
            at: the node of the graph where it was found.
            keeps_inner: whether inner values that others use stay for them.

        Returns:
            Both, or where the match may not be taken what says why.
        """
        if len(found.nodes) == 1:
            root = found.nodes[0]
            return {root.name: root}, root.name
        inner = self._whole(found)
        if inner is None:
            inner = self._inner(found)
            if not self._is_free(found, inner, keeps_inner=keeps_inner):
                return lambda: self._used(found, inner)
        if not self.legality.is_one(found):
            return lambda: TOLD_APART
        before = self._spot(found, inner, at)
        return (lambda: BETWEEN) if before is None else (inner, before)

    def _whole(self, found: Found) -> dict[str, Node] | None:
        # The nodes of a match whose inner values nothing else uses, as is nearly always so; None otherwise.
        draft, inner = self.draft, {node.name: node for node in found.nodes}
        roots = [root.name for root in found.roots]
        return None if any(name not in roots and draft.is_used_beyond(name, inner) for name in inner) else inner

    def _used(self, found: Found, inner: Mapping[str, Node]) -> str:
        # Who else uses what is computed inside of a match.
        roots = {root.name for root in found.roots}
        users = {name: [user.name for user in self._others(name, inner)] for name in inner if name not in roots}
        said = [f"{name} by {', '.join(several)}" for name, several in users.items() if several]
        said += [f"{name} by the caller" for name in users if not users[name] and self.draft.is_used_beyond(name, inner)]
        return f"others use what is inside of it: {'; '.join(said)}"

    def _spot(self, found: Found, inner: Mapping[str, Node], at: str) -> str | None:
        # The node before which what replaces a match stands: the last of the match, or for several results another.
        position = self.draft.edit.position
        if not found.several:
            return found.nodes[0].name if self.legality.is_movable(inner, position, at) else None
        if not self.legality.is_placed(inner, position, at):
            return None
        span = self.draft.span(inner, found.nodes[0].name, at)
        if any(node.name not in position and self.legality.acts(node) for node in span):
            return None  # what is new has no relation to others yet: the next walk sees it
        follows, leads = self.legality.around(inner, position)
        place = spot(span, inner, found, follows, leads)
        return None if place is None else span[place].name

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
        if any(self.legality.acts(user) and not is_check(user) for user in users):
            return False
        return len(roots) == 1 or roots.isdisjoint(computed_of(kept, inner))

    def _others(self, name: str, inner: Collection[str]) -> list[Node]:
        return [self.draft.nodes[user] for user in self.draft.users(name) if user not in inner]
