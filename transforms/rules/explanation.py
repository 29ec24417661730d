"""The log of rewrites, the termination check, the notes on errors, and ``Explanation``: why rules left places alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from attrs import field, frozen

from ...ir.errors import InvalidProgram, RuleError
from ...ir.graph import Graph, Node, place_of
from ...ir.program import Program
from .match import Match

__all__ = [
    "BETWEEN",
    "CONDITION",
    "MEMORY",
    "TWO_NODES",
    "UNCHANGED",
    "Explanation",
    "Hit",
    "Left",
    "RewriteLog",
    "note_place",
    "note_rules",
]

MANY = 64
"""How many matches there may be for each node of a graph."""

LONGEST = 1024
"""How many matches in a row may be on nodes that the previous match made."""


@frozen(eq=False)
class Hit:
    """A match that was taken."""

    rule: str
    root: Node
    made: tuple[Node, ...]
    gone: tuple[Node, ...] = ()
    """The nodes that were matched."""
    depth: int = 1
    """How many matches there are up to it, one on what the other made."""


class RewriteLog:
    """What matched in one graph, over all walks.

    Args:
        name: of the graph.
        graph: as it was before.
        made: what rules made of it already, where it is a version of another body.
    """

    def __init__(self, name: str, graph: Graph, made: Mapping[str, Hit] | None = None) -> None:
        self.name, self.most = name, MANY * (len(graph.nodes) + 1) + LONGEST
        self.found: list[Hit] = []
        self.made: dict[str, Hit] = dict(made or {})
        """The match that each node that is new was made by."""

    def is_by(self, rule: str, name: str) -> bool:
        """Return whether a rule made a node."""
        return name in self.made and self.made[name].rule == rule

    def add(self, rule: str, root: Node, gone: tuple[Node, ...], made: tuple[Node, ...]) -> None:
        """Note a match.

        Raises:
            RuleError: the rules come to no end.
        """
        before = [self.made[node.name].depth if node.name in self.made else 0 for node in gone]
        hit = Hit(rule, root, made, gone, 1 + min(before))
        self.found.append(hit)
        self.made.update(dict.fromkeys([node.name for node in hit.made], hit))
        if hit.depth > LONGEST or len(self.found) > self.most:
            names = ", ".join(dict.fromkeys([each.rule for each in self.found[-8:]]))
            raise RuleError(
                f"the rules come to no end in {self.name or 'the root'}: {names} matched {len(self.found)} times, last at\n"
                f"  {hit.root}\nOne of them matches what another, or itself, wrote; pass a condition (where=) or once=True."
            )


TWO_NODES = "one value of the pattern is two nodes, which do more than compute it"
BETWEEN = "a node between its nodes, or a write to their operands, cannot be moved"
CONDITION = "its condition does not hold, or is not proven"
UNCHANGED = "the rule leaves it as it is"
MEMORY = "the new value would alias other memory than the old one, and this is observable"


@frozen
class Left:
    """A place that has what a rule looks for, and was left alone.

    >>> from purefx.ir import Op
    >>> print(Left("soften", Node("y", Op("toy.neg")), CONDITION))
    soften at node y: its condition does not hold, or is not proven
    """

    rule: str
    root: Node = field(repr=lambda node: node.name)
    why: str
    graph: str = ""

    def __str__(self) -> str:
        where = f" in {self.graph!r}" if self.graph else ""
        return f"{self.rule} at {place_of(self.root)}{where}: {self.why}"


@frozen
class Explanation:
    """What rules did to a program.

    >>> from purefx.ir import Graph
    >>> print(Explanation(Program.of({"": Graph((), ())}), (), ()))
    nothing was replaced
    """

    program: Program = field(repr=False)
    """The program after them."""
    replaced: tuple[Hit, ...]
    """The matches that were replaced, in order; those on what others made included."""
    left: tuple[Left, ...]
    """The places that were left alone, and why."""

    def __str__(self) -> str:
        counts = Counter([hit.rule for hit in self.replaced])
        done = ", ".join([f"{rule} {count} times" if count > 1 else f"{rule} once" for rule, count in counts.items()])
        return "\n".join([f"replaced: {done}" if done else "nothing was replaced", *[f"left: {each}" for each in self.left]])


def note_place(error: Exception, rule: str, place: Match) -> None:
    """Note on an error the rule and the match.

    Args:
        error: of a condition or a replacement.
        rule: its name.
        place: the match that they were called with.
    """
    error.add_note(f"in rule {rule}, at {place.place}" + (f" in the body {place.graph!r}" if place.graph else ""))


def note_rules(error: InvalidProgram, hits: Mapping[str, RewriteLog]) -> None:
    """Note on an error the rules that wrote the invalid nodes, or the last rule before them.

    Args:
        error: about the program after the rules.
        hits: what matched in each graph.
    """
    for violation in error.violations:
        found = hits.get(violation.graph or "")
        if found is None or not found.found:
            continue
        hit, last = found.made.get(violation.node or ""), found.found[-1]
        if hit is not None:
            error.add_note(f"rule {hit.rule} wrote node {violation.node}, in the place of {place_of(hit.root)}")
        else:
            error.add_note(f"after rule {last.rule}, at last at {place_of(last.root)}")
