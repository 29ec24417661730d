"""Rules about operands: as many as the operator takes, keywords that it has, kinds that it can take.

Objects that ``purefx.pack`` makes are for modules and for the caller, not for operators.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from attrs import define, field, frozen

from ..analysis.numbers import SYMBOLIC
from ..arguments import CONTAINERS, TREES, Body, Items, Record, Ref, refs_in
from ..graph import Call, Node, Op
from ..own_operators import PACK, UNPACK, is_boundary, is_module_call
from ..torch_private import HigherOrderOperator, OpOverload, allows_numbers_as_tensors, schema_of
from .findings import PLAIN, Finding, short
from .survey import GETITEM, Census, Survey

__all__ = ["Parameter", "check_operands", "check_packed", "check_results", "fault_of", "parameters_of", "takes"]

PLAIN_TYPES = frozenset({tuple, list, dict})


def check_packed(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given an object of a registered pytree type."""
    if all(op.name != PACK.name for op, _, _ in survey.ops.values()):
        return
    flow = _Flow(survey)
    while flow.grows():
        pass
    for census in survey.censuses.values():
        names, wholes = flow.objects(census)
        for index, node in survey.nodes_of(census):
            if type(node.do) is Op and not _takes_objects(node):
                known = names if node.do.name == GETITEM and _is_item(node) else names | set(wholes)
                for name in [name for name in node.refs() if name in known]:
                    text = f"it takes {name!r}, which is an object that {PACK.name} made, or holds one"
                    yield Finding(text, census.name, index, node.name)


@define
class _Flow:
    """Which inputs and results of graphs are such objects; it only grows."""

    survey: Survey
    inputs: dict[str, set[str]] = field(factory=dict)
    results: dict[str, set[int]] = field(factory=dict)
    """Places in the tuple that a graph returns; -1 where it returns one value that is one, or holds one deeper."""

    def grows(self) -> bool:
        """Follow the objects through every graph once, and say whether more were met."""
        before = self._size()
        for census in self.survey.censuses.values():
            names, wholes = self.objects(census)
            for _, node in census.calls:
                callee = node.do.graph if type(node.do) is Call else ""
                body = self.survey.graphs.get(callee)
                if callee and body is not None and len(body.inputs) == len(node.args):
                    pairs = zip(body.inputs, node.args, strict=True)
                    taken = [formal.name for formal, arg in pairs if not (names | set(wholes)).isdisjoint(refs_in((arg,)))]
                    self.inputs.setdefault(callee, set()).update(taken)
            output: Any = census.graph.output
            found = self.results.setdefault(census.name, set())
            if type(output) is tuple:
                found.update([at for at, part in enumerate(output) if not (names | set(wholes)).isdisjoint(refs_in((part,)))])
            elif not (names | set(wholes)).isdisjoint(refs_in((output,))):
                found.add(-1)
        return self._size() > before

    def _size(self) -> int:
        return sum(map(len, (*self.inputs.values(), *self.results.values())))

    def objects(self, census: Census) -> tuple[set[str], dict[str, set[int]]]:
        """Return the objects of a graph, and the tuples that hold some, with their places."""
        names, wholes = set(self.inputs.get(census.name, ())), dict[str, set[int]]()
        for _, node in self.survey.nodes_of(census):
            if type(node.do) is Call and (held := self.results.get(node.do.graph)):
                if held == {-1}:
                    names.add(node.name)
                else:
                    wholes[node.name] = held
            elif type(node.do) is Op and node.do.name == PACK.name and _is_of_a_type(node):
                names.add(node.name)
            elif type(node.do) is Op and node.do.name == GETITEM and _is_item(node):
                source, item = node.args
                if item in wholes.get(source.name, ()):
                    names.add(node.name)
        return names, wholes


def _is_item(node: Node) -> bool:
    return len(node.args) == 2 and type(node.args[0]) is Ref and type(node.args[1]) is int


def _takes_objects(node: Node) -> bool:
    return is_module_call(node) or is_boundary(node) or (type(node.do) is Op and node.do.name in (PACK.name, UNPACK.name))


def _is_of_a_type(node: Node) -> bool:
    todo: list[Any] = [node.args[1]] if len(node.args) == 2 and isinstance(node.args[1], TREES) else []
    while todo:
        spec = todo.pop()
        if not spec.is_leaf():
            if spec.type not in PLAIN_TYPES:
                return True
            todo.extend(spec.children())
    return False


BODIES = {
    "cond": (1, 2), "while_loop": (0, 1), "map_impl": (0,), "scan": (0,), "associative_scan": (0,), "invoke_subgraph": (0,),
    "wrap_with_set_grad_enabled": (1,), "hints_wrapper": (0,), "strict_mode": (0,), "tag_activation_checkpoint": (0,),
    "wrap": (0,), "while_loop_stack_output": (0, 1), "wrap_with_autocast": (4,), "flex_attention": (3,),
}  # fmt: skip
"""Which arguments of higher-order operators are graphs.  Others may run none: a tracepoint, a delegate, an operator with its
random state."""

PLAIN_MODULES = frozenset({"_operator", "math", "builtins"})

NUMBERS: tuple[type, ...] = (int, bool, float, complex, *SYMBOLIC)

ENUMS: tuple[type, ...] = (torch.dtype, torch.layout, torch.memory_format)

LEAVES: dict[str, tuple[type, ...]] = {
    "IntType": (int, bool, *SYMBOLIC, *ENUMS),
    "FloatType": (int, bool, float, *SYMBOLIC),
    "ComplexType": NUMBERS,
    "NumberType": (*NUMBERS, *ENUMS),
    "BoolType": (*NUMBERS, type(None)),
    "StringType": (str, bytes),
    "DeviceObjType": (str, torch.device),
    "TensorType": (type(None),),
    "GeneratorType": (),
    "DictType": (Record,),
}
"""What an argument of a kind of the schema may be besides a value of the graph, as the dispatcher converts it; others may be
anything."""


LITERALS = PLAIN | CONTAINERS | {Body, range}


@frozen
class Parameter:
    """What an operator takes in one place.

    >>> [parameter.name for parameter in parameters_of(torch.ops.aten.relu.default)]
    ['self']
    """

    name: str
    type: Any
    by_keyword: bool
    required: bool
    broadcasts: bool
    """Whether one number stands for a list of them."""
    as_tensor: bool
    """Whether a number stands for a tensor."""


@functools.lru_cache(maxsize=8192)
def parameters_of(target: Any) -> tuple[Parameter, ...]:
    """Return what an operator of the dispatcher takes, as its schema says.

    >>> [(parameter.name, parameter.required) for parameter in parameters_of(torch.ops.aten.add.Tensor)]
    [('self', True), ('other', True), ('alpha', False)]
    """
    schema = schema_of(target)
    numbers = allows_numbers_as_tensors(schema.name)
    return tuple(
        Parameter(arg.name, arg.type, arg.kwarg_only, not arg.has_default_value(), bool(arg.N), numbers)
        for arg in schema.arguments
    )


def check_operands(survey: Survey) -> Iterator[Finding]:
    """Find operators that get too many or too few arguments, or such as they cannot take."""
    right: dict[int, set[Any]] = {}
    for census in survey.censuses.values():
        for index, node in survey.nodes_of(census):
            do = node.do
            if type(do) is not Op:
                continue
            known = right.get(id(do))
            if known is None:
                known = right[id(do)] = fitting(do.target) if isinstance(do.target, OpOverload) else set()
            kinds: Any = tuple(map(type, node.args))
            if kinds in known and not node.kwargs:
                continue  # the usual one, in one look
            if node.kwargs or not CONTAINERS.isdisjoint(kinds):
                kinds = _deep_kinds(node)
                if kinds in known:
                    continue
            fault = fault_of(node, do.target)
            if fault is None and len(known) < FORMS:
                known.add(kinds)
            elif fault is not None:
                yield Finding(fault, census.name, index, node.name)


FORMS = 256
"""How many kinds of arguments are remembered of one operator."""


@functools.lru_cache(maxsize=2048)
def fitting(target: Any) -> set[Any]:
    """Return the kinds of arguments that an operator of the dispatcher was found to take: it is asked once in a process.

    >>> fitting(torch.ops.aten.relu.default) is fitting(torch.ops.aten.relu.default)
    True
    """
    assert isinstance(target, OpOverload)
    return set()


def check_results(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given all results of a call or of an operator where they take one value."""
    several = {id(op) for op, _, _ in survey.ops.values() if _gives_several(op.target)}
    for census in survey.censuses.values():
        if not several and not census.calls:
            continue
        whole = {node.name for _, node in survey.nodes_of(census) if _is_tuple(survey, node, several)}
        for index, node in survey.nodes_of(census) if whole else ():
            if type(node.do) is Op and isinstance(node.do.target, OpOverload):
                for name in [name for name in node.refs() if name in whole]:
                    text = f"it takes {name!r}, which is several results, as one value"
                    yield Finding(text, census.name, index, node.name)


def _gives_several(target: Any) -> bool:
    return isinstance(target, OpOverload) and len(schema_of(target).returns) > 1


def _is_tuple(survey: Survey, node: Node, several: set[int]) -> bool:
    if type(node.do) is Call:
        body = survey.graphs.get(node.do.graph)
        return body is not None and type(body.output) is tuple
    return id(node.do) in several


def _deep_kinds(node: Node) -> Any:
    # With the kinds of what is in lists, whatever their number, and keyword arguments with their names.
    return (
        tuple([frozenset(map(type, arg)) if type(arg) is Items or type(arg) is tuple else type(arg) for arg in node.args]),
        tuple(
            [(key, type(arg), *(map(type, arg) if type(arg) is Items or type(arg) is tuple else ())) for key, arg in node.kwargs]
        ),
    )


def fault_of(node: Node, target: Any) -> str | None:
    """Return why an operator cannot take the arguments of a node, or None.

    >>> fault_of(Node("y", Op("aten.relu.default"), ("text",)), torch.ops.aten.relu.default)
    "aten.relu.default takes Tensor as 'self', and is given the str 'text'"
    """
    if len({key for key, _ in node.kwargs}) < len(node.kwargs):
        return None  # "keywords" says so
    if isinstance(target, OpOverload):
        return _misfit(node, target)
    if isinstance(target, HigherOrderOperator):
        return _bodiless(node, target)
    if isinstance(target, types.BuiltinFunctionType) and target.__module__ in PLAIN_MODULES:
        return _unbound(node, target)
    return None


def _misfit(node: Node, target: Any) -> str | None:
    parameters = parameters_of(target)
    by_name = {parameter.name: parameter for parameter in parameters}
    positional = [parameter for parameter in parameters if not parameter.by_keyword]
    if len(node.args) > len(positional):
        return f"{target} is given {len(node.args)} arguments by position and takes {len(positional) or 'none'}"
    given = list(zip(positional, node.args, strict=False))
    known = {parameter.name for parameter, _ in given}
    for name, value in node.kwargs:
        if name not in by_name:
            return f"{target} has no argument {name!r}; it has {', '.join(by_name) or 'none'}"
        if name in known:
            return f"{target} is given {name!r} by position and by keyword"
        known.add(name)
        given.append((by_name[name], value))
    missing = [parameter.name for parameter in parameters if parameter.required and parameter.name not in known]
    if missing:
        return f"{target} is not given {', '.join(map(repr, missing))}"
    for parameter, value in given:
        if not takes(parameter, value):
            return f"{target} takes {parameter.type} as {parameter.name!r}, and is given {short(value)}"
    return None


def takes(parameter: Parameter, value: Any) -> bool:
    """Return whether an operator may be given a value in one place; the dispatcher says the rest when it runs.

    Args:
        parameter: the place.
        value: any argument of a node.

    >>> takes(parameters_of(torch.ops.aten.relu.default)[0], "text"), takes(parameters_of(torch.ops.aten.sum.dim_IntList)[1], 1)
    (False, True)
    """
    if type(value) not in LITERALS:
        return True  # a value of the graph, or what "argument-kinds" refers to
    kind = parameter.type
    if kind.kind() == "OptionalType":
        if value is None:
            return True
        kind = kind.getElementType()
    if kind.kind() == "ListType":
        return _takes_list(parameter, kind.getElementType(), value)
    return _takes_leaf(kind, value) or (parameter.as_tensor and kind.kind() == "TensorType" and isinstance(value, NUMBERS))


def _takes_list(parameter: Parameter, element: Any, value: Any) -> bool:
    if type(value) is tuple or type(value) is Items:
        return all(_takes_element(element, part) for part in value)
    if parameter.broadcasts and isinstance(value, NUMBERS):
        return _takes_leaf(element, value)
    # A text is a list of texts for the dispatcher; a range is a list of numbers.
    return type(value) is range or (type(value) in (str, bytes) and element.kind() in ("StringType", "IntType", "NumberType"))


def _takes_element(element: Any, value: Any) -> bool:
    if type(value) not in LITERALS:
        return True
    if element.kind() == "OptionalType":
        return value is None or _takes_element(element.getElementType(), value)
    if type(value) in (tuple, Items):
        return element.kind() not in LEAVES
    return value is not None and _takes_leaf(element, value) if element.kind() == "TensorType" else _takes_leaf(element, value)


def _takes_leaf(kind: Any, value: Any) -> bool:
    kinds = LEAVES.get(kind.kind())
    return kinds is None or isinstance(value, kinds)


def _bodiless(node: Node, target: Any) -> str | None:
    if type(node.do) is not Op or not node.do.effects.through_bodies or node.do.effects.ordered:
        return None
    if any(type(value) is Body for _, value in node.kwargs):
        return None  # by keyword any may be given
    for place in BODIES.get(target.name(), ()):
        if place >= len(node.args) or type(node.args[place]) is not Body:
            given = short(node.args[place]) if place < len(node.args) else "nothing"
            return f"{node.do.name} runs a graph, argument {place}, and is given {given}"
    return None


@functools.lru_cache(maxsize=1024)
def _signature(target: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        return None  # `max`, `math.log`: several forms


def _unbound(node: Node, target: Any) -> str | None:
    signature = _signature(target)
    if signature is None:
        return None
    try:
        signature.bind(*node.args, **dict(node.kwargs))
    except TypeError as error:
        return f"{target.__name__}{signature} is called otherwise: {error}"
    return None
