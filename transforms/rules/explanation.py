"""The log of rewrites, the termination check, and ``Explanation``: why matches were skipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve, field, frozen

from ...ir.errors import RuleError
from ...ir.graph import Graph, Node, Op, place_of
from ...ir.persistent import grouped
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
    graph: str = ""
    """The id of its graph."""
    modules: tuple[str, ...] = ("",)
    """The paths of the modules that share the graph."""
    is_given: bool = True
    """Whether it matched nodes of the given program only, not nodes that rules made."""


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

    def add(
        self,
        rule: str,
        root: Node,
        gone: Iterable[Node],
        made: Iterable[Node],
        modules: tuple[str, ...] = ("",),
    ) -> None:
        """Log a match.

        Args:
            rule: the name of the rule.
            root: the last node of the match.
            gone: the nodes that it replaces.
            made: the new nodes.
            modules: the paths of the modules that share the graph.

        Raises:
            RuleError: the rules do not terminate.
        """
        before = [self.made[node.name].depth if node.name in self.made else 0 for node in gone]
        hit = Hit(rule, root, 1 + min(before), self.name, modules, is_given=not any(before))
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
SAME = "nothing else uses some of its results, and the replacement computes the others as before"
MEMORY = "the new value would alias other memory than the old one, and this is observable"


def in_body(graph: str, modules: Sequence[str]) -> str:
    """Return the body of a match for messages, with the number of its modules; empty for the root.

    >>> in_body("", [""]), in_body("Linear", ["a", "b"])
    ('', " in 'Linear' (2 modules)")
    """
    count = f" ({len(modules)} modules)" if len(modules) > 1 else ""
    return f" in {graph!r}{count}" if graph else ""


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
    modules: tuple[str, ...] = ("",)
    """The paths of the modules that share the graph, or of those where it was skipped."""

    def __str__(self) -> str:
        return (
            f"{self.rule} at {place_of(self.root)}{in_body(self.graph, self.modules)}: {self.why}"
        )


def together(left: Iterable[Left]) -> tuple[Left, ...]:
    """Return skipped matches, with one entry for all modules that share a body and a reason.

    >>> from purefx.ir import Op
    >>> [each.modules for each in together([Left("r", Node("y", Op("toy.neg")), "w", "f", (path,)) for path in "ab"])]
    [('a', 'b')]
    """
    found: dict[Left, dict[str, None]] = {}
    for each in left:
        found.setdefault(evolve(each, modules=()), {}).update(dict.fromkeys(each.modules))
    return tuple([evolve(each, modules=tuple(paths)) for each, paths in found.items()])


@frozen
class NearMiss:
    """The place where most of a pattern matched, and the first argument or operator there that did not.

    >>> from purefx.ir import Op
    >>> print(NearMiss("soften", Node("y", Op("toy.neg")), "argument 'approximate'", "'none'", "'tanh'"))
    soften at node y: argument 'approximate' is 'tanh', but the pattern needs 'none'
    """

    rule: str
    node: Node = field(repr=lambda node: node.name)
    """The node that has the argument."""
    part: str
    """The argument or operator of the node that does not match."""
    wanted: str
    """What the pattern has there."""
    given: str
    """What the program has there."""
    graph: str = ""
    modules: tuple[str, ...] = ("",)
    """The paths of the modules that share the graph."""
    matched: int = 0
    """The number of operators of the pattern that match there."""
    size: int = 0
    """The number of operators of the pattern."""

    def __str__(self) -> str:
        place = f"{place_of(self.node)}{in_body(self.graph, self.modules)}"
        return f"{self.rule} at {place}: {self.part} is {self.given}, but the pattern needs {self.wanted}"


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
    """The skipped matches of the given program, with the reason for each."""
    near: tuple[NearMiss, ...] = ()
    """The nearest place for each rule that matched nothing, the nearest rule first."""

    def __str__(self) -> str:
        given = _counted([hit for hit in self.replaced if hit.is_given])
        later = _counted([hit for hit in self.replaced if not hit.is_given])
        lines = [f"replaced: {given}"] if given else [] if later else [self._nothing()]
        lines += [f"replaced in results of rules: {later}"] if later else []
        lines += map("left: {}".format, self.left)
        # Where less than half of a pattern matches is worth a line only if there is nothing else to say.
        near = [miss for miss in self.near if 2 * miss.matched >= miss.size]
        near = near or list(self.near[:1] if not self.replaced and not self.left else ())
        lines += map("near: {}".format, near[:MOST])
        return "\n".join(lines)

    def _nothing(self) -> str:
        # Python functions in place of operators are a common reason.
        graphs = self.program.graphs.values()
        names = [do.name for graph in graphs for do in graph.distinct if type(do) is Op]
        functions = [
            name
            for name in names
            if name.startswith(("torch.", "tensor.", "method.")) and "sym_" not in name
        ]
        if not functions or any(name.startswith("aten.") for name in names):
            return "nothing was replaced"
        advice = "export the module, or trace it with make_fx"
        return f"nothing was replaced: rules match operators, not {functions[0]}; {advice}"


MOST = 8
"""The maximum number of near misses in the text of an explanation."""


def _counted(hits: Sequence[Hit]) -> str:
    # The rules with their numbers of matches; in a tree, with the numbers of bodies and modules.
    by_rule = grouped([(hit.rule, hit) for hit in hits])
    return ", ".join([f"{rule} {_times(several)}" for rule, several in by_rule.items()])


def _times(hits: Sequence[Hit]) -> str:
    times = f"{len(hits)} times" if len(hits) > 1 else "once"
    if not any(hit.graph for hit in hits):
        return times
    bodies = {hit.graph for hit in hits}
    modules = {path for hit in hits for path in hit.modules}
    return f"{times} ({_plural(len(bodies), 'body')}, {_plural(len(modules), 'module')})"


def _plural(count: int, word: str) -> str:
    several = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{count} {word if count == 1 else several}"
