"""How tracers spell the place of a module, read by a small grammar.

One idea: ``layers.0``, ``L['self'].layers[0]`` and ``L['self']._modules['layers']._modules['0']`` are one place.  The text is
taken apart sign by sign and never evaluated; what the grammar does not know is no place.

    place = [root] step*          root = "L['" name "']" | "L__self__" | "self"
    step  = "." name | "['" name "']" | "[" digits "]"      where "_modules" before a bracket says nothing
"""

from __future__ import annotations

__all__ = ["is_name", "is_path", "read_place"]

ROOTS = ("L__self__", "self")

TABLES = frozenset({"_modules"})
"""Attributes in which a module keeps its children."""

FORBIDDEN = frozenset("'\"\\")


def is_name(text: object) -> bool:
    r"""Say whether a text can name a module or an attribute in a graph: no quotes, no dot, nothing that can not be seen.

    >>> is_name("layer 0"), is_name("a.b"), is_name("x'"), is_name("a\nb"), is_name("")
    (True, False, False, False, False)
    """
    return (
        type(text) is str
        and bool(text)
        and text.isprintable()
        and "." not in text
        and FORBIDDEN.isdisjoint(text)
        and text[0] != "/"
    )


def is_path(text: object) -> bool:
    """Say whether a text is a path of names with dots between them.

    >>> is_path("layers.0.weight"), is_path("a..b"), is_path("a.b'); import os")
    (True, False, False)
    """
    return type(text) is str and all(map(is_name, text.split(".")))


def read_place(text: object) -> str | None:
    """Return the path that a tracer spelled; "" for the root, None where the text is no place.

    >>> read_place("L['self'].layers[0].up"), read_place("layers.0"), read_place("L__self__")
    ('layers.0.up', 'layers.0', '')
    >>> read_place("L['self']._modules['a']")
    'a'
    >>> read_place("L['self'].layers[i]"), read_place("__import__('os')")
    (None, None)
    """
    if type(text) is not str:
        return None
    roots = (text[: text.find("]") + 1], *ROOTS) if text.startswith(("L['", 'L["')) else ROOTS
    root = next((root for root in roots if text == root or text.startswith((f"{root}.", f"{root}["))), "")
    names = _steps(text[len(root) :] if root else f".{text}" if text else "")
    return None if names is None else ".".join(names)


def _steps(text: str) -> list[str] | None:
    names: list[str] = []
    at = 0
    while at < len(text):
        sign = text[at]
        end = _end_of_name(text, at + 1) if sign == "." else text.find("]", at) if sign == "[" else -1
        if end < 0:
            return None
        name = text[at + 1 : end] if sign == "." else _in_brackets(text[at + 1 : end])
        if name is None or not is_name(name) or (sign == "." and not name.replace("_", "a").isalnum()):
            return None
        at = end + (sign == "[")
        if not (name in TABLES and text[at : at + 1] == "["):
            names.append(name)
    return names


def _end_of_name(text: str, start: int) -> int:
    ends = [end for end in (text.find(".", start), text.find("[", start)) if end >= 0]
    return min(ends, default=len(text))


def _in_brackets(text: str) -> str | None:
    if text.isdecimal():
        return text
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "'\"" else None
