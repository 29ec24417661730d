"""Meta: facts about a node besides its operation (fake value, stack trace, custom entries).

An immutable snapshot.  The dict of the traced node is copied and the containers in it are frozen; the leaves (fake tensors) are
shared.  Meta is carried by every transformation and never compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

Meta = Mapping[str, Any]

EMPTY_META: Meta = MappingProxyType({})

ORIGIN = "purefx_origin"
"""The entry that holds the origin of a node, see ``origins.py``; it is not an entry of torch."""

PHASE = "phase"
"""The entry that marks the backward nodes of a joint program: ``"backward"``."""

DROPPED = "nn_module_stack"
"""Parsed into ``Node.stack`` at import and written again when a graph is lowered."""


def freeze_meta(meta: Mapping[str, Any], origin: object = None) -> Meta:
    """Return an immutable snapshot of a node's meta.

    Args:
        meta: the entries; nested dicts, lists and sets are copied.
        origin: the origin of the node, if it is tracked.

    >>> frozen = freeze_meta({"custom": {"tag": [1]}})
    >>> frozen["custom"]["tag"]
    (1,)
    """
    kept = dict(meta)
    kept.pop(DROPPED, None)
    if not MUTABLE.isdisjoint(map(type, kept.values())):
        kept = {key: freeze(value) for key, value in kept.items()}
    if origin is not None:
        kept[ORIGIN] = origin
    return MappingProxyType(kept)


MUTABLE = frozenset({dict, list, set})


def freeze(value: Any) -> Any:
    """Return an immutable copy of nested dicts, lists and sets; any other value as it is.

    >>> freeze([1, {"a": {2}}])
    (1, mappingproxy({'a': frozenset({2})}))
    """
    kind = type(value)
    if kind is dict:
        return MappingProxyType({key: freeze(part) for key, part in value.items()})
    if kind is list:
        return (
            tuple(value)
            if MUTABLE.isdisjoint(map(type, value))
            else tuple([freeze(part) for part in value])
        )
    if kind is set:
        return frozenset(value)
    return value


def thaw(value: Any) -> Any:
    """Return a mutable copy of frozen meta: the opposite of ``freeze`` for mappings; tuples stay tuples.

    >>> thaw(freeze({"a": {"b": 1}}))
    {'a': {'b': 1}}
    """
    if type(value) is MappingProxyType:
        return {key: thaw(part) for key, part in value.items()}
    return value


TRACE = re.compile(
    r'^ *File "(.*)", line ([0-9]{1,9}), in (.*)(?:\n(?! *File ") *(.*))?', re.MULTILINE
)


def line_of(trace: object) -> tuple[str, str, str, str] | None:
    r"""Return the innermost line of a stack trace, outside torch if there is one: file, number, function and code.

    >>> line_of('  File "m.py", line 3, in forward\n    return -x')
    ('m.py', '3', 'forward', 'return -x')
    """
    found = TRACE.findall(trace) if isinstance(trace, str) else []
    return next(
        (line for line in reversed(found) if "site-packages/torch/" not in line[0]),
        found[-1] if found else None,
    )


def source_line(meta: Any) -> str | None:
    r"""Return the line of user code that made a node, for messages; None if its meta has no stack trace.

    >>> source_line({"stack_trace": '  File "m.py", line 3, in forward\n    return -x'})
    'm.py:3 in forward: return -x'
    """
    line = line_of(meta.get("stack_trace")) if isinstance(meta, Mapping) else None  # type: ignore[reportUnknownMemberType]
    return None if line is None else "{}:{} in {}: {}".format(*line)


OF_A_VALUE = ("val", "tensor_meta", "example_value", "unbacked_bindings")
"""The entries that describe the value of a node."""


def without_value(meta: Meta) -> Meta:
    """Return meta without the description of the value.

    >>> dict(without_value({"val": 1, "stack_trace": "here"}))
    {'stack_trace': 'here'}
    """
    return MappingProxyType({key: value for key, value in meta.items() if key not in OF_A_VALUE})


def is_backward(meta: Mapping[str, Any]) -> bool:
    """Return whether the meta marks a node as made by autograd.

    >>> is_backward({"partitioner_tag": "is_backward"}), is_backward({})
    (True, False)
    """
    is_marked = meta.get(PHASE) == "backward" or meta.get("partitioner_tag") == "is_backward"
    return is_marked or "autograd_backward" in meta or "fwd_nn_module_stack" in meta


def spelled_stack(
    calls: Iterable[tuple[str, int]],
    types: Mapping[str, str | None],
    first: Mapping[str, str] = EMPTY_META,
) -> dict[str, tuple[str, str]]:
    """Return module calls in the exporter's format: the root first, with distinct keys for calls of one module.

    Args:
        calls: path and number of each call, outermost first.
        types: the class of each module, by path.
        first: the path that names the object, for a module that has several.

    >>> spelled_stack([("a", 1)], {"": "M", "a": "A"})
    {'L__self__': ('', 'M'), 'L__self__a@1': ('a', 'A')}
    """
    found = {"L__self__": ("", types.get("") or "")}
    for path, call in calls:
        key = f"L__self__{first.get(path, path)}{f'@{call}' if call else ''}"
        if key in found and path in first:  # it calls itself under another name
            key = f"L__self__{path}{f'@{call}' if call else ''}"
        found[key] = (path, types.get(path) or "")
    return found
