"""What messages say of a name that is not there.

One idea: whoever mistypes a name is shown what is near it, or what there is.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.names import did_you_mean

__all__ = ["near_or_there"]


def near_or_there(name: object, known: Iterable[str]) -> str:
    """Return the end of a sentence that says that a name is not known.

    >>> near_or_there("maks", ["mask", "w"]), near_or_there("zzz", ["mask"]), near_or_there("x", [])
    ("; did you mean 'mask'?", "; there are 'mask'", '')
    """
    names = list(known)
    few = f"; there are {', '.join(map(repr, names[:5]))}{' ...' if len(names) > 5 else ''}" if names else ""
    return did_you_mean(name, names) or few
