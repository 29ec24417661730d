"""Attributes of calls in text: stacks of frames (``layers.0@1 / .attn``), effects, preserved signatures.

Each is written and read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve

from ..effects.declared import ANYTHING, PURE, ArgAt, Effects, Unless
from ..graph import Frame, Stack
from ..persistent import PMap
from ..program import CallSignature
from .arguments import print_arg, print_tree, read_arg, read_tree
from .contract import print_names, read_names
from .lexer import Cursor, is_path, read_list, spell_path

__all__ = [
    "print_call_signatures",
    "print_effects",
    "print_frame",
    "print_stack",
    "read_call_signature",
    "read_effects",
    "read_frame",
    "read_stack",
]


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
    part = f"#{frame.part}" if frame.part else ""
    return f"{f'.{rest}' if shortened else spell_path(path)}{call}{part}"


def print_stack(stack: Stack) -> str:
    """Return a stack of module calls as text.

    >>> print_stack((Frame("layers.0", 1), Frame("layers.0.attn")))
    'layers.0@1 / .attn'
    """
    above = ("", *(frame.path for frame in stack))
    return " / ".join([print_frame(frame, above=before) for frame, before in zip(stack, above, strict=False)])


def read_frame(cursor: Cursor, *, above: str = "") -> Frame:
    """Read a module call.

    >>> read_frame(Cursor("layers.0@1"))
    Frame(path='layers.0', call=1, part=0)
    """
    is_below = cursor.kind == "below" and above != ""
    path = above + cursor.advance() if is_below else cursor.path("the path of a module")
    call = cursor.integer("the number of a call") if cursor.skip("@") else 0
    part = cursor.integer("the number of a part") if cursor.skip("#") else 0
    return Frame(path, call, part)


def read_stack(cursor: Cursor) -> Stack:
    """Read a stack of module calls.

    >>> read_stack(Cursor("layers.0 / .attn"))[1].path
    'layers.0.attn'
    """
    frames = [read_frame(cursor)]
    while cursor.skip("/"):
        frames.append(read_frame(cursor, above=frames[-1].path))
    return tuple(frames)


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


def print_call_signatures(signatures: PMap[Frame, CallSignature]) -> list[str]:
    """Return a block for each preserved call signature, in the order of paths and calls.

    >>> from purefx.ir import pmap
    >>> print_call_signatures(pmap({Frame("lin", 1): CallSignature(None, None, ("x",))}))
    ['signature lin@1 {', '  names (x)', '}']
    """
    lines: list[str] = []
    for frame in sorted(signatures, key=lambda frame: (frame.path, frame.call, frame.part)):
        found = signatures[frame]
        shared = "shared " if found.shared else ""
        lines += [f"{shared}signature {print_frame(frame)} {{", f"  names {print_names(found.arg_names)}"]
        trees = (("in_spec", found.in_spec), ("out_spec", found.out_spec))
        lines += [f"  {name} {print_tree(spec)}" for name, spec in trees if spec is not None]
        lines.append("}")
    return lines


def read_call_signature(cursor: Cursor, *, shared: bool = False) -> tuple[Frame, CallSignature]:
    r"""Read a preserved call signature; its keyword has been passed.

    Args:
        cursor: behind the keyword ``signature``.
        shared: whether the keyword before that was ``shared``.

    >>> read_call_signature(Cursor("lin@1 { \n names (x) \n }"))[0]
    Frame(path='lin', call=1, part=0)
    """
    frame = read_frame(cursor)
    found: dict[str, Any] = {"names": (), "in_spec": None, "out_spec": None}
    for _ in cursor.block():
        match cursor.take(*found):
            case "names":
                found["names"] = read_names(cursor)
            case name:
                found[name] = read_tree(cursor)
    return frame, CallSignature(found["in_spec"], found["out_spec"], found["names"], shared)
