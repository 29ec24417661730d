"""``Displayed``: the base of values that print as text and that notebooks and rich show.

``show/`` and ``text/`` register printers with ``html_of`` and ``text_of``, so that values do not import them.
IPython and rich are optional.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any, ClassVar

from .persistent import text_of
from .show.styled import Form, styled

LINES = 400
"""The number of lines that IPython prints and a notebook saves besides the markup; ``print`` shows all."""


@singledispatch
def html_of(value: object) -> str | None:  # noqa: ARG001
    """Return a value as HTML, or None if its type has no page; ``html_of.register(Type, page)`` adds one.

    Args:
        value: a program, a graph, a diff, counts, a finding.

    >>> html_of(3) is None
    True
    """
    return None


@singledispatch
def summary_of(value: object) -> str:
    """Return the text that ``print`` shows; a summary for long values."""
    return text_of(value)


class Displayed:
    """Base class of values that print as their text form and that notebooks and rich show; it has no fields.

    >>> from purefx.ir import Graph, Input
    >>> bundle = Graph((Input("x"),), ())._repr_mimebundle_()
    >>> list(bundle), bundle["text/html"].startswith("<div")
    (['text/plain', 'text/html'], True)
    """

    __slots__ = ()
    _form: ClassVar[Form] = "program"
    """The kind of text that it prints as."""

    def __str__(self) -> str:
        return text_of(self)

    def __rich__(self) -> object:
        return styled(str(self), self._form)

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def _repr_mimebundle_(self, **_options: Any) -> dict[str, str]:
        """Return the text, at most ``LINES`` lines of it, and the markup; without this, IPython keeps the whole ``repr``."""
        forms = {"text/plain": _plain(self), "text/html": html_of(self)}
        return {kind: found for kind, found in forms.items() if found is not None}


def _plain(value: object) -> str | None:
    try:
        lines = str(value).rstrip("\n").split("\n")
    except Exception:  # noqa: BLE001  fields may hold anything; the markup is still shown
        return None
    more = len(lines) - LINES
    return "\n".join([*lines[:LINES], f"... {more:,} more lines, which print shows"] if more > 0 else lines)
