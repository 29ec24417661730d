"""Matching: find the ways in which a value of a graph matches a part of a pattern, and the values of the variables.

Arguments are compared in the order of the schema; commutative operands are tried in both orders.  Conditions on values (sizes,
constants, indices) are checked once the operators match (``Match.holds``).

For several results, the search starts at the last of them in a walk over the graph; the others are users of known values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import copysign
from typing import Any, cast

import torch
from attrs import Factory, define, evolve, frozen
from torch import fx
from torch.fx.node import map_arg

from ...ir.arguments import Arg, Items, Ref, refs_in, same_arg
from ...ir.errors import RuleError
from ...ir.forks import cached_property
from ...ir.graph import Call, Get, Node, Op
from ...ir.state import same_contents
from .pattern import (
    Part,
    Pattern,
    Through,
    arranged,
    compared,
    looks_through,
    nodes_of,
    operator_of,
    role,
    shown,
)

Pairs = Sequence[tuple[Part, Arg]]
"""Parts, and the arguments that they must match."""


@frozen
class Found:
    """The values of the variables, and the nodes of the operators of a pattern, the outermost first."""

    values: Mapping[Any, Any] = Factory(dict)
    """The values of variables by name, and of other parts by the part."""
    nodes: tuple[Node, ...] = ()
    parts: tuple[Any, ...] = ()
    """The part that each node matches."""
    several: tuple[Node, ...] = ()
    """The nodes to replace, if the pattern has several results."""

    @cached_property
    def distinct(self) -> tuple[Node, ...]:
        """The distinct nodes."""
        return tuple({node.name: node for node in self.nodes}.values())

    @property
    def roots(self) -> tuple[Node, ...]:
        """The nodes to replace, in the order of the pattern; for one result, the first node."""
        return self.several or self.nodes[:1]

    @property
    def root_names(self) -> set[str]:
        """The names of the nodes to replace."""
        return {root.name for root in self.roots}

    def node_of(self, part: Part) -> Ref | None:
        """Return a reference to the value that a part matches; None if it matches no node."""
        return next(
            (
                Ref(there.name)
                for each, there in zip(self.parts, self.nodes, strict=True)
                if each is part
            ),
            None,
        )

    def with_nodes(self, nodes: Sequence[Node], part: Part) -> Found:
        """Add nodes."""
        return Found(
            self.values, (*self.nodes, *nodes), (*self.parts, *[part] * len(nodes)), self.several
        )

    def with_value(self, key: Any, value: Any) -> Found:
        """Add a value."""
        return Found({**self.values, key: value}, self.nodes, self.parts, self.several)


NOWHERE = Found()


@define(eq=False)
class Search:
    """A search for patterns in a graph.

    >>> from purefx.ir.operators import op_of
    >>> y = Node("y", op_of(torch.ops.aten.add.Tensor), (Ref("a"), 1))
    >>> added = Pattern.of(lambda x: x + 1)
    >>> [dict(each.values) for each in Search({"y": y}.get).match(added.results[0], Ref("y"))]
    [{'x': Ref(name='a')}]
    """

    node_of: Callable[[str], Node | None]
    """Returns the node that computes a value; None for an input."""
    _arguments: dict[str, Mapping[Any, Any]] = Factory(dict)
    """The arguments of nodes by parameter, by name of the node."""

    def match(self, part: Part, value: Arg, found: Found = NOWHERE) -> Iterator[Found]:
        """Find the ways in which a value matches a part, given earlier matches."""
        kind = role(part)
        if kind == "arithmetic":
            kind = "fact" if self._is_number(value) else "operator"
        match kind:
            case "literal":
                if same_arg(part, value) or is_same_number(part, value):
                    yield found
            case "variable":
                yield from self._variable(part.target, value, found)
            case "any_of":
                chosen = found.values.get(part)  # all occurrences choose the same alternative
                for number, each in enumerate(part.args):
                    for more in self.match(each, value, found) if chosen in (None, number) else ():
                        yield more.with_value(part, number)
            case "operator" | "item":
                node, known = self._node(value), zip(found.parts, found.nodes, strict=True)
                if part in found.parts and any(
                    each is part and there is node for each, there in known
                ):
                    yield found  # a value that the pattern uses several times
                elif node is not None:
                    for pairs in self._ways(part, node):
                        yield from self._all(pairs, found.with_nodes([node], part))
            case "fact" | "tensor":  # compared when the operators match
                yield found.with_value(part, (*found.values.get(part, ()), value))
            case "through":
                yield from self._through(part, value, found)
            case _:  # a list
                if (pairs := pairs_of_lists(part, value)) is not None:
                    yield from self._all(pairs, found)

    def _variable(self, name: str, value: Arg, found: Found) -> Iterator[Found]:
        # A number and its list of one are the same: torch writes `[1]` for the dimension in `x.sum(1)`.
        bound = found.values.get(name)
        for several, number in ((bound, value), (value, bound)):
            if not isinstance(several, list | Items) or len(several) != 1:
                continue
            if self._is_integer(number) and same_arg(several[0], number):
                yield found.with_value(name, number)  # operators accept it in both places
                return
        yield from _same(name, value, found)

    def _is_integer(self, value: Arg) -> bool:
        return type(value) is int or (type(value) is Ref and self._is_number(value))

    def _through(self, part: fx.Node, value: Arg, found: Found) -> Iterator[Found]:
        # All occurrences are the same value, with one chain.
        if part in found.values:
            yield from _same(part, value, found)
            return
        whole, chain = part.args[:2]
        ends: list[tuple[Arg, tuple[Node, ...]]] = [(value, ())]
        while (node := self._node(ends[-1][0])) is not None and looks_through(part, node):
            ends.append((node.args[0], (*ends[-1][1], node)))
        for end, nodes in reversed(ends):  # the furthest first
            more = found.with_value(part, value).with_nodes(nodes, part)
            for bound in (
                [more] if chain is None else _same(cast("Any", chain).target, Through(nodes), more)
            ):
                yield from self.match(whole, end, bound)

    def _is_number(self, value: Arg) -> bool:
        node = self._node(value)
        return type(value) is not Ref or (
            node is not None and isinstance(node.val, torch.SymInt | torch.SymFloat)
        )

    def _node(self, value: Arg) -> Node | None:
        return self.node_of(value.name) if type(value) is Ref else None

    def _ways(self, part: Any, node: Node) -> Sequence[Pairs]:
        # The pairs that must match for a node to match a part: in one way, two, or none.
        target = root_of(node.do)
        orders = operator_of(part).orders.get(id(target), ())
        if not any(orders):
            return [[] for _ in orders]  # one with any arguments, or none
        arguments = self.arguments_of(node)
        return (
            [[(each, arguments[name]) for name, each in order.items()] for order in orders]
            if arguments
            else []
        )

    def arguments_of(self, node: Node) -> Mapping[Any, Any]:
        """Return the arguments of a node by parameter, by number for ``getitem``; none if they do not fit the schema."""
        if node.name not in self._arguments:
            target = root_of(node.do)
            found = (
                dict(enumerate(node.args))
                if target is operator.getitem
                else arranged(target, node.args, dict(node.kwargs))
            )
            self._arguments[node.name] = compared(found or {})
        return self._arguments[node.name]

    def _all(self, pairs: Pairs, found: Found) -> Iterator[Found]:
        # Match the pairs in order, with backtracking.
        several: Iterator[Found] = iter((found,))
        for part, value in pairs:
            several = chain.from_iterable(map(partial(self.match, part, value), several))
        return several

    # -- several results --------------------------------------------------------------------------------------------------------

    def results(
        self, pattern: Pattern, node: Node, users_of: Callable[[str], Sequence[Node]]
    ) -> Iterator[Found]:
        """Find the ways in which a node matches the result of a pattern, or the last of several.

        Args:
            pattern: the pattern of a rule.
            node: a node of the graph.
            users_of: returns the users of a value that may be other results, in order.
        """
        if not pattern.is_tuple:
            yield from self.match(pattern.results[0], Ref(node.name))
            return
        for part in pattern.results:
            for found in self.match(part, Ref(node.name)):
                yield from self._with_others(pattern.results, {part: node}, found, users_of)

    def _with_others(
        self, parts: Sequence[Part], roots: Mapping[Part, Node], found: Found, users_of: Any
    ) -> Iterator[Found]:
        missing = [part for part in parts if part not in roots]
        if not missing:
            names = {root.name for root in roots.values()}
            if len(names) == len(parts) and names.isdisjoint(
                operands_of(found)
            ):  # a replacement cannot replace its operands
                yield evolve(found, several=tuple([roots[part] for part in parts]))
        for part in missing:
            if candidates := self._candidates(part, found, users_of):
                for node in candidates:
                    for more in self.match(part, Ref(node.name), found):
                        yield from self._with_others(parts, {**roots, part: node}, more, users_of)
                return

    def _candidates(self, part: Part, found: Found, users_of: Any) -> list[Node]:
        # The nodes that may match a part: those that compute with values that it shares with the match, and these.
        inside = nodes_of(part)
        known = [
            found.values.get(each.target) if role(each) == "variable" else found.node_of(each)
            for each in inside
        ]
        names = step = {value.name: None for value in known if type(value) is Ref}
        for _ in inside:
            step = {
                user.name: None
                for name in step
                for user in users_of(name)
                if user.name not in names
            }
            names = names | step
        return [node for name in names if (node := self.node_of(name)) is not None]


def operands_of(found: Found) -> set[str]:
    """Return the names of the values that variables match."""
    return set(refs_in(tuple(found.values.values()), ()))


def check_results(name: str, parts: Sequence[Part]) -> None:
    """Check that the results of a pattern can be matched together.

    Raises:
        RuleError: a result occurs twice, is not an operator, or shares no value with the others.
    """
    for each in parts:
        list(roots_of(each))
    if len({id(part) for part in parts}) < len(parts):
        raise RuleError(
            f"{name} returns one value twice: return it once, in the pattern and in the replacement"
        )
    values = [{*nodes_of(part)} for part in parts]
    if len(parts) > 1 and any(
        all(own.isdisjoint(each) for each in values if each is not own) for own in values
    ):
        raise RuleError(
            f"{name} has a result that shares no value with the other results: write two rules"
        )


# -- operators and their arguments -----------------------------------------------------------------------------------------------


def _same(key: Any, value: Any, found: Found) -> Iterator[Found]:
    if key not in found.values:
        yield found.with_value(key, value)
    elif (
        found.values[key] == value
        if isinstance(value, Through)
        else same_arg(found.values[key], value)
    ):
        yield found


def pairs_of_lists(part: Sequence[Part], value: Any) -> Pairs | None:
    """Return the pairs of the items of two lists, where ``*rest`` matches any number of items; None if the lengths differ.

    >>> pairs_of_lists([1, 2], [3, 4]), pairs_of_lists([1], [3, 4])
    ([(1, 3), (2, 4)], None)
    """
    if not isinstance(value, list | tuple):
        return None
    kinds = [*map(role, part)]
    if "rest" not in kinds:
        return list(zip(part, value, strict=True)) if len(part) == len(value) else None
    at = kinds.index("rest")
    end = len(value) - len(part) + at + 1
    if end < at:
        return None
    rest = part[at].args[0], Items(value[at:end])
    return [
        *zip(part[:at], value[:at], strict=True),
        rest,
        *zip(part[at + 1 :], value[end:], strict=True),
    ]


def roots_of(part: Part) -> Iterator[Any]:
    """Return the overloads that a part can match, ``getitem`` for one of several results, and ``Call`` for a module.

    Raises:
        RuleError: the part may be a variable or a literal, and would match everywhere.
    """
    match role(part):
        case "any_of":
            for each in part.args:
                yield from roots_of(each)
        case "operator" | "arithmetic" | "item":
            yield from operator_of(part).overloads
        case _:
            raise RuleError(
                f"the result of a pattern must be an operator: {shown(part)} would match everywhere"
            )


def needs(pattern: Pattern) -> Collection[frozenset[int]]:
    """Return the operators that a match needs, as sets of ids: a graph needs one of each set."""
    found: dict[Any, set[frozenset[int]]] = {}
    for part in pattern.graph.nodes:
        options = part.args if role(part) == "any_of" else (part,)
        are_called = all(role(each) in ("operator", "item") for each in options)
        operands = [
            found.get(each, set())
            for each in (part.args if role(part) == "any_of" else part.all_input_nodes)
        ]
        join = set.intersection if role(part) == "any_of" else set.union
        found[part] = (
            join(*operands)
            if operands and (are_called or role(part) in ("any_of", "through"))
            else set()
        )
        if are_called:
            found[part] |= {
                frozenset([key for each in options for key in operator_of(each).orders])
            }
    return set().union(*[found.get(part, ()) for part in pattern.results])


def root_of(do: Op | Call | Get) -> Any:
    """Return the key of an operation in the index of rules: its target, such as an overload or ``getitem``, or ``Call``."""
    return do.target if type(do) is Op else type(do)


NUMBERS = frozenset({int, float})


def is_same_number(one: Any, other: Any) -> bool:
    """Return whether an integer and a floating-point number are exactly equal."""
    if (
        type(one) is type(other)
        or type(one) not in NUMBERS
        or type(other) not in NUMBERS
        or one != other
    ):
        return False
    return abs(other) <= 2**53 and copysign(1, one) == copysign(1, other)


# -- conditions on values --------------------------------------------------------------------------------------------------------


def is_node(m: Any, part: Part, node: Node) -> bool:
    """Return whether a node fits its part of the pattern: the module that it calls, and the types of its numbers."""
    if type(node.do) is Call:
        m.notes.by_instance |= len(m.scope.paths) > 1
        return bool(part.meta["at"].is_at(node, m.scope.paths[m.instance], m.program))
    # Numbers of distinct types are equivalent only beside floating-point tensors.
    mine = _numbers(part)
    theirs = _numbers(node) if mine else mine
    is_retyped = mine != theirs and any(
        is_same_number(one, other) for _, one in mine - theirs for _, other in theirs
    )
    return not is_retyped or any(_is_floating(m.val(Ref(name))) for name in node.refs())


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _is_constant(m: Any, part: Part, value: Any) -> bool:
    held = m.constant(value)
    return held is not None and same_contents(held, part)


def _numbers(part: Any) -> set[tuple[type, Any]]:
    # The numbers among the arguments of a part or a node, with their types.
    args = [*part.args, *dict(part.kwargs).values()]
    several = [each for arg in args for each in (arg if isinstance(arg, list | tuple) else [arg])]
    return {(type(each), each) for each in several if type(each) in NUMBERS}


def _is_known(m: Any, part: Part, value: Any) -> bool:
    try:
        wanted = _computed(part, m)
    except (
        ArithmeticError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
    ):  # of values that are not known
        return False
    wanted, values = [
        list(one) if isinstance(one, list | tuple) else [one] for one in (wanted, value)
    ]
    if len(values) != len(wanted) or not all(map(_is_same_fact, wanted, map(m.val, values))):
        return False
    # The nodes that compute numbers are removed with the match if they have no other users.
    todo = [each.name for each in values if type(each) is Ref]
    while todo:
        node = m.scope.draft.nodes.get(name := todo.pop())
        if (
            node is not None
            and name not in m.notes.reads
            and not isinstance(m.val(Ref(name)), torch.Tensor)
        ):
            m.notes.reads[name] = None
            todo += node.refs()
    return True


CHECKS = {"tensor": _is_constant, "fact": _is_known, "arithmetic": _is_known}
"""The conditions on the values that some parts matched."""


def _is_same_fact(known: Any, value: Any) -> bool:
    is_alike = type(value) is type(known) or isinstance(value, torch.SymInt | torch.SymFloat)
    return known is not None and is_alike and bool(known == value)


def _computed(part: Any, m: Any) -> Any:
    # The value of a part: what it matched, or what it computes of such values; None if unknown.
    kind, values, target = role(part), m.found.values, part.target
    if kind == "any_of":
        return map_arg(part.args[values[part]], lambda one: _computed(one, m))
    there = (
        values.get(target if kind == "variable" else part)
        if kind in ("variable", "through")
        else m.found.node_of(part)
    )
    if there is not None or kind not in ("fact", "arithmetic"):
        return m.val(there)
    args, kwargs = cast("Any", map_arg((part.args, part.kwargs), lambda one: _computed(one, m)))
    return (
        getattr(args[0], target)(*args[1:], **kwargs)
        if part.op == "call_method"
        else target(*args, **kwargs)
    )
