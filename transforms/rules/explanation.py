"""``Explanation``: what rules did to a program, and where what they look for stands and was left alone, each with the reason.

Nothing is decided here: a walk notes why it leaves a match (``application.py``), and two rules that wanted one node are found by
looking at the program as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from ...ir.graph import Node, place_of
from ...ir.program import Program
from .across import advice
from .hits import Hit, Hits
from .matching import Found
from .several import found_in

__all__ = ["BETWEEN", "CONDITION", "MEMORY", "TOLD_APART", "UNCHANGED", "Explanation", "Left", "overlaps"]

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
    across: tuple[str, ...] = ()
    """Places that lie in several modules of a tree, where no rule looks."""

    def __str__(self) -> str:
        counts = {hit.rule: sum(each.rule == hit.rule for each in self.replaced) for hit in self.replaced}
        done = ", ".join([f"{rule} {count} times" if count > 1 else f"{rule} once" for rule, count in counts.items()])
        lines = [f"replaced: {done}" if done else "nothing was replaced"]
        lines += [f"left: {each}" for each in self.left]
        lines += [f"left: {each}: it lies in several modules; {advice(self.program)}" for each in self.across]
        return "\n".join(lines)


def overlaps(program: Program, rules: Mapping[Any, Sequence[Any]], hits: Mapping[str, Hits]) -> Iterator[Left]:
    """Find the places of a program where a rule matched nodes that another match took first.

    Args:
        program: as it was before the rules.
        rules: by the operator at their root.
        hits: what was replaced in each of its graphs.
    """
    for name in program.order:
        found = hits[name].found if name in hits else []
        done = {(hit.rule, hit.root.name) for hit in found}
        owners = {node.name: hit for hit in reversed(found) for node in hit.gone}
        for rule, node, several in found_in(program.graphs[name], rules) if found else ():
            way = next(several, Found())
            hit = next((owners[each.name] for each in way.nodes if each.name in owners), None)
            if hit is not None and (rule.name, node.name) not in done:
                yield Left(rule.name, node, f"{hit.rule} at {place_of(hit.root)} was replaced first", name)
