"""Results of operators on fake values: which operators can run, which return an operand itself, when two results agree."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch

from ..arguments import Arg, Body, Ref, thawed
from ..effects.resolved import item_of
from ..graph import Call, Do, Graph, Node, Op
from ..program import Program
from ..torch_private import FakeTensor, OpOverload, device_of, has_fixed_sizes, without_overrides
from .values import described, has_no_result, running


def is_runnable(node: Node) -> bool:
    """Return whether the value of a node can be inferred from its operands; the operator may still reject them.

    >>> import torch
    >>> from purefx.ir.operators import op_of
    >>> is_runnable(Node("y", op_of(torch.ops.aten.neg.default))), is_runnable(Node("y", op_of(print)))
    (True, False)
    """
    do = node.do
    if type(do) is not Op:
        return True
    return not (
        do.target is None
        or do.effects.unknown
        or do.effects.scope
        or do.effects.ordered
        or has_no_result(node)
    )


def opens_region(node: Node) -> int:
    """Return 1 if a node opens a region that changes result dtypes or shapes of operators, -1 if it closes one, else 0.

    >>> opens_region(Node("y", Op("toy.neg")))
    0
    """
    do = node.do
    return (
        do.effects.scope
        if type(do) is Op and do.effects.scope and ("autocast" in do.name or "vmap" in do.name)
        else 0
    )


def changes_sizes(do: Do) -> bool:
    """Return whether an operation changes the sizes of its operand, as ``t_`` and ``resize_`` do.

    >>> changes_sizes(Op("toy.neg"))
    False
    """
    # `detach_` has the tag, but keeps the sizes.
    target: Any = do.target if type(do) is Op else None
    is_tagged = isinstance(target, OpOverload) and torch.Tag.inplace_view in target.tags
    return is_tagged and target is not torch.ops.aten.detach_.default


def values_of(graph: Graph) -> dict[str, Any]:
    """Return the fake values in the meta of a graph, by name.

    >>> from purefx.ir import Input
    >>> values_of(Graph((Input("x", {"val": 2}),), (), ()))
    {'x': 2}
    """
    return {
        each.name: each.meta["val"] for each in (*graph.inputs, *graph.nodes) if "val" in each.meta
    }


def returned_operand(graph: Graph, name: str, values: Mapping[str, Any]) -> str | None:
    """Return the operand that an operator returns unchanged; None if its result is another object, or unknown.

    Recorded values are proven from size 2 on.  The operators that return their operand there also return it at the sizes 0 and 1:
    strides that are contiguous stay so.  The reverse is false: the transpose of one row is contiguous.  So the answer is None if
    the result is another object at any size.

    Args:
        graph: the graph of the operator.
        name: the result; for one of several results, the node that selects it.
        values: fake values, by name.

    >>> import torch
    >>> import torch, purefx as px
    >>> program = px.capture(torch.nn.Flatten(), (torch.ones(2, 3),))
    >>> returned_operand(program.main, "flatten", values_of(program.main))
    'input'
    """
    node, place = _maker(graph, name)
    if node is None or not isinstance(node.target, OpOverload):
        return None
    effects = node.declared
    if effects.writes:
        at = effects.returns[place or 0] if len(effects.returns) > (place or 0) else None
        written = None if at is None else at.find(node.args, node.kwargs)
        return written.name if type(written) is Ref else None
    return (
        _same(node, node.target, place, values) if effects.aliases and not effects.ordered else None
    )


def _maker(graph: Graph, name: str) -> tuple[Node | None, int | None]:
    # The node that makes a value, and the index of the value if it returns several.
    node = graph.by_name.get(name)
    item = None if node is None else item_of(node)
    return (
        (node, None)
        if item is None or item[0] not in graph.by_name
        else (graph.by_name[item[0]], item[1])
    )


def _same(node: Node, target: Any, place: int | None, values: Mapping[str, Any]) -> str | None:
    tensors = {
        name: values[name] for name in node.refs() if isinstance(values.get(name), FakeTensor)
    }

    def leaf(arg: Arg) -> Any:
        return values[arg.name] if type(arg) is Ref else arg

    for mode in {value.fake_mode for value in tensors.values()}:
        # It fails if an operand is unknown, without a fake kernel, and if a size depends on contents.
        with running(mode), suppress(Exception):
            found = target(*thawed(node.args, leaf), **dict(thawed(node.kwargs, leaf)))
            found = found if place is None else found[place]
            return next((name for name, value in tensors.items() if value is found), None)
    return None


def returned_input(
    program: Program, graph: Graph, name: str, known: Mapping[str, Any]
) -> str | None:
    """Return the unwritten input of a graph that is the same object as a value, or None.

    Args:
        program: the program of the graph.
        graph: the graph.
        name: the value.
        known: fake values of inputs at a call of the graph, by name.

    >>> import torch
    >>> import torch, purefx as px
    >>> program = px.capture(torch.nn.Flatten(), (torch.ones(2, 3),))
    >>> returned_input(program, program.main, "flatten", {})
    'input'
    """
    values = {**values_of(graph), **known}
    while True:
        maker, place = _maker(graph, name)
        if maker is None:
            return name
        if type(maker.do) is Call:
            # The meta of a shared body may come from another call; the operands of this call are precise.
            body = program.graphs[maker.do.graph]
            passed = dict(zip(body.input_names, maker.args, strict=True))
            operands = {
                formal: values[arg.name]
                for formal, arg in passed.items()
                if type(arg) is Ref and arg.name in values
            }
            result = (
                body.output[place]
                if place is not None and type(body.output) is tuple
                else body.output
            )
            formal = (
                returned_input(program, body, result.name, operands)
                if type(result) is Ref
                else None
            )
            found = None if formal is None else passed[formal]
        else:
            step = None if maker.declared.writes else returned_operand(graph, name, values)
            found = None if step is None else Ref(step)
        if type(found) is not Ref:
            return None
        name = found.name


def all_agree(value: Any, others: Sequence[Any]) -> bool:
    """Return whether a value and each of the others have equal descriptions.

    >>> all_agree(torch.ones(2), [torch.zeros(2), torch.ones(2)]), all_agree(torch.ones(2), [torch.ones(3)])
    (True, False)
    """
    if type(value) is FakeTensor and value.layout is torch.strided and has_fixed_sizes(value):
        # Nearly all are described alike, and comparing attributes takes half as long as describing.
        with without_overrides():
            dtype, device, shape, stride = (
                value.dtype,
                value.fake_device,
                value.shape,
                value.stride(),
            )
            others = [
                one for one in others if one is not value and not (
                    type(one) is FakeTensor and has_fixed_sizes(one) and one.shape == shape and one.dtype is dtype
                    and one.layout is torch.strided and one.stride() == stride and one.fake_device == device)
            ]  # fmt: skip
    facts = described(value) if others else None
    return all(other is value or described(other) == facts for other in others)


def agrees(new: Any, old: Any, fresh: Collection[str] = ()) -> bool:
    """Return whether two fake values have equal descriptions.

    Args:
        new: the inferred value.
        old: the recorded value.
        fresh: the new symbols of the operator.

    >>> from collections import deque
    >>> agrees(torch.ones(2), torch.zeros(2)), agrees(torch.ones(2), torch.ones(3)), agrees([1, 2], (1, 2)), agrees(1, True)
    (True, False, True, False)
    >>> agrees(deque([torch.ones(1)]), deque([torch.zeros(1)])), agrees(deque([1]), deque([2]))
    (True, False)
    >>> agrees(torch.ones(1, 3, 2), torch.ones(1, 3, 2).as_strided((1, 3, 2), (2, 2, 1)))
    True
    """
    is_alike = all_agree(new, (old,))
    if is_alike or not fresh:
        return is_alike
    # The recorded value has other names for the new symbols.
    left, right = repr(described(new)), repr(described(old))
    names = dict(zip(UNBACKED.findall(left), UNBACKED.findall(right), strict=False))
    return (
        UNBACKED.sub(
            lambda found: names.get(found[0], found[0]) if found[0] in fresh else found[0], left
        )
        == right
    )


def unbacked_in(value: Any) -> list[str]:
    """Return the symbols of data-dependent sizes in a fake value.

    >>> unbacked_in(torch.ones(1))
    []
    """
    return UNBACKED.findall(repr(described(value)))


UNBACKED = re.compile(r"\bu\d+\b")


BRANCHES: Mapping[str, slice] = {
    "higher_order.cond": slice(1, 3),
    "higher_order.while_loop": slice(1, 2),
}
"""Operators that return the results of a body, and their body arguments."""

CARRIES: Mapping[str, tuple[int, int]] = {
    "higher_order.scan": (0, 1),
    "higher_order.while_loop": (1, 2),
}
"""Operators that pass results of a body to it again: the positions of the body and of the first values."""


def disagreement_of_bodies(node: Node, graphs: Mapping[str, Graph]) -> str | None:
    """Describe a body whose result types differ from those that its operator needs; None if all agree.

    The branches of a node return what the node returns; a loop returns what it takes.

    Args:
        node: a node with any operator.
        graphs: the graphs of the program.
    """
    if type(node.do) is not Op:
        return None
    return _disagreement_of_branches(node, graphs) or _disagreement_of_carry(node, graphs)


def _disagreement_of_branches(node: Node, graphs: Mapping[str, Graph]) -> str | None:
    branches = node.args[BRANCHES[node.op_name]] if node.op_name in BRANCHES else ()
    names = [arg.graph for arg in branches if type(arg) is Body]
    known = [(f"the branch {name!r} returns", _results(graphs[name])) for name in names]
    # An operator can merge two sizes into a dynamic one.
    pairs = [(left, right, False) for left, right in pairwise(known)]
    if "val" in node.meta:
        pairs += [(left, ("its meta has", as_tuple(node.meta["val"])), True) for left in known]
    for (who, mine), (other, theirs), sized in pairs:
        if len(mine) != len(theirs) or any(
            _differ(*both, sized=sized) for both in zip(mine, theirs, strict=True)
        ):
            return f"{who} {', '.join(map(shown_value, mine))}, and {other} {', '.join(map(shown_value, theirs))}"
    return None


def _disagreement_of_carry(node: Node, graphs: Mapping[str, Graph]) -> str | None:
    body_at, first_at = CARRIES.get(node.op_name, (0, 0))
    if first_at == 0 or type(body := node.args[body_at]) is not Body:
        return None
    graph, first = graphs[body.graph], node.args[first_at]
    count = len(first) if isinstance(first, tuple | list) else 1
    taken = [formal.val for formal in graph.inputs[:count]]
    for result, formal in zip(_results(graph), taken, strict=False):
        if _differ(result, formal, sized=False):
            return (
                f"the body {body.graph!r} returns {shown_value(result)} for {shown_value(formal)}"
            )
    return None


def _results(graph: Graph) -> tuple[Any, ...]:
    return tuple(
        [
            graph.metas.get(arg.name, {}).get("val") if type(arg) is Ref else None
            for arg in as_tuple(graph.output)
        ]
    )


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return the results of an operator: the items of a tuple or a list, or the one value.

    >>> as_tuple([1, 2]), as_tuple(3)
    ((1, 2), (3,))
    """
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _differ(mine: Any, theirs: Any, *, sized: bool) -> bool:
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return False
    first, second = [(one.dtype, device_of(one).type, one.dim()) for one in (mine, theirs)]
    sizes = zip(mine.shape, theirs.shape, strict=False) if sized else ()
    return first != second or any(
        type(one) is type(other) is int and one != other for one, other in sizes
    )


def shown_value(value: Any) -> str:
    """Describe a fake value.

    >>> shown_value(3), shown_value((1, 2)), shown_value(torch.ones(2))
    ('the int 3', '(the int 1, the int 2)', 'a torch.float32 of shape (2,) on cpu')
    """
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} of shape {tuple(value.shape)} on {device_of(value).type}"
    if isinstance(value, tuple | list):
        return (
            f"({', '.join(map(shown_value, value))})" if len(value) < 5 else f"{len(value)} values"
        )
    return f"the {type(value).__name__} {value}"
