"""Arguments and pytree specs as text: references, literals, containers, ``((*, [*]), {"mask": *})``, written and read.

Both nest in each other, so they are one grammar.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import torch

from ..arguments import (
    CONTAINERS,
    TREES,
    Arg,
    Body,
    Items,
    Record,
    Ref,
    arg_leaves,
    children_of,
    thawed,
)
from ..callables import op_name
from ..errors import first_line
from ..names import parent_of
from ..operators import advice_for, named_with_reasons, registered
from ..torch_private import fields_of, pytree
from .lexer import (
    HUGE,
    MAX_DEPTH,
    WORD,
    Cursor,
    quoted,
    read_list,
    read_rest,
    spell_path,
    spell_value,
    type_name,
)
from .syntax import Syntax

T = TypeVar("T")

CONSTANTS: Mapping[str, Any] = {
    str(value): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format)
}
"""Data types, layouts and memory formats by the names that torch prints."""

WORDS: Mapping[str, Any] = {"None": None, "True": True, "False": False, **CONSTANTS}


CALLED: Mapping[str, tuple[type, Callable[[Any], tuple[Arg, ...]]]] = {
    "slice": (slice, children_of),
    "complex": (complex, lambda value: (value.real, value.imag)),
    "range": (range, lambda value: (value.start, value.stop, value.step)),
    "device": (torch.device, lambda value: (str(value),)),
}
"""Literals that are written like a call: the class, and its arguments."""

WORD_OF: Mapping[type, str] = {kind: word for word, (kind, _) in CALLED.items()}

LEAVES: Mapping[type, Callable[[Any], str]] = {
    **dict.fromkeys((type(None), bool, float), repr),
    **dict.fromkeys((torch.dtype, torch.layout, torch.memory_format), str),
    int: lambda value: repr(value) if abs(value) < HUGE else opaque("an integer of so many digits"),
    str: quoted,
    type(Ellipsis): lambda _: "...",
    Body: lambda body: f"@{spell_path(body.graph)}",
}


def print_arg(arg: Arg, depth: int = 0) -> str:
    """Return an argument as text.

    Args:
        arg: any argument.
        depth: the number of containers around it.

    >>> print_arg((Ref("x"), "x", 1, True, -0.0, Items([None]), Body("$then"), torch.float32))
    '(x, "x", 1, True, -0.0, [None], @$then, torch.float32)'
    """
    kind = cast("type[Any]", type(arg))
    if kind is Ref:
        return spell_value(arg.name)
    write = LEAVES.get(kind)
    if write is not None:
        return write(arg)
    if (kind in CONTAINERS or kind in WORD_OF) and depth >= MAX_DEPTH:
        return opaque(f"more than {MAX_DEPTH} levels")
    if kind in WORD_OF:
        return f"{WORD_OF[kind]}({', '.join([print_arg(part, depth + 1) for part in CALLED[WORD_OF[kind]][1](arg)])})"
    if kind in CONTAINERS:
        return bracketed(kind, [print_arg(part, depth + 1) for part in children_of(arg)])
    if isinstance(arg, TREES):
        return f"tree({print_tree(arg)})"
    if callable(arg) and registered(op_name(arg)) is arg:
        return f"op({quoted(op_name(arg))})"
    return opaque(type_name(kind))


def bracketed(kind: type, inside: Sequence[str]) -> str:
    """Return the text of a container; in a dict, keys and values alternate.

    >>> bracketed(tuple, ["x"]), bracketed(dict, ['"a"', "x"])
    ('(x,)', '{"a": x}')
    """
    if kind is tuple:
        return f"({inside[0]},)" if len(inside) == 1 else f"({', '.join(inside)})"
    if kind is Items or kind is list:
        return f"[{', '.join(inside)}]"
    return f"{{{', '.join([f'{key}: {value}' for key, value in zip(inside[::2], inside[1::2], strict=True)])}}}"


def opaque(what: str) -> str:
    """Return the text of a value that cannot be read back.

    >>> opaque("torch.SymInt")
    'opaque("torch.SymInt")'
    """
    return f"opaque({quoted(what)})"


def read_arg(cursor: Cursor) -> Arg:
    """Read one argument.

    Raises:
        ParseError: it is not an argument, or contains a value that has no text form.

    >>> read_arg(Cursor('(x, "x", [1, -0.0], {"a": slice(0, None, None)})'))
    (Ref(name='x'), 'x', [1, -0.0], Record(items=(('a', slice(0, None, None)),)))
    """
    return READERS.get(cursor.kind, _read_symbol)(cursor)


def _read_word(cursor: Cursor) -> Arg:
    at = cursor.start
    word = cursor.advance()
    inside = LOOKED_UP.get(word) or cursor.known.words.get(word)
    if cursor.text == "(" and inside is not None:
        cursor.take("(")
        found = inside(cursor)
        cursor.take(")")
        return found
    if cursor.text == "(" and word in CALLED:
        with cursor.nested():
            parts = read_list(cursor, read_arg)
        try:
            return CALLED[word][0](*parts)
        except (ArithmeticError, TypeError, ValueError, RuntimeError) as error:
            raise cursor.error(f"{word}: {first_line(error)}", at=at) from None
    if word in WORDS:
        return WORDS[word]
    if WORD.fullmatch(word):
        return Ref(word)
    raise cursor.error(
        f"expected a value, found '{word[:40]}', which is neither a name nor a literal", at=at
    )


def _read_symbol(cursor: Cursor) -> Arg:
    if cursor.skip("@"):
        return Body(cursor.path("the name of a graph"))
    if cursor.skip("..."):
        return ...
    if cursor.text not in OPENINGS:
        raise cursor.expected("a value")
    kind, keys, parts = _read_bracketed(cursor, read_arg)
    return (
        tuple(parts)
        if kind is tuple
        else Items(parts)
        if kind is list
        else Record(tuple(zip(keys, parts, strict=True)))
    )


READERS: Mapping[str, Callable[[Cursor], Arg]] = {
    "word": _read_word, "number": Cursor.number, "string": Cursor.string, "value": lambda cursor: Ref(cursor.value()),
}  # fmt: skip

OPENINGS = ("(", "[", "{")


def _read_bracketed(cursor: Cursor, read: Callable[[Cursor], T]) -> tuple[type, list[Arg], list[T]]:
    """Return a container as its type, the keys of a dict, and the parts."""

    def pair(cursor: Cursor) -> tuple[Arg, T]:
        key = read_arg(cursor)
        cursor.take(":")
        return key, read(cursor)

    with cursor.nested():
        match cursor.take(*OPENINGS):
            case "[":
                return list, [], read_rest(cursor, read, "]")
            case "{":
                pairs = read_rest(cursor, pair, "}")
                return dict, [key for key, _ in pairs], [value for _, value in pairs]
            case _:
                if cursor.skip(")"):
                    return tuple, [], []
                first = read(cursor)
                cursor.take(",")  # "(1)" is refused, because it could mean 1 or (1,)
                return tuple, [], [first, *read_rest(cursor, read, ")")]


def _read_opaque(cursor: Cursor) -> Arg:
    at = cursor.start
    raise cursor.error(
        f"a value of type {cursor.string()[:80]!a} was printed, but cannot be read from text", at=at
    )


def _read_operator(cursor: Cursor) -> Arg:
    at = cursor.start
    name = cursor.string("the name of an operator")
    found = cursor.known.operator(name)
    if found is None:
        raise cursor.error(
            f"op: {named_with_reasons([name])[:200]}: {advice_for([name])[:200]}", at=at
        )
    return found


def print_tree(spec: Any, depth: int = 0) -> str:
    """Return a pytree spec as text.

    Args:
        spec: a ``TreeSpec``.
        depth: the number of specs around it.

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
    if spec.type in (tuple, list):
        return bracketed(spec.type, inside)
    if spec.type is dict:
        pairs = zip(map(print_arg, spec.context), inside, strict=True)
        return bracketed(dict, [part for pair in pairs for part in pair])
    return f"custom {_print_type(spec)}({', '.join(inside)})"


def _print_type(spec: Any) -> str:
    # The context of a named tuple is its class.
    if isinstance(spec.context, type):
        return quoted(type_name(spec.context))
    kept = (
        print_arg(frozen_arg(spec.context))
        if pytree.SUPPORTED_NODES.get(spec.type)
        else opaque(type_name(type(spec.context)))
    )
    return f"{quoted(type_name(spec.type))} with {kept} "


def frozen_arg(context: Any, depth: int = 0) -> Arg:
    """Return a value with its lists and dicts as in arguments; other objects stay.

    >>> print_arg(frozen_arg([["x"], {"n": (1, None)}]))
    '[["x"], {"n": (1, None)}]'
    """
    if depth > MAX_DEPTH:
        return context
    if type(context) is list:
        return Items([frozen_arg(part, depth + 1) for part in context])
    if type(context) is tuple:
        return tuple([frozen_arg(part, depth + 1) for part in context])
    if type(context) is dict:
        return Record(
            tuple(
                [
                    (frozen_arg(key, depth + 1), frozen_arg(part, depth + 1))
                    for key, part in context.items()
                ]
            )
        )
    return context


def read_tree(cursor: Cursor) -> Any:
    """Read a pytree spec.

    Raises:
        ParseError: it is not a pytree spec, or its type is neither registered nor passed.

    >>> read_tree(Cursor("(*, [*])")) == pytree.tree_structure((1, [2]))
    True
    """
    at = cursor.start
    if cursor.skip("*"):
        return pytree.treespec_leaf()
    if cursor.skip("custom"):
        with cursor.nested():
            return _read_custom(cursor, at)
    kind, keys, parts = _read_bracketed(cursor, read_tree)
    return pytree.TreeSpec(kind, keys if kind is dict else None, parts)


def _read_custom(cursor: Cursor, at: int) -> Any:
    name = cursor.string("the name of a type")
    kept = (_read_context(cursor),) if cursor.skip("with") else ()
    cursor.take("(")
    children = read_rest(cursor, read_tree, ")")
    kind = cursor.known.type(name)
    is_named = isinstance(kind, type) and len(fields_of(kind)) == len(children) > 0
    if not kept and is_named:
        return pytree.TreeSpec(namedtuple, kind, children)  # noqa: PYI024  torch registers all named tuples under this class
    if not kept or kind not in pytree.SUPPORTED_NODES or kind in (tuple, list, dict):
        fault = f"a pytree of the registered type {name[:200]!a} cannot be read from text: it is not registered here"
        module = parent_of(name.partition(".<locals>")[0]) or "the module"
        raise cursor.error(
            f"{fault}; import {module[:200]}, which registers it, or pass the class in `types`",
            at=at,
        )
    return pytree.TreeSpec(kind, kept[0], children)


def _read_context(cursor: Cursor) -> Any:
    at, context = cursor.start, read_arg(cursor)
    # A library function gets the context, so functions and references are refused.
    if any(
        type(leaf) in (Ref, Body) or (callable(leaf) and not isinstance(leaf, type))
        for leaf in arg_leaves((context,))
    ):
        raise cursor.error("the context of a pytree type must be data", at=at)
    try:
        return thawed(context)
    except TypeError:
        raise cursor.error("a key of a dict must be hashable", at=at) from None


LOOKED_UP: Mapping[str, Callable[[Cursor], Arg]] = {
    "tree": read_tree,
    "op": _read_operator,
    "opaque": _read_opaque,
}
"""Words before ``(`` whose brackets do not hold arguments."""

ARG: Syntax[Arg] = Syntax(print_arg, read_arg)

TREE: Syntax[Any] = Syntax(print_tree, read_tree)
