"""Results of operators on fake values: which operators can run, which return an operand itself, when two results agree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.fx.passes.shape_prop import TensorMetadata

from ..analysis.numbers import SYMBOLIC
from ..arguments import Arg, Body, Ref, thawed
from ..effects.resolved import item_of
from ..graph import Call, Get, Graph, Node, Op
from ..program import Program
from ..torch_private import FakeTensor, OpOverload, device_of, has_fixed_sizes, pytree
from .values import running


def is_runnable(node: Node) -> bool:
    """Return whether the value of a node can be inferred from its operands; the operator may still reject them.

    >>> import torch
    >>> from purefx.ir.operators import op_of
    >>> is_runnable(Node("y", op_of(torch.ops.aten.neg.default))), is_runnable(Node("y", op_of(print)))
    (True, False)
    """
    do = node.do
    if type(do) is not Op:
        return type(do) is Get
    return not (do.target is None or do.effects.unknown or do.effects.scope or do.effects.ordered)


def opens_region(node: Node) -> int:
    """Return 1 if a node opens a region that changes result dtypes or shapes of operators, -1 if it closes one, else 0.

    >>> opens_region(Node("y", Op("toy.neg")))
    0
    """
    do = node.do
    is_region = type(do) is Op and do.effects.scope and ("autocast" in do.name or "vmap" in do.name)
    return do.effects.scope if type(do) is Op and is_region else 0


def values_of(graph: Graph) -> dict[str, Any]:
    """Return the fake values in the meta of a graph, by name.

    >>> from purefx.ir import Input
    >>> values_of(Graph((Input("x", {"val": 2}),), (), ()))
    {'x': 2}
    """
    return {each.name: each.meta["val"] for each in (*graph.inputs, *graph.nodes) if "val" in each.meta}


def returned_operand(graph: Graph, name: str, values: Mapping[str, Any]) -> str | None:
    """Return the operand that an operator returns unchanged; None if its result is another object, or unknown.

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
    if node is None or type(node.do) is not Op or not isinstance(node.do.target, OpOverload):
        return None
    effects = node.do.effects
    if effects.writes:
        at = effects.returns[place or 0] if len(effects.returns) > (place or 0) else None
        written = None if at is None else at.find(node.args, node.kwargs)
        return written.name if type(written) is Ref else None
    return _same(node, node.do.target, place, values) if effects.aliases and not effects.ordered else None


def _maker(graph: Graph, name: str) -> tuple[Node | None, int | None]:
    # The node that makes a value, and the index of the value if it returns several.
    node = graph.by_name.get(name)
    item = None if node is None else item_of(node)
    return (node, None) if item is None or item[0] not in graph.by_name else (graph.by_name[item[0]], item[1])


def _same(node: Node, target: Any, place: int | None, values: Mapping[str, Any]) -> str | None:
    names = node.refs()
    tensors = {name: values[name] for name in names if isinstance(values.get(name), FakeTensor)}
    modes = {value.fake_mode for value in tensors.values()}
    if len(modes) != 1 or not values.keys() >= set(names):
        return None

    def leaf(arg: Arg) -> Any:
        return values[arg.name] if type(arg) is Ref else arg

    (mode,) = modes
    args, kwargs = [thawed(arg, leaf) for arg in node.args], {key: thawed(arg, leaf) for key, arg in node.kwargs}
    with running(mode):
        try:
            found = target(*args, **kwargs)
            found = found if place is None else found[place]
        except Exception:  # noqa: BLE001  unknown: no fake kernel, or a data-dependent size
            return None
    return next((name for name, value in tensors.items() if value is found), None)


def returned_input(program: Program, graph: Graph, name: str, known: Mapping[str, Any]) -> str | None:
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
    callers: list[tuple[Graph, Node, dict[str, Any]]] = []
    values = {**values_of(graph), **known}
    while True:
        maker, place = _maker(graph, name)
        if maker is None:
            # An input of the graph itself, or of a callee.
            if not callers:
                return name
            formals = [formal.name for formal in graph.inputs]
            graph, call, values = callers.pop()
            found = call.args[formals.index(name)]
        elif type(maker.do) is Call:
            callers.append((graph, maker, values))
            graph, values = _called(program, maker, maker.do, values)
            found = graph.output[place] if place is not None and type(graph.output) is tuple else graph.output
        else:
            step = None if type(maker.do) is Op and maker.do.effects.writes else returned_operand(graph, name, values)
            found = None if step is None else Ref(step)
        if type(found) is not Ref:
            return None
        name = found.name


def _called(program: Program, node: Node, call: Call, values: Mapping[str, Any]) -> tuple[Graph, dict[str, Any]]:
    # The meta of a shared body may come from another call; the operands of this call are precise.
    graph = program.graphs[call.graph]
    pairs = [(formal.name, arg) for formal, arg in zip(graph.inputs, node.args, strict=True)]
    operands = {name: values[arg.name] for name, arg in pairs if type(arg) is Ref and arg.name in values}
    return graph, {**values_of(graph), **operands}


def plain_facts(value: Any) -> tuple[Any, ...] | None:
    """Return a description of a fake tensor of static sizes, or of its metadata, for fast comparison; None for other values.

    >>> plain_facts(torch.ones(2)) is None
    True
    """
    if type(value) is TensorMetadata:
        return value if all(type(size) is int for size in (*value.shape, *value.stride)) else None
    if type(value) is not FakeTensor or not has_fixed_sizes(value) or value.layout is not torch.strided:
        return None
    return (value.dtype, value.shape, value.stride(), value.fake_device)


def all_agree(value: Any, others: Sequence[Any]) -> bool:
    """Return whether a value and each of the others have equal descriptions.

    >>> all_agree(torch.ones(2), [torch.zeros(2), torch.ones(2)]), all_agree(torch.ones(2), [torch.ones(3)])
    (True, False)
    """
    facts = plain_facts(value)  # the description of the value is made once
    is_plain = facts is not None and all(plain_facts(other) == facts for other in others)
    return is_plain or all(agrees(value, other) for other in others)


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
    known: dict[str, str] = {}
    todo = [(new, old)]
    while todo:
        mine, theirs = todo.pop()
        if mine is theirs or ((facts := plain_facts(mine)) is not None and facts == plain_facts(theirs)):
            continue
        (kind, parts), (other, others) = _apart(mine), _apart(theirs)
        if kind != other:
            return False
        if parts is not None and others is not None:
            todo += zip(parts, others, strict=True)
        elif isinstance(mine, SYMBOLIC):
            left, right = str(mine), str(theirs)
            if left in fresh and right.startswith("u") and known.setdefault(left, right) == right:
                continue
            for symbol, named in known.items():
                left = left.replace(symbol, named)
            if left != right:
                return False
        elif not isinstance(mine, COMPARED) or mine != theirs:
            return False
    return True


def _apart(value: Any) -> tuple[Any, Iterable[Any] | None]:
    # The kind of a value, and its parts; None for a leaf.
    if isinstance(value, tuple | list):
        return len(value), value
    if isinstance(value, Mapping):
        keys = sorted(value, key=repr)
        return keys, [value[key] for key in keys]
    if isinstance(value, torch.Tensor):
        return (value.dtype, device_of(value), value.layout, value.dim()), _numbers(value)
    if pytree.tree_is_leaf(value):
        return type(value), None
    parts, spec = pytree.tree_flatten(value)  # a user's container, among the arguments or results of a preserved call
    return spec, parts


COMPARED = (int, float, str, torch.dtype, torch.device)


def _numbers(tensor: torch.Tensor) -> list[Any]:
    # Without strides of dimensions of size 1: they have no meaning, and fake kernels differ from real ones in them.
    sizes = list(tensor.shape)
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    return sizes + [1 if type(size) is int and size == 1 else stride for size, stride in zip(sizes, strides, strict=False)]


BRANCHES: Mapping[str, slice] = {"higher_order.cond": slice(1, 3), "higher_order.while_loop": slice(1, 2)}
"""Operators that return the results of a body, and their body arguments."""


def disagreement_of_branches(node: Node, graphs: Mapping[str, Graph]) -> str | None:
    """Describe a branch whose result types differ from those of its node or of another branch; None if all agree.

    Args:
        node: a node with any operator.
        graphs: the graphs of the program.
    """
    branches = node.args[BRANCHES[node.do.name]] if type(node.do) is Op and node.do.name in BRANCHES else ()
    names = [arg.graph for arg in branches if type(arg) is Body]
    known = [(f"the branch {name!r} returns", _results(graphs[name])) for name in names]
    pairs = [(one, other, False) for one, other in pairwise(known)]  # an operator can merge two sizes into a dynamic one
    if "val" in node.meta:
        pairs += [(one, ("its meta has", _parts(node.meta["val"])), True) for one in known]
    for (who, mine), (other, theirs), sized in pairs:
        if len(mine) != len(theirs) or any(_differ(*both, sized=sized) for both in zip(mine, theirs, strict=True)):
            return f"{who} {', '.join(map(shown_value, mine))}, and {other} {', '.join(map(shown_value, theirs))}"
    return None


def _results(graph: Graph) -> tuple[Any, ...]:
    parts = _parts(graph.output)
    return tuple([graph.metas.get(arg.name, {}).get("val") if type(arg) is Ref else None for arg in parts])


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _differ(mine: Any, theirs: Any, *, sized: bool) -> bool:
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return False
    if (mine.dtype, device_of(mine).type, mine.dim()) != (theirs.dtype, device_of(theirs).type, theirs.dim()):
        return True
    pairs = zip(mine.shape, theirs.shape, strict=True)
    return sized and any(type(one) is type(other) is int and one != other for one, other in pairs)


def shown_value(value: Any) -> str:
    """Describe a fake value.

    >>> shown_value(3), shown_value((1, 2)), shown_value(torch.ones(2))
    ('the int 3', '(the int 1, the int 2)', 'a torch.float32 of shape (2,) on cpu')
    """
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} of shape {tuple(value.shape)} on {device_of(value).type}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(shown_value, value))})" if len(value) < 5 else f"{len(value)} values"
    return f"the {type(value).__name__} {value}"
