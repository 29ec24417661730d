"""Comparing: what each parameter of an operator has to be for a node to be a term, and what the node gives it.

Arguments are compared as the schema of the operator orders them, so a default that is written or left out, and an argument that
is given by name or by position, are the same; operands that commute are tried in both orders.  How is worked out once for nodes
that are written alike.  What a term is beyond one operator is found elsewhere (``matching.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import copysign
from typing import Any

import torch
from attrs import frozen

from ...ir.arguments import Arg, Ref, same_arg
from ...ir.effects.resolved import item_of
from ...ir.graph import Node, Op
from ...ir.torch_private import Parameter, parameters_of
from .overloads import arranged, as_taken
from .terms import AnyCall, Applied, Item

__all__ = ["COMMUTING", "has_other_number", "ways_of"]

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
