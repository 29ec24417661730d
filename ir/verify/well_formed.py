"""Type errors: attrs checks no types, so a field can hold anything, and no rule but these looks at one before it is known.

``fields_faults`` is about the fields of a program; the other functions are about single values: nodes, stacks, meta.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..analysis.numbers import SYMBOLIC
from ..arguments import TREES, Body, Items, Record, Ref
from ..effects.declared import Effects
from ..expression import OPERATORS, Apply, Sym
from ..graph import Call, Frame, Get, Graph, Input, Node, Op
from ..persistent import PMap
from ..program import CallSignature, Module, Program, Step
from ..signature import (
    Constraints,
    InputGradient,
    InputMutation,
    LiteralType,
    LossOutput,
    NumberType,
    ObjectType,
    RestType,
    Signature,
    StateGradient,
    StateInput,
    StateMutation,
    SunkInput,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from ..state import Slot, SlotKind, State
from ..torch_private import FakeTensor
from .findings import Fault, Finding, depth_fault, is_argument, leaves, short

__all__ = [
    "PLAIN_VALUES",
    "do_faults",
    "fields_faults",
    "frame_of",
    "is_formal",
    "is_known_frame",
    "meta_faults",
    "node_faults",
    "stack_faults",
    "type_fault",
]

PLAIN_VALUES = frozenset({FakeTensor, torch.Tensor, torch.nn.Parameter, int, bool, float, str, type(None), *SYMBOLIC})
"""Types of ``val`` that need no second look."""


def frame_of(program: Program) -> tuple[Any, ...]:
    """Return the fields of a program around its graphs; with its state, all versions of a program share them.

    >>> frame_of(Program.of({}))[1]
    ()
    """
    return program.signature, program.modules, program.call_signatures, program.constraints


def is_known_frame(program: Program) -> bool:
    """Return whether ``verify`` found nothing wrong around the graphs, in another version of a program.

    >>> is_known_frame(Program.of({}))
    False
    """
    known = program.state.derived.get(frame_of) if type(program.state) is State else None
    return known is not None and all(map(operator.is_, known, frame_of(program)))


ABSURD: tuple[type, ...] = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.nn.Module, set, frozenset,
    Ref, Body, Record, Node, Graph, Input, Op, Call, Get,
)  # fmt: skip
"""What no node can have as its value: code, modules, unordered sets and parts of a program."""


def is_formal(formal: Any) -> bool:
    """Return whether a value is an ``Input`` with a name.

    >>> is_formal(Input("x")), is_formal("x")
    (True, False)
    """
    return type(formal) is Input and type(formal.name) is str and bool(formal.name)


def node_faults(node: Any) -> list[str]:
    """Return what is wrong with the types of a node's fields; names, arguments and meta have rules of their own.

    >>> node_faults(Node("y", Get("w"), [1]))
    ['its args are the list [1], not a tuple', 'a read takes no arguments']
    """
    if type(node) is not Node:
        return [f"it is {short(node)}, not a Node"]
    faults: list[str] = []
    if type(node.name) is not str or not node.name:
        faults.append(f"its name is {short(node.name)}, not a name")
    if type(node.args) is not tuple:
        faults.append(f"its args are {short(node.args)}, not a tuple")
    if type(node.kwargs) is not tuple or any(type(pair) is not tuple or len(pair) != 2 for pair in node.kwargs):
        faults.append(f"its kwargs are {short(node.kwargs)}, not a tuple of pairs")
    if type(node.stack) is not tuple:
        faults.append(f"its stack is {short(node.stack)}, not a tuple of frames")
    else:
        faults.extend(stack_faults(node.stack))
    faults.extend(do_faults(node.do))
    if type(node.do) is Get and any(type(given) is not tuple or given for given in (node.args, node.kwargs)):
        faults.append("a read takes no arguments")
    return faults


def do_faults(do: Any) -> Iterator[str]:
    """Find what a node does that none can do.

    >>> list(do_faults(Op("toy.neg", target=7)))
    ['its target is the int 7, which cannot be called']
    """
    match do:
        case Op(name=str(), effects=Effects()):
            if do.target is not None and not callable(do.target):
                yield f"its target is {short(do.target)}, which cannot be called"
        case Call(instance=Frame() as frame, graph=str()):
            yield from stack_faults((frame,))
        case Get(slot=str() as slot) if slot:
            return
        case _:
            yield f"it does {short(do, width=90)}, which is not an Op, Call or Get with the right fields"


def stack_faults(stack: Sequence[Any]) -> Iterator[str]:
    """Find frames of wrong types in a stack.

    >>> list(stack_faults((Frame("a", -1),)))
    ["the module call Frame(path='a', call=-1, part=0) needs a path, and numbers that are not negative"]
    """
    for frame in stack:
        if type(frame) is not Frame:
            yield f"its stack holds {short(frame)}, not a Frame"
        elif type(frame.path) is not str or not frame.path or not _is_number(frame.call) or not _is_number(frame.part):
            yield f"the module call {frame!r} needs a path, and numbers that are not negative"


def _is_number(value: Any) -> bool:
    return type(value) is int and value >= 0


def meta_faults(meta: Any) -> list[str]:
    """Return what is wrong with the meta of a node or an input.

    >>> meta_faults({"val": print, 3: 4})
    ['meta has the key the int 3, not a string', "meta['val'] is the builtin_function_or_method <built-in function print>"]
    """
    if not isinstance(meta, Mapping):
        return [f"meta is {short(meta)}, not a mapping"]
    entries: dict[Any, Any] = dict(meta)
    faults = [f"meta has the key {short(key)}, not a string" for key in entries if type(key) is not str]
    absurd = _absurd_part(entries.get("val"))
    if absurd is not None:
        faults.append(f"meta['val'] {'is' if absurd is entries['val'] else 'holds'} {short(absurd, width=90)}")
    trace = entries.get("stack_trace")
    if trace is not None and not isinstance(trace, str):
        faults.append(f"meta['stack_trace'] is {short(trace)}, not text")
    return faults


def _absurd_part(value: Any) -> Any:
    todo: list[Any] = [value]
    opened: set[int] = set()
    while todo:
        part = todo.pop()
        if isinstance(part, ABSURD):
            return part
        if isinstance(part, tuple | list | Items | Mapping) and id(part) not in opened:
            opened.add(id(part))  # a list can hold itself
            todo.extend(part.values() if isinstance(part, Mapping) else part)  # type: ignore[reportUnknownMemberType]
    return None


def fields_faults(program: Program) -> Iterator[Fault]:
    """Find what is of another type than it is declared with, anywhere but in the graphs: the rule, and what is wrong.

    >>> from purefx.ir import Program
    >>> [finding.message for _, finding in fields_faults(Program.of({}, root=3))]
    ['program.root is the int 3, not a str']
    """
    is_known = is_known_frame(program)
    for name, (kind, inner) in FIELDS.items():
        value: Any = getattr(program, name)
        if type(value) is not kind:
            yield _malformed(f"program.{name} is {short(value)}, not a {kind.__name__}")
            continue
        try:
            if is_known and name in FRAME:
                continue
            yield from inner(value) if inner is not None else ()
        except Exception as error:  # noqa: BLE001  garbage may refuse to be compared or printed; that is reported, not raised
            yield _malformed(f"program.{name} cannot be read: {type(error).__name__}: {error}")


def _malformed(message: str) -> Fault:
    return "well-formed", Finding(message)


def _items(name: str, kind: type, values: tuple[Any, ...]) -> Iterator[Fault]:
    for number, value in enumerate(values):
        if type(value) is not kind:
            yield _malformed(f"program.{name}[{number}] is {short(value)}, not a {kind.__name__}")


def _graphs(graphs: PMap[Any, Any]) -> Iterator[Fault]:
    for name, graph in graphs.items():
        if type(name) is not str or type(graph) is not Graph:
            yield _malformed(f"program.graphs has {short(graph)} under {short(name)}")


def _modules(modules: tuple[Any, ...]) -> Iterator[Fault]:
    yield from _items("modules", Module, modules)
    for module in modules:
        if type(module) is Module and type(module.path) is not str:
            yield "module-paths", Finding(f"a module has the path {short(module.path)}, not a string", node="program.modules")


def _call_signatures(signatures: PMap[Any, Any]) -> Iterator[Fault]:
    for frame, signature in signatures.items():
        if type(frame) is not Frame or type(frame.path) is not str or type(signature) is not CallSignature:
            said = f"program.call_signatures has {short(frame)} with {short(signature)}, not a Frame with a CallSignature"
            yield _malformed(said)


def _facts(facts: frozenset[Any]) -> Iterator[Fault]:
    for fact in sorted(facts, key=repr):
        if type(fact) is not str or not fact:
            yield "known-facts", Finding(f"{short(fact)} is not a fact: facts are words", node="facts")


def _state(state: State) -> Iterator[Fault]:
    slots: Any = state.slots
    if type(slots) is not PMap:
        yield _malformed(f"program.state.slots is {short(slots)}, not a PMap")
        return
    for name, slot in slots.items():
        faults = _slot_faults(name, slot)
        if type(name) is not str:
            faults.append(f"program.state.slots has the key {short(name)}")
        yield from map(_malformed, faults)
    yield from [("state-order", Finding(fault, node="state.order")) for fault in _order_faults(state.order, slots)]


def _slot_faults(name: Any, slot: Any) -> list[str]:
    if type(slot) is Slot and type(slot.kind) is SlotKind and type(slot.cell) is int and type(slot.storage) is int:
        return [] if type(slot.persistent) is bool else [f"the slot {name!r} has persistent={slot.persistent!r}, not a bool"]
    if type(slot) is not Slot:
        return [f"the slot {name!r} is {short(slot)}, not a Slot"]
    faults: list[str] = []
    if type(slot.kind) is not SlotKind:
        faults.append(f"the slot {name!r} is of the kind {short(slot.kind)}, not a SlotKind")
    for field in ("cell", "storage"):
        if type(getattr(slot, field)) is not int:
            faults.append(f"the {field} of the slot {name!r} is {short(getattr(slot, field))}, not an int")
    return faults


def _order_faults(order: Any, slots: PMap[Any, Any]) -> Iterator[str]:
    if type(order) is not tuple:
        yield f"state.order is {short(order)}, not a tuple"
        return
    if len(order) == len(slots) and set(slots) == set(order):
        return  # nearly always
    seen: set[Any] = set()
    for name in order:
        if type(name) is not str:
            yield f"state.order holds {short(name)}, not a name"
        elif name in seen:
            yield f"state.order has {name!r} twice"
        elif name not in slots:
            yield f"state.order has {name!r}, and there is no such slot"
        else:
            seen.add(name)
    for name in sorted(slots.keys() - seen) if len(seen) < len(slots) else ():
        yield f"the slot {name!r} has no place in state.order"


INPUT_SPECS: tuple[type, ...] = (UserInput, StateInput, Token)
OUTPUT_SPECS: tuple[type, ...] = (
    UserOutput, StateMutation, InputMutation, Token, LossOutput, StateGradient, InputGradient,
)  # fmt: skip

REFERENCES: dict[type, tuple[str, type, str, str]] = {
    StateInput: ("slot", str, "signature-slots", "it is the state {!r}, and there is no such slot"),
    StateMutation: ("slot", str, "signature-slots", "it is the state {!r}, and there is no such slot"),
    InputMutation: ("index", int, "mutations", "it mutates input {!r}, which is not a user input"),
    StateGradient: ("slot", str, "gradients", "it is the gradient to the parameter {!r}, and there is none"),
    InputGradient: ("leaf", int, "gradients", "it is the gradient to the leaf {!r} of the arguments, and there is none"),
}
"""How specs refer to the rest of the program: in which field, by what, and the rule and the message where that is nothing."""


def _signature(signature: Signature) -> Iterator[Fault]:
    yield from _specs("inputs", signature.inputs, INPUT_SPECS)
    yield from _specs("outputs", signature.outputs, OUTPUT_SPECS)
    for what, spec in (("inputs", signature.in_spec), ("outputs", signature.out_spec)):
        if spec is not None and not isinstance(spec, TREES):
            text = f"the pytree of the {what} is {short(spec)}, not a TreeSpec"
            yield "signature-leaves", Finding(text, node=f"signature.{what}")
    lifted: Any = signature.lifted
    if type(lifted) is not tuple:
        yield "signature-slots", Finding(f"signature.lifted is {short(lifted)}, not a tuple", node="signature.lifted")
        return
    for number, place in enumerate(lifted):
        if not _is_place(place):
            text = f"it is {short(place)}, not a SunkInput with a slot and the number of user inputs before it"
            yield "signature-slots", Finding(text, node=f"signature.lifted[{number}]")


def _is_place(place: Any) -> bool:
    if type(place) is not SunkInput or type(place.slot) is not str or type(place.used) is not bool:
        return False
    return type(place.behind) is int and place.behind >= 0


def _specs(what: str, specs: Any, kinds: tuple[type, ...]) -> Iterator[Fault]:
    if type(specs) is not tuple:
        yield f"signature-{what}", Finding(f"signature.{what} is {short(specs)}, not a tuple", node=f"signature.{what}")
        return
    for number, spec in enumerate(specs):
        place = f"signature.{what}[{number}]"
        if type(spec) not in kinds:
            names = ", ".join(kind.__name__ for kind in kinds)
            yield f"signature-{what}", Finding(f"{place} is {short(spec)}, none of {names}", node=place)
        elif type(spec) is UserInput:
            # What the type says is for the rules; here it is enough that it can be read.
            if type(spec.argument) is not str or (type(spec.type) is TensorType and type(spec.type.shape) is not tuple):
                yield "signature-arguments", Finding(type_fault(spec) or "its type cannot be read", node=place)
        elif type(spec) in REFERENCES:
            field, kind, rule, said = REFERENCES[type(spec)]
            if type(getattr(spec, field)) is not kind:
                yield rule, Finding(said.format(getattr(spec, field)), node=place)


NUMBERS = frozenset({"int", "float", "bool"})

LIMIT = 1 << 63


def type_fault(spec: UserInput) -> str | None:
    """Return why the type of a user input is none, or None.

    >>> type_fault(UserInput(RestType(), "args")) is None
    True
    """
    kind: Any = spec.type
    if type(spec.argument) is not str:
        return f"the name of the argument is {short(spec.argument)}, not text"
    if spec.default is not None and not (type(spec.default) is LiteralType and _is_literal(spec.default.value)):
        return f"the argument {spec.argument!r} has the default {short(spec.default)}, not a literal"
    match kind:
        case TensorType():
            sizes = type(kind.shape) is tuple and all(_is_size(size) for size in kind.shape)
            fits = type(kind.dtype) is torch.dtype and sizes and _is_device(kind.device)
        case NumberType():
            fits = kind.kind in NUMBERS and (kind.expr is None or _is_size(kind.expr, low=-LIMIT))
        case LiteralType():
            fits = _is_literal(kind.value)
        case RestType():
            fits = type(kind.keywords) is bool
        case _:
            fits = type(kind) is ObjectType and type(kind.description) is str
    return None if fits else f"the argument {spec.argument!r} is said to be {short(kind, width=90)}, which is not a type"


def _is_literal(value: Any) -> bool:
    return depth_fault(value) is None and all(
        is_argument(leaf) and type(leaf).__name__ not in ("Ref", "Body") for leaf in leaves(value)
    )


def _is_size(size: Any, *, low: int = 0) -> bool:
    if type(size) is int:
        return low <= size < LIMIT
    todo = [size]
    while todo:
        part = todo.pop()
        if type(part) is Apply and type(part.args) is tuple and part.op in OPERATORS:
            todo.extend(part.args)
        elif type(part) not in (Sym, int, float, bool):
            return False
    return type(size) in (Sym, Apply)


def _is_device(name: Any) -> bool:
    try:
        return type(name) is str and bool(torch.device(name))
    except RuntimeError:
        return False


FIELDS: dict[str, tuple[type, Callable[[Any], Iterator[Fault]] | None]] = {
    "graphs": (PMap, _graphs),
    "root": (str, None),
    "state": (State, _state),
    "signature": (Signature, _signature),
    "modules": (tuple, _modules),
    "call_signatures": (PMap, _call_signatures),
    "constraints": (Constraints, None),
    "facts": (frozenset, _facts),
    "trail": (tuple, lambda trail: _items("trail", Step, trail)),
}
"""The fields of a program, their types, and what is wrong in them."""

FRAME = frozenset({"state", "signature", "modules", "call_signatures", "constraints"})
"""The fields that versions of a program share: where they were right once, they are."""
