"""Rules about what values are: several results, and objects that ``purefx.pack`` made, which are followed through calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..arguments import CONTAINERS, TREES, Arg, Body, Items, Ref, children_of, with_children
from ..graph import Call, Node, Op
from ..own_operators import PACK, UNPACK, is_boundary, is_module_call
from ..tensors import value_in
from ..torch_private import HigherOrderOperator, OpOverload, schema_of
from .findings import Finding, short
from .survey import GETITEM, Census, Survey


def _returns(target: Any) -> int:
    """Return how many results the schema of an operator has; 1 for what has no schema."""
    return len(schema_of(target).returns) if isinstance(target, OpOverload) else 1


def check_results(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given all results of a call or of an operator where they take one value."""
    several = {id(op) for op, _, _ in survey.ops.values() if _returns(op.target) > 1}
    for census in survey.censuses.values():
        if not several and not census.calls:
            continue
        whole = {node.name for _, node, do in census.calls if type(survey.censuses[do.graph].graph.output) is tuple}
        whole.update([node.name for _, node in census.nodes if id(node.do) in several] if several else ())
        for index, node in census.nodes if whole else ():
            if type(node.do) is Op and isinstance(node.do.target, OpOverload):
                for name in [name for name in node.refs() if name in whole]:
                    yield census.at(index, f"it takes {name!r}, which is several results, as one value")


def check_projections(survey: Survey) -> Iterator[Finding]:
    """Find ``getitem`` of what is not a value, and beyond the number of results where that is known."""
    for census in survey.censuses.values():
        if not census.projections:
            continue
        wanted = {node.args[0].name for _, node in census.projections if node.args and type(node.args[0]) is Ref}
        makers = {node.name: node for _, node in census.nodes if node.name in wanted}
        for index, node in census.projections:
            fault = _projection_fault(survey.censuses, node, makers) if len(node.args) == 2 else None
            if fault is not None:
                yield census.at(index, fault)


def _projection_fault(censuses: Mapping[str, Census], node: Node, makers: Mapping[str, Node]) -> str | None:
    source, item = node.args
    maker = makers.get(source.name) if type(source) is Ref else None
    if type(source) is not Ref and type(source) is not tuple and type(source) is not Items:
        return f"it takes an item of {short(source)}, which is not a value with items"
    length = _length(censuses, maker) if maker is not None else len(source) if isinstance(source, tuple) else None
    is_call = maker is not None and type(maker.do) is Call
    if length is None or (type(item) in (Ref, slice) and not is_call):
        return None  # Python takes any part of a tuple
    if type(item) is not int or not -length <= item < length:
        return f"it takes result {short(item)} of {repr(source.name) if type(source) is Ref else 'a literal'}, which has {length}"
    return None


RESULTS = {
    "cond": 1, "while_loop": 1, "invoke_subgraph": 0, "wrap_with_set_grad_enabled": 1, "hints_wrapper": 0, "strict_mode": 0,
}  # fmt: skip
"""Which argument of a higher-order operator is the graph whose results it gives."""


def _length(censuses: Mapping[str, Census], maker: Node) -> int | None:
    """Return how many results a node returns; None if that is not known, or where it gives no tuple or list."""
    do = maker.do
    if type(do) is Call:
        return _width(censuses, do.graph)
    target: Any = do.target if type(do) is Op else None
    if (count := _returns(target)) != 1:
        return count
    if isinstance(target, HigherOrderOperator) and target.name() in RESULTS:
        place = RESULTS[target.name()]
        body = maker.args[place] if place < len(maker.args) else None
        return _width(censuses, body.graph) if type(body) is Body else None
    known: Any = value_in(maker.meta) if type(do) is Op else None
    return len(known) if type(known) in (tuple, list) else None


def _width(censuses: Mapping[str, Census], name: str) -> int | None:
    output = censuses[name].graph.output
    return len(output) if type(output) in (tuple, Items) else None


OBJECT = Ref("/object")
"""An object of a registered pytree type."""

UNKNOWN = Ref("")
"""Anything else: no value has this name."""


def check_packed(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given an object of a registered pytree type: they could call methods of it."""
    if not any(op.name == PACK.name for op, _, _ in survey.ops.values()):
        return
    known: dict[tuple[str, str], Arg] = {}
    before = None
    while known != before:  # each value changes twice at most: to what holds an object, and to an object
        before = dict(known)
        for census in survey.censuses.values():
            for _, node in census.nodes:
                _follow(survey.censuses, census.name, node, known)
    for census in survey.censuses.values():
        for index, node in census.nodes:
            if type(node.do) is not Op or is_module_call(node) or is_boundary(node) or node.do.name in (PACK.name, UNPACK.name):
                continue
            for name in node.refs():
                value = known.get((census.name, name), UNKNOWN)
                if _holds_object(value) and not (node.do.name == GETITEM and type(value) is tuple):
                    yield census.at(index, f"it takes {name!r}, which is an object that {PACK.name} made, or holds one")


def _follow(censuses: Mapping[str, Census], graph: str, node: Node, known: dict[tuple[str, str], Arg]) -> None:
    # Remember which results of a node, and which inputs of the body that it calls, hold an object.
    def learn(place: tuple[str, str], value: Arg) -> None:
        if _holds_object(value):
            known[place] = value if known.setdefault(place, value) == value else OBJECT

    if type(node.do) is Call:
        body = censuses[node.do.graph].graph
        for formal, arg in zip(body.inputs, node.args, strict=True):
            learn((node.do.graph, formal.name), _outline(arg, graph, known))
        learn((graph, node.name), _outline(body.output, node.do.graph, known))
    elif type(node.do) is Op and node.do.name == PACK.name:
        held = any(_holds_object(_outline(arg, graph, known)) for arg in node.args)
        learn((graph, node.name), OBJECT if held or _is_of_a_type(node) else UNKNOWN)
    elif node.projection is not None:
        whole, index = known.get((graph, node.projection[0]), UNKNOWN), node.projection[1]
        if type(whole) is tuple and -len(whole) <= index < len(whole):
            learn((graph, node.name), whole[index])


def _outline(arg: Arg, graph: str, known: Mapping[tuple[str, str], Arg]) -> Arg:
    if type(arg) is Ref:
        return known.get((graph, arg.name), UNKNOWN)
    return with_children(arg, [_outline(part, graph, known) for part in children_of(arg)]) if type(arg) in CONTAINERS else UNKNOWN


def _holds_object(value: Arg) -> bool:
    return value == OBJECT or (type(value) in CONTAINERS and any(map(_holds_object, children_of(value))))


PLAIN_TYPES = frozenset({tuple, list, dict})


def _is_of_a_type(node: Node) -> bool:
    todo: list[Any] = [node.args[1]] if len(node.args) == 2 and isinstance(node.args[1], TREES) else []
    while todo:
        spec = todo.pop()
        if not spec.is_leaf():
            if spec.type not in PLAIN_TYPES:
                return True
            todo.extend(spec.children())
    return False
