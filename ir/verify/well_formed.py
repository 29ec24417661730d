"""Well-formed programs: fields have their types, meta is meta, the order of state lists every slot once.

``fields_faults`` is about the fields of a program; the survey looks at the nodes.  The rest is about single values.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..analysis.numbers import SYMBOLIC
from ..arguments import TREES, Body, Items, Record, Ref
from ..expression import OPERATORS, Apply, Sym
from ..graph import Call, Get, Graph, Input, Node, Op
from ..persistent import PMap
from ..program import Program
from ..signature import LiteralType, NumberType, TensorType, UserInput
from ..state import State
from ..torch_private import FakeTensor
from .findings import Fault, Finding, depth_fault, is_argument, leaves, short
from .types import fields_of, part_faults

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


FRAME = frozenset({"state", "signature", "modules", "call_signatures", "constraints"})
"""The fields that versions of a program share: where they were right once, they are."""


def fields_faults(program: Program) -> Iterator[Fault]:
    """Find what is of another type than it is declared with, anywhere but in the graphs: the rule, and what is wrong.

    >>> from purefx.ir import Program
    >>> [finding.message for _, finding in fields_faults(Program.of({}, root=3))]
    ['program.root is the int 3, not str']
    """
    known = FRAME if is_known_frame(program) else ()
    right: set[str] = set()
    for name, hint, accepts in fields_of(Program):
        part = getattr(program, name)
        try:
            if name in known or accepts(part):
                right.add(name)
            else:
                yield from map(_malformed, part_faults(part, hint, f"program.{name}"))
        except Exception as error:  # noqa: BLE001  garbage may refuse to be compared or printed; that is reported, not raised
            yield _malformed(f"program.{name} cannot be read: {type(error).__name__}: {error}")
    graphs: Any = program.graphs
    if type(graphs) is not PMap:
        yield _malformed(f"program.graphs is {short(graphs)}, not a PMap")
    for name, graph in graphs.items() if type(graphs) is PMap else ():
        if type(name) is not str or type(graph) is not Graph:
            yield _malformed(f"program.graphs has {short(graph)} under {short(name)}")
    if "facts" in right and "" in program.facts:
        yield "known-facts", Finding("the fact '' is not a word", node="facts")
    for what in ("in_spec", "out_spec"):
        spec = getattr(program.signature, what, None)
        if spec is not None and not isinstance(spec, TREES):
            yield _malformed(f"program.signature.{what} is {short(spec)}, not a TreeSpec")
    if "state" in right and not known:
        yield from [("state-order", Finding(fault, node="state.order")) for fault in _order_faults(program.state)]


def _malformed(message: str) -> Fault:
    return "well-formed", Finding(message)


def _order_faults(state: State) -> Iterator[str]:
    order, slots = state.order, state.slots
    if len(order) == len(slots) and set(slots) == set(order):
        return  # nearly always
    seen: set[str] = set()
    for name in order:
        if name in seen:
            yield f"state.order has {name!r} twice"
        elif name not in slots:
            yield f"state.order has {name!r}, and there is no such slot"
        seen.add(name)
    for name in sorted(slots.keys() - seen):
        yield f"the slot {name!r} has no place in state.order"


NUMBERS = frozenset({"int", "float", "bool"})

LIMIT = 1 << 63


def type_fault(spec: UserInput) -> str | None:
    """Return why the type of a user input is none, or None.

    >>> from purefx.ir.signature import RestType
    >>> type_fault(UserInput(RestType(), "args")) is None
    True
    """
    kind = spec.type
    if spec.default is not None and not _is_literal(spec.default.value):
        return f"the argument {spec.argument!r} has the default {short(spec.default)}, not a literal"
    match kind:
        case TensorType():
            fits = all(_is_size(size) for size in kind.shape) and _is_device(kind.device)
        case NumberType():
            fits = kind.kind in NUMBERS and (kind.expr is None or _is_size(kind.expr, low=-LIMIT))
        case LiteralType():
            fits = _is_literal(kind.value)
        case _:
            fits = True
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


def _is_device(name: str) -> bool:
    try:
        return bool(torch.device(name))
    except RuntimeError:
        return False
