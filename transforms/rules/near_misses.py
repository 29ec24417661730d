"""Near misses: where most of a pattern matches, and the first argument or operator there that does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field

from ...ir.arguments import Arg, Ref, same_arg
from ...ir.calls.call_graph import all_instances
from ...ir.graph import Call, Get, Graph, Node
from ...ir.program import Program
from .explanation import NearMiss
from .matching import Search, is_same_number, pairs_of_lists, root_of
from .pattern import Part, looks_through, operator_of, role, shown

OPERATOR = 1_000
"""The weight of an operator that matches; an argument has the weight 1."""

DEPTH = 3
"""The depth of the parts of patterns in messages."""

OPERATORS = frozenset({"operator", "arithmetic", "item"})
"""The roles of parts that match the result of an operator."""

Difference = tuple[Node, str, str, str]
"""The node, its argument, what the pattern has there, and what the program has."""


def near_misses(program: Program, rules: Sequence[Any]) -> tuple[NearMiss, ...]:
    """Return the nearest place for each rule, the rule with the most matching operators first.

    Rules that share no operator with the program have none.

    Args:
        program: the program before the rules.
        rules: the rules that matched nothing.
    """
    if not rules:
        return ()
    paths = all_instances(program)
    places = [Place(name, program.graphs[name], paths[name]) for name in program.order]
    nearest = [_nearest(rule, places) for rule in rules]
    return tuple(sorted(filter(None, nearest), key=lambda miss: -miss.matched))


def _nearest(rule: Any, places: Sequence[Place]) -> NearMiss | None:
    results = [*rule.pattern.results]
    best: tuple[int, Place, Part, Node] | None = None
    # A result of the pattern before its operands: the difference is inside of the match then.
    for part in dict.fromkeys([*results, *rule.pattern.parts]):
        for place, node in _candidates(part, places):
            score = place.score(part, Ref(node.name))
            if score >= OPERATOR and (best is None or score > best[0]):
                best = score, place, part, node
    if best is None:
        return None
    score, place, part, node = best
    difference = place.difference(part, Ref(node.name), node, "it", {})
    difference = difference or place.outside(rule.pattern.parts, results, part, node)
    if difference is None:
        return None
    at, what, wanted, given = difference
    count = score // OPERATOR
    known: dict[Part, int] = {}
    size = sum(size_of(each, known) for each in results)
    return NearMiss(rule.name, at, what, wanted, given, place.name, place.modules, count, size)


def _candidates(part: Part, places: Sequence[Place]) -> Iterator[tuple[Place, Node]]:
    if role(part) not in OPERATORS:
        return
    for place in places:
        for key in operator_of(part).orders:
            for node in place.by_operator.get(key, ()):
                yield place, node


@define(eq=False)
class Place:
    """A graph, to compare parts of patterns with its values."""

    name: str
    graph: Graph
    modules: tuple[str, ...]
    by_operator: dict[int, list[Node]] = field(init=False, factory=dict)
    """The nodes by the ``id`` of what they call."""
    scores: dict[tuple[Part, str], int] = field(init=False, factory=dict)
    search: Search = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.search = Search(self.graph.by_name.get)
        for node in self.graph.nodes:
            self.by_operator.setdefault(id(root_of(node.do)), []).append(node)

    def node(self, value: Arg) -> Node | None:
        """Return the node that computes a value."""
        return self.graph.by_name.get(value.name) if type(value) is Ref else None

    def score(self, part: Part, value: Arg) -> int:
        """Return how much of a part matches a value, whatever differs besides; variables match everything."""
        if type(value) is not Ref or role(part) == "list":
            return self._score(part, value)
        key = part, value.name
        if key not in self.scores:
            self.scores[key] = 0  # patterns have no cycles; this bounds a wrong graph
            self.scores[key] = self._score(part, value)
        return self.scores[key]

    def _score(self, part: Part, value: Arg) -> int:
        kind = role(part)
        if kind == "literal":
            return int(is_same_literal(part, value))
        if kind == "any_of":
            return max(self.score(each, value) for each in part.args)
        if kind == "through":
            return max(self.score(part.args[0], end) for end in self._ends(part, value))
        if kind == "list":
            pairs = pairs_of_lists(part, value) or ()
            return sum(self.score(each, inner) for each, inner in pairs)
        node = self.node(value) if kind in OPERATORS else None
        orders = [] if node is None else self._orders(part, node)
        return OPERATOR + max(self._total(order)[0] for order in orders) if orders else 0

    def _total(self, order: Mapping[Any, tuple[Part, Arg]]) -> tuple[int, int]:
        # The score of the arguments, and how many literals of the pattern face a literal.
        total = sum(self.score(each, inner) for each, inner in order.values())
        pairs = [
            role(each) == "literal" and type(inner) is not Ref for each, inner in order.values()
        ]
        return total, sum(pairs)

    def _orders(self, part: Part, node: Node) -> list[Mapping[Any, tuple[Part, Arg]]]:
        # The parts and arguments by parameter, in each order of commutative operands.
        orders = operator_of(part).orders.get(id(root_of(node.do)), ())
        arguments = self.search.arguments_of(node) if any(orders) else {}
        return [
            {name: (each, arguments[name]) for name, each in order.items()}
            for order in orders
            if arguments or not order
        ]

    def _ends(self, part: Part, value: Arg) -> list[Arg]:
        ends = [value]
        while (node := self.node(ends[-1])) is not None and looks_through(part, node):
            ends.append(node.args[0])
        return ends

    def difference(
        self, part: Part, value: Arg, user: Node, what: str, bound: dict[str, Arg]
    ) -> Difference | None:
        """Return the first difference between a part and a value; None if only the other uses of a variable may differ.

        Args:
            part: a part of a pattern.
            value: an argument of a node.
            user: the node.
            what: the name of the argument.
            bound: the values of the variables so far.
        """
        kind = role(part)
        if kind == "variable":
            known = bound.setdefault(part.target, value)
            is_same = same_arg(known, value) or any(
                isinstance(one, list | tuple) and len(one) == 1 and same_arg(one[0], other)
                for one, other in ((known, value), (value, known))
            )
            wanted = f"{self.text(known)} as in the other place of {part.target!r}"
            return None if is_same else (user, what, wanted, self.text(value))
        if kind == "literal":
            is_same = is_same_literal(part, value)
            return None if is_same else (user, what, shown(part, DEPTH), self.text(value))
        if kind == "any_of":
            part = max(part.args, key=lambda each: self.score(each, value))
            return self.difference(part, value, user, what, bound)
        if kind == "through":
            end = max(self._ends(part, value), key=lambda each: self.score(part.args[0], each))
            return self.difference(part.args[0], end, user, what, bound)
        if kind == "list":
            pairs = pairs_of_lists(part, value)
            if pairs is None:
                return user, what, shown(part, DEPTH), self.text(value)
            named = [(what, each, inner) for each, inner in pairs]
            return self._first(named, user, bound)
        if kind not in OPERATORS or (kind == "arithmetic" and type(value) is not Ref):
            return None
        node = self.node(value)
        orders = [] if node is None else self._orders(part, node)
        if node is None or not orders:
            return user, what, shown(part, DEPTH), self.text(value)
        best = max(orders, key=self._total)
        named = [(_argument(name), each, inner) for name, (each, inner) in best.items()]
        return self._first(named, node, bound)

    def _first(
        self, named: Sequence[tuple[str, Part, Arg]], user: Node, bound: dict[str, Arg]
    ) -> Difference | None:
        for what, each, inner in named:
            difference = self.difference(each, inner, user, what, bound)
            if difference is not None:
                return difference
        return None

    def outside(
        self, parts: Sequence[Part], results: Sequence[Part], part: Part, node: Node
    ) -> Difference | None:
        """Return the operator of a pattern that should use a matched value, or be another result, and what the program has.

        Args:
            parts: all parts of the pattern.
            results: the results of the pattern.
            part: the part that matched.
            node: the node that it matched.
        """
        if part in results:
            missing = [each for each in results if each is not part and role(each) in OPERATORS]
            if not missing:
                return None
            return node, "another result", shown(missing[0], DEPTH), "missing"
        users = [each for each in parts if role(each) in OPERATORS and part in each.all_input_nodes]
        names = [self.text(Ref(user)) for user in self.graph.users.get(node.name, ())]
        given = ", ".join(dict.fromkeys(names)) or "a result of the graph"
        wanted = shown(users[0] if users else results[0], DEPTH)
        return node, "its user", wanted, given

    def text(self, value: Arg) -> str:
        """Return an argument as text: a literal, or the operator that computes it."""
        if isinstance(value, list | tuple):
            items = [each.name if type(each) is Ref else self.text(each) for each in value]
            return f"[{', '.join(items)}]"
        if type(value) is not Ref:
            return repr(value)
        node = self.node(value)
        if node is None:
            return f"the input {value.name!r}"
        if type(node.do) is Get:
            return f"a read of {node.do.slot!r}"
        return f"a call of {node.do.instance.path!r}" if type(node.do) is Call else node.do.name


def size_of(part: Part, known: dict[Part, int]) -> int:
    """Return the number of operators in a part; of alternatives, the one with the most counts.

    Args:
        part: a part of a pattern.
        known: the sizes of nodes so far: a pattern uses some in many alternatives.

    >>> from .pattern import Pattern
    >>> size_of(Pattern.of(lambda x: (x + 1).exp()).results[0], {})
    2
    """
    kind = role(part)
    if kind == "list":
        return sum(size_of(each, known) for each in part)
    if kind not in (*OPERATORS, "any_of", "through"):
        return 0
    if part not in known:
        parts = part.args[:1] if kind == "through" else (*part.args, *part.kwargs.values())
        sizes = [size_of(each, known) for each in parts]
        known[part] = max(sizes) if kind == "any_of" else sum(sizes) + int(kind in OPERATORS)
    return known[part]


def _argument(name: Any) -> str:
    return f"argument {name!r}" if isinstance(name, str) else "its item" if name else "its operand"


def is_same_literal(part: Part, value: Arg) -> bool:
    """Return whether a literal of a pattern matches an argument.

    >>> is_same_literal(2, 2.0), is_same_literal("none", "tanh")
    (True, False)
    """
    return same_arg(part, value) or is_same_number(part, value)
