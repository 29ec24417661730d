"""Paths of modules: joined, and made relative to one another.

One idea: a path is relative to the module of the graph that holds it, and one that begins with ``/`` is counted from the
root: a module can call one that is not below it (a closure, a sibling that it was handed).  In the root the two are the
same, and the plain form is the one that is written.  Nothing here knows which modules exist.
"""

from __future__ import annotations

__all__ = ["FROM_ROOT", "is_below", "join", "nested", "relative", "way_to"]

FROM_ROOT = "/"
"""How a path begins that is counted from the root."""


def join(outer: str, inner: str) -> str:
    """Return where a path of a body leads, counted from the root and written plainly.

    Args:
        outer: the module that the body stands in, from the root; empty for the root itself.
        inner: a path as the body writes it.

    >>> join("b.c", "d"), join("b.c", "/a"), join("", "a")
    ('b.c.d', 'a', 'a')
    """
    if inner.startswith(FROM_ROOT):
        return inner[1:]
    return f"{outer}.{inner}" if outer else inner


def nested(outer: str, inner: str) -> str:
    """Return a path of a body as another body writes it, which calls the first as ``outer``.

    >>> nested("b", "c"), nested("b", "/a"), nested("/a", "c")
    ('b.c', '/a', '/a.c')
    """
    return inner if not outer or inner.startswith(FROM_ROOT) else f"{outer}.{inner}"


def relative(path: str, outer: str) -> str:
    """Return a path as the body of a module writes it: what is below the module, or all of it from the root.

    Args:
        path: a path from the root, written plainly.
        outer: the module, likewise; empty for the root.

    >>> relative("b.c", "b"), relative("a", "b"), relative("bc", "b"), relative("a", "")
    ('c', '/a', '/bc', 'a')
    """
    if not outer:
        return path
    length = len(outer)
    if path.startswith(outer) and path[length : length + 1] == ".":
        return path[length + 1 :]
    return FROM_ROOT + path


def is_below(path: str, outer: str) -> bool:
    """Say whether a module is below another one; both paths are counted from the root.

    >>> is_below("b.c", "b"), is_below("bc", "b"), is_below("b", "b"), is_below("b", "")
    (True, False, False, True)
    """
    return path.startswith(f"{outer}.") if outer else path != ""


def way_to(path: str) -> list[str]:
    """Return the paths of the modules that hold a module, outermost first, and its own; none for the root.

    >>> way_to("a.b.c"), way_to("")
    (['a', 'a.b', 'a.b.c'], [])
    """
    names = path.split(".") if path else []
    return [".".join(names[:depth]) for depth in range(1, len(names) + 1)]
