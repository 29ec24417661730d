"""``type_faults``: fields of other types than they are declared with, found by the annotations of the classes of the IR.

attrs checks no types, so a field of a program that somebody else made can hold anything.  ``program_faults`` looks at all fields
of a program but those of its graphs, which the survey walks.
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
from ..state import State
from .findings import Fault, Finding, short

PLAIN = frozenset({str, int, bool})

LEFT_OUT = {"nodes", "graphs", "meta", "args", "kwargs", "output", "checked", "only", "_before", "past"}
"""Fields that others look at, node by node, and such that nobody sets."""

NEEDS: dict[type, tuple[Callable[[Any], bool], str]] = {
    Frame: (lambda frame: bool(frame.path) and frame.call >= 0, "a path, and a number that is not negative"),
    Get: (lambda get: bool(get.slot), "a slot"),
    Input: (lambda formal: bool(formal.name), "a name"),
    Node: (lambda node: bool(node.name), "a name"),
}
"""Values of right types that are wrong all the same."""


def type_faults(value: Any, where: str = "") -> Iterator[str]:
    """Find fields of other types than they are declared with, and what is in them.

    Args:
        value: of one of the classes of the IR.
        where: how messages name it.

    >>> list(type_faults(Frame("a", "1"))), list(type_faults(Frame("a", -1), "the call"))
    (["call is the str '1', not int"], ['the call needs a path, and a number that is not negative'])
    """
    wrong = [(name, hint) for name, hint, accepts in fields_of(type(value)) if not accepts(getattr(value, name))]
    for name, hint in wrong:
        yield from part_faults(getattr(value, name), hint, f"{where}.{name}" if where else name)
    needs = None if wrong else NEEDS.get(type(value))
    if needs is not None and not needs[0](value):
        yield f"{where or 'it'} needs {needs[1]}"


def part_faults(part: Any, hint: Any, where: str) -> Iterator[str]:
    """Find the smallest parts of a value that are not of an annotated type.

    >>> list(part_faults((1, "2"), tuple[int, ...], "shape"))
    ["shape[1] is the str '2', not int"]
    """
    inner = get_args(hint)
    if has(type(part)) and type(part) in (hint, *inner):
        yield from type_faults(part, where)
    elif type(part) is tuple and inner[1:] == (Ellipsis,):
        for number, item in enumerate(part):
            if not accepts(inner[0])(item):
                yield from part_faults(item, inner[0], f"{where}[{number}]")
    elif type(part) is PMap and get_origin(hint) is PMap:
        for key, item in part.items():
            if not accepts(inner[0])(key):
                yield f"{where} has the key {short(key)}"
            if not accepts(inner[1])(item):
                yield from part_faults(item, inner[1], f"{where}[{short(key)}]")
    else:
        said = hint.__name__ if isinstance(hint, type) and not inner else str(hint)
        yield f"{where} is {short(part)}, not {PACKAGE.sub('', said)}"


PACKAGE = re.compile(r"\b[a-z_]+\.|[a-z_.]+\.(?=[A-Z])")


@cache
def fields_of(cls: type) -> tuple[tuple[str, Any, Callable[[Any], bool]], ...]:
    """Return the names of the fields of a class, with their types, and whether a value is of that.

    >>> [name for name, _, _ in fields_of(Frame)]
    ['path', 'call']
    """
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls) if field.name not in LEFT_OUT and hints[field.name] is not Any]
    return tuple([(name, hints[name], accepts(hints[name])) for name in names])


@cache
def accepts(hint: Any) -> Callable[[Any], bool]:
    """Return a function of one value: whether it is of an annotated type, exactly.

    >>> accepts(tuple[int, ...])((1, 2)), accepts(tuple[int, ...])((1, True)), accepts(str | None)(3)
    (True, False, False)
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Union or origin is types.UnionType:
        kinds = {kind: accepts(kind) for kind in args if isinstance(kind, type)}
        others = [accepts(kind) for kind in args if not isinstance(kind, type)]
        return lambda value: kinds[type(value)](value) if type(value) in kinds else any(kind(value) for kind in others)
    if origin is tuple and args[1:] == (Ellipsis,):
        each = accepts(args[0])
        return lambda value: type(value) is tuple and all(map(each, value))
    if origin is frozenset:
        each = accepts(args[0])
        return lambda value: type(value) is frozenset and all(map(each, value))
    if origin is PMap:
        key, item = map(accepts, args)
        return lambda value: type(value) is PMap and all(map(key, value)) and all(map(item, value.values()))
    if origin is Callable:
        return callable
    if isinstance(hint, type) and has(hint):
        return _accepts_value(hint)
    return (lambda value: type(value) is hint) if isinstance(hint, type) else (lambda _: True)


def _accepts_value(cls: type) -> Callable[[Any], bool]:
    # Types of fields are looked up at the first value: they may hold values of this class themselves.
    needs = NEEDS.get(cls)

    def is_one(value: Any) -> bool:
        if type(value) is not cls:
            return False
        for name, hint, accepts_field in fields_of(cls):
            part = getattr(value, name)
            if not (type(part) is hint and hint in PLAIN) and not accepts_field(part):
                return False
        return needs is None or needs[0](value)

    return is_one


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


def program_faults(program: Program) -> Iterator[Fault]:
    """Find what is of another type than it is declared with, anywhere but in the graphs: the rule, and what is wrong.

    >>> [finding.message for _, finding in program_faults(Program.of({}, root=3))]
    ['program.root is the int 3, not str']
    """
    known = FRAME if is_known_frame(program) else ()
    wrong: list[str] = []
    for name, hint, accepts in fields_of(Program):
        part = getattr(program, name)
        try:
            if name not in known and not accepts(part):
                wrong += part_faults(part, hint, f"program.{name}")
        except Exception as error:  # noqa: BLE001  garbage may refuse to be compared or printed; that is reported, not raised
            wrong.append(f"program.{name} cannot be read: {type(error).__name__}: {error}")
    graphs: Any = program.graphs
    if type(graphs) is not PMap:
        wrong.append(f"program.graphs is {short(graphs)}, not a PMap")
    else:
        odd = [pair for pair in graphs.items() if type(pair[0]) is not str or type(pair[1]) is not Graph]
        wrong += [f"program.graphs has {short(graph)} under {short(name)}" for name, graph in odd]
    for what in ("in_spec", "out_spec"):
        spec = getattr(program.signature, what, None)
        if spec is not None and not isinstance(spec, TREES):
            wrong.append(f"program.signature.{what} is {short(spec)}, not a TreeSpec")
    yield from [("well-formed", Finding(message)) for message in wrong]
    if not any(message.startswith("program.facts") for message in wrong) and "" in program.facts:
        yield "known-facts", Finding("the fact '' is not a word", node="facts")
    if not known and not any(message.startswith("program.state") for message in wrong):
        yield from [("state-order", Finding(message, node="state.order")) for message in _order_faults(program.state)]


def _order_faults(state: State) -> Iterator[str]:
    order, slots = state.order, state.slots
    if len(order) == len(slots) and set(slots) == set(order):
        return  # nearly always
    yield from [f"state.order has {name!r} twice" for number, name in enumerate(order) if name in order[:number]]
    yield from [f"state.order has {name!r}, and there is no such slot" for name in order if name not in slots]
    yield from [f"the slot {name!r} has no place in state.order" for name in sorted(slots.keys() - set(order))]
