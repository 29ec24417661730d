"""Matching: the ways in which a value of a graph is a term, and the values of its variables there.

Arguments are compared as the schema of the operator orders them, so a default that is written or left out, and an argument that
is passed by name or by position, are the same; operands that commute are tried in both orders.  ``legality.py`` decides whether
the matched nodes may be replaced.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from math import copysign
from typing import Any

import torch
from attrs import evolve, field, frozen

from ...ir.arguments import Arg, Items, Ref, same_arg
from ...ir.effects.resolved import item_of
from ...ir.errors import RuleError
from ...ir.graph import Call, Node, Op
from ...ir.torch_private import OpOverload, Parameter, parameters_of
from .amounts import Amount, Rest, Sizes
from .overloads import arranged, as_taken
from .terms import AnyCall, AnyOf, Applied, Chain, Item, ModuleCall, Through, Var, chains

__all__ = ["Found", "NodeOf", "has_other_number", "key_of", "match", "operators_of", "root_of"]

NodeOf = Callable[[str], Node | None]


@frozen
class Found:
    """What variables are, and which nodes the operators of a term are, the outermost first."""

    values: Mapping[str, Arg] = field(factory=dict)
    nodes: tuple[Node, ...] = ()
    terms: tuple[Any, ...] = ()
    """What each of the nodes was found as."""
    several: tuple[Node, ...] = ()
    """The nodes whose values are replaced, where a rule looks for several results."""

    @cached_property
    def distinct(self) -> tuple[Node, ...]:
        """The nodes, each once, in however many places of the pattern it stands."""
        nodes = self.nodes
        return nodes if len(nodes) == 1 else tuple({node.name: node for node in nodes}.values())

    @property
    def roots(self) -> tuple[Node, ...]:
        """The nodes whose values are replaced, in the order of the pattern; mostly the first of the nodes alone."""
        return self.several or self.nodes[:1]

    def has(self, node: Node, term: Any) -> bool:
        """Return whether a node was found as a term."""
        return any(each is term and there is node for each, there in zip(self.terms, self.nodes, strict=True))

    def node_of(self, term: Any) -> Ref | None:
        """Return the use of the value that a term was found as; None if it is none of an operator, or was not looked for."""
        return next((Ref(there.name) for each, there in zip(self.terms, self.nodes, strict=True) if each is term), None)

    def with_node(self, node: Node, term: Any) -> Found:
        """Return it with one more node."""
        return Found(self.values, (*self.nodes, node), (*self.terms, term), self.several)


def match(term: Any, value: Arg, node_of: NodeOf, found: Found = Found()) -> Iterator[Found]:
    """Find the ways in which a value of a graph is a term.

    Args:
        term: what a rule looks for.
        value: a use of a value, or an argument as it stands.
        node_of: the node that computes a value; None for an input.
        found: what is known already.

    >>> import torch
    >>> from purefx.ir.operators import op_of
    >>> y = Node("y", op_of(torch.ops.aten.add.Tensor), (Ref("a"), 1))
    >>> [dict(each.values) for each in match(Var("x") + 1, Ref("y"), {"y": y}.get)]
    [{'x': Ref(name='a')}]
    >>> list(match(Var("x") + 2, Ref("y"), {"y": y}.get))
    []
    """
    return _Search(node_of).match(term, value, found)


def key_of(part: Any) -> str:
    """Return what the values of a match call a tensor that stands in a pattern, or what is known of a value there."""
    return f"part {id(part)}"


class _Search:
    """One search: where a term has alternatives, those are left out first that fail whatever its variables are.

    Otherwise each alternative of an outer term would look for all that is in it again, to fail at the same place.
    """

    def __init__(self, node_of: NodeOf) -> None:
        self.node_of = node_of
        self._possible: dict[tuple[int, str], bool] = {}
        self._pairs: dict[tuple[int, str], list[list[tuple[Any, Arg]]]] = {}

    def match(self, term: Any, value: Arg, found: Found) -> Iterator[Found]:
        """Find the ways in which a value is a term."""
        match term:
            case Var(name):
                if name not in found.values:
                    yield Found({**found.values, name: value}, found.nodes, found.terms, found.several)
                elif same_arg(found.values[name], value):
                    yield found
            case AnyOf(terms):
                key = f"alternative {id(term)}"
                chosen = found.values.get(key)  # one that stands in several places is the same one in all of them
                for number, each in enumerate(terms):
                    if chosen in (None, number) and self.is_possible(each, value):
                        yield from self.match(each, value, evolve(found, values={**found.values, key: number}))
            case Item() | Applied() | AnyCall():
                node = self._node(value)
                if node is not None and found.has(node, term):
                    yield found  # a value that the pattern uses in several places
                elif node is not None:
                    ways = self._ways(term, node)
                    for pairs in ways if len(ways) == 1 else [each for each in ways if self._are_possible(each)]:
                        yield from self._all(pairs, found.with_node(node, term))
            case Amount() | Sizes():  # whether it is so is for the rule to ask (``patterns.py``)
                yield evolve(found, values={**found.values, key_of(term): _also(found.values, term, value)})
            case Through():
                yield from self._through(term, value, found)
            case ModuleCall():  # which module it calls is for the rule to ask: the body may be shared
                node = self.node_of(value.name) if type(value) is Ref else None
                if node is not None and type(node.do) is Call:
                    yield found if found.has(node, term) else found.with_node(node, term)
            case list() | tuple():
                if (pairs := _paired(term, value)) is not None:  # a list where both are the default
                    yield from self._all(pairs, found)
            case torch.Tensor():
                if type(value) is Ref:  # whether that is a constant with these contents is for the rule to ask
                    yield evolve(found, values={**found.values, key_of(term): _also(found.values, term, value)})
            case _:
                if same_arg(term, value):
                    yield found

    def _through(self, term: Through, value: Arg, found: Found) -> Iterator[Found]:
        # One that stands in several places is the same value in all of them, with one chain.
        key = key_of(term)
        if key in found.values:
            if same_arg(found.values[key], value):
                yield found
            return
        for each, nodes in chains(term, value, self._node):
            chain = Chain(nodes)
            values = {**found.values, key: value}
            if term.chain is None or values.setdefault(term.chain.name, chain) == chain:
                more = (
                    found
                    if not nodes
                    else Found(found.values, (*found.nodes, *nodes), (*found.terms, *[term] * len(nodes)), found.several)
                )
                yield from self.match(term.whole, each, evolve(more, values=values))

    def is_possible(self, term: Any, value: Arg) -> bool:
        """Return whether a value is a term if its variables may be anything, another value at each place."""
        match term:
            case Var():
                return True
            case AnyOf(terms):
                return any(self.is_possible(each, value) for each in terms)
            case Item() | Applied() | AnyCall():
                return type(value) is Ref and self._is_called(term, value)
            case Amount() | Sizes() | ModuleCall():
                return True
            case Through(whole=whole):
                return any(self.is_possible(whole, each) for each, _ in chains(term, value, self._node))
            case list() | tuple():
                pairs = _paired(term, value)
                return pairs is not None and self._are_possible(pairs)
            case torch.Tensor():
                return type(value) is Ref
            case _:
                return same_arg(term, value)

    def _is_called(self, term: Any, value: Ref) -> bool:
        key = id(term), value.name
        if key not in self._possible:
            node = self._node(value)
            self._possible[key] = node is not None and any(self._are_possible(each) for each in self._ways(term, node))
        return self._possible[key]

    def _are_possible(self, pairs: list[tuple[Any, Arg]]) -> bool:
        return all(self.is_possible(term, value) for term, value in pairs)

    def _node(self, value: Arg) -> Node | None:
        node = self.node_of(value.name) if type(value) is Ref else None
        return node if node is not None and type(node.do) is Op else None

    def _ways(self, term: Any, node: Node) -> list[list[tuple[Any, Arg]]]:
        # What has to match so that a node is a term: one way, two for operands that commute, or none.
        key = id(term), node.name
        if key not in self._pairs:
            self._pairs[key] = ways_of(term, node)
        return self._pairs[key]

    def _all(self, pairs: list[tuple[Any, Arg]], found: Found) -> Iterator[Found]:
        # Each pair in order; where one does not match, the pairs before it are tried in other ways.
        ways: list[Iterator[Found]] = [iter([found])]
        while ways:
            found = next(ways[-1], NOWHERE)
            if found is NOWHERE:
                ways.pop()
            elif len(ways) > len(pairs):
                yield found
            else:
                term, value = pairs[len(ways) - 1]
                ways.append(self.match(term, value, found))


def _paired(term: list[Any] | tuple[Any, ...], value: Any) -> list[tuple[Any, Arg]] | None:
    # The items of a list with those of another; `*rest` is any number of them.
    if not isinstance(value, list | tuple):
        return None
    at = next((number for number, part in enumerate(term) if isinstance(part, Rest)), None)
    more = len(value) - len(term)
    if at is None:
        return list(zip(term, value, strict=True)) if more == 0 else None
    if more < -1:
        return None
    behind = at + more + 1
    rest = (term[at].whole, Items(value[at:behind]))
    return [*zip(term[:at], value[:at], strict=True), rest, *zip(term[at + 1 :], value[behind:], strict=True)]


def _also(values: Mapping[str, Any], term: Any, value: Arg) -> tuple[Arg, ...]:
    # What a part of a pattern is in each of its places: those may be several values of which the same is to be asked.
    return (*values.get(key_of(term), ()), value)


NOWHERE = Found()


def operators_of(term: Any) -> Iterator[Any]:
    """Return the overloads that a term can have at its root, ``getitem`` for an item of a result.

    >>> import torch
    >>> list(operators_of(torch.relu(Var("x"))))
    [<OpOverload(op='aten.relu', overload='default')>]

    Raises:
        RuleError: it may be a variable, or a literal: such a rule would match everywhere.
    """
    match term:
        case AnyOf(terms):
            for each in terms:
                yield from operators_of(each)
        case Applied(overloads=overloads) | AnyCall(overloads=overloads):
            yield from overloads
        case Item():
            yield operator.getitem
        case ModuleCall():
            yield Call
        case list() | tuple():
            raise RuleError(f"a rule looks for a value, or for a tuple of values, and {term!r} is none")
        case _:
            raise RuleError(f"a rule looks for operators, and {term!r} is none: it would match everywhere")


def root_of(node: Node) -> Any:
    """Return what rules are indexed by: the overload that a node calls, ``getitem``, ``Call``, or None for anything else."""
    if type(node.do) is Call:
        return Call
    target = node.do.target if type(node.do) is Op else None
    return target if isinstance(target, OpOverload) or target is operator.getitem else None


COMMUTING: Mapping[str, tuple[str, str]] = {
    "transpose": ("dim0", "dim1"),
    **dict.fromkeys(("add", "mul", "maximum", "minimum", "eq", "ne"), ("self", "other")),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ("self", "other")),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__"), ("self", "other")),
    **dict.fromkeys(("logaddexp", "logaddexp2", "hypot", "fmax", "fmin", "gcd", "lcm"), ("self", "other")),
}
"""Operators of which two parameters may change places."""

WITHOUT_MEANING = frozenset({"cudnn_enable", "cudnn_enabled"})
"""Parameters that choose a kernel: torch fills them in from a global switch, which the exporter turns off."""

LEFT_OUT: Mapping[str, Any] = {"pin_memory": False, "layout": torch.strided, "device": torch.device("cpu")}
"""What torch's bindings write for arguments that were left out, where the schema says None."""

NUMBERS = frozenset({int, float})

_Planned = tuple[Any, int | None, Any, Callable[[Any], Any] | None]
"""What a parameter has to be; the number of the argument that it gets, or else its default; and how that is taken."""


@frozen
class _Mark:
    """The number of an argument, where it is asked which parameter gets it."""

    number: int


def ways_of(term: Any, node: Node) -> list[list[tuple[Any, Arg]]]:
    """Return what has to match for a node to be a term, parts of that with arguments: in one way, two, or none.

    Args:
        term: an operator, one of its results, or an operator whatever its arguments are.
        node: calls an operator.

    >>> from purefx.ir.operators import op_of
    >>> from purefx.transforms.rules.terms import Var
    >>> ways_of(torch.relu(Var("x")), Node("y", op_of(torch.ops.aten.relu.default), (Ref("a"),)))
    [[(x, Ref(name='a'))]]
    """
    assert type(node.do) is Op
    target: Any = node.do.target
    if isinstance(term, AnyCall):
        return [[]] if target in term.overloads else []
    if isinstance(term, Item):
        item = item_of(node)
        return [[(term.whole, Ref(item[0]))]] if item is not None and item[1] == term.index else []
    args = (*node.args, *[value for _, value in node.kwargs]) if node.kwargs else node.args
    names = [name for name, _ in node.kwargs]
    plan = term.plans.get((id(target), len(args), *names))
    if plan is None:
        if target not in term.overloads:
            return []
        plan = term.plans[id(target), len(args), *names] = _plan(term, target, len(args), names)  # the term holds the operator
    ways: list[list[tuple[Any, Arg]]] = []
    for order in plan:
        ways.append([])
        for part, at, value, taken in order:
            if at is not None:
                value = args[at] if taken is None else taken(args[at])
            if type(part) in NUMBERS and type(value) is not type(part) and is_same_number(part, value):
                part = value
            ways[-1].append((part, value))
    return ways


def _plan(term: Applied, target: Any, count: int, names: Sequence[str]) -> list[list[_Planned]]:
    # How nodes that give so many arguments, the last of them by these names, are compared, in each order of the operands.
    wanted, marks, by_position = term.overloads[target], [_Mark(number) for number in range(count)], count - len(names)
    given = arranged(target, marks[:by_position], dict(zip(names, marks[by_position:], strict=True)))
    if given is None:
        return []
    orders = [wanted]
    one, other = COMMUTING.get(term.name, ("", ""))
    if one in wanted and other in wanted and wanted[one] is not wanted[other] and same_arg(wanted.get("alpha", 1), 1):
        orders.append({**wanted, one: wanted[other], other: wanted[one]})
    parameters = [one for one in parameters_of(target) if one.name not in WITHOUT_MEANING]
    return [[_planned(each[one.name], given[one.name], one) for one in parameters] for each in orders]


def _planned(part: Any, given: Any, parameter: Parameter) -> _Planned:
    name = parameter.name
    taken = None if "Tensor" in parameter.kind else partial(as_taken, parameter=parameter)
    if name in LEFT_OUT and _is_left_out(name, part):
        taken = lambda value: part if _is_left_out(name, value) else as_taken(value, parameter)  # noqa: E731
    if type(given) is _Mark:
        return part, given.number, None, taken
    return part, None, given if taken is None else taken(given), None


def _is_left_out(name: str, value: Any) -> bool:
    return value is None or (type(value) is type(LEFT_OUT[name]) and value == LEFT_OUT[name])


def is_same_number(one: Any, other: Any) -> bool:
    """Return whether one number is written as an integer and as a floating-point number, without the loss of a bit.

    What is computed of it is the same where an operand is a floating-point tensor, and that is for the rule to ask.

    >>> is_same_number(2, 2.0), is_same_number(2, 2), is_same_number(0, -0.0), is_same_number(1, True)
    (True, False, False, False)
    """
    if type(one) is type(other) or type(one) not in NUMBERS or type(other) not in NUMBERS:
        return False
    return one == other and abs(other) <= 2**53 and copysign(1, one) == copysign(1, other)


def has_other_number(term: Any, node: Node) -> bool:
    """Return whether a node that was found as a term has some number of it as another type of number alone.

    >>> from purefx.ir.operators import op_of
    >>> from purefx.transforms.rules.terms import Var
    >>> add = op_of(torch.ops.aten.add.Tensor)
    >>> [has_other_number(Var("x") + 1, Node("y", add, (Ref("a"), number))) for number in (1, 1.0)]
    [False, True]
    """
    target: Any = getattr(node.do, "target", None)
    wanted = term.overloads.get(target) if type(term) is Applied else None
    given = arranged(target, node.args, dict(node.kwargs)) if wanted else None
    if wanted is None or given is None:
        return False
    pair = COMMUTING.get(term.name, ())
    for name, part in wanted.items():
        there = [given[each] for each in (pair if name in pair else (name,)) if each in given] if type(part) in NUMBERS else []
        if any(is_same_number(part, value) for value in there) and not any(same_arg(part, value) for value in there):
            return True
    return False
