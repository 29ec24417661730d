"""Attributes of calls in text: stacks of frames (``layers.0@1 / .attn``), and effects of operators.

Effects are clauses, in any order; each is printed and parsed from one description.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from ..effects.declared import ANYTHING, PURE, ArgAt, Effects, Unless
from ..graph import Frame, Stack
from .arguments import print_arg, read_arg
from .lexer import Cursor, is_path, spell_path
from .syntax import Syntax, behind, choice, form, integer, listed, path, words


def print_frame(frame: Frame, *, above: str = "") -> str:
    """Return a module call as text.

    Args:
        frame: the call.
        above: the path that a leading dot stands for.

    >>> print_frame(Frame("layers.0", 1)), print_frame(Frame("layers.0"), above="layers")
    ('layers.0@1', '.0')
    """
    path = frame.path
    rest = path[len(above) + 1 :]
    shortened = above and path.startswith(f"{above}.") and is_path(rest)
    call = f"@{frame.call}" if frame.call else ""
    return f"{f'.{rest}' if shortened else spell_path(path)}{call}"


def read_frame(cursor: Cursor, *, above: str = "") -> Frame:
    """Read a module call.

    >>> read_frame(Cursor("layers.0@1"))
    Frame(path='layers.0', call=1)
    """
    is_below = cursor.kind == "below" and above != ""
    path = above + cursor.advance() if is_below else cursor.path("the path of a module")
    call = cursor.integer("the number of a call") if cursor.skip("@") else 0
    return Frame(path, call)


def print_stack(stack: Stack) -> str:
    """Return a stack of module calls as text.

    >>> print_stack((Frame("layers.0", 1), Frame("layers.0.attn")))
    'layers.0@1 / .attn'
    """
    above = ("", *(frame.path for frame in stack))
    return " / ".join([print_frame(frame, above=before) for frame, before in zip(stack, above, strict=False)])


def read_stack(cursor: Cursor) -> Stack:
    """Read a stack of module calls.

    >>> read_stack(Cursor("layers.0 / .attn"))[1].path
    'layers.0.attn'
    """
    frames = [read_frame(cursor)]
    while cursor.skip("/"):
        frames.append(read_frame(cursor, above=frames[-1].path))
    return tuple(frames)


ARG_AT = form(ArgAt, "{index}:{name}", index=integer("the position of an argument"), name=path("the name of an argument"))

RESULT: Syntax[ArgAt | None] = Syntax(
    lambda at: "-" if at is None else ARG_AT.write(at), lambda cursor: None if cursor.skip("-") else ARG_AT.read(cursor)
)


def _number(*others: type) -> Syntax[Any]:
    def read(cursor: Cursor) -> Any:
        at = cursor.start
        found = read_arg(cursor)
        if type(found) not in (bool, int, float, *others):
            raise cursor.error("expected a number", at=at)
        return found

    return Syntax(print_arg, read)


SWITCH = form(Unless, "{arg}={value}|{default}", arg=ARG_AT, value=_number(), default=_number(type(None)))


def _clause(name: str, syntax: Syntax[Any]) -> Syntax[Any]:
    return Syntax(
        lambda effects: syntax.write(getattr(effects, name)), lambda cursor: {name: syntax.read(cursor)}, starts=syntax.starts
    )


LISTS = {
    "writes": ARG_AT, "returns": RESULT, "aliases": ARG_AT, "completes": ARG_AT, "sends": ARG_AT, "writes_unless": SWITCH,
    "random_unless": SWITCH,
}  # fmt: skip

CLAUSES: Mapping[str, Syntax[Any]] = {
    **{name: _clause(name, behind(name, listed(item))) for name, item in LISTS.items()},
    "domain": form(dict, "domain({domain}[, {group}])", domain=path("the name of a domain"), group=ARG_AT),
    **{name: _clause(name, words({name: True})) for name in ("random", "ordered", "through_bodies", "message", "unknown")},
    "scope": _clause("scope", words({"opens": 1, "closes": -1})),
}
"""What may be said of an operator, by field of its effects, in the order of the text."""

CLAUSE = choice(*CLAUSES.values())

WHOLE = {"pure": PURE, "anything": ANYTHING}


def print_effects(effects: Effects) -> str:
    """Return effects as text.

    >>> print_effects(Effects(writes=(ArgAt(0, "self"),), random=True)), print_effects(PURE)
    ('writes(0:self), random', 'pure')
    """
    for word, known in WHOLE.items():
        if effects == known:
            return word
    return ", ".join([one.write(effects) for name, one in CLAUSES.items() if getattr(effects, name) != getattr(PURE, name)])


def read_effects(cursor: Cursor) -> Effects:
    """Read effects.

    Raises:
        ParseError: something else stands here.

    >>> read_effects(Cursor("writes(0:self), random")) == Effects(writes=(ArgAt(0, "self"),), random=True)
    True
    """
    for word, known in WHOLE.items():
        if cursor.skip(word):
            return known
    found = CLAUSE.read(cursor)
    while cursor.skip(","):
        found |= CLAUSE.read(cursor)
    return evolve(PURE, **found)
