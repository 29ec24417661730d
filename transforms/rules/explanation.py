"""The log of rewrites, the termination check, and ``Explanation``: why matches were skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from ...ir.errors import RuleError
from ...ir.graph import Graph, Node, Op, place_of
from ...ir.program import Program

MANY = 64
"""The maximum number of matches for each node of a graph."""

LONGEST = 1024
"""The maximum length of a chain of matches, each on nodes that the previous one made."""


@frozen(eq=False)
class Hit:
    """A match that was replaced."""

    rule: str
    root: Node
    depth: int = 1
    """The length of the chain of matches up to this one, each on nodes that the previous one made."""


class RewriteLog:
    """The replaced matches of one graph, over all walks.

    Args:
        name: the id of the graph.
        graph: the graph before the rules.
        made: the matches that already made nodes of it, if it is a version of another body.
    """

    def __init__(self, name: str, graph: Graph, made: Mapping[str, Hit] | None = None) -> None:
        self.name, self.most = name, MANY * (len(graph.nodes) + 1) + LONGEST
        self.found: list[Hit] = []
        self.made: dict[str, Hit] = dict(made or {})
        """The match that made each new node."""

    def add(self, rule: str, root: Node, gone: Iterable[Node], made: Iterable[Node]) -> None:
        """Log a match.

        Raises:
            RuleError: the rules do not terminate.
        """
        before = [self.made[node.name].depth if node.name in self.made else 0 for node in gone]
        hit = Hit(rule, root, 1 + min(before))
        self.found.append(hit)
        self.made.update(dict.fromkeys([node.name for node in made], hit))
        if hit.depth > LONGEST or len(self.found) > self.most:
            names = ", ".join(dict.fromkeys([each.rule for each in self.found[-8:]]))
            raise RuleError(
                f"the rules do not terminate in {self.name or 'the root'}: {names} matched {len(self.found)} times, last at\n"
                f"  {hit.root}\nA rule matches nodes that another one, or the rule itself, wrote; pass where= or once=True."
            )


class Skip(RuleError):
    """A match is not replaced; the message is the reason."""


TWO_NODES = "one value of the pattern matches two nodes, and these have side effects"
BETWEEN = "a node between its nodes, or a write to their operands, cannot be moved"
CONDITION = "its condition is false or not proven"
UNCHANGED = "the replacement returned None"
SEVERAL = "the calls of its module pass values of different types or sizes; px.expand gives each call a body"
STRIDES = "the new value has other strides than the old one, and this is observable"
BORDER = (
    "it is not proven for {0}, which the program accepts; a Dim with min=2 excludes sizes 0 and 1"
)
MEMORY = "the new value would alias other memory than the old one, and this is observable"


@frozen
class Left:
    """A match that was skipped.

    >>> from purefx.ir import Op
    >>> print(Left("soften", Node("y", Op("toy.neg")), CONDITION))
    soften at node y: its condition is false or not proven
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
    """The report of rules on a program.

    >>> from purefx.ir import Graph
    >>> print(Explanation(Program.of({"": Graph((), ())}), (), ()))
    nothing was replaced
    """

    program: Program = field(repr=False)
    """The program after the rules."""
    replaced: tuple[Hit, ...]
    """The replaced matches, in order; matches on new nodes included."""
    left: tuple[Left, ...]
    """The skipped matches, with the reason for each."""

    def __str__(self) -> str:
        counts = Counter([hit.rule for hit in self.replaced])
        done = ", ".join(
            [
                f"{rule} {count} times" if count > 1 else f"{rule} once"
                for rule, count in counts.items()
            ]
        )
        names = (
            []
            if done
            else [
                do.name
                for graph in self.program.graphs.values()
                for do in graph.distinct
                if type(do) is Op
            ]
        )
        found = [
            name
            for name in names
            if name.startswith(("torch.", "tensor.", "method.")) and "sym_" not in name
        ]
        why = (
            f": rules match operators, not {found[0]}; export the module, or trace it with make_fx"
            if found
            else ""
        )
        return "\n".join(
            [
                f"replaced: {done}" if done else f"nothing was replaced{why}",
                *map("left: {}".format, self.left),
            ]
        )
