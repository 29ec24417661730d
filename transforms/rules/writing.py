"""Writing: terms as text for messages, and what they are made of, for whoever walks them.

Each kind of term says itself what it is made of (``terms.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Made", "fits", "parts_of", "subterms", "written"]


class Made:
    """What may be made of other things."""

    def _fits(self, kind: str) -> bool:  # noqa: ARG002  it may be anything
        """Return whether it may be what a parameter of a type takes."""
        return True

    def _now(self) -> Any:
        """Return the fake value that it has by now, as an operand of a replacement has; None otherwise."""
        return None

    def _parts(self) -> Sequence[Any]:
        """Return what it is made of."""
        return []

    def _text(self, part: Callable[[Any], str]) -> str:  # noqa: ARG002  of nothing else
        """Return it as text; ``part`` gives that of what it is made of."""
        return repr(self)

    def __repr__(self) -> str:
        return written(self)


def fits(term: Made, kind: str) -> bool:
    """Return whether a term may be what a parameter of a type takes.

    >>> from .terms import Var
    >>> fits(Var("x"), "Tensor"), fits(Var("x").shape, "Tensor")
    (True, False)
    """
    return term._fits(kind)  # pyright: ignore[reportPrivateUsage]  no name of a tensor's method is taken


def parts_of(term: Any) -> Sequence[Any]:
    """Return what a term is made of.

    >>> import torch
    >>> from .terms import Var
    >>> parts_of(torch.add(Var("x"), 1))
    [x, 1]
    """
    if isinstance(term, Made):
        return term._parts()  # pyright: ignore[reportPrivateUsage]  no name of a tensor's method is taken
    return term if isinstance(term, list | tuple) else []


def subterms(*terms: Any) -> list[Any]:
    """Return terms and all that they are made of, each object once: one value in many places of a pattern is walked once.

    >>> import torch
    >>> from .terms import Var
    >>> x = Var("x")
    >>> y = torch.relu(x)
    >>> subterms(torch.add(y, y))
    [add(relu(x), relu(x)), relu(x), x]
    """
    todo, found = [*reversed(terms)], dict[int, Any]()
    while todo:
        each = todo.pop()
        if id(each) not in found:
            found[id(each)] = each
            todo += reversed(parts_of(each))
    return list(found.values())


SHOWN = 100
"""Parts of a term that messages show at most: one in which values are used twice is longer than anybody reads."""


def written(term: Any, most: float = SHOWN) -> str:
    """Return a term as text, as far as it is shown.

    Args:
        term: what a rule looks for.
        most: how many of its parts are shown.

    >>> import torch
    >>> from .terms import Var
    >>> x = Var("x")
    >>> written(torch.add(torch.relu(x), 1, alpha=2)), written(torch.add(torch.relu(x), 1), 3)
    ('add(relu(x), 1, alpha=2)', 'add(relu(x), ...)')
    """
    left = most

    def part(each: Any) -> str:
        nonlocal left
        left -= 1
        if left < 0:
            return "..."
        if isinstance(each, list):
            return f"[{', '.join(map(part, each))}]"
        if isinstance(each, Made):
            return each._text(part)  # pyright: ignore[reportPrivateUsage]
        return repr(each)

    return part(term)
