"""Effects as text: ``writes(0:self), random``, written and read.

One idea: a word for each field that is set.  They are printed only where the operator's registration does not say
the same, so most programs show none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve

from ..effects.declared import ANYTHING, PURE, ArgAt, Effects, Unless
from .arguments import print_arg, read_arg
from .lexer import Cursor, read_list
from .spelling import spell_path

__all__ = ["print_effects", "read_effects"]

FLAGS = ("random", "ordered", "through_bodies", "unknown")

SCOPES = {"opens": 1, "closes": -1}

PLACES = ("writes", "returns", "aliases", "completes")

SWITCHES = ("writes_unless", "random_unless")


def print_effects(effects: Effects) -> str:
    """Return effects as text.

    >>> print_effects(Effects(writes=(ArgAt(0, "self"),), random=True)), print_effects(PURE)
    ('writes(0:self), random', 'pure')
    """
    if effects == PURE:
        return "pure"
    if effects == ANYTHING:
        return "anything"
    lists = {name: [_print_place(at) for at in getattr(effects, name)] for name in PLACES}
    lists |= {name: [_print_switch(unless) for unless in getattr(effects, name)] for name in SWITCHES}
    parts = [f"{name}({', '.join(items)})" for name, items in lists.items() if items]
    if effects.domain:
        group = f", {_print_place(effects.group)}" if effects.group is not None else ""
        parts.append(f"domain({spell_path(effects.domain)}{group})")
    parts.extend(name for name in FLAGS if getattr(effects, name))
    parts.extend(name for name, scope in SCOPES.items() if effects.scope == scope)
    return ", ".join(parts)


def _print_place(at: ArgAt | None) -> str:
    return "-" if at is None else f"{at.index}:{spell_path(at.name)}"


def _print_switch(unless: Unless) -> str:
    return f"{_print_place(unless.arg)}={print_arg(unless.value)}|{print_arg(unless.default)}"


def read_effects(cursor: Cursor) -> Effects:
    """Read effects.

    Raises:
        ParseError: something else stands here.

    >>> read_effects(Cursor("writes(0:self), random")) == Effects(writes=(ArgAt(0, "self"),), random=True)
    True
    """
    if cursor.skip("pure"):
        return PURE
    if cursor.skip("anything"):
        return ANYTHING
    found: dict[str, Any] = {}
    while True:
        name = cursor.take(*PLACES, *SWITCHES, *FLAGS, *SCOPES, "domain")
        if name == "domain":
            found |= _read_domain(cursor)
        elif name in SCOPES:
            found["scope"] = SCOPES[name]
        else:
            found[name] = True if name in FLAGS else tuple(read_list(cursor, READERS.get(name, _read_place)))
        if not cursor.skip(","):
            return evolve(PURE, **found)


def _read_domain(cursor: Cursor) -> dict[str, Any]:
    cursor.take("(")
    domain = cursor.path("the name of a domain")
    group = _read_place(cursor) if cursor.skip(",") else None
    cursor.take(")")
    return {"domain": domain, "group": group}


def _read_result(cursor: Cursor) -> ArgAt | None:
    return None if cursor.skip("-") else _read_place(cursor)


def _read_place(cursor: Cursor) -> ArgAt:
    index = cursor.integer("the position of an argument")
    cursor.take(":")
    return ArgAt(index, cursor.path("the name of an argument"))


def _read_switch(cursor: Cursor) -> Unless:
    arg = _read_place(cursor)
    cursor.take("=")
    start = cursor.start
    value = read_arg(cursor)
    cursor.take("|")
    default = read_arg(cursor)
    if type(value) not in (bool, int, float) or type(default) not in (bool, int, float, type(None)):
        raise cursor.error("expected numbers", at=start)
    return Unless(arg, value, default)


READERS: Mapping[str, Callable[[Cursor], Any]] = {"returns": _read_result, **dict.fromkeys(SWITCHES, _read_switch)}
"""What reads the items of a field, where that is not the plain place of an argument."""
