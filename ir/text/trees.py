"""Pytree specs as text: ``((*, [*]), {"mask": *})``, written and read.

One idea: a spec looks like the value that it describes, with a star for each leaf.  A type that users register is written
by its name, with what it keeps beside its leaves as plain data, and looked up when read: among the types that are
registered here, or given.  Nothing is imported, and none of its functions runs.
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

from ..arguments import CONTAINERS, Arg, Body, Items, Record, Ref, children_of, thawed
from ..torch_private import fields_of, pytree
from .arguments import opaque, print_arg, read_arg
from .lexer import MAX_DEPTH, Cursor, read_rest
from .operators import type_name
from .spelling import quoted

__all__ = ["print_tree", "read_tree"]


def print_tree(spec: Any, depth: int = 0) -> str:
    """Return a pytree spec as text.

    Args:
        spec: a ``TreeSpec``.
        depth: how many specs it is in.

    >>> print_tree(pytree.tree_structure(((1, [2]), {"mask": 3})))
    '((*, [*]), {"mask": *})'
    >>> from collections import deque
    >>> print_tree(pytree.tree_structure(deque([1, 2], 9)))
    'custom "collections.deque" with 9 (*, *)'
    """
    if not isinstance(spec, pytree.TreeSpec) or depth > MAX_DEPTH:
        return f"custom {quoted(type_name(type(spec)))} with {opaque('no pytree')} ()"
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
    return f"custom {_print_type(spec)}({', '.join(inside)})"


def _print_type(spec: Any) -> str:
    # The context of a named tuple is its class, which is all that there is to say.
    if isinstance(spec.context, type):
        return quoted(type_name(spec.context))
    kept = print_arg(_frozen(spec.context)) if pytree.SUPPORTED_NODES.get(spec.type) else opaque(type_name(type(spec.context)))
    return f"{quoted(type_name(spec.type))} with {kept} "


def _frozen(context: Any, depth: int = 0) -> Arg:
    """Return what a type keeps beside its leaves, as an argument; what has no text stays, and is printed as such.

    >>> print_arg(_frozen([["x"], {"n": (1, None)}]))
    '[["x"], {"n": (1, None)}]'
    """
    if depth > MAX_DEPTH:
        return context
    if type(context) is list:
        return Items([_frozen(part, depth + 1) for part in context])
    if type(context) is tuple:
        return tuple([_frozen(part, depth + 1) for part in context])
    if type(context) is dict:
        return Record(tuple([(_frozen(key, depth + 1), _frozen(part, depth + 1)) for key, part in context.items()]))
    return context


def read_tree(cursor: Cursor) -> Any:
    """Read a pytree spec.

    Raises:
        ParseError: something else stands here, or a type that is neither registered here nor given.

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
                return _read_custom(cursor, at)


def _read_custom(cursor: Cursor, at: int) -> Any:
    name = cursor.string("the name of a type")
    kept = (_read_context(cursor),) if cursor.skip("with") else ()
    cursor.take("(")
    children = read_rest(cursor, read_tree, ")")
    kind = cursor.known.type(name)
    is_named = isinstance(kind, type) and len(fields_of(kind)) == len(children) > 0
    if not kept and is_named:
        return pytree.TreeSpec(namedtuple, kind, children)  # noqa: PYI024  under this torch registers all of them
    if not kept or kind not in pytree.SUPPORTED_NODES or kind in SPELLED:
        said = f"a pytree of the registered type {name[:200]!a} can not be read from text: it is not registered here; "
        raise cursor.error(said + "import what registers it, or give the class in `types`", at=at)
    return pytree.TreeSpec(kind, kept[0], children)


def _read_context(cursor: Cursor) -> Any:
    at = cursor.start
    found = read_arg(cursor)
    odd = next((leaf for leaf in _leaves(found) if _is_no_data(leaf)), None)
    if odd is not None:  # what a library's function is handed is data: no function, and nothing of the graph
        raise cursor.error(f"what a pytree type keeps is data, not a {type(odd).__name__}", at=at)
    try:
        return thawed(found)
    except TypeError:
        raise cursor.error("a dict has no such key", at=at) from None


def _is_no_data(leaf: Arg) -> bool:
    return type(leaf) in (Ref, Body) or (callable(leaf) and not isinstance(leaf, type))


def _leaves(arg: Arg) -> Iterator[Arg]:
    todo = [arg]
    while todo:
        part = todo.pop()
        if type(part) in CONTAINERS:
            todo.extend(children_of(part))
        else:
            yield part


SPELLED = (tuple, list, dict, OrderedDict)
"""Types that look like the value itself."""


def _read_dict(cursor: Cursor, kind: type) -> Any:
    pairs = read_rest(cursor, _read_pair, "}")
    return pytree.TreeSpec(kind, [key for key, _ in pairs], [child for _, child in pairs])


def _read_pair(cursor: Cursor) -> tuple[Arg, Any]:
    key = read_arg(cursor)
    cursor.take(":")
    return key, read_tree(cursor)
