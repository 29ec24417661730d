"""Module calls and stacks of them as text: ``layers.0@1 / .attn``, written and read.

One idea: a frame below the one before it is written by what its path adds.
"""

from __future__ import annotations

from ..node import Frame, Stack
from .lexer import Cursor
from .spelling import is_path, spell_path

__all__ = ["print_frame", "print_stack", "read_frame", "read_stack"]


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
