"""Pytree specs as text: ``((*, [*]), {"mask": *})``, written and read.

One idea: a spec looks like the value that it describes, with a star for each leaf.  Tuples, lists, dicts and ordered
dicts are read back; a registered type is printed by its name and refused when read, because making one from text
would run code that the text chooses.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ..arguments import Arg
from ..torch_private import pytree
from .arguments import print_arg, read_arg
from .lexer import MAX_DEPTH, Cursor, read_rest
from .spelling import quoted

__all__ = ["print_tree", "read_tree"]


def print_tree(spec: Any, depth: int = 0) -> str:
    """Return a pytree spec as text.

    Args:
        spec: a ``TreeSpec``.
        depth: how many specs it is in.

    >>> print_tree(pytree.tree_structure(((1, [2]), {"mask": 3})))
    '((*, [*]), {"mask": *})'
    """
    if not isinstance(spec, pytree.TreeSpec) or depth > MAX_DEPTH:
        return f"custom {quoted(f'{type(spec).__module__}.{type(spec).__qualname__}')}()"
    if spec.is_leaf():
        return "*"
    inside = [print_tree(child, depth + 1) for child in spec.children()]
    if spec.type is tuple:
        return f"({inside[0]},)" if len(inside) == 1 else f"({', '.join(inside)})"
    if spec.type is list:
        return f"[{', '.join(inside)}]"
    if spec.type in (dict, OrderedDict):
        pairs = ", ".join([f"{print_arg(key)}: {child}" for key, child in zip(spec.context, inside, strict=True)])
        return f"{'ordered ' if spec.type is OrderedDict else ''}{{{pairs}}}"
    kind = spec.context if isinstance(spec.context, type) else spec.type
    return f"custom {quoted(f'{kind.__module__}.{kind.__qualname__}')}({', '.join(inside)})"


def read_tree(cursor: Cursor) -> Any:
    """Read a pytree spec.

    Raises:
        ParseError: something else stands here, or a registered type.

    >>> read_tree(Cursor("(*, [*])")) == pytree.tree_structure((1, [2]))
    True
    """
    at = cursor.start
    with cursor.nested():
        match cursor.take("*", "(", "[", "{", "ordered", "custom"):
            case "*":
                return pytree.treespec_leaf()
            case "(":
                return pytree.TreeSpec(tuple, None, read_rest(cursor, read_tree, ")"))
            case "[":
                return pytree.TreeSpec(list, None, read_rest(cursor, read_tree, "]"))
            case "{":
                return _read_dict(cursor, dict)
            case "ordered":
                cursor.take("{")
                return _read_dict(cursor, OrderedDict)
            case _:
                name = cursor.string("the name of a type")
                raise cursor.error(f"a pytree of the registered type {name[:80]!a} can not be read from text", at=at)


def _read_dict(cursor: Cursor, kind: type) -> Any:
    pairs = read_rest(cursor, _read_pair, "}")
    return pytree.TreeSpec(kind, [key for key, _ in pairs], [child for _, child in pairs])


def _read_pair(cursor: Cursor) -> tuple[Arg, Any]:
    key = read_arg(cursor)
    cursor.take(":")
    return key, read_tree(cursor)
