"""Rules about how a program is called: what its arguments are, and how they are nested and named.

One idea: what a caller passes is bound by a pytree of positional arguments and of those by name, so it has exactly these two
parts, and names that can be names.  How many leaves there are is for the rules about the signature.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..arguments import TREES
from ..expression import OPERATORS, Apply, Sym
from ..node import Frame
from ..program import CallSignature
from ..signature import LiteralType, NumberType, ObjectType, RestType, TensorType, UserInput
from .kinds import PLAIN, depth_fault, is_argument, leaves, short
from .rule import Finding
from .signature import specs_of
from .structure import MAP_TYPE
from .survey import Survey

__all__ = ["check_arguments", "check_pytrees"]

NUMBERS = frozenset({"int", "float", "bool"})

LIMIT = 1 << 63


def check_arguments(survey: Survey) -> Iterator[Finding]:
    """Find user inputs whose type is none, or whose defaults do not fit how the program is called."""
    users = [(number, spec) for number, spec in enumerate(specs_of(survey.signature.inputs)) if type(spec) is UserInput]
    rests: set[bool] = set()
    for number, spec in users:
        place = f"signature.inputs[{number}]"
        fault = _type_fault(spec)
        if fault is not None:
            yield Finding(fault, node=place)
        elif type(spec.type) is RestType:
            if spec.type.keywords in rests:
                yield Finding("it is the second argument that takes the rest", node=place)
            rests.add(spec.type.keywords)
    if rests or any(spec.default is not None for _, spec in users):
        yield from _unbound(survey.signature, [spec.argument for _, spec in users])


def _type_fault(spec: UserInput) -> str | None:
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
    return None if fits else f"the argument {spec.argument!r} is said to be {short(kind, width=90)}, which is no type"


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


def _unbound(signature: Any, arguments: list[str]) -> Iterator[Finding]:
    # With defaults the arguments are bound by their names, each to one leaf.
    spec = signature.in_spec
    if spec is None or _shape_fault(spec) is not None:
        return
    positional, named = spec.children()
    names = [*signature.arg_names[: positional.num_children], *named.context]
    if not all(child.is_leaf() for part in (positional, named) for child in part.children()) or names != arguments:
        text = f"some arguments have defaults, so each is one leaf; they are {arguments}, and those of the pytree {names}"
        yield Finding(text, node="signature.in_spec")


def check_pytrees(survey: Survey) -> Iterator[Finding]:
    """Find pytrees that are not of positional arguments and arguments by name, keys that are no literals, and odd names."""
    signature = survey.signature
    yield from _call_faults("signature", signature.in_spec, signature.out_spec, signature.arg_names)
    calls: Any = survey.program.call_signatures
    for frame, found in calls.items() if type(calls) is MAP_TYPE else ():
        if type(frame) is Frame and type(found) is CallSignature:
            yield from _call_faults(f"call_signatures[{frame}]", found.in_spec, found.out_spec, found.arg_names)


def _call_faults(where: str, in_spec: Any, out_spec: Any, names: Any) -> Iterator[Finding]:
    if type(names) is not tuple or not all(type(name) is str for name in names):
        yield Finding(f"the names of the arguments are {short(names)}, not a tuple of texts", node=f"{where}.arg_names")
    elif len(set(names)) < len(names):
        yield Finding(f"two arguments have one name: {', '.join(names)[:200]}", node=f"{where}.arg_names")
    deep = [(name, fault) for name, spec in (("in_spec", in_spec), ("out_spec", out_spec)) if (fault := depth_fault(spec))]
    yield from (Finding(fault, node=f"{where}.{name}") for name, fault in deep)
    if deep:
        return
    fault = _shape_fault(in_spec) if isinstance(in_spec, TREES) else None
    if fault is not None:
        yield Finding(fault, node=f"{where}.in_spec")
    for name, spec in (("in_spec", in_spec), ("out_spec", out_spec)):
        key_fault = _key_fault(spec) if isinstance(spec, TREES) and fault is None else None
        if key_fault is not None:
            yield Finding(key_fault, node=f"{where}.{name}")


def _shape_fault(spec: Any) -> str | None:
    children = [] if spec.is_leaf() else spec.children()
    if spec.type is not tuple or [child.type for child in children] != [tuple, dict]:
        return f"the pytree is {short(spec)}, not that of a tuple and a dict: (args, kwargs)"
    odd = next((key for key in children[1].context if type(key) is not str), None)
    return None if odd is None else f"the keyword {short(odd)} is no text"


def _key_fault(spec: Any) -> str | None:
    todo = [spec]
    while todo:
        part = todo.pop()
        todo.extend(part.children())
        if part.type is dict:
            keys = part.context
            odd = [key for key in keys if any(type(leaf) not in PLAIN for leaf in leaves(key))]
            if odd:
                return f"a dict has the key {short(odd[0])}, which is no literal"
            if len(set(keys)) < len(keys):
                return "a dict has one key twice"
    return None
