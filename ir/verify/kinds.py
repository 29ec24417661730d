"""Which values may stand among the arguments of a node, and how to walk over them whatever stands there.

One idea: containers are exactly ``tuple``, ``Items``, ``Record`` and ``slice``; all else is a leaf, and a leaf is
immutable.  Nothing here asks a symbolic size or a tensor anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..arguments import CONTAINERS, DEEPEST, TREES, Body, Items, Record, Ref, children_of, is_deep
from ..numbers import SYMBOLIC
from ..torch_private import HigherOrderOperator, OpOverload

__all__ = ["OBJECTS", "PLAIN", "depth_fault", "is_argument", "is_nested", "leaves", "short"]

PLAIN = frozenset(
    {
        int, bool, float, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout,
        torch.memory_format,
    }
)  # fmt: skip
"""Literal types that need no second look."""

OBJECTS: tuple[Any, ...] = (OpOverload, HigherOrderOperator, *SYMBOLIC, type, range, TREES)
"""What an argument may be besides literals, references and functions: values, which say what they are by themselves."""

ALLOWED: tuple[Any, ...] = (*OBJECTS, torch.ScriptObject)


def is_argument(leaf: Any) -> bool:
    """Say whether a leaf may stand among the arguments of a node.

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
    # A plain function is fine; modules are callable too, and mutable.
    return callable(leaf) and not isinstance(leaf, torch.nn.Module | torch.Tensor)


def is_nested(arg: Any) -> bool:
    """Say whether an argument is a container that can be walked.

    >>> is_nested((1, 2)), is_nested([1, 2]), is_nested(Record(7))
    (True, False, False)
    """
    kind = type(arg)
    return kind in CONTAINERS and (kind is not Record or _has_pairs(arg))


def _has_pairs(record: Any) -> bool:
    pairs = record.items
    return type(pairs) is tuple and all(type(pair) is tuple and len(pair) == 2 and _is_key(pair[0]) for pair in pairs)


def _is_key(arg: Any) -> bool:
    # A dict is made of it when the program runs; lists, dicts and, before Python 3.12, slices have no hash.
    todo = [arg]
    while todo:
        part = todo.pop()
        if type(part) in (Items, Record, slice):
            return False
        if type(part) is tuple:
            todo.extend(part)
    return True


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
    """Return that an argument or a pytree nests too deep, or None.

    >>> depth_fault((1, (2,))) is None
    True
    """
    return f"it nests more than {DEEPEST} levels deep" if is_deep(value) else None


def short(value: Any, *, width: int = 60) -> str:
    """Return what a value is, on one short line, whatever it is.

    >>> short([1, 2]), short("a" * 100, width=12)
    ('the list [1, 2]', "the str '...")
    """
    kind = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, torch.Tensor | torch.nn.Module):
        return f"a {kind}"
    text = f"the {kind} {_text(value)}"
    return text if len(text) <= width else text[: max(width - 3, len(kind) + 5)].rstrip() + "..."


def _text(value: Any) -> str:
    import reprlib

    try:
        return " ".join(reprlib.repr(value).split())
    except Exception as error:  # noqa: BLE001  garbage may refuse to be printed; the message must come out all the same
        return f"(its repr raises {type(error).__name__})"
