"""Arguments as text: references, literals and containers, written and read.

One idea: the text is as strict as equality: ``1``, ``True`` and ``1.0``, a tuple and a list, a value and a string of
that name all look different.  What has no text (a symbolic number, a foreign object) is printed as ``opaque("its type")`` and
refused when read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch

from ..allowed import advice_for, registered, told
from ..arguments import TREES, Arg, Body, Items, Record, Ref
from ..callables import op_name
from .lexer import HUGE, MAX_DEPTH, Cursor, read_list, read_rest
from .spelling import WORD, quoted, spell_path, spell_value

__all__ = ["CONSTANTS", "opaque", "print_arg", "print_kwarg", "read_arg", "read_kwarg"]

CONSTANTS: Mapping[str, Any] = {
    str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype | torch.layout | torch.memory_format)
}
"""Data types, layouts and memory formats by the name that torch prints."""

WORDS: Mapping[str, Any] = {"None": None, "True": True, "False": False}


def print_arg(arg: Arg, depth: int = 0) -> str:
    """Return an argument as text.

    Args:
        arg: any argument.
        depth: how many containers it is in.

    >>> print_arg((Ref("x"), "x", 1, True, -0.0, Items([None]), Body("$then"), torch.float32))
    '(x, "x", 1, True, -0.0, [None], @$then, torch.float32)'
    """
    kind = cast("type[Any]", type(arg))
    if kind is Ref:
        return spell_value(arg.name)
    write = LEAVES.get(kind)
    if write is not None:
        return write(arg)
    if kind in (tuple, Items, Record, slice):
        return _container(arg, kind, depth + 1) if depth < MAX_DEPTH else opaque(f"more than {MAX_DEPTH} levels")
    if isinstance(arg, TREES):
        return f"tree({_trees().print_tree(arg)})"
    if callable(arg) and registered(op_name(arg)) is arg:
        return f"op({quoted(op_name(arg))})"
    return opaque(f"{kind.__module__}.{kind.__qualname__}")


def _trees() -> Any:
    # The text of a pytree has arguments in it, the keys of dicts.
    from . import trees

    return trees


def _container(arg: Any, kind: type, depth: int) -> str:
    if kind is Items:
        return f"[{', '.join([print_arg(part, depth) for part in arg])}]"
    if kind is slice:
        return f"slice({', '.join([print_arg(part, depth) for part in (arg.start, arg.stop, arg.step)])})"
    if kind is Record:
        return f"{{{', '.join([f'{print_arg(key, depth)}: {print_arg(value, depth)}' for key, value in arg.items])}}}"
    inside = ", ".join([print_arg(part, depth) for part in arg])
    return f"({inside},)" if len(arg) == 1 else f"({inside})"


def print_kwarg(key: str, value: Arg) -> str:
    """Return a keyword argument as text.

    >>> print_kwarg("dim", 1)
    'dim=1'
    """
    return f"{spell_value(key)}={print_arg(value)}"


def opaque(what: str) -> str:
    """Return what stands for a value that has no text.

    >>> opaque("torch.SymInt")
    'opaque("torch.SymInt")'
    """
    return f"opaque({quoted(what)})"


def _print_int(value: int) -> str:
    return repr(value) if -HUGE < value < HUGE else hex(value)


LEAVES: Mapping[type, Callable[[Any], str]] = {
    type(None): repr,
    bool: repr,
    int: _print_int,
    float: repr,
    str: quoted,
    complex: lambda value: f"complex({value.real!r}, {value.imag!r})",
    bytes: lambda value: f"b{quoted(value.decode('latin-1'))}",
    type(Ellipsis): lambda _: "...",
    Body: lambda body: f"@{spell_path(body.graph)}",
    range: lambda value: f"range({_print_int(value.start)}, {_print_int(value.stop)}, {_print_int(value.step)})",
    torch.device: lambda value: f"device({quoted(str(value))})",
    torch.dtype: str,
    torch.layout: str,
    torch.memory_format: str,
}


def read_arg(cursor: Cursor) -> Arg:
    """Read one argument.

    Raises:
        ParseError: something else stands here, or it holds what has no text.

    >>> read_arg(Cursor('(x, "x", [1, -0.0], {"a": slice(0, None, None)})'))
    (Ref(name='x'), 'x', [1, -0.0], Record(items=(('a', slice(0, None, None)),)))
    """
    match cursor.kind:
        case "word":
            return _read_word(cursor)
        case "number":
            return cursor.number()
        case "string":
            return cursor.string()
        case "value":
            return Ref(cursor.value())
        case "bytes":
            return cursor.bytes()
        case _:
            return _read_symbol(cursor)


def _read_word(cursor: Cursor) -> Arg:
    at = cursor.start
    word = cursor.advance()
    if word == "tree" and cursor.skip("("):
        spec = _trees().read_tree(cursor)
        cursor.take(")")
        return spec
    if word in MAKERS and cursor.text == "(":
        return _make(cursor, word, at)
    if word in WORDS:
        return WORDS[word]
    if word in CONSTANTS:
        return CONSTANTS[word]
    if WORD.fullmatch(word):
        return Ref(word)
    raise cursor.error(f"expected a value, found '{word[:40]}', which is neither a name nor a literal", at=at)


def _read_symbol(cursor: Cursor) -> Arg:
    match cursor.advance() if cursor.text in OPENINGS else "":
        case "(":
            return _read_tuple(cursor)
        case "[":
            with cursor.nested():
                return Items(read_rest(cursor, read_arg, "]"))
        case "{":
            with cursor.nested():
                return Record(tuple(read_rest(cursor, _read_pair, "}")))
        case "@":
            return Body(cursor.path("the name of a graph"))
        case "...":
            return ...
        case _:
            raise cursor.expected("a value")


OPENINGS = ("(", "[", "{", "@", "...")


def _read_tuple(cursor: Cursor) -> Arg:
    # "(1)" is refused by demanding the comma: nobody should have to know whether it is 1 or (1,).
    with cursor.nested():
        if cursor.skip(")"):
            return ()
        first = read_arg(cursor)
        cursor.take(",")
        return (first, *read_rest(cursor, read_arg, ")"))


def _read_pair(cursor: Cursor) -> tuple[Arg, Arg]:
    key = read_arg(cursor)
    cursor.take(":")
    return key, read_arg(cursor)


def _make(cursor: Cursor, word: str, at: int) -> Arg:
    with cursor.nested():
        parts = read_list(cursor, read_arg)
    types, make = MAKERS[word]
    if len(parts) != len(types) or not all(kind is None or type(part) is kind for part, kind in zip(parts, types, strict=True)):
        wanted = ", ".join("any" if kind is None else kind.__name__ for kind in types)
        raise cursor.error(f"expected {word}({wanted})", at=at)
    try:
        return _operator(cursor, *parts) if make is None else make(*parts)
    except (TypeError, ValueError, RuntimeError) as error:
        raise cursor.error(f"{word}: {str(error).splitlines()[0]}", at=at) from None


def _make_opaque(what: str) -> Arg:
    raise ValueError(f"a value of type {what[:80]!a} was printed, but can not be read from text")


def _operator(cursor: Cursor, name: str) -> Arg:
    found = cursor.known.operator(name)
    if found is None:
        raise ValueError(f"{told([name])[:200]}: {advice_for([name])[:200]}")
    return found


MAKERS: Mapping[str, tuple[tuple[type | None, ...], Callable[..., Any] | None]] = {
    "slice": ((None, None, None), slice),
    "complex": ((float, float), complex),
    "range": ((int, int, int), range),
    "device": ((str,), torch.device),
    "op": ((str,), None),
    "opaque": ((str,), _make_opaque),
}
"""What stands before ``(`` in a literal: the types of what it takes, and what makes it; operators are looked up."""


def read_kwarg(cursor: Cursor) -> tuple[str | None, Arg]:
    """Read an argument of a call: its keyword, or None, and the argument.

    >>> read_kwarg(Cursor("dim=1")), read_kwarg(Cursor("x"))
    (('dim', 1), (None, Ref(name='x')))
    """
    at = cursor.start
    found = read_arg(cursor)
    if not cursor.skip("="):
        return None, found
    if type(found) is not Ref:
        raise cursor.error("expected the name of an argument before '='", at=at)
    return found.name, read_arg(cursor)
