"""Short descriptions of values and nodes, for all forms: type, source line, cut to fit.

A program that is shown need not be valid, so nothing here believes a field: what cannot be printed is said to be so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..analysis.history import line_of
from ..names import escaped
from ..origins import Imported
from ..text.state import DTYPE
from ..torch_private import device_of
from ..verify.findings import source_of

__all__ = ["described", "safely", "said_line", "shown", "source_line"]

UNPRINTABLE = "(cannot be printed)"

LONGEST = 600
"""Characters of a text; a program may have any number in one name."""


def safely(printed: Callable[[], Any], otherwise: Any = UNPRINTABLE) -> Any:
    """Return what a function returns, or something else where it raises.

    Args:
        printed: looks at a value that may be anything.
        otherwise: stands for it where it cannot be looked at.

    >>> safely(lambda: 1 // 0), safely(lambda: 1)
    ('(cannot be printed)', 1)
    """
    try:
        return printed()
    except Exception:  # noqa: BLE001  garbage may refuse anything; what is around it is shown all the same
        return otherwise


def shown(text: Any, longest: int = LONGEST) -> str:
    r"""Return a text on one line, printable and not too long.

    Args:
        text: anything; its ``str`` is taken.
        longest: after how many characters it is cut.

    >>> shown("a\nb"), len(shown("x" * 10**6)), shown("x" * 10**6)[-13:]
    ('a\\nb', 614, '... (1000000)')
    """
    text = str(text)
    cut = text if len(text) <= longest else f"{text[:longest]} ... ({len(text)})"
    return escaped(cut).replace("\n", "\\n")


def described(value: Any) -> str | None:
    """Return what a value is, in a word or two; None where nothing is known.

    Args:
        value: what meta has as ``val``.

    >>> described(torch.ones(2, 3)), described((torch.ones(1, dtype=torch.bool), 7)), described(None) is None
    ('f32[2, 3] cpu', '(bool[1] cpu, 7)', True)
    """
    if isinstance(value, torch.Tensor):
        dtype = DTYPE.write(value.dtype).removeprefix("torch.")
        return safely(lambda: f"{dtype}[{', '.join(map(str, value.shape))}] {device_of(value)}")
    if isinstance(value, tuple | list):
        parts = [described(part) or "None" for part in value[:8]]
        return f"({', '.join([*parts, *(['...'] if len(value) > 8 else [])])})"
    return None if value is None else safely(lambda: str(value))


def source_line(meta: Any) -> str | None:
    r"""Return the innermost line of the user's that made a node, where there is one that is not torch's; else torch's, or None.

    Args:
        meta: of the node.

    >>> source_line({"stack_trace": '  File "m.py", line 3, in forward\n    return -x'})
    'm.py:3 in forward: return -x'
    """
    trace = meta.get("stack_trace")
    return said_line(Imported("", "", trace=trace)) or source_of(meta) if isinstance(trace, str) else None


def said_line(origin: Imported) -> str | None:
    r"""Return the line of the user that made an imported node, or None.

    >>> said_line(Imported("y", "toy.neg", trace='  File "m.py", line 3, in forward\n    return -x'))
    'm.py:3 in forward: return -x'
    """
    found = line_of(origin)
    return f"{found['file']}:{found['line']} in {found['function']}: {found['code']}" if found else None
