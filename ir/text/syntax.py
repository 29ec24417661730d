"""Invertible syntax: one description of a kind of value, for printing and parsing.

A form is the text of a value with its fields in it, like MLIR's ``assemblyFormat``.  A choice is printed by the class of the
value and parsed by its first keyword.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

import attrs
from attrs import frozen

from .lexer import Cursor, quoted, read_list, spell_path

T = TypeVar("T")


@frozen
class Syntax(Generic[T]):
    """Writes and reads one kind of value.

    >>> sizes = listed(integer("a size"), "[]")
    >>> sizes.write((2, 3)), sizes.read(Cursor("[2, 3]"))
    ('[2, 3]', (2, 3))
    """

    write: Callable[[T], str]
    read: Callable[[Cursor], T]
    of: tuple[type, ...] = ()
    """The classes of its values, for a choice; none if it accepts all other values."""
    starts: tuple[str, ...] = ()
    """Its possible first keywords; none if it may begin with any other word."""


def path(what: str) -> Syntax[str]:
    """Return the syntax of a module path, slot, graph id or operator name; ``what`` is for messages.

    >>> path("the name of a slot").write("lin.weight"), path("the name of a slot").write("")
    ('lin.weight', '""')
    """
    return Syntax(spell_path, lambda cursor: cursor.path(what), (str,))


def string(what: str) -> Syntax[str]:
    """Return the syntax of a string in quotes; ``what`` is for messages.

    >>> string("a device").write("cuda:0")
    '"cuda:0"'
    """
    return Syntax(quoted, lambda cursor: cursor.string(what), (str,))


def integer(what: str) -> Syntax[int]:
    """Return the syntax of an integer; ``what`` is for messages.

    >>> integer("an offset").read(Cursor("7"))
    7
    """
    return Syntax(str, lambda cursor: cursor.integer(what), (int,))


PATH = path("a name")

BY_TYPE: dict[str, Callable[[str], Syntax[Any]]] = {
    "str": path, "str | None": path, "int": integer, "int | None": integer,
}  # fmt: skip
"""The syntax of a field by its annotation; the argument is a name for messages.  Other modules add theirs."""


def listed(item: Syntax[T], brackets: str = "()") -> Syntax[tuple[T, ...]]:
    """Return the syntax of a tuple: its items between brackets, with commas between them.

    >>> listed(PATH).write(("x", "a b"))
    '(x, "a b")'
    """
    opening, closing = brackets
    return Syntax(
        lambda items: f"{opening}{', '.join(map(item.write, items))}{closing}",
        lambda cursor: tuple(read_list(cursor, item.read, opening=opening, closing=closing)),
    )


def block(item: Syntax[T]) -> Syntax[tuple[T, ...]]:
    r"""Return the syntax of a tuple: its items on separate lines, between braces.

    >>> block(PATH).write(("x", "y"))
    '{\n  x\n  y\n}'
    """
    return Syntax(
        lambda items: braced(map(item.write, items)),
        lambda cursor: tuple([item.read(cursor) for _ in cursor.block()]),
    )


def braced(lines: Iterable[str]) -> str:
    r"""Return a block of lines.

    >>> braced(["x"])
    '{\n  x\n}'
    """
    return "\n".join(["{", *indented(lines), "}"])


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines as in a block.

    >>> indented(["x"])
    ['  x']
    """
    return [f"  {line}" for line in lines]


def behind(keywords: str, inner: Syntax[T]) -> Syntax[T]:
    """Return a syntax with keywords before it.

    >>> behind("gradient of ", PATH).write("w"), behind("gradient of ", PATH).starts
    ('gradient of w', ('gradient',))
    """
    tokens = re.findall(r"\w+|[^\w\s]", keywords)

    def read(cursor: Cursor) -> T:
        for token in tokens:
            cursor.take(token)
        return inner.read(cursor)

    return Syntax(
        lambda value: keywords + inner.write(value),
        read,
        inner.of,
        tuple(tokens[:1]) or inner.starts,
    )


def words(what: str, meaning: Mapping[str, Any]) -> Syntax[Any]:
    """Return the syntax of values that are written as words; ``what`` is for messages.

    >>> words("opens or closes", {"opens": 1, "closes": -1}).write(-1)
    'closes'
    """
    word_of = {value: word for word, value in meaning.items()}

    def read(cursor: Cursor) -> Any:
        if cursor.kind != "word" or cursor.text not in meaning:
            raise cursor.expected(what)
        return meaning[cursor.advance()]

    return Syntax(lambda value: word_of[value], read, starts=tuple(meaning))


def choice(*forms: Syntax[Any]) -> Syntax[Any]:
    """Return the syntax of values of several classes; one form may begin without a keyword, or accept any class.

    >>> from purefx.ir import Token, UserOutput
    >>> choice(form(UserOutput, "user"), form(Token, "token")).read(Cursor("token"))
    Token()
    """
    by_class = {kind: one for one in forms for kind in one.of}
    of_any = next((one for one in forms if not one.of), None)
    by_word = {word: one for one in forms for word in one.starts}
    bare = next((one for one in forms if not one.starts), None)

    def write(value: Any) -> str:
        return (by_class.get(type(value)) or of_any or by_class[type(value)]).write(value)

    def read(cursor: Cursor) -> Any:
        found = by_word.get(cursor.text, bare) if cursor.kind == "word" else bare
        if found is None:
            raise cursor.expected(" or ".join([f"'{word}'" for word in by_word]))
        return found.read(cursor)

    return Syntax(write, read, () if of_any else tuple(by_class), () if bare else tuple(by_word))


def form(
    make: type[T],
    text: str,
    defaults: Mapping[str, Any] = MappingProxyType({}),
    **fields: Syntax[Any],
) -> Syntax[T]:
    """Return the syntax of the values of a class.

    Args:
        make: the class, of attrs.
        text: the format: ``{field}`` is a field, ``[ keyword {field}]`` an optional one that is left out if it has its
            default, ``{field?on/off}`` a flag, written as a keyword unless it has its default.
        defaults: defaults other than those of the class; a field without one has None.
        fields: the syntax of fields for which ``BY_TYPE`` has none.

    >>> from purefx.ir import Module
    >>> module = form(Module, "{path}[: {type_name}][ cell {cell}]")
    >>> module.write(Module("a", None, 2)), module.read(Cursor("a: toy.A"))
    ('a cell 2', Module(path='a', type_name='toy.A', cell=None))
    """
    known: Any = attrs.fields(cast("Any", make))
    values = {
        **{one.name: one.default for one in known if one.default is not attrs.NOTHING},
        **defaults,
    }
    typed = {
        one.name: BY_TYPE[one.type](f"the {one.name} of {make.__name__}")
        for one in known
        if one.type in BY_TYPE
    }
    parts = [_part(match, {**typed, **fields}, values) for match in PART.finditer(text)]
    last = PART.sub("", text)
    end = behind(last, Syntax[Any](str, lambda _: None))
    readers = [(name, behind(before, syntax).read) for before, name, syntax, _ in parts]

    def write(value: Any) -> str:
        text = ""
        for before, name, syntax, default in parts:
            found = getattr(value, name)
            is_left_out = found is default or (default is not WRITTEN and found == default)
            text += before if is_left_out else before + syntax.write(found)
        return text + last

    def read(cursor: Cursor) -> T:
        found = {name: read(cursor) for name, read in readers}
        end.read(cursor)
        return make(**found)

    first = re.match(r"\w+", text)
    starts = (first[0],) if first else parts[0][2].starts if text.startswith("{") else ()
    return Syntax(write, read, (make,), starts)


PART = re.compile(r"([^{\[]*)(?:\[([^{]*)\{(\w+)\}\]|\{(\w+)\?(\w*)/(\w*)\}|\{(\w+)\})")
"""The keywords before a field, and the field: an optional one, a flag, or any other."""

WRITTEN = object()
"""Marks a field whose value is never left out."""


def _part(
    match: re.Match[str], fields: Mapping[str, Syntax[Any]], defaults: Mapping[str, Any]
) -> tuple[Any, ...]:
    # The keywords before a field, its name, its syntax, and the value that is left out.
    before, keyword, optional, flag, on, off, name = match.groups()
    if name:
        return before, name, fields[name], WRITTEN
    default = defaults.get(optional or flag)
    if flag:
        return before, flag, _flag(on, off, default=bool(default)), default
    syntax = behind(keyword, fields[optional])

    def read(cursor: Cursor) -> Any:
        return (
            syntax.read(cursor)
            if cursor.text in syntax.starts and cursor.kind in ("word", "symbol")
            else default
        )

    return before, optional, Syntax(syntax.write, read), default


def _flag(on: str, off: str, *, default: bool) -> Syntax[bool]:
    def read(cursor: Cursor) -> bool:
        return (
            default
            if cursor.kind != "word"
            else cursor.skip(on) or (not cursor.skip(off) and default)
        )

    return Syntax(lambda value: f" {on if value else off}", read)
