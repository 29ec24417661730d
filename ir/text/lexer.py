"""Words: quotes for names and strings, and ``Cursor``, which reads them back and reports the place of an error.

A plain word is written bare; all else is quoted and escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from attrs import Factory, field, frozen
from attrs.converters import default_if_none

from ..errors import ParseError
from ..operators import allowed, registered
from ..state import slot_values
from ..torch_private import pytree

Target = Callable[..., Any]


def type_name(kind: type) -> str:
    """Return the name under which a type is written.

    >>> import torch
    >>> type_name(torch.return_types.max)
    'torch.return_types.max'
    """
    return f"{kind.__module__}.{kind.__qualname__}"


def names_of(allow: Iterable[str]) -> frozenset[str]:
    """Check the names of operators that a reader or writer allows, and return them.

    Raises:
        TypeError: it is a string, or holds a value that is not one.

    >>> names_of({"builtins.getattr"})
    frozenset({'builtins.getattr'})
    """
    found = [allow] if isinstance(allow, str) else list(allow)
    if isinstance(allow, str) or not all(isinstance(name, str) for name in found):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("allow must be a set of operator names: allow={'builtins.getattr'}")
    return frozenset(found)


def _by_name(kinds: Iterable[type]) -> Mapping[str, type]:
    found = list(kinds)
    for kind in found:
        if not isinstance(kind, type):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"types must hold classes, not a {type(kind).__name__}")
    return {type_name(kind): kind for kind in found}


@frozen
class Known:
    """Additions of a reader to the allow-list: operators and types that a text may name, and the contents of slots.

    >>> Known({"toy.neg": abs}).operator("toy.neg") is abs, Known().operator("os.system") is None
    (True, True)
    """

    operators: Mapping[str, Target] = field(default=None, converter=default_if_none(factory=dict))
    types: Mapping[str, type] = field(factory=cast("Any", tuple), converter=_by_name)
    """Classes of pytree nodes, by name."""
    allow: frozenset[str] = field(factory=frozenset, converter=names_of)
    """Names of further registered operators, not on the allow-list, that the reader accepts."""
    state: Mapping[str, Any] = field(default=None, converter=slot_values)
    """Tensors and other values of slots, by name."""
    words: Mapping[str, Callable[[Cursor], Any]] = Factory(dict)
    """Readers of the contents of further words with brackets, ``word(...)``, among the arguments."""

    def operator(self, name: str) -> Target | None:
        """Return the operator of a name, or None."""
        if name in self.operators:
            return self.operators[name]
        return registered(name) if name in self.allow else allowed(name)

    def type(self, name: str) -> Any:
        """Return the type of a pytree node by name, or None: a passed or a registered one."""
        # The last one, because rerun notebook cells register a class of the same name again.
        every = (*self.types.values(), *reversed(pytree.SUPPORTED_NODES))
        return next(
            (kind for kind in every if isinstance(kind, type) and type_name(kind) == name), None
        )


NOTHING_MORE = Known()
"""The allow-list alone."""


WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

PATH = re.compile(r"[A-Za-z0-9_$]+(?:\.[A-Za-z0-9_$]+)*")

RESERVED = frozenset({"None", "True", "False", "nan", "inf", "return"})
"""Words that are not names of values."""


def is_word(name: str) -> bool:
    """Return whether a name of a value can be printed bare.

    >>> is_word("add_1"), is_word("a b"), is_word("None")
    (True, False, False)
    """
    return WORD.fullmatch(name) is not None and name not in RESERVED


def is_path(name: str) -> bool:
    """Return whether a module path, slot, graph id or operator name can be printed bare.

    >>> is_path("layers.0.attn"), is_path(""), is_path("a@1")
    (True, False, False)
    """
    return PATH.fullmatch(name) is not None


def spell_value(name: str) -> str:
    """Return the name of a value as text: ``x``, or ``%"..."``, which is distinct from a string.

    >>> spell_value("add_1"), spell_value("None")
    ('add_1', '%"None"')
    """
    return name if is_word(name) else f"%{quoted(name)}"


def spell_path(name: str) -> str:
    """Return a path, slot, graph id or operator name as text.

    >>> spell_path("layers.0"), spell_path("")
    ('layers.0', '""')
    """
    return name if PATH.fullmatch(name) is not None else quoted(name)


def quoted(text: str) -> str:
    r"""Return a string in double quotes, with all but printable ASCII escaped.

    >>> print(quoted('say "hi"\n\u202e'))
    "say \"hi\"\n\u202e"
    """
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


T = TypeVar("T")

MAX_DEPTH = 64
"""The maximal nesting of containers, sizes and pytrees; Python's stack overflows soon after."""

TOKEN = re.compile(
    r"""
    [ \t\r]*+ (?: ;[^\n]*+ )?+
    (?:
      (?P<number> -?(?: [0-9]++ (?:\.[0-9]++)?+ (?:e[+-]?[0-9]++)?+ | inf | nan ) (?![A-Za-z0-9_$.]) )
    | (?P<word> [A-Za-z0-9_$]++ (?: \.[A-Za-z0-9_$]++ )*+ )
    | (?P<below> (?: \.[A-Za-z0-9_$]++ )++ )
    | (?P<value> %"(?: [^"\\\x00-\x1f\x7f]++ | \\(?: ["\\nrt] | x[0-9a-f]{2} | u[0-9a-f]{4} | U[0-9a-f]{8} ) )*+ " )
    | (?P<string> " (?: [^"\\\x00-\x1f\x7f]++ | \\(?: ["\\nrt] | x[0-9a-f]{2} | u[0-9a-f]{4} | U[0-9a-f]{8} ) )*+ " )
    | (?P<symbol> \.\.\. | -> | == | != | <= | >= | \*\* | // | [()\[\]{},:=!/@\#%*+\-<>|] )
    | (?P<newline> \n )
    | (?P<end> \Z )
    | (?P<bad> . )
    )
    """,
    re.VERBOSE,
)

DIGITS = 4000

HUGE = 10**DIGITS
"""Integers from here on have no text form: Python refuses to convert so many decimal digits."""

OPENS = {"(": 1, "[": 1, ")": -1, "]": -1}


class Cursor:
    """A cursor at one word of a text; the word is ``text``, of the kind ``kind``.

    >>> cursor = Cursor("y = 1")
    >>> cursor.value(), cursor.take("="), cursor.number()
    ('y', '=', 1)
    """

    kind: str
    text: str
    start: int

    def __init__(self, text: str, known: Known = NOTHING_MORE) -> None:
        self.known = known
        """For the look-up of operators and types by name."""
        self._source = text
        self._matches: Iterator[re.Match[str]] = TOKEN.finditer(text)
        self._open = 0
        self._depth = 0
        self.kind = self.text = ""
        self.start = 0
        self.advance()

    def advance(self) -> str:
        """Go to the next word and return the text of the previous one."""
        passed = self.text
        if passed in OPENS:
            self._open = max(0, self._open + OPENS[passed])
        for match in self._matches:
            kind = match.lastgroup or "bad"
            if kind == "newline" and self._open:
                continue
            self.kind, self.text, self.start = kind, match[kind], match.start(kind)
            if kind == "bad":
                what = (
                    "a string that is not closed or has an unknown escape"
                    if self.text == '"'
                    else "an unexpected character"
                )
                raise self.error(what)
            break
        return passed

    @contextmanager
    def nested(self) -> Generator[None, None, None]:
        """Count one level of nesting while inside.

        Raises:
            ParseError: the text nests more than ``MAX_DEPTH`` levels.
        """
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(f"nested more than {MAX_DEPTH} levels deep")
        yield
        self._depth -= 1

    def skip(self, *symbols: str) -> bool:
        """Pass the next word if it is one of some symbols or keywords, and return whether it was."""
        is_next = self.text in symbols and self.kind in ("symbol", "word")
        if is_next:
            self.advance()
        return is_next

    def take(self, *symbols: str) -> str:
        """Pass one of some symbols or keywords and return it; any other word is an error."""
        if self.text in symbols and self.kind in ("symbol", "word"):
            return self.advance()
        raise self.expected(" or ".join(f"'{symbol}'" for symbol in symbols))

    def value(self) -> str:
        """Pass the name of a value and return it."""
        is_bare = self.kind == "word" and is_word(self.text)
        return self.advance() if is_bare else self._unquoted("value", "the name of a value")

    def path(self, what: str = "a name") -> str:
        """Pass a module path, slot, graph id or operator name and return it."""
        is_bare = self.kind in ("word", "number") and is_path(self.text)
        return self.advance() if is_bare else self._unquoted("string", what)

    def string(self, what: str = "a string") -> str:
        """Pass a string in quotes and return its value."""
        return self._unquoted("string", what)

    def _unquoted(self, kind: str, what: str) -> str:
        if self.kind != kind:
            raise self.expected(what)
        try:
            found = (
                self.text[self.text.index('"') + 1 : -1]
                .encode("ascii", "backslashreplace")
                .decode("unicode_escape")
            )
        except ValueError:
            raise self.error("an escape that is not a character") from None
        self.advance()
        return found

    def number(self, what: str = "a number") -> int | float:
        """Pass a number and return it: an int, or a float if it has a point or an exponent or is ``inf`` or ``nan``."""
        if self.kind != "number":
            raise self.expected(what)
        is_float = any(mark in self.text for mark in ".en")
        if not is_float and len(self.text) > DIGITS + 1:
            raise self.error("an integer with too many digits")
        return float(self.advance()) if is_float else int(self.advance())

    def integer(self, what: str = "an integer") -> int:
        """Pass an integer and return it."""
        at, found = self.start, self.number(what)
        if type(found) is not int:
            raise self.error(f"expected {what}", at=at)
        return found

    def line_end(self) -> None:
        """Pass the end of a line and any empty lines after it."""
        if self.kind not in ("newline", "end"):
            raise self.expected("the end of the line")
        while self.kind == "newline":
            self.advance()

    def block(self) -> Iterator[None]:
        """Pass ``{``, the end of each line (the caller reads its statement), and ``}``."""
        self.take("{")
        self.line_end()
        while not self.skip("}"):
            yield
            self.line_end()

    def expected(self, what: str, advice: str = "") -> ParseError:
        """Return the error for an unexpected word here."""
        found = {"newline": "the end of the line", "end": "the end of the text"}.get(
            self.kind, f"'{visible(self.text[:40])}'"
        )
        return self.error(f"expected {what}, found {found}{advice}")

    def error(self, message: str, *, at: int | None = None) -> ParseError:
        """Return an error that shows its place: line, column, the line itself and a mark under it."""
        start = self.start if at is None else at
        number = self._source.count("\n", 0, start) + 1
        begin = self._source.rfind("\n", 0, start) + 1
        stop = self._source.find("\n", start)
        line = self._source[begin : len(self._source) if stop < 0 else stop]
        column = start - begin
        left = max(0, column - 60)
        shown = visible(line[left : left + 100])
        return ParseError(
            f"line {number}, column {column + 1}: {message}\n    {shown}\n    {' ' * (column - left)}^"
        )


def read_list(
    cursor: Cursor, read: Callable[[Cursor], T], *, opening: str = "(", closing: str = ")"
) -> list[T]:
    """Read a list between brackets, with commas between the items; a comma may follow the last.

    >>> read_list(Cursor("(a, b,)"), Cursor.path)
    ['a', 'b']
    """
    cursor.take(opening)
    return read_rest(cursor, read, closing)


def read_rest(cursor: Cursor, read: Callable[[Cursor], T], closing: str) -> list[T]:
    """Read the rest of a list, after its opening bracket.

    >>> read_rest(Cursor("a, b]"), Cursor.path, "]")
    ['a', 'b']
    """
    found: list[T] = []
    while not cursor.skip(closing):
        found.append(read(cursor))
        if not cursor.skip(","):
            cursor.take(closing)
            break
    return found


def visible(text: str) -> str:
    r"""Return a text with one ``?`` for each character that is not printable ASCII, so that columns stay.

    >>> visible("a\tb\x1b[2J")
    'a b?[2J'
    """
    return "".join([char if " " <= char <= "~" else " " if char == "\t" else "?" for char in text])
