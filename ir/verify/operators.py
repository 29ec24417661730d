"""Rules about operators: their declared effects, names and targets, and operands that they can take.

Declared effects are those of the target; how many operands it takes, and of which kinds, its schema says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from attrs import evolve, fields

from ..allowed import allowed
from ..analysis.numbers import SYMBOLIC
from ..arguments import CONTAINERS, TREES, Body, Items, Record, Ref
from ..effects.declared import ANYTHING, Effects
from ..effects.registered import effects_of, is_foreign, lacking, registered_effects
from ..graph import Call, Graph, Node, Op
from ..own_operators import PACK, UNPACK, is_boundary, is_module_call
from ..persistent import derived
from ..tensors import value_in
from ..torch_private import OpOverload, allows_numbers_as_tensors, schema_of
from .calls import origins
from .findings import PLAIN, Finding, short
from .survey import Census, Survey


def check_operator_names(survey: Survey) -> Iterator[Finding]:
    """Find operators that do not bear the name of their target, and one name for two targets: names decide equality."""
    first: dict[str, Any] = {}
    for op, census, index in survey.ops.values():
        target: Any = op.target
        if target is None:
            # Toy programs thread tokens and take bodies by the names of torch's, and are evaluated without it.
            if not op.effects.through_bodies and allowed(op.name) is not None:
                yield census.at(index, f"it is named {op.name!r}, which is registered, and has no target to run")
        elif isinstance(target, OpOverload) and op.name != str(target):
            yield census.at(index, f"it is named {op.name!r} and runs {target}")
        elif (other := first.setdefault(op.name, target)) is not target and other != target:
            yield census.at(index, f"two different functions are named {op.name!r}")


def check_effects(survey: Survey) -> Iterator[Finding]:
    """Find operators whose effects are not those of their target; ``ordered`` may be added to them.

    Of an operator of another library, and of a function of which nothing is known, more may be said (``declare``), and nothing
    that contradicts its schema.
    """
    for op, census, index in survey.ops.values():
        target: Any = op.target
        if target is None:
            continue
        real = effects_of(target)
        # remove_effect_tokens writes the order that a token stood for on the operator.
        if op.effects is real or op.effects in (real, evolve(real, ordered=True)):
            continue
        known = registered_effects(target)
        if evolve(known, through_bodies=False) == ANYTHING:  # a higher-order one does what its bodies do all the same
            fits = op.effects.through_bodies >= known.through_bodies
        else:
            fits = is_foreign(target) and not known.unknown and not lacking(op.effects, known)
        if not fits:
            said, has = ({f.name: getattr(e, f.name) for f in fields(Effects)} for e in (op.effects, real))
            differences = ", ".join(f"{key}={said[key]!r} (it has {has[key]!r})" for key in said if said[key] != has[key])
            yield census.at(index, f"{op.name} is said to have {differences}")


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


def check_operands(survey: Survey) -> Iterator[Finding]:
    """Find operators that get too many or too few arguments, or such as they cannot take."""
    for census in survey.censuses.values():
        for index, fault in _misfits(census.graph):
            yield census.at(index, fault)


@derived
def _misfits(graph: Graph) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for index, node in enumerate(graph.nodes):
        target: Any = node.do.target if type(node.do) is Op else None
        if not isinstance(target, OpOverload):
            continue
        kinds = (target, *map(_kind, node.args), *[(key, _kind(arg)) for key, arg in node.kwargs])
        if kinds in FITTING:
            continue  # nearly all of them
        fault = fault_of(node, target)
        if fault is not None:
            found.append((index, fault))
        elif len(FITTING) < FORMS:
            FITTING.add(kinds)
    return found


FITTING: set[Any] = set()
"""Overloads with kinds of arguments that they were found to take; a process meets few."""

FORMS = 50_000
"""How many are remembered."""


def _kind(arg: Any) -> Any:
    # With the kinds of what is in a list, whatever their number.
    kind = type(arg)
    return (kind, frozenset(map(type, arg))) if kind is Items or kind is tuple else kind


def fault_of(node: Node, target: Any) -> str | None:
    """Return why an operator cannot take the arguments of a node, or None; the dispatcher says the rest when it runs.

    >>> fault_of(Node("y", Op("aten.relu.default"), ("text",)), torch.ops.aten.relu.default)
    "aten.relu.default takes Tensor as 'self', and is given the str 'text'"
    """
    if not isinstance(target, OpOverload):
        return None
    schema = schema_of(target)
    parameters = {parameter.name: parameter for parameter in schema.arguments}
    positional = [parameter.name for parameter in schema.arguments if not parameter.kwarg_only]
    if len(node.args) > len(positional):
        return f"{target} is given {len(node.args)} arguments by position and takes {len(positional) or 'none'}"
    given = dict(zip(positional, node.args, strict=False))
    for name, value in node.kwargs:
        if name not in parameters:
            return f"{target} has no argument {name!r}; it has {', '.join(parameters) or 'none'}"
        if name in given:
            return f"{target} is given {name!r} by position and by keyword"
        given[name] = value
    missing = [repr(name) for name, one in parameters.items() if not one.has_default_value() and name not in given]
    if missing:
        return f"{target} is not given {', '.join(missing)}"
    numbers = allows_numbers_as_tensors(schema.name)
    for name, value in given.items():
        kind = parameters[name].type
        stands = numbers and kind.kind() == "TensorType" and isinstance(value, NUMBERS)  # for a tensor
        if not (stands or _takes(kind, value, broadcasts=bool(parameters[name].N))):
            return f"{target} takes {kind} as {name!r}, and is given {short(value)}"
    return None


def _takes(kind: Any, value: Any, *, broadcasts: bool = False) -> bool:
    # Whether an argument of a kind of the schema may be a literal; where it broadcasts, one number stands for a list of them.
    if type(value) not in LITERALS:
        return True  # a value of the graph, or an object
    if kind.kind() == "OptionalType":
        return value is None or _takes(kind.getElementType(), value, broadcasts=broadcasts)
    if kind.kind() != "ListType":
        kinds = LEAVES.get(kind.kind())
        return kinds is None or isinstance(value, kinds)
    element = kind.getElementType()
    if type(value) is tuple or type(value) is Items:
        return all(_takes(element, part) and (part is not None or element.kind() != "TensorType") for part in value)
    if broadcasts and isinstance(value, NUMBERS):
        return _takes(element, value)
    # A text is a list of texts for the dispatcher; a range is a list of numbers.
    return type(value) is range or (type(value) in (str, bytes) and element.kind() in ("StringType", "IntType", "NumberType"))


def _several(survey: Survey, node: Node) -> int | None:
    # How many results a node has; None if it has one, which is no tuple, or if that is not known.
    do = node.do
    if type(do) is Call:
        output = survey.censuses[do.graph].graph.output
        return len(output) if type(output) in (tuple, Items) else None
    target: Any = do.target if type(do) is Op else None
    if isinstance(target, OpOverload) and len(schema_of(target).returns) != 1:
        return len(schema_of(target).returns)
    known: Any = value_in(node.meta) if type(do) is Op else None
    return len(known) if type(known) in (tuple, list) else None


def check_results(survey: Survey) -> Iterator[Finding]:
    """Find operators that take all results of a call or of an operator as one value, and ``getitem`` of what has no such item."""
    several = {
        id(op) for op, _, _ in survey.ops.values() if isinstance(op.target, OpOverload) and len(schema_of(op.target).returns) > 1
    }
    for census in survey.censuses.values():
        for index, node in census.projections:
            fault = _projection_fault(survey, census, node)
            if fault is not None:
                yield census.at(index, fault)
        if not several and not census.calls:
            continue
        whole = {node.name for _, node, do in census.calls if type(survey.censuses[do.graph].graph.output) is tuple}
        whole.update([node.name for _, node in census.nodes if id(node.do) in several] if several else ())
        for index, node in census.nodes if whole else ():
            if type(node.do) is Op and isinstance(node.do.target, OpOverload):
                for name in [name for name in node.refs() if name in whole]:
                    yield census.at(index, f"it takes {name!r}, which is several results, as one value")


def _projection_fault(survey: Survey, census: Census, node: Node) -> str | None:
    if len(node.args) != 2 or node.kwargs:
        return "getitem takes a value and an item, by position"
    source, item = node.args
    maker = census.graph.by_name.get(source.name) if type(source) is Ref else None
    if type(source) not in (Ref, tuple, Items):
        return f"it takes an item of {short(source)}, which is not a value with items"
    length = len(source) if isinstance(source, tuple) else None if maker is None else _several(survey, maker)
    is_call = maker is not None and type(maker.do) is Call
    if length is None or (type(item) in (Ref, slice) and not is_call):
        return None  # Python takes any part of a tuple
    if type(item) is not int or not -length <= item < length:
        return f"it takes result {short(item)} of {repr(source.name) if type(source) is Ref else 'a literal'}, which has {length}"
    return None


def check_packed(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given an object of a registered pytree type: they could call methods of it."""
    if not any(op.name == PACK.name for op, _, _ in survey.ops.values()):
        return
    for census in survey.censuses.values():
        for index, node in census.nodes:
            if type(node.do) is not Op or is_module_call(node) or is_boundary(node) or node.do.name in (PACK.name, UNPACK.name):
                continue
            for name in node.refs():
                maker = census.graph.by_name.get(name)
                if node.projection is not None and maker is not None and type(maker.do) is Call and _several(survey, maker):
                    continue  # it takes one of the results of a call
                if any(map(_is_object, origins(survey, census, Ref(name)))):
                    yield census.at(index, f"it takes {name!r}, which is an object that {PACK.name} made, or holds one")


PLAIN_TYPES = frozenset({tuple, list, dict})


def _is_object(origin: Any) -> bool:
    # Whether a node makes an object of another type than Python's containers, or takes one out of such.
    if type(origin) is not Node or type(origin.do) is not Op or origin.do.name != PACK.name or len(origin.args) != 2:
        return False
    todo: list[Any] = [origin.args[1]]
    while todo:
        spec = todo.pop()
        if not isinstance(spec, TREES) or spec.is_leaf():
            continue
        if spec.type not in PLAIN_TYPES:
            return True
        todo.extend(spec.children())
    return False
