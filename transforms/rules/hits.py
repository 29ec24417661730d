"""``Hits``: what matched in one graph, counted over all walks.

Rules whose replacements are matched again and again are found by it, and named.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.errors import RuleError
from ...ir.graph import Graph, Node

__all__ = ["Hits"]

OFTEN = 64
"""How many matches there may be for each node before rules are taken to go round in a circle."""


class Hits:
    """What matched in one graph, over all walks: where it is too much, the rules go round in a circle."""

    def __init__(self, name: str, graph: Graph, made: Iterable[tuple[str, str]] = ()) -> None:
        self.where = f"the body {name!r}" if name else "the root"
        self.most = OFTEN * (len(graph.nodes) + 1)
        self.found: list[str] = []
        self.made = set(made)
        """Each node that is new, with the rule that made it."""

    def add(self, rule: str, root: str, made: Iterable[Node]) -> None:
        """Count a match of a rule.

        Raises:
            RuleError: there are too many.
        """
        self.found.append(rule)
        self.made.update([(rule, node.name) for node in made])
        if len(self.found) > self.most:
            names = ", ".join(dict.fromkeys(self.found[-OFTEN:]))
            raise RuleError(
                f"the rules come to no end in {self.where}: {names} matched {len(self.found)} times, at last at {root}.\n"
                "What one of them builds is what another, or itself, looks for; say in `where=` when it is enough, or once=True\n"
                "for a rule that leaves alone what it has made."
            )
