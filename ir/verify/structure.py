"""The rule that every value is of the type that it is declared with.

One idea: attrs checks no types, so garbage can sit anywhere; it is found here, once, and every other rule only sees the
parts that are well-formed.  It looks at no name and no meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..effects.declared import Effects
from ..graph import Input
from ..node import Call, Frame, Get, Node, Op
from ..persistent import pmap
from ..program import CallSignature, Module, Program, Step
from ..signature import Constraints, Signature
from ..state import Slot, SlotKind, State
from .kinds import short
from .rule import INPUTS, Finding

if TYPE_CHECKING:
    from .survey import Survey

__all__ = ["MAP_TYPE", "check_structure", "graph_faults", "is_formal", "node_faults", "slot_faults", "stack_faults"]

MAP_TYPE: type = type(pmap())

FIELDS: tuple[tuple[str, type], ...] = (
    ("graphs", MAP_TYPE), ("root", str), ("state", State), ("signature", Signature), ("modules", tuple),
    ("call_signatures", MAP_TYPE), ("constraints", Constraints), ("facts", frozenset), ("trail", tuple),
)  # fmt: skip
"""The fields of a program and their types."""


def check_structure(survey: Survey) -> Iterator[Finding]:
    """Find every field of the program, its graphs and its nodes that has a wrong type."""
    yield from _program_faults(survey.program)
    yield from survey.table_faults
    for census in survey.suspects:
        graph = census.graph
        for fault in graph_faults(graph):
            yield Finding(fault, census.name)
        for number, formal in enumerate(graph.inputs if type(graph.inputs) is tuple else ()):
            if not is_formal(formal):
                yield Finding(f"input {number} is {short(formal)}, not an Input with a name", census.name, INPUTS)
        for index, node in enumerate(graph.nodes if type(graph.nodes) is tuple else ()):
            for fault in node_faults(node):
                name: Any = getattr(node, "name", None)
                yield Finding(fault, census.name, index, name if type(name) is str else f"node {index}")


def _program_faults(program: Program) -> Iterator[Finding]:
    for name, kind in FIELDS:
        value: Any = getattr(program, name)
        if type(value) is not kind:
            yield Finding(f"program.{name} is {short(value)}, not a {kind.__name__}")
    for name, kind in (("modules", Module), ("trail", Step)):
        for number, value in enumerate(_tuple(getattr(program, name))):
            if type(value) is not kind:
                yield Finding(f"program.{name}[{number}] is {short(value)}, not a {kind.__name__}")
    calls: Any = program.call_signatures
    for frame, signature in dict(calls.items()).items() if type(calls) is MAP_TYPE else ():
        if type(frame) is not Frame or type(signature) is not CallSignature:
            yield Finding(f"program.call_signatures has {short(frame)} with {short(signature)}, not a Frame with a CallSignature")


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if type(value) is tuple else ()


def graph_faults(graph: Any) -> list[str]:
    """Return what is wrong with the fields of a graph; its nodes are looked at one by one elsewhere."""
    faults: list[str] = []
    for name in ("inputs", "nodes"):
        value = getattr(graph, name)
        if type(value) is not tuple:
            faults.append(f"its {name} are {short(value)}, not a tuple")
    return faults


def is_formal(formal: Any) -> bool:
    """Say whether a value is an ``Input`` with a name.

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
                yield f"its target is {short(do.target)}, which can not be called"
        case Call(instance=Frame() as frame, graph=str()):
            yield from stack_faults((frame,))
        case Get(slot=str() as slot) if slot:
            return
        case _:
            yield f"it does {short(do, width=90)}, which is no Op, Call or Get with the right fields"


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
