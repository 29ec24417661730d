"""Rules about operators: their declared effects, names and targets, and operands that they can take.

Declared effects are those of the target; how many operands it takes, and of which kinds, its schema says.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from attrs import evolve, fields

from ..analysis.numbers import SYMBOLIC
from ..arguments import CONTAINERS, TREES, Arg, Body, Items, Record, Ref, children_of, with_children
from ..effects.declared import ANYTHING, Effects
from ..effects.registered import effects_of, is_foreign, lacking, registered_effects
from ..graph import Call, Graph, Node, Op
from ..own_operators import PACK, UNPACK, is_boundary, is_module_call
from ..persistent import derived
from ..tensors import value_in
from ..torch_private import HigherOrderOperator, OpOverload, allows_numbers_as_tensors, schema_of
from .findings import PLAIN, Finding, short
from .survey import Census, Survey


def check_targets(survey: Survey) -> Iterator[Finding]:
    """Find operators without a target that bear the name of one that is registered: they look like it, and cannot run."""
    from ..text.lexer import resolve  # here, because a text is read of programs that this folder checks

    for op, census, index in survey.ops.values():
        # Toy programs thread tokens and take bodies by the names of torch's, and are evaluated without it.
        if op.target is None and not op.effects.through_bodies and resolve(op.name) is not None:
            yield census.at(index, f"it is named {op.name!r}, which is registered, and has no target to run")


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
        if op.effects is real or op.effects == real:
            continue
        # remove_effect_tokens writes the order that a token stood for on the operator.
        if op.effects.ordered and not real.ordered and evolve(op.effects, ordered=False) == real:
            continue
        known = registered_effects(target)
        unknown = evolve(known, through_bodies=False) == ANYTHING  # a higher-order one does what its bodies do all the same
        if unknown and op.effects.through_bodies >= known.through_bodies:
            continue
        if is_foreign(target) and not known.unknown and not lacking(op.effects, known):
            continue
        yield census.at(index, f"{op.name} is said to have {_difference(op.effects, real)}")


def _difference(said: Effects, real: Effects) -> str:
    parts = [
        f"{field.name}={getattr(said, field.name)!r} (it has {getattr(real, field.name)!r})"
        for field in fields(Effects)
        if getattr(said, field.name) != getattr(real, field.name)
    ]
    return ", ".join(parts)


def check_operator_names(survey: Survey) -> Iterator[Finding]:
    """Find operators that do not bear the name of their target, and one name for two targets: names decide equality."""
    first: dict[str, Any] = {}
    for op, census, index in survey.ops.values():
        target: Any = op.target
        if target is None:
            continue
        if isinstance(target, OpOverload) and op.name != str(target):
            yield census.at(index, f"it is named {op.name!r} and runs {target}")
        other = first.setdefault(op.name, target)
        if other is not target and other != target:
            yield census.at(index, f"two different functions are named {op.name!r}")


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
    right: dict[int, set[Any]] = {}
    found: list[tuple[int, str]] = []
    for index, node in enumerate(graph.nodes):
        do = node.do
        if type(do) is not Op:
            continue
        known = right.get(id(do))
        if known is None:
            known = right[id(do)] = fitting(do.target) if isinstance(do.target, OpOverload) else set()
        kinds: Any = tuple(map(type, node.args))
        if node.kwargs or not CONTAINERS.isdisjoint(kinds):
            kinds = _deep_kinds(node)
        if kinds in known:
            continue  # nearly all of them
        fault = fault_of(node, do.target)
        if fault is None and len(known) < FORMS:
            known.add(kinds)
        elif fault is not None:
            found.append((index, fault))
    return found


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


def _deep_kinds(node: Node) -> Any:
    # With the kinds of what is in lists, whatever their number, and keyword arguments with their names.
    args: list[Any] = []
    for arg in node.args:
        kind = type(arg)
        args.append(frozenset(map(type, arg)) if kind is Items or kind is tuple else kind)
    kwargs: list[Any] = []
    for key, arg in node.kwargs:
        kind = type(arg)
        kwargs.append((key, kind, *map(type, arg)) if kind is Items or kind is tuple else (key, kind))
    return tuple(args), tuple(kwargs)


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
            if len(node.args) != 2 or node.kwargs:
                yield census.at(index, "getitem takes a value and an item, by position")
                continue
            fault = _projection_fault(survey.censuses, node, makers)
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
                if _holds_object(value) and not (node.projection is not None and type(value) is tuple):
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
