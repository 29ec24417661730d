"""How names and strings are spelled: bare where they are plain words, else quoted and escaped.

One idea: a name is data and may be any string, so what is printed is always printable ASCII; nothing in a name can
end a line, hide text or move a terminal's cursor.
"""

from __future__ import annotations

import re

__all__ = ["is_path", "is_word", "quoted", "spell_path", "spell_value", "unquoted"]

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

PATH = re.compile(r"[A-Za-z0-9_$]+(?:\.[A-Za-z0-9_$]+)*")

RESERVED = frozenset({"None", "True", "False", "nan", "inf", "return"})
"""Words that mean something where a value could stand."""


def is_word(name: str) -> bool:
    """Say whether a name of a value can be printed bare.

    >>> is_word("add_1"), is_word("a b"), is_word("None")
    (True, False, False)
    """
    return WORD.fullmatch(name) is not None and name not in RESERVED


def is_path(name: str) -> bool:
    """Say whether a module path, slot, graph id or operator name can be printed bare.

    >>> is_path("layers.0.attn"), is_path(""), is_path("a@1")
    (True, False, False)
    """
    return PATH.fullmatch(name) is not None


def spell_value(name: str) -> str:
    """Return the name of a value as text: ``x``, or ``%"..."`` so that it is not taken for a string.

    >>> spell_value("add_1"), spell_value("None")
    ('add_1', '%"None"')
    """
    return name if is_word(name) else f"%{quoted(name)}"


def spell_path(name: str) -> str:
    """Return a path, slot, graph id or operator name as text.

    >>> spell_path("layers.0"), spell_path("")
    ('layers.0', '""')
    """
    return name if is_path(name) else quoted(name)


def quoted(text: str) -> str:
    r"""Return a string in double quotes, everything but printable ASCII escaped.

    >>> print(quoted('say "hi"\n\u202e'))
    "say \"hi\"\n\u202e"
    """
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def unquoted(body: str) -> str:
    r"""Return the string that is written between double quotes; the lexer has checked the escapes.

    Raises:
        ValueError: an escape names no character.

    >>> unquoted(r"a\x09b\"")
    'a\tb"'
    """
    return body.encode("ascii", "backslashreplace").decode("unicode_escape")
