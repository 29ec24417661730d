"""What messages say of a name that is not there.

One idea: whoever mistypes a name is shown what is near it, or what there is.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of a sentence that says that a name is not known.

    >>> did_you_mean("maks", ["mask", "w"]), did_you_mean("zzz", ["mask"]), did_you_mean("x", [])
    ("; did you mean 'mask'?", "; there are 'mask'", '')
    """
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=3)
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    return f"; there are {', '.join(map(repr, names[:5]))}{' ...' if len(names) > 5 else ''}" if names else ""
