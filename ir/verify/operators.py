"""Rules about operators: their effects, names and targets, and the operands that their schemas accept."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType
from typing import Any

import torch
from attrs import evolve, fields

from ..analysis.numbers import SYMBOLIC
from ..arguments import CONTAINERS, TREES, Arg, Body, Items, Record, Ref, replace_refs
from ..callables import op_name
from ..effects.declared import ANYTHING, Effects
from ..effects.registered import effects_of, is_foreign, lacking, registered_effects
from ..errors import PurefxError, first_line
from ..graph import Call, Graph, Input, Node, Op
from ..inference import (
    UNKNOWN,
    ExampleValues,
    Interpreter,
    Run,
    disagreement_of_bodies,
    shown_value,
)
from ..operators import allowed
from ..own_operators import PACK, UNPACK, is_boundary, is_module_call
from ..persistent import derived
from ..tensors import value_in
from ..torch_private import OpOverload, allows_numbers_as_tensors, device_of, schema_of
from .calls import origins
from .findings import INPUTS, PLAIN, Finding, short
from .index import GraphIndex, ProgramIndex


def check_operator_names(whole: ProgramIndex) -> Iterator[Finding]:
    """Find operators with another name than their target, and one name for two targets: names decide equality."""
    first: dict[str, Any] = {}
    for op, scope, index in whole.ops.values():
        target: Any = op.target
        if target is None:
            # Toy programs use torch's names for tokens and bodies, and run without torch.
            if not op.effects.through_bodies and allowed(op.name) is not None:
                yield scope.at(
                    index, f"it is named {op.name!r}, a registered operator, but has no target"
                )
        elif isinstance(target, OpOverload) and op.name != str(target):
            yield scope.at(index, f"it is named {op.name!r} and runs {target}")
        elif (other := first.setdefault(op.name, target)) is not target and other != target:
            yield scope.at(index, f"two different functions are named {op.name!r}")


def check_effects(whole: ProgramIndex) -> Iterator[Finding]:
    """Find operators whose effects are not those of their target; ``ordered`` may be added.

    Users may declare the effects of operators of other libraries and of unknown functions (``declare``), consistent with the
    schema.
    """
    for op, scope, index in whole.ops.values():
        target: Any = op.target
        real = op.effects if target is None else effects_of(target)
        # remove_effect_tokens replaces tokens by ordered effects of operators.
        if op.effects is real or op.effects in (real, evolve(real, ordered=True)):
            continue
        assert target is not None
        known = registered_effects(target)
        if (
            evolve(known, through_bodies=False) == ANYTHING
        ):  # a higher-order operator still has the effects of its bodies
            fits = op.effects.through_bodies >= known.through_bodies
        else:
            fits = is_foreign(target) and not known.unknown and not lacking(op.effects, known)
        if not fits:
            wrong = [
                f.name
                for f in fields(Effects)
                if getattr(op.effects, f.name) != getattr(real, f.name)
            ]
            yield scope.at(
                index, f"the effects of {op.name} are not those of its target: {', '.join(wrong)}"
            )


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
"""The literals that the dispatcher converts to a kind of the schema; other kinds accept any literal."""


LITERALS = PLAIN | CONTAINERS | {Body, range}


def check_operands(whole: ProgramIndex) -> Iterator[Finding]:
    """Find operators with too many, too few or wrong arguments, also through calls of bodies."""
    seen: set[str] = set()
    for scope in whole.graphs.values():
        for index, fault in _misfits(scope.graph):
            yield scope.at(index, fault)
        for index, node, _ in scope.calls:
            if fault := _misused_literal(whole, node, seen):
                yield scope.at(index, fault)
        for name, literal in _returned_literals(whole, scope):
            for user in scope.graph.users_of(name):
                node = user.using({name: literal})
                if fault := fault_of(node) or _misused_literal(whole, node, seen):
                    yield scope.at(
                        scope.graph.position[node.name], f"a call returns a literal: {fault}"
                    )


def _returned_literals(whole: ProgramIndex, scope: GraphIndex) -> Iterator[tuple[str, Arg]]:
    # The results of calls that are literals, by name.
    calls = dict.fromkeys([node.name for _, node, _ in scope.calls])
    items = [node.name for _, node in scope.projections if not calls.keys().isdisjoint(node.refs())]
    for name in [*calls, *items]:
        for origin in origins(whole, scope, Ref(name)):
            if type(origin) not in (Node, Input):
                yield name, origin


def _misused_literal(whole: ProgramIndex, call: Node, seen: set[str]) -> str | None:
    # The fault of an operator, in a body or below it, in a literal that a call passes.
    todo = [call] if type(call.do) is Call else []
    while todo:
        call = todo.pop()
        [name] = call.callees
        scope = whole.graphs[name]
        passed = {
            formal.name: arg
            for formal, arg in zip(scope.graph.inputs, call.args, strict=True)
            if type(arg) is not Ref
        }
        if not passed or (key := f"{name} {passed}") in seen:
            continue
        seen.add(key)
        for _, node in scope.projections:  # an item of a tuple may be a literal too
            source, item = node.item
            items: Any = passed.get(source)
            is_there = isinstance(items, tuple) and -len(items) <= item < len(items)
            if is_there and type(items[item]) is not Ref:
                passed[node.name] = items[item]
        for node in [
            node for node in scope.graph.nodes if not passed.keys().isdisjoint(node.refs())
        ]:
            if type(node.do) is Call:
                todo.append(node.evolve(args=tuple([_bound(arg, passed) for arg in node.args])))
                continue
            bound = node.using(passed)
            if fault := fault_of(bound) or (
                node.projection and _projection_fault(whole, scope, bound)
            ):
                return f"it passes a literal, and in {name!r} {fault}"
    return None


def _bound(arg: Arg, values: Mapping[str, Arg]) -> Arg:
    # Containers inside a container stay names: passed on and doubled at each call, they would grow without bound.
    if type(arg) not in CONTAINERS:
        return values.get(arg.name, arg) if type(arg) is Ref else arg
    return replace_refs(
        arg, {name: value for name, value in values.items() if type(value) not in CONTAINERS}
    )


@derived
def _misfits(graph: Graph) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    overloads = [do for do in graph.distinct if type(do) is Op and isinstance(do.target, CHECKED)]
    forms = {id(op): FITTING.setdefault(op.target, set()) for op in overloads}
    for index, node in enumerate(graph.nodes):
        fitting = forms.get(id(node.do))
        if fitting is None:
            continue
        kinds: tuple[Any, ...] = tuple(map(type, node.args))
        if node.kwargs or not LISTS.isdisjoint(kinds):
            kinds = (*map(_kind, node.args), *[(key, _kind(arg)) for key, arg in node.kwargs])
        if kinds in fitting:
            continue  # nearly all nodes
        fault = fault_of(node)
        if fault is not None:
            found.append((index, fault))
        elif len(fitting) < FORMS:
            fitting.add(kinds)
    return found


LISTS = frozenset({tuple, Items})

CHECKED = (OpOverload, BuiltinFunctionType)
"""The targets whose arguments can be checked: those with a schema, and the functions of ``operator`` and ``math``."""

FITTING: dict[Any, set[Any]] = {}
"""A cache of the kinds of arguments that each overload accepts."""

FORMS = 1000
"""The maximum number for one overload."""


def _kind(arg: Any) -> Any:
    # For lists, include the kinds of their items, but not their number.
    kind = type(arg)
    return (kind, frozenset(map(type, arg))) if kind is Items or kind is tuple else kind


def fault_of(node: Node) -> str | None:
    """Describe why an operator cannot accept the arguments of a node, or return None; the dispatcher checks the rest.

    >>> fault_of(Node("y", Op("aten.relu.default", target=torch.ops.aten.relu.default), ("text",)))
    "aten.relu.default takes Tensor as 'self', not the str 'text'"
    """
    target = node.target
    if isinstance(target, BuiltinFunctionType):
        return _unbound(target, node)
    if not isinstance(target, OpOverload):
        return None
    schema = schema_of(target)
    parameters = {parameter.name: parameter for parameter in schema.arguments}
    positional = [parameter.name for parameter in schema.arguments if not parameter.kwarg_only]
    if len(node.args) > len(positional):
        return f"{target} gets {len(node.args)} arguments by position and takes {len(positional) or 'none'}"
    named = dict(zip(positional, node.args, strict=False))
    for name, value in node.kwargs:
        if name not in parameters:
            return f"{target} has no argument {name!r}; it has {', '.join(parameters) or 'none'}"
        if name in named:
            return f"{target} gets {name!r} by position and by keyword"
        named[name] = value
    missing = [
        repr(name)
        for name, one in parameters.items()
        if not one.has_default_value() and name not in named
    ]
    if missing:
        return f"{target} lacks {', '.join(missing)}"
    numbers = allows_numbers_as_tensors(schema.name)
    for name, value in named.items():
        kind = parameters[name].type
        is_number = (
            numbers and kind.kind() == "TensorType" and isinstance(value, NUMBERS)
        )  # for a tensor
        if not (is_number or _takes(kind, value, broadcasts=bool(parameters[name].N))):
            return f"{target} takes {kind} as {name!r}, not {short(value)}"
    return None


def _unbound(function: BuiltinFunctionType, node: Node) -> str | None:
    # Why a function of Python cannot be called with the arguments of a node.
    try:
        signature = inspect.signature(function)
    except ValueError:
        return None  # it tells no signature
    try:
        signature.bind(*node.args, **dict(node.kwargs))
    except TypeError as error:
        return f"{op_name(function)} takes {signature}: {error}"
    return None


def _takes(kind: Any, value: Any, *, broadcasts: bool = False) -> bool:
    # Whether a parameter of a schema kind accepts a literal; if it broadcasts, a number is accepted for a list.
    if type(value) not in LITERALS:
        return True  # a value of the graph, or an object
    if kind.kind() == "OptionalType":
        return value is None or _takes(kind.getElementType(), value, broadcasts=broadcasts)
    if kind.kind() != "ListType":
        kinds = LEAVES.get(kind.kind())
        return kinds is None or isinstance(value, kinds)
    element = kind.getElementType()
    if type(value) is tuple or type(value) is Items:
        return all(
            _takes(element, part) and (part is not None or element.kind() != "TensorType")
            for part in value
        )
    if broadcasts and isinstance(value, NUMBERS):
        return _takes(element, value)
    # The dispatcher treats a string as a list of strings, and a range as a list of numbers.
    return type(value) is range or (
        type(value) in (str, bytes) and element.kind() in ("StringType", "IntType", "NumberType")
    )


def _several(whole: ProgramIndex, node: Node) -> int | None:
    # The number of results of a node; None if it has one result outside a tuple, or if unknown.
    do = node.do
    if type(do) is Call:
        output = whole.graphs[do.graph].graph.output
        return len(output) if type(output) in (tuple, Items) else None
    target: Any = do.target if type(do) is Op else None
    if isinstance(target, OpOverload) and len(schema_of(target).returns) != 1:
        return len(schema_of(target).returns)
    known: Any = value_in(node.meta) if type(do) is Op else None
    return len(known) if type(known) in (tuple, list) else None


def check_results(whole: ProgramIndex) -> Iterator[Finding]:
    """Find operators that use several results as one value, and ``getitem`` of results that do not exist."""
    overloads = [op for op, _, _ in whole.ops.values() if isinstance(op.target, OpOverload)]
    several = {id(op) for op in overloads if len(schema_of(op.target).returns) > 1}
    for scope in whole.graphs.values():
        for index, node in scope.projections:
            fault = _projection_fault(whole, scope, node)
            if fault is not None:
                yield scope.at(index, fault)
        if not several and not scope.calls:
            continue
        tuples = {
            node.name
            for _, node, do in scope.calls
            if type(whole.graphs[do.graph].graph.output) is tuple
        }
        tuples.update(
            [node.name for _, node in enumerate(scope.graph.nodes) if id(node.do) in several]
            if several
            else ()
        )
        for index, node in enumerate(scope.graph.nodes) if tuples else ():
            if isinstance(node.target, OpOverload) or type(node.do) is Call:
                for name in [name for name in node.refs() if name in tuples]:
                    yield scope.at(
                        index, f"it uses {name!r}, which has several results, as one value"
                    )


def _projection_fault(whole: ProgramIndex, scope: GraphIndex, node: Node) -> str | None:
    if len(node.args) != 2 or node.kwargs:
        return "getitem takes a value and an index, by position"
    source, item = node.args
    maker = scope.graph.by_name.get(source.name) if type(source) is Ref else None
    if type(source) not in (Ref, tuple, Items):
        return f"it indexes {short(source)}, which has no items"
    length = (
        len(source)
        if isinstance(source, tuple)
        else None
        if maker is None
        else _several(whole, maker)
    )
    is_call = maker is not None and type(maker.do) is Call
    if length is None or (type(item) in (Ref, slice) and not is_call):
        return None  # Python accepts any slice of a tuple
    if type(item) is not int or not -length <= item < length:
        indexed = repr(source.name) if type(source) is Ref else "a literal"
        return f"it selects result {short(item)} of {indexed}, which has {length}"
    return None


def check_packed(whole: ProgramIndex) -> Iterator[Finding]:
    """Find operators with an object of a registered pytree type as operand: they could call its methods."""
    if PACK.name not in whole.op_names:
        return
    for scope in whole.graphs.values():
        for index, node in enumerate(scope.graph.nodes):
            if (
                type(node.do) is not Op
                or is_module_call(node)
                or is_boundary(node)
                or node.op_name in (PACK.name, UNPACK.name)
            ):
                continue
            for name in node.refs():
                maker = scope.graph.by_name.get(name)
                if (
                    node.projection is not None
                    and maker is not None
                    and type(maker.do) is Call
                    and _several(whole, maker)
                ):
                    continue  # it selects a result of a call
                if any(map(_is_object, origins(whole, scope, Ref(name)))):
                    yield scope.at(
                        index,
                        f"its argument {name!r} is or contains an object that {PACK.name} made",
                    )


def _is_object(origin: Any) -> bool:
    # Whether a node makes an object of another type than Python's containers, or contains one.
    is_packed = type(origin) is Node and origin.op_name == PACK.name and len(origin.args) == 2
    return is_packed and _has_object(origin.args[1])


def _has_object(spec: Any) -> bool:
    # The rule "argument-kinds" bounds the depth.
    if not isinstance(spec, TREES) or spec.is_leaf():
        return False
    return spec.type not in (tuple, list, dict) or any(map(_has_object, spec.children()))


REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)
"""The errors of operators with wrong arguments; an AssertionError is a bug of torch."""


def check_inferred(whole: ProgramIndex) -> Iterator[Finding]:
    """Find nodes whose operator, or a branch of it, returns another type than in the meta, or rejects its arguments."""
    values = ExampleValues(whole.program)
    work = Interpreter(whole.program, values=values)
    work.walk()
    found: dict[tuple[str, str], Finding] = {}
    for name, scope in whole.graphs.items():
        graph = scope.graph
        for run in work.runs.get(name, ()):
            for place, text in _differences(run, graph, values, is_shared=name in work.shared):
                value = (*graph.inputs, *graph.nodes)[place]
                finding = Finding(text, name, max(INPUTS, place - len(graph.inputs)), value.name)
                found.setdefault((name, value.name), finding)
        for index, node in enumerate(scope.graph.nodes):
            _, _, error = work.refusals.get((name, node.name), (None, None, None))
            if isinstance(error, REFUSALS) and not isinstance(error, PurefxError):
                reason = first_line(error)
                found[name, node.name] = scope.at(
                    index, f"its operator rejects its arguments: {reason[:200]}"
                )
        for index in dict.fromkeys([index for index, _ in scope.callees]):
            difference = disagreement_of_bodies(graph.nodes[index], whole.program.graphs)
            if difference is not None:
                found[name, graph.nodes[index].name] = scope.at(index, difference)
    yield from found.values()


def _differences(
    run: Run, graph: Graph, values: ExampleValues, *, is_shared: bool
) -> Iterator[tuple[int, str]]:
    # The values that differ from the meta, without consequences of others.
    wrong: set[str] = set()
    for place, (now, was) in enumerate(
        zip((*run.inputs, *run.nodes), (*graph.inputs, *graph.nodes), strict=True)
    ):
        if now is was or "val" not in was.meta or "val" not in now.meta:
            continue
        recorded = values.recorded(was)
        if recorded is UNKNOWN or _agrees(now.meta["val"], recorded):
            continue
        if isinstance(now, Input) or wrong.isdisjoint(now.refs()):
            source = "a call passes" if isinstance(now, Input) else "its operator returns"
            text = f"its meta has {shown_value(was.meta['val'])}, but {source} {shown_value(now.meta['val'])}"
            yield place, f"{text} (calls of other sizes share the body)" if is_shared else text
        wrong.add(now.name)


def _agrees(value: Any, recorded: Any) -> bool:
    # Whether a value equals the recorded one; None is an unknown part of a tuple.
    if isinstance(value, tuple | list) and isinstance(recorded, tuple | list):
        return len(value) == len(recorded) and all(map(_agrees, value, recorded))
    return recorded is None or value is None or _facts(value) == _facts(recorded)


def _facts(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (
            value.dtype,
            device_of(value).type,
            *value.shape,
        )  # "cuda" is the current device, with any index
    return (type(value), value) if type(value) in (int, bool) else type(value)  # floats are rounded
