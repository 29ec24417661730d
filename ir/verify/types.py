"""``type_fault``: a field of another type than it is declared with, found by the annotations of the classes of the IR.

attrs checks no types, so a field of a program that somebody else made can hold anything.  ``frame_faults`` looks at all fields of
a program but those of its graphs, which the survey walks.
"""

from __future__ import annotations

import operator
import re
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from attrs import fields, has

from ..arguments import TREES
from ..graph import Frame, Get, Graph, Input, Node
from ..persistent import PMap
from ..program import Program
from ..signature import Signature
from ..state import State
from .findings import Finding, short

LEFT_OUT = {"nodes", "graphs", "meta", "args", "kwargs", "output", "checked", "only", "_before", "past"}
"""Fields that others look at, node by node, and such that nobody sets."""

NEEDS: dict[type, tuple[Callable[[Any], bool], str]] = {
    Frame: (lambda frame: bool(frame.path) and frame.call >= 0, "a call with a path, and a number that is not negative"),
    Get: (lambda get: bool(get.slot), "a read of a slot"),
    Input: (lambda formal: bool(formal.name), "an input with a name"),
    Node: (lambda node: bool(node.name) and _has_arguments(node), "a node with a name, a tuple of args, and each keyword once"),
    State: (
        lambda state: len(state.order) == len(state.slots) and set(state.order) == set(state.slots),
        "a state whose order lists every slot once",
    ),
    Signature: (
        lambda signature: all(spec is None or isinstance(spec, TREES) for spec in (signature.in_spec, signature.out_spec)),
        "a signature whose in_spec and out_spec are TreeSpecs",
    ),
}
"""What values of right types must be besides."""


def _has_arguments(node: Node) -> bool:
    args, kwargs = node.args, node.kwargs
    if type(args) is not tuple or type(kwargs) is not tuple or any(type(pair) is not tuple or len(pair) != 2 for pair in kwargs):
        return False
    return all(type(key) is str for key, _ in kwargs) and len(dict(kwargs)) == len(kwargs)


Fault = tuple[str, Any, Any]
"""Where in a value a part is wrong, the part, and its type or what it should be."""

UNIONS = (Union, types.UnionType)


def part_fault(value: Any, hint: Any) -> Fault | None:
    """Return the first part of a value that is not exactly of an annotated type, or None.

    >>> part_fault((1, 2), tuple[int, ...]), part_fault((1, True), tuple[int, ...])
    (None, ('[1]', True, <class 'int'>))
    """
    if hint is Any:
        return None
    if isinstance(hint, type) and not get_args(hint):
        return ("", value, hint) if type(value) is not hint else _field_fault(value, hint) if has(hint) else None
    origin, args = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        if type(value) in args:
            return part_fault(value, type(value))
        others = [part_fault(value, each) for each in args if not isinstance(each, type) or get_args(each)]
        return None if None in others else ("", value, hint)
    if origin is Callable:
        return None if callable(value) else ("", value, hint)
    if type(value) is not origin or (origin is tuple and args[1:] != (...,) and len(value) != len(args)):
        return "", value, hint
    if origin is PMap:
        parts = [(key, *each) for key, part in value.items() for each in ((key, args[0]), (part, args[1]))]
    else:
        is_alike = origin is frozenset or args[1:] == (...,)
        parts = [(number, part, args[0] if is_alike else args[number]) for number, part in enumerate(value)]
    for key, part, kind in parts:
        if not (type(part) is kind and kind in PLAIN) and (fault := part_fault(part, kind)) is not None:
            return f"[{key!r:.99}]{fault[0]}", fault[1], fault[2]
    return None


PLAIN = frozenset({str, int, bool})


def _field_fault(value: Any, cls: type) -> Fault | None:
    for name, hint in _fields_of(cls):
        part = getattr(value, name)
        if not (type(part) is hint and hint in PLAIN) and (fault := part_fault(part, hint)) is not None:
            return f".{name}{fault[0]}", fault[1], fault[2]
    fits, said = NEEDS.get(cls, (None, ""))
    return None if fits is None or fits(value) else ("", value, said)


@cache
def _fields_of(cls: type) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls) if field.name not in LEFT_OUT and hints[field.name] is not Any]
    return tuple([(name, hints[name]) for name in names])


PACKAGE = re.compile(r"\b[a-z_]+\.|[a-z_.]+\.(?=[A-Z])")


def type_fault(value: Any, hint: Any, where: str) -> str | None:
    """Return in words which part of a value is not of an annotated type, or None.

    >>> type_fault(Frame("a", "1"), Frame, "it"), type_fault(Frame("a", 1), Frame, "it")
    ("it.call is the str '1', not int", None)
    """
    try:
        fault = part_fault(value, hint)
    except Exception as error:  # noqa: BLE001  garbage may refuse to be compared or hashed; that is reported, not raised
        return f"{where} cannot be read: {type(error).__name__}: {error}"
    if fault is None:
        return None
    path, part, kind = fault
    wanted = kind if type(kind) is str else PACKAGE.sub("", kind.__name__ if isinstance(kind, type) else str(kind))
    return f"{where}{path} is {short(part)}, not {wanted}"


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


FRAME = frozenset({"state", "signature", "modules", "call_signatures", "constraints"})
"""The fields that versions of a program share: where they were right once, they are."""


def frame_faults(program: Program) -> Iterator[Finding]:
    """Find fields of a program of another type than they are declared with; the graphs themselves are not looked at.

    >>> [finding.message for finding in frame_faults(Program.of({}, root=3))]
    ['program.root is the int 3, not str']
    """
    known = FRAME if is_known_frame(program) else ()
    for name, hint in _fields_of(Program):
        fault = None if name in known else type_fault(getattr(program, name), hint, f"program.{name}")
        if fault is not None:
            yield Finding(fault)
    graphs: Any = program.graphs
    if type(graphs) is not PMap:
        yield Finding(f"program.graphs is {short(graphs)}, not a PMap")
        return
    for name, graph in graphs.items():
        if type(name) is not str or type(graph) is not Graph:
            yield Finding(f"program.graphs has {short(graph)} under {short(name)}")
    if type(program.facts) is frozenset and "" in program.facts:
        yield Finding("program.facts has '', which is not a word")
