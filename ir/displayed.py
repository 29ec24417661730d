"""``Displayed``: how values answer to print, to notebooks and to rich, which ask by the names of their protocols.

No value imports its markup: ``html_of`` is the hook, as ``text_of`` is that of text, and ``show/`` registers there.  Nothing here
knows HTML, and neither IPython nor rich is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import singledispatch
from typing import Any, ClassVar

from .persistent import text_of
from .show.styled import Form, styled

LINES = 400
"""What a notebook keeps as text beside the markup, and what IPython prints; ``print`` shows all of it."""


@singledispatch
def html_of(value: object) -> str | None:  # noqa: ARG001
    """Return a value as HTML, or None where it has none: ``html_of.register(Type, page)`` says how.

    Args:
        value: a program, a graph, a diff, counts, a finding.

    >>> html_of(3) is None
    True
    """
    return None


@singledispatch
def summary_of(value: object) -> str:
    """Return what ``print`` shows of a value that may be long."""
    return text_of(value)


class Displayed:
    """A base of values that print as their text form and that notebooks and rich show; it has no fields.

    >>> from purefx.ir import Graph, Input
    >>> bundle = Graph((Input("x"),), ())._repr_mimebundle_()
    >>> list(bundle), bundle["text/html"].startswith("<div")
    (['text/plain', 'text/html'], True)
    """

    __slots__ = ()
    _form: ClassVar[Form] = "program"
    """What kind of text it prints as."""

    def __str__(self) -> str:
        return text_of(self)

    def __rich__(self) -> object:
        return styled(str(self), self._form)

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def _repr_mimebundle_(
        self, include: Container[str] | None = None, exclude: Container[str] | None = None, **_options: Any
    ) -> dict[str, str]:
        """Return it in the forms that are asked for; without this, IPython would keep the ``repr`` of all of it as text."""
        forms: dict[str, Callable[[Any], str | None]] = {"text/plain": _plain, "text/html": html_of}
        asked = [kind for kind in forms if (not include or kind in include) and kind not in (exclude or ())]
        return {kind: found for kind in asked if (found := forms[kind](self)) is not None}


def _plain(value: object) -> str | None:
    try:
        lines = str(value).rstrip("\n").split("\n")
    except Exception:  # noqa: BLE001  fields may hold anything, and what cannot be printed has its markup all the same
        return None
    more = len(lines) - LINES
    return "\n".join([*lines[:LINES], f"... {more:,} more lines, which print shows"] if more > 0 else lines)
