"""Rules about meta: what is carried along must at least be readable.

One idea: meta is never compared and never trusted, but transformations read ``val`` and messages read
``stack_trace``; so those two must be what they are taken for, and every key must be a string.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..arguments import Body, Items, Record, Ref
from ..graph import Graph, Input
from ..node import Call, Get, Node, Op
from ..numbers import SYMBOLIC
from ..torch_private import FakeTensor
from .kinds import short
from .rule import INPUTS, Finding

if TYPE_CHECKING:
    from .survey import Survey

__all__ = ["PLAIN_VALUES", "check_meta", "meta_faults"]

PLAIN_VALUES = frozenset({FakeTensor, torch.Tensor, torch.nn.Parameter, int, bool, float, str, type(None), *SYMBOLIC})
"""Types of ``val`` that need no second look."""

ABSURD: tuple[type, ...] = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.nn.Module, set, frozenset,
    Ref, Body, Record, Node, Graph, Input, Op, Call, Get,
)  # fmt: skip
"""What no node can have as its value: code, modules, unordered sets and parts of a program."""


def check_meta(survey: Survey) -> Iterator[Finding]:
    """Find meta that is no mapping, has keys that are no strings, an absurd value or an unreadable stack trace."""
    for census in survey.suspects:
        for formal in survey.inputs_of(census):
            for fault in meta_faults(formal.meta):
                yield Finding(f"input {formal.name}: {fault}", census.name, INPUTS, formal.name)
        for index, node in survey.nodes_of(census):
            for fault in meta_faults(node.meta):
                yield Finding(fault, census.name, index, node.name)


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
