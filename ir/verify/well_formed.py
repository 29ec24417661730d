"""Type errors of single values: nodes, stacks, slots, meta.

Attrs checks no types, so a field can hold anything; each function checks one value and describes what is wrong.  Rules about
whole programs use these; nothing here walks a program.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..analysis.numbers import SYMBOLIC
from ..arguments import Body, Items, Record, Ref
from ..effects.declared import Effects
from ..graph import Call, Frame, Get, Graph, Input, Node, Op
from ..persistent import pmap
from ..state import Slot, SlotKind
from ..torch_private import FakeTensor
from .findings import short

__all__ = ["MAP_TYPE", "PLAIN_VALUES", "graph_faults", "is_formal", "meta_faults", "node_faults", "slot_faults", "stack_faults"]

MAP_TYPE: type = type(pmap())

PLAIN_VALUES = frozenset({FakeTensor, torch.Tensor, torch.nn.Parameter, int, bool, float, str, type(None), *SYMBOLIC})
"""Types of ``val`` that need no second look."""

ABSURD: tuple[type, ...] = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.nn.Module, set, frozenset,
    Ref, Body, Record, Node, Graph, Input, Op, Call, Get,
)  # fmt: skip
"""What no node can have as its value: code, modules, unordered sets and parts of a program."""


def graph_faults(graph: Any) -> list[str]:
    """Return what is wrong with the fields of a graph; its nodes are looked at one by one elsewhere."""
    faults: list[str] = []
    for name in ("inputs", "nodes"):
        value = getattr(graph, name)
        if type(value) is not tuple:
            faults.append(f"its {name} are {short(value)}, not a tuple")
    return faults


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
    faults.extend(_do_faults(node.do))
    if type(node.do) is Get and any(type(given) is not tuple or given for given in (node.args, node.kwargs)):
        faults.append("a read takes no arguments")
    return faults


def _do_faults(do: Any) -> Iterator[str]:
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


def stack_faults(stack: tuple[Any, ...]) -> Iterator[str]:
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


def slot_faults(name: Any, slot: Any) -> list[str]:
    """Return what is wrong with the types of a slot's fields.

    >>> slot_faults("w", Slot("parameter", 1, 0, 0))
    ["the slot 'w' is of the kind the str 'parameter', not a SlotKind"]
    """
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
