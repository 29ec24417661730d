"""Matching: find the ways in which a value of a graph matches a part of a pattern, and the values of the variables.

Arguments are compared in the order of the schema; commutative operands are tried in both orders.  Conditions on values (sizes,
constants, indices) are checked once the operators match (``holds``).

For several results, the search starts at the last of them in a walk over the graph; the others are users of known values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import copysign
from typing import Any, cast

import torch
from attrs import evolve, field, frozen
from torch import fx

from ...ir.arguments import Arg, Items, Ref, refs_in, same_arg
from ...ir.effects.resolved import item_of
from ...ir.errors import RuleError
from ...ir.graph import Call, Node, Op
from ...ir.state import same_contents
from ...ir.torch_private import OpOverload
from .pattern import Part, Pattern, Through, arranged, looks_through, nodes_of, operator_of, role, shown

NodeOf = Callable[[str], Node | None]

Pairs = Sequence[tuple[Part, Arg]]
"""Parts, and the arguments that they must match."""


@frozen
class Found:
    """The values of the variables, and the nodes of the operators of a pattern, the outermost first."""

    values: Mapping[Any, Any] = field(factory=dict)
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

    def has(self, node: Node, part: Part) -> bool:
        """Return whether a node matches a part."""
        return any(each is part and there is node for each, there in zip(self.parts, self.nodes, strict=True))

    def node_of(self, part: Part) -> Ref | None:
        """Return a reference to the value that a part matches; None if it matches no node."""
        return next((Ref(there.name) for each, there in zip(self.parts, self.nodes, strict=True) if each is part), None)

    def with_nodes(self, nodes: Sequence[Node], part: Part) -> Found:
        """Add nodes."""
        return Found(self.values, (*self.nodes, *nodes), (*self.parts, *[part] * len(nodes)), self.several)

    def with_value(self, key: Any, value: Any) -> Found:
        """Add a value."""
        return Found({**self.values, key: value}, self.nodes, self.parts, self.several)


NOWHERE = Found()


class Search:
    """A search for patterns in a graph.

    Args:
        node_of: returns the node that computes a value; None for an input.

    >>> from purefx.ir.operators import op_of
    >>> y = Node("y", op_of(torch.ops.aten.add.Tensor), (Ref("a"), 1))
    >>> added = Pattern.of(lambda x: x + 1)
    >>> [dict(each.values) for each in Search({"y": y}.get).match(added.results[0], Ref("y"))]
    [{'x': Ref(name='a')}]
    """

    def __init__(self, node_of: NodeOf) -> None:
        self.node_of = node_of
        self._arguments: dict[str, Mapping[str, Any]] = {}
        """The arguments of nodes by parameter, by name of the node."""

    def match(self, part: Part, value: Arg, found: Found = NOWHERE) -> Iterator[Found]:
        """Find the ways in which a value matches a part, given earlier matches."""
        kind = role(part)
        if kind == "arithmetic":
            kind = "amount" if self._is_number(value) else "operator"
        match kind:
            case "variable":
                yield from _same(part.target, value, found)
            case "any_of":
                chosen = found.values.get(part)  # all occurrences choose the same alternative
                for number, each in enumerate(part.args):
                    for more in self.match(each, value, found) if chosen in (None, number) else ():
                        yield more.with_value(part, number)
            case "operator" | "item" | "call" | "module":
                node = self.node_of(value.name) if type(value) is Ref else None
                if node is not None and found.has(node, part):
                    yield found  # a value that the pattern uses several times
                elif node is not None:
                    for pairs in self._ways(part, node):
                        yield from self._all(pairs, found.with_nodes([node], part))
            case "amount" | "tensor":  # compared when the operators match
                yield found.with_value(part, (*found.values.get(part, ()), value))
            case "through":
                yield from self._through(part, value, found)
            case "list":
                if (pairs := _paired(part, value)) is not None:
                    yield from self._all(pairs, found)
            case _:
                if same_arg(part, value) or is_same_number(part, value):
                    yield found

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
            for bound in [more] if chain is None else _same(cast("Any", chain).target, Through(nodes), more):
                yield from self.match(whole, end, bound)

    def _is_number(self, value: Arg) -> bool:
        node = self._node(value)
        return type(value) is not Ref or (node is not None and isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat))

    def _node(self, value: Arg) -> Node | None:
        return self.node_of(value.name) if type(value) is Ref else None

    def _ways(self, part: Any, node: Node) -> Sequence[Pairs]:
        # The pairs that must match for a node to match a part: in one way, two, or none.
        kind, target = role(part), root_of(node)
        if kind == "module":
            return [[]] if type(node.do) is Call else []
        if kind == "item":
            item = item_of(node)
            return [[(part.args[0], Ref(item[0]))]] if item is not None and item[1] == part.args[1] else []
        wanted = operator_of(part)
        if id(target) not in wanted.orders:
            wanted.orders[id(target)] = _orders(wanted, target)
        orders = wanted.orders[id(target)]
        if kind == "call" or not orders:
            return [[]] if orders else []
        if node.name not in self._arguments:
            self._arguments[node.name] = arranged(target, node.args, dict(node.kwargs)) or {}
        arguments = self._arguments[node.name]
        return [[(each, _spelled_out(name, arguments[name])) for name, each in order] for order in orders] if arguments else []

    def _all(self, pairs: Pairs, found: Found) -> Iterator[Found]:
        # Match the pairs in order, with backtracking.
        if not pairs:
            yield found
            return
        for more in self.match(*pairs[0], found):
            yield from self._all(pairs[1:], more)

    # -- several results --------------------------------------------------------------------------------------------------------

    def results(self, pattern: Pattern, node: Node, users_of: Callable[[str], Sequence[Node]]) -> Iterator[Found]:
        """Find the ways in which a node matches the result of a pattern, or the last of several.

        Args:
            pattern: the pattern of a rule.
            node: a node of the graph.
            users_of: returns the users of a value that may be other results, in order.
        """
        if not pattern.is_tuple:
            yield from self.match(pattern.results[0], Ref(node.name))
            return
        for number, each in enumerate(pattern.results):
            if root_of(node) in roots_of(each):
                for found in self.match(each, Ref(node.name)):
                    yield from self._with_others(pattern.results, {number: node}, found, users_of)

    def _with_others(self, parts: Sequence[Part], roots: Mapping[int, Node], found: Found, users_of: Any) -> Iterator[Found]:
        if len(roots) == len(parts):
            results = tuple([roots[number] for number in range(len(parts))])
            if operands_of(found).isdisjoint([root.name for root in results]):  # a replacement cannot replace its own operands
                yield evolve(found, several=results)
            return
        used = {node.name for node in roots.values()}
        for number, part in enumerate(parts):
            if number not in roots and (candidates := self._candidates(part, found, users_of)):
                for node in candidates:
                    for more in self.match(part, Ref(node.name), found) if node.name not in used else ():
                        yield from self._with_others(parts, {**roots, number: node}, more, users_of)
                return

    def _candidates(self, part: Part, found: Found, users_of: Any) -> list[Node]:
        # The nodes that may match a part: those that compute with values that it shares with the match.
        inside, wanted = nodes_of(part), set(roots_of(part))
        known = [found.values.get(each.target) if role(each) == "variable" else found.node_of(each) for each in inside]
        names = step = {value.name: None for value in known if type(value) is Ref}
        for _ in inside:
            step = {user.name: None for name in step for user in users_of(name) if user.name not in names}
            names = names | step
        nodes = [node for name in names if (node := self.node_of(name)) is not None]
        return [node for node in nodes if root_of(node) in wanted]


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
        raise RuleError(f"{name} returns one value twice: return it once, in the pattern and in the replacement")
    values = [{*nodes_of(part)} for part in parts]
    if len(parts) > 1 and any(all(own.isdisjoint(each) for each in values if each is not own) for own in values):
        raise RuleError(f"{name} has a result that shares no value with the other results: write two rules")


# -- operators and their arguments -----------------------------------------------------------------------------------------------


def _same(key: Any, value: Any, found: Found) -> Iterator[Found]:
    if key not in found.values:
        yield found.with_value(key, value)
    elif found.values[key] == value if isinstance(value, Through) else same_arg(found.values[key], value):
        yield found


def _paired(part: Sequence[Part], value: Any) -> Pairs | None:
    # Pair the items of two lists; `*rest` matches any number of items.
    if not isinstance(value, list | tuple):
        return None
    at = next((number for number, each in enumerate(part) if role(each) == "rest"), None)
    more = len(value) - len(part)
    if at is None:
        return list(zip(part, value, strict=True)) if more == 0 else None
    if more < -1:
        return None
    end = at + more + 1
    rest = part[at].args[0], Items(value[at:end])
    return [*zip(part[:at], value[:at], strict=True), rest, *zip(part[at + 1 :], value[end:], strict=True)]


def roots_of(part: Part) -> Iterator[Any]:
    """Return the overloads that a part can match, ``getitem`` for one of several results, and ``Call`` for a module.

    Raises:
        RuleError: the part may be a variable or a literal, and would match everywhere.
    """
    match role(part):
        case "any_of":
            for each in part.args:
                yield from roots_of(each)
        case "operator" | "arithmetic" | "call":
            yield from operator_of(part).overloads
        case "item":
            yield operator.getitem
        case "module":
            yield Call
        case _:
            raise RuleError(f"the result of a pattern must be an operator: {shown(part)} would match everywhere")


def root_of(node: Node) -> Any:
    """Return the key of a node in the index of rules: its overload, ``getitem``, ``Call``, or None for anything else."""
    do = node.do
    target = do.target if type(do) is Op else type(do)
    return target if isinstance(target, OpOverload) or target is operator.getitem or target is Call else None


COMMUTING: Mapping[str, tuple[str, str]] = {
    "transpose": ("dim0", "dim1"),
    **dict.fromkeys(("add", "mul", "maximum", "minimum", "eq", "ne"), ("self", "other")),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ("self", "other")),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__"), ("self", "other")),
    **dict.fromkeys(("logaddexp", "logaddexp2", "hypot", "fmax", "fmin", "gcd", "lcm"), ("self", "other")),
}
"""Operators that commute in two parameters."""

WITHOUT_MEANING = frozenset({"cudnn_enable", "cudnn_enabled"})
"""Parameters that choose a kernel: torch sets them from a global switch, which the exporter turns off."""

LEFT_OUT: Mapping[str, Any] = {"pin_memory": False, "layout": torch.strided, "device": torch.device("cpu")}
"""The value that torch writes for a missing argument whose default in the schema is None."""


def _spelled_out(name: str, value: Any) -> Any:
    return LEFT_OUT.get(name) if value is None else value


def _orders(wanted: Any, target: Any) -> list[list[tuple[str, Part]]]:
    # The argument of each parameter of an overload, in each order of the operands; empty if the pattern has another operator.
    if target not in wanted.overloads:
        return []
    parts = wanted.overloads[target]
    orders = [parts]
    one, other = COMMUTING.get(wanted.name, ("", ""))
    if one in parts and other in parts and parts[one] is not parts[other] and same_arg(parts.get("alpha", 1), 1):
        orders.append({**parts, one: parts[other], other: parts[one]})
    known = [
        [(name, _spelled_out(name, each)) for name, each in order.items() if name not in WITHOUT_MEANING] for order in orders
    ]
    return [sorted(order, key=lambda pair: role(pair[1]) != "literal") for order in known]  # numbers differ sooner than operators


NUMBERS = frozenset({int, float})


def is_same_number(one: Any, other: Any) -> bool:
    """Return whether an integer and a floating-point number are exactly equal."""
    if type(one) is type(other) or type(one) not in NUMBERS or type(other) not in NUMBERS or one != other:
        return False
    return abs(other) <= 2**53 and copysign(1, one) == copysign(1, other)


# -- conditions on values --------------------------------------------------------------------------------------------------------


def holds(m: Any) -> bool:
    """Return whether the values of a match fit the pattern: sizes, constants, indices, types of numbers, modules.

    Args:
        m: the match.
    """
    values = [(part, value) for part, several in m.found.values.items() if role(part) in CHECKS for value in several]
    pairs = zip(m.found.parts, m.found.nodes, strict=True)
    return all(CHECKS[role(part)](m, part, value) for part, value in values) and all(_is_node(m, *pair) for pair in pairs)


def _is_node(m: Any, part: Part, node: Node) -> bool:
    if role(part) == "module":
        m.notes.by_instance |= len(m.scope.paths) > 1
        return bool(part.meta["module"].is_at(node, m.scope.paths[m.instance], m.program))
    if role(part) not in ("operator", "arithmetic") or not (numbers := _numbers(part)):
        return True
    # Numbers of distinct types are equivalent only beside floating-point tensors.
    types = {(type(each), each) for each in _numbers(node)}
    is_retyped = any(is_same_number(one, each) for one in numbers for _, each in types if (type(one), one) not in types)
    return not is_retyped or any(map(_is_floating, [m.val(Ref(name)) for name in node.refs()]))


def _is_constant(m: Any, part: Part, value: Any) -> bool:
    held = m.constant(value)
    return held is not None and same_contents(held, part.meta["tensor"])


def _numbers(part: Any) -> list[Any]:
    # The numbers among the arguments of a part or a node.
    args = [*part.args, *dict(part.kwargs).values()]
    return [each for arg in args for each in (arg if isinstance(arg, list | tuple) else [arg]) if type(each) in NUMBERS]


def _is_known(m: Any, part: Part, value: Any) -> bool:
    wanted, values = _computed(part, m), value if isinstance(value, list | tuple) else [value]
    wanted = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    if len(values) != len(wanted) or not all(map(_is_same_fact, wanted, map(m.val, values))):
        return False
    # The nodes that compute numbers are removed with the match if they have no other users.
    todo = [*values]
    while todo:
        value = todo.pop()
        node = m.scope.node_of(value.name) if type(value) is Ref and value.name not in m.notes.reads else None
        if node is not None and not isinstance(m.val(value), torch.Tensor):
            m.notes.reads[value.name] = None
            todo += map(Ref, node.refs())
    return True


CHECKS = {"tensor": _is_constant, "amount": _is_known, "arithmetic": _is_known}
"""The conditions on the values that some parts matched."""


def _is_same_fact(known: Any, value: Any) -> bool:
    if isinstance(known, int | float | torch.SymInt | torch.SymFloat):
        return (type(value) is type(known) or isinstance(value, torch.SymInt | torch.SymFloat)) and bool(known == value)
    return known is not None and known is value


def _computed(part: Part, m: Any) -> Any:
    # The value that a part matched: a fake value or a number; None if unknown.
    while role(part) == "any_of":
        part = part.args[m.found.values[part]] if part in m.found.values else None
    if not isinstance(part, fx.Node):
        return part
    values = m.found.values
    found = values.get(part.target) if role(part) == "variable" else values.get(part) if role(part) == "through" else None
    there = m.found.node_of(part) if found is None else found
    if there is not None:
        return m.val(there)
    if role(part) not in ("amount", "arithmetic"):
        return None
    args = [_computed(each, m) for each in part.args]
    try:
        return getattr(args[0], str(part.target))(*args[1:]) if part.op == "call_method" else cast("Any", part.target)(*args)
    except (ArithmeticError, TypeError, AttributeError, IndexError):
        return None


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
