"""The rule that what a shared body says holds in every call of it: what each call gives it is followed through the body.

One idea: the values of each call are worked out as ``infer`` does, and the first value of a body that comes out otherwise than it
says is told; what follows from it is not.  What nobody can tell is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch

from ..fakes.walk import Called
from ..graph import Input
from ..node import Node
from .rule import INPUTS, Finding
from .survey import Survey
from .tensors import geometry

__all__ = ["check_calls"]


def check_calls(survey: Survey, silent: Collection[str]) -> Iterator[Finding]:
    """Find values in shared bodies that are others in one of the calls.

    Args:
        survey: the program.
        silent: graphs of which nothing can be told.
    """
    from ..fakes import CallValues  # here, because it asks this package what agrees

    try:
        values = CallValues(survey.program)
        root = values.root
    except Exception:  # noqa: BLE001  a program that other rules find fault with need not have values
        return
    seen: set[tuple[str, str]] = set()
    for call in [] if root is None else _calls(root):
        if call.graph not in silent and call.graph in values.shared:
            yield from _differing(call, seen)


def _calls(root: Called) -> list[Called]:
    found = {id(root): root}
    todo = [root]
    while todo:
        for called in [called for inner in todo.pop().inner.values() for called in inner]:
            if id(called) not in found:
                found[id(called)] = called
                todo.append(called)
    return list(found.values())


def _differing(call: Called, seen: set[tuple[str, str]]) -> Iterator[Finding]:
    source = call.source
    moved: set[str] = set()
    for place, (now, was) in enumerate(zip((*call.inputs, *call.nodes), (*source.inputs, *source.nodes), strict=True)):
        if now is was or "val" not in was.meta:
            continue
        follows = isinstance(now, Node) and not moved.isdisjoint(now.refs())
        moved.add(now.name)
        if "val" in now.meta and not follows and (call.graph, now.name) not in seen:
            seen.add((call.graph, now.name))
            yield Finding(_sentence(now, was), call.graph, max(INPUTS, place - len(source.inputs)), now.name)


def _sentence(now: Node | Input, was: Node | Input) -> str:
    what = f"the input {now.name}" if isinstance(now, Input) else "it"
    said = f"its meta says {shown(was.meta['val'])}"
    return f"calls of other sizes share the body: {said}, and in one of them {what} is {shown(now.meta['val'])}"


def shown(value: Any) -> str:
    """Return a value in words.

    >>> shown(3), shown((1, 2))
    ('the int 3', '2 values')
    """
    if isinstance(value, torch.Tensor):
        return geometry(value)
    if isinstance(value, tuple | list):
        return f"{len(value)} values"
    return f"the {type(value).__name__} {value}"
