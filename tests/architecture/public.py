"""What must hold of every public name: a docstring with its arguments and an example that runs.

``check_documented`` takes a name and a value, so a test can hand it a badly documented one.  That the
examples run is the business of ``tests/doctests``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any


def check_documented(name: str, value: Any) -> Iterator[str]:
    """Find what the documentation of a class, a function or a transformation lacks; plain data has none."""
    told = getattr(value, "__doc__", None)
    if (
        not callable(value)
        or type(value).__module__ in {"typing", "collections.abc", "types"}
        or isinstance(value, type(int | str))
    ):
        return
    if not told:
        yield f"{name}: no docstring"
        return
    if ">>>" not in told:
        yield f"{name}: no example"
    if isinstance(value, type):
        yield from (
            f"{name}.{own}: no docstring"
            for own, member in vars(value).items()
            if owes_docstring(own, member)
        )
    # The fields of a value are told where they stand; a function tells its arguments in one section.
    if not isinstance(value, type) and parameters(value) and "Args:" not in told:
        yield f"{name}: takes {', '.join(parameters(value))} and has no section Args"


def owes_docstring(name: str, member: Any) -> bool:
    """Return whether an attribute of a class is a public method or property without a docstring."""
    method = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member)
    return method and not name.startswith("_") and not member.__doc__


def parameters(value: Any) -> list[str]:
    """Return the names of the parameters of a function, or of what a transformation wraps."""
    return [name for name in inspect.signature(value).parameters if name not in {"self", "cls"}]
