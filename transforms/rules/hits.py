"""``Hits``: what matched in one graph, over all walks, and how far what is new is from what was there.

Rules whose replacements are matched again and again are found by it, and named.  A node that a match makes is one step further
than the nearest of the nodes that go with the match.  Each node goes once, so rules come to an end if and only if that has a
bound; how many nodes a graph has does not matter.  Whether a match is taken is not decided here (``application.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import frozen

from ...ir.arguments import Arg, Body, Ref
from ...ir.errors import RuleError
from ...ir.graph import Graph, Node

__all__ = ["Hit", "Hits"]

OFTEN = 256
"""After how many steps it is asked whether what is matched was there before."""

REPEATED = 8
"""How often it has to have been there: a rule may look at what changes from call to call."""

LONGEST = 4096
"""How many steps there may be at most, where they are all of something else."""

MANY = 64
"""How many matches there may be for each node beside that."""

WIDEST = 100
"""Characters of a node in a message."""


@frozen(eq=False)
class Hit:
    """A match that was taken."""

    rule: str
    root: Node
    made: tuple[Node, ...]
    before: Hit | None
    """The one that made what this one matched."""
    depth: int
    """How many there are up to it, one on what the other made."""
    gone: tuple[Node, ...] = ()
    """The nodes that were matched."""

    def lineage(self) -> Iterator[Hit]:
        """Go back from this match to what made what it matched, and so on."""
        hit: Hit | None = self
        while hit is not None:
            yield hit
            hit = hit.before

    def __str__(self) -> str:
        made = "\n".join([f"    {_short(node)}" for node in self.made[:3]]) or "    a value that is there"
        more = f"\n    and {len(self.made) - 3} more" if len(self.made) > 3 else ""
        return f"  {_short(self.root)}\n  became, by {self.rule},\n{made}{more}"


class Hits:
    """What matched in one graph, over all walks.

    Args:
        name: of the graph.
        graph: as it was before.
        made: what rules made of it already, where it is a version of another body.
    """

    def __init__(self, name: str, graph: Graph, made: Mapping[str, Hit] | None = None) -> None:
        self.where = f"the body {name!r}" if name else "the root"
        self.most = MANY * (len(graph.nodes) + 1) + LONGEST
        self.found: list[Hit] = []
        self.made: dict[str, Hit] = dict(made or {})
        """The match that each node that is new was made by."""

    def is_by(self, rule: str, name: str) -> bool:
        """Return whether a rule made a node."""
        hit = self.made.get(name)
        return hit is not None and hit.rule == rule

    def add(self, rule: str, root: Node, gone: Iterable[Node], made: Iterable[Node]) -> None:
        """Note a match of a rule.

        Args:
            rule: its name.
            root: the node that is replaced.
            gone: the nodes that go with it.
            made: those that are new.

        Raises:
            RuleError: the rules come to no end.
        """
        taken = tuple(gone)
        before = [self.made.get(node.name) for node in taken]
        nearest = None if None in before else min(before, key=_depth)
        hit = Hit(rule, root, tuple(made), nearest, _depth(nearest) + 1, taken)
        self.found.append(hit)
        for node in hit.made:
            self.made[node.name] = hit
        if hit.depth > LONGEST or len(self.found) > self.most or (hit.depth % OFTEN == 0 and self._is_repeated(hit)):
            raise RuleError(self._said(hit))

    def _is_repeated(self, hit: Hit) -> bool:
        state = self._state(hit.root)
        return sum([self._state(each.root) == state for each in hit.lineage()]) >= REPEATED

    def _state(self, node: Node) -> Node:
        # A node, whatever it and the new nodes among its operands are called.
        def known(ref: Ref | Body) -> Arg:
            return Ref("") if type(ref) is Ref and ref.name in self.made else ref

        return node.with_refs(known).evolve(name="state")

    def _said(self, hit: Hit) -> str:
        last = [each for each, _ in zip(hit.lineage(), range(OFTEN), strict=False)]
        names = ", ".join(dict.fromkeys([each.rule for each in last]))
        shown = "\n".join(map(str, reversed(last[:2])))
        return (
            f"the rules come to no end in {self.where}: {names} matched {len(self.found)} times, {hit.depth} in a row on\n"
            f"what they had made, at last at {hit.root.name}.\n{shown}\n"
            "What one of them builds is what another, or itself, looks for; say in `where=` when it is enough, or once=True\n"
            "for a rule that leaves alone what it has made."
        )


def _depth(hit: Hit | None) -> int:
    return 0 if hit is None else hit.depth


def _short(node: Node) -> str:
    text = str(node)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 4]} ..."
