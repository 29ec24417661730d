"""``Rule`` and ``Finding``: an invariant, a reported violation, and the lines around its place.

The functions here print any value, even an invalid one.
"""

from __future__ import annotations

import operator
import re
import reprlib
import types
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from attrs import field, fields, frozen, has

from ..analysis.numbers import SYMBOLIC
from ..arguments import CONTAINERS, DEEPEST, TREES, Body, Items, Record, Ref, children_of, is_deep
from ..graph import Frame, Get, Graph, Input, Node
from ..persistent import PMap, derived, text_of
from ..program import Program
from ..signature import Signature
from ..state import State
from ..torch_private import HigherOrderOperator, OpOverload

PLAIN = frozenset({
    int, bool, float, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout,
    torch.memory_format,
})  # fmt: skip
"""Literal types that are always valid."""

OBJECTS: tuple[Any, ...] = (OpOverload, HigherOrderOperator, *SYMBOLIC, type, range, TREES)
"""Types that an argument may have besides literals, references and functions."""

ALLOWED: tuple[Any, ...] = (*OBJECTS, torch.ScriptObject)


def is_argument(leaf: Any) -> bool:
    """Return whether a leaf may be an argument of a node.

    >>> is_argument(1.5), is_argument(Ref("x")), is_argument([1]), is_argument(torch.ones(1))
    (True, True, False, False)
    """
    kind = type(leaf)
    if kind in PLAIN:
        return True
    if kind is Ref:
        return type(leaf.name) is str
    if kind is Body:
        return type(leaf.graph) is str
    if isinstance(leaf, ALLOWED):
        return not (isinstance(leaf, TREES) and is_deep(leaf))
    # Plain functions are valid; modules are callable too, but mutable.
    return callable(leaf) and not isinstance(leaf, torch.nn.Module | torch.Tensor)


def is_nested(arg: Any) -> bool:
    """Return whether an argument is a container that can be walked.

    >>> is_nested((1, 2)), is_nested([1, 2]), is_nested(Record(7))
    (True, False, False)
    """
    kind = type(arg)
    return kind in CONTAINERS and (kind is not Record or _has_pairs(arg))


def _has_pairs(record: Any) -> bool:
    pairs = record.items
    return type(pairs) is tuple and all(
        type(pair) is tuple and len(pair) == 2 and _is_key(pair[0]) for pair in pairs
    )


def _is_key(arg: Any) -> bool:
    # At run time it becomes a key of a dict; lists, dicts and, before Python 3.12, slices are not hashable.
    return type(arg) not in (Items, Record, slice) and (
        type(arg) is not tuple or all(map(_is_key, arg))
    )


def leaves(arg: Any) -> Iterator[Any]:
    """Iterate over the leaves of an argument from left to right; a broken container is a leaf.

    >>> list(leaves((1, (Ref("x"), slice(2)))))
    [1, Ref(name='x'), None, 2, None]
    """
    todo = [arg]
    while todo:
        part = todo.pop()
        if is_nested(part):
            todo.extend(reversed(children_of(part)))
        else:
            yield part


def depth_fault(value: Any) -> str | None:
    """Return a message if an argument or a pytree nests too deep, or None.

    >>> depth_fault((1, (2,))) is None
    True
    """
    return f"it nests more than {DEEPEST} levels deep" if is_deep(value) else None


def short(value: Any, *, width: int = 60) -> str:
    """Describe any value on one short line.

    >>> short([1, 2]), short("a" * 100, width=12)
    ('the list [1, 2]', "the str '...")
    """
    kind = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, torch.Tensor | torch.nn.Module):
        return f"a {kind}"
    try:
        shown = " ".join(reprlib.repr(value).split())
    except Exception as error:  # noqa: BLE001  garbage may raise when printed
        shown = f"(its repr raises {type(error).__name__})"
    text = f"the {kind} {shown}"
    return text if len(text) <= width else text[: max(width - 3, len(kind) + 5)].rstrip() + "..."


INPUTS = -1
"""The position of the inputs of a graph; that of its output is ``len(graph.nodes)``."""


@frozen
class Finding:
    """A violation: a message and a place.

    >>> Finding("the name 'y' is used already", graph="enc", at=3, node="y").at
    3
    """

    message: str
    graph: str | None = None
    at: int | None = None
    """The number of the node in its graph, or ``INPUTS``, or the number of nodes for the output; None for the graph itself."""
    node: str | None = None
    cause: str | None = None
    """A key that groups findings with one cause; by default the message."""


Check = Callable[[Any], Iterable[Finding]]
"""Returns the findings in a ``ProgramIndex``."""


@frozen
class Rule:
    """An invariant that every valid program has.

    >>> Rule("no-nodes", "nothing is done", lambda whole: [], advice="remove them").name
    'no-nodes'
    """

    name: str
    statement: str
    """The invariant in one sentence."""
    check: Check | None = field(default=None, repr=False)
    """None for a local rule, which ``index`` checks."""
    advice: str = field(default="", kw_only=True)
    """How to fix a violation."""


AROUND = 5
WIDTH = 120


@derived
def _lines_of(graph: Graph) -> list[str]:
    try:
        return [" ".join(line.split()) for line in text_of(graph).split("\n")[:-1]]
    except Exception:  # noqa: BLE001  garbage may raise when printed; still report its violations
        return []


def around(graph: Graph, at: int) -> tuple[str, ...]:
    """Return the lines around a position of a graph; the line itself begins with ``>``.

    >>> around(Graph((), (Node("w", Get("weight")),), (Ref("w"),)), 0)
    ('  graph @""() {', '> w = get weight', '  return (w,)')
    """
    here = at + 1
    span = enumerate(
        _lines_of(graph)[max(0, here - AROUND) : here + AROUND + 1], max(0, here - AROUND)
    )
    cut = [
        (number, line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}...") for number, line in span
    ]
    return tuple([f"{'>' if number == here else ' '} {line}" for number, line in cut])


LEFT_OUT = {
    "nodes",
    "meta",
    "args",
    "kwargs",
    "stack",
    "output",
    "checked",
    "only",
    "_before",
    "_first",
    "past",
}
"""Fields that are checked node by node, and internal fields."""

NEEDS: dict[type, tuple[Callable[[Any], bool], str]] = {
    Frame: (
        lambda frame: bool(frame.path) and frame.call >= 0,
        "a call with a path and a non-negative number",
    ),
    Get: (lambda get: bool(get.slot), "a read of a slot"),
    Input: (lambda formal: bool(formal.name), "an input with a name"),
    Node: (
        lambda node: (
            bool(node.name)
            and type(node.args) is tuple
            and type(node.kwargs) is tuple
            and _are_keywords(node.kwargs)
        ),
        "a node with a name, a tuple of args, and each keyword once",
    ),
    State: (
        lambda state: len(state.order) == len(state.slots) and set(state.order) == set(state.slots),
        "a state whose order lists every slot once",
    ),
    Signature: (
        lambda signature: all(
            spec is None or isinstance(spec, TREES)
            for spec in (signature.in_spec, signature.out_spec)
        ),
        "a signature whose in_spec and out_spec are TreeSpecs",
    ),
}
"""Conditions on well-typed values."""


def _are_keywords(kwargs: tuple[Any, ...]) -> bool:
    pairs = [
        pair for pair in kwargs if type(pair) is tuple and len(pair) == 2 and type(pair[0]) is str
    ]
    return len(pairs) == len(kwargs) == len(dict(pairs)) if kwargs else True


Fault = tuple[str, Any, Any]
"""The place of a wrong part in a value, the part, and the expected type or description."""

UNIONS = (Union, types.UnionType)


def part_fault(value: Any, hint: Any, known: set[Any]) -> Fault | None:
    """Return the first part of a value that is not exactly of an annotated type, or None.

    Args:
        value: the value.
        hint: the annotated type.
        known: the ids of attrs values that have passed and still exist; those of this value are added.  Tuples are in it with
            the ids of their types.

    >>> part_fault((1, 2), tuple[int, ...], set()), part_fault((1, True), tuple[int, ...], set())
    (None, ('[1]', True, <class 'int'>))
    """
    if hint is Any:
        return None
    plain, classes, origin, args = _hint_parts(hint)
    kind = type(value)
    if kind in plain:
        return None
    if kind in classes:
        return None if id(value) in known else _field_fault(value, kind, known)
    if origin in UNIONS:
        others = [part_fault(value, each, known) for each in args if get_args(each)]
        return None if None in others else ("", value, hint)
    if origin is Callable:
        return None if callable(value) else ("", value, hint)
    if kind is not origin or (origin is tuple and args[1:] != (...,) and len(value) != len(args)):
        return "", value, hint
    if origin is tuple and args[1:] != (...,):
        groups: list[tuple[Any, Any]] = [
            ([(number, part)], args[number]) for number, part in enumerate(value)
        ]
    elif origin is PMap:
        groups = [([(key, key) for key in value], args[0]), (value.items(), args[1])]
    else:
        groups = [(enumerate(value), args[0])]
    for pairs, each in groups:
        plain, classes, *_ = _hint_parts(each)
        for key, part in pairs:
            kind = type(part)
            if kind in plain or (kind in classes and id(part) in known):
                continue
            fault = (
                _field_fault(part, kind, known)
                if kind in classes
                else part_fault(part, each, known)
            )
            if fault is not None:
                return f"[{key!r:.99}]{fault[0]}", fault[1], fault[2]
    return None


@cache
def _hint_parts(hint: Any) -> tuple[frozenset[type], frozenset[type], Any, tuple[Any, ...]]:
    # Of an annotation: the classes without fields to check that it names, the other classes, its origin, and its arguments.
    origin, args = get_origin(hint), get_args(hint)
    kinds = [
        kind
        for kind in (args if origin in UNIONS else (hint,))
        if isinstance(kind, type) and not get_args(kind)
    ]
    classes = frozenset(
        [kind for kind in kinds if has(kind) and kind is not Graph]
    )  # graphs are checked node by node
    return frozenset(kinds) - classes, classes, origin, args


def _field_fault(value: Any, cls: type, known: set[Any]) -> Fault | None:
    for name, hint, plain, classes in _fields_of(cls):
        part = getattr(value, name)
        kind = type(part)
        if kind in plain or (kind in classes and id(part) in known):
            continue
        if (fault := part_fault(part, hint, known)) is not None:
            return f".{name}{fault[0]}", fault[1], fault[2]
    fits, description = NEEDS.get(cls, (None, ""))
    if fits is not None and not fits(value):
        return "", value, description
    known.add(id(value))
    return None


@cache
def _fields_of(cls: type) -> tuple[tuple[str, Any, frozenset[type], frozenset[type]], ...]:
    # The fields that are checked, with their annotations and the classes that these name.
    hints = get_type_hints(cls)
    names = [
        field.name
        for field in fields(cls)
        if field.name not in LEFT_OUT and hints[field.name] is not Any
    ]
    return tuple([(name, hints[name], *_hint_parts(hints[name])[:2]) for name in names])


PACKAGE = re.compile(r"\b[a-z_]+\.|[a-z_.]+\.(?=[A-Z])")


def type_fault(value: Any, hint: Any, where: str, known: set[Any]) -> str | None:
    """Describe the first part of a value that is not of an annotated type, as ``part_fault`` finds it; None if all are.

    >>> type_fault(Frame("a", "1"), Frame, "it", set()), type_fault(Frame("a", 1), Frame, "it", set())
    ("it.call is the str '1', not int", None)
    """
    try:
        fault = part_fault(value, hint, known)
    except Exception as error:  # noqa: BLE001  garbage may raise when compared or hashed; report it
        return f"{where} cannot be read: {type(error).__name__}: {error}"
    if fault is None:
        return None
    path, part, kind = fault
    wanted = (
        kind
        if type(kind) is str
        else PACKAGE.sub("", kind.__name__ if isinstance(kind, type) else str(kind))
    )
    return f"{where}{path} is {short(part)}, not {wanted}"


frame_of = operator.attrgetter("signature", "modules", "call_signatures", "constraints")
"""Returns the fields of a program other than its graphs and state; versions of a program share them."""

FRAME = frozenset({
    "state", "signature", "modules", "call_signatures", "constraints", "state-values", "state-memory", "module-paths", "pytrees",
    "signature-leaves", "signature-arguments", "signature-slots",
})  # fmt: skip
"""The fields around the graphs, and the rules that read no graph: versions of a program share them, so one check suffices."""


def known_names(program: Program) -> frozenset[str]:
    """Return the fields and rules that need no check: all of ``FRAME`` if ``verify`` accepted them in another version.

    The importer makes the slots of its state, so their types are right; their memory may have changed since.

    >>> known_names(Program.of({}))
    frozenset()
    """
    derived = program.state.derived if type(program.state) is State else {}
    if frame_of in derived and all(map(operator.is_, derived[frame_of], frame_of(program))):
        return FRAME
    return derived.get(known_names, frozenset())


def frame_faults(program: Program) -> Iterator[Finding]:
    """Find fields of a program whose type is not the declared one; graphs are not checked.

    >>> [finding.message for finding in frame_faults(Program.of({}, root=3))]
    ['program.root is the int 3, not str']
    """
    known, checked = known_names(program), set[Any]()
    for name, hint, *_ in _fields_of(Program):
        fault = (
            None
            if name in known
            else type_fault(getattr(program, name), hint, f"program.{name}", checked)
        )
        if fault is not None:
            yield Finding(fault)
    if type(program.facts) is frozenset and "" in program.facts:
        yield Finding("program.facts has '', which is not a word")
