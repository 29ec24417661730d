"""``Violation``: one invariant that a program breaks, and where.

One idea: it is a finished message in parts (rule, what, where, the lines around it, the user's source, what to do), so
that it can be compared, pickled and shown long after the program is gone.  It holds no part of the program.
"""

from __future__ import annotations

from attrs import frozen

from ..names import escaped

__all__ = ["Violation"]


@frozen
class Violation:
    """One broken invariant.

    >>> print(Violation("unique-names", "the name 'y' is taken already by input 0", graph="enc", node="y", path="enc"))
    unique-names: the name 'y' is taken already by input 0
      at enc / y
    """

    rule: str
    """The name of the rule, as ``RULES`` lists it."""
    message: str
    """What is wrong."""
    graph: str | None = None
    """The id of the graph; None for state, signature and the other parts of the program itself."""
    node: str | None = None
    """The name of the node or input; None where the whole graph is meant."""
    path: str = ""
    """The module path to show: the innermost module call that the node is in."""
    context: tuple[str, ...] = ()
    """The printed lines around it; the line itself begins with ``>``."""
    source: str | None = None
    """The user's source line."""
    advice: str = ""
    """What to do about it."""
    count: int = 1
    """In how many places the same is wrong; what is told of one of them is told of the first."""
    also: tuple[str, ...] = ()
    """The next few of those places."""

    @property
    def where(self) -> str:
        """The place as people say it: ``layers.3.attn / linear_7``.

        >>> Violation("r", "m", graph="", node="y").where, Violation("r", "m").where
        ('the root graph / y', 'the program')
        """
        if self.graph is None:
            return self.node or "the program"
        place = self.path or self.graph or "the root graph"
        return f"{place} / {self.node}" if self.node else place

    def __str__(self) -> str:
        lines = [f"{self.rule}: {self.message}", f"  at {self.where}"]
        if self.count > 1:
            more = self.count - 1 - len(self.also)
            lines.append(f"  and at {', '.join(self.also)}{f' and {more:,} more' if more else ''}")
        lines.extend(f"    {line}" for line in self.context)
        if self.source:
            lines.append(f"  from {self.source}")
        if self.advice:
            lines.append(f"  to do: {self.advice}")
        return escaped("\n".join(lines))
