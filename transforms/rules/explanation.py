"""``Explanation``: what rules did to a program, and where what they look for stands and was left alone, each with the reason.

Nothing is decided here: a walk notes why it leaves a match (``application.py``).
"""

from __future__ import annotations

from attrs import field, frozen

from ...ir.graph import Node, place_of
from ...ir.program import Program
from .hits import Hit

__all__ = ["BETWEEN", "CONDITION", "MEMORY", "TOLD_APART", "UNCHANGED", "Explanation", "Left"]

TOLD_APART = "one value of the pattern is two nodes, which do more than compute it"
BETWEEN = "what stands between its nodes, or writes what they use, has to stay where it is"
CONDITION = "its condition does not hold, or is not proven"
UNCHANGED = "the rule leaves it as it is"
MEMORY = "the new value would share other memory than the old one, and somebody can see that"


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
        counts = {hit.rule: sum(each.rule == hit.rule for each in self.replaced) for hit in self.replaced}
        done = ", ".join([f"{rule} {count} times" if count > 1 else f"{rule} once" for rule, count in counts.items()])
        lines = [f"replaced: {done}" if done else "nothing was replaced"]
        lines += [f"left: {each}" for each in self.left]
        return "\n".join(lines)
