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

LEFT_OUT = {"nodes", "graphs", "meta", "output", "checked", "only", "_before", "past"}
"""Fields that others look at, node by node, and such that nobody sets."""

NEEDS: dict[type, tuple[Callable[[Any], bool], str]] = {
    Frame: (lambda frame: bool(frame.path) and frame.call >= 0, "a call with a path, and a number that is not negative"),
    Get: (lambda get: bool(get.slot), "a read of a slot"),
    Input: (lambda formal: bool(formal.name), "an input with a name"),
    Node: (
        lambda node: bool(node.name) and len(dict(node.kwargs)) == len(node.kwargs),
        "a node with a name, and with each keyword once",
    ),
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

Fault = tuple[str, Any, Any]
"""Where in a value a part is wrong, the part, and its type or what it should be."""

Check = Callable[[Any], Fault | None]


@cache
def checker(hint: Any) -> Check:
    """Return a function from a value to the first part of it that is not exactly of an annotated type, or None.

    >>> checker(tuple[int, ...])((1, 2)), checker(tuple[int, ...])((1, True))
    (None, ('[1]', True, <class 'int'>))
    """
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda _: None
    if origin is Union or origin is types.UnionType:
        return _of_any(hint, args)
    if (args[1:] == (Ellipsis,) and origin is tuple) or origin is frozenset:
        return _of_parts(hint, origin, checker(args[0]))
    if origin is PMap:
        return _of_map(hint, checker(args[0]), checker(args[1]))
    if origin is tuple:
        each = [checker(arg) for arg in args]
        fits = lambda value: all(check(part) is None for check, part in zip(each, value, strict=True))  # noqa: E731
        return lambda value: None if type(value) is tuple and len(value) == len(args) and fits(value) else ("", value, hint)
    if origin is Callable:
        return lambda value: None if callable(value) else ("", value, hint)
    if isinstance(hint, type) and has(hint):
        return _of_fields(hint)
    return (lambda value: None if type(value) is hint else ("", value, hint)) if isinstance(hint, type) else lambda _: None


def _of_any(hint: Any, args: tuple[Any, ...]) -> Check:
    kinds = {kind: checker(kind) for kind in args if isinstance(kind, type)}
    others = [checker(kind) for kind in args if not isinstance(kind, type)]

    def check(value: Any) -> Fault | None:
        if type(value) in kinds:
            return kinds[type(value)](value)
        return None if any(each(value) is None for each in others) else ("", value, hint)

    return check


def _of_parts(hint: Any, origin: type, each: Check) -> Check:
    def check(value: Any) -> Fault | None:
        if type(value) is not origin:
            return "", value, hint
        for number, part in enumerate(value):
            if (fault := each(part)) is not None:
                return f"[{number}]{fault[0]}", fault[1], fault[2]
        return None

    return check


def _of_map(hint: Any, key: Check, item: Check) -> Check:
    def check(value: Any) -> Fault | None:
        if type(value) is not PMap:
            return "", value, hint
        for name, part in value.items():
            if (fault := key(name) or item(part)) is not None:
                return f"[{short(name)}]{fault[0]}", fault[1], fault[2]
        return None

    return check


def _of_fields(cls: type) -> Check:
    # Types of fields are looked up at the first value: they may hold values of this class themselves.
    needs, said = NEEDS.get(cls, (None, ""))

    def check(value: Any) -> Fault | None:
        if type(value) is not cls:
            return "", value, cls
        for name, _, each in _fields_of(cls):
            if (fault := each(getattr(value, name))) is not None:
                return f".{name}{fault[0]}", fault[1], fault[2]
        return None if needs is None or needs(value) else ("", value, said)

    return check


@cache
def _fields_of(cls: type) -> tuple[tuple[str, Any, Check], ...]:
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls) if field.name not in LEFT_OUT and hints[field.name] is not Any]
    return tuple([(name, hints[name], checker(hints[name])) for name in names])


PACKAGE = re.compile(r"\b[a-z_]+\.|[a-z_.]+\.(?=[A-Z])")


def type_fault(value: Any, hint: Any, where: str) -> str | None:
    """Return in words which part of a value is not of an annotated type, or None.

    >>> type_fault(Frame("a", "1"), Frame, "the call"), type_fault(Frame("a", -1), Frame, "the call")
    ("the call.call is the str '1', not int", 'the call is a call with a path, and a number that is not negative')
    """
    try:
        fault = checker(hint)(value)
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
    for name, hint, _ in _fields_of(Program):
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
