"""Modules that torch itself imports late, because they take long: sympy, and what registers the seldom operators.

Each is imported when something of it is asked for, so that whoever has no dynamic sizes does not wait for sympy (0.3 s), nor
for Dynamo (0.7 s) who never traces.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

__all__ = ["TRACING", "Late", "register_all", "sympy"]

TRACING = "torch.export._unlift"
"""The module that imports all that torch imports when it first traces."""


class Late:
    """A module that is imported when something of it is asked for.

    >>> fractions = Late("fractions")
    >>> fractions, fractions.Fraction(2, 4)
    (Late('fractions'), Fraction(1, 2))
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __repr__(self) -> str:
        return f"Late({self._module!r})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks of any object is not asked of the module
            raise AttributeError(name)
        found = getattr(importlib.import_module(self._module), name)
        self.__dict__[name] = found
        return found


sympy: Any = Late("sympy")
"""What expressions of sizes are made of; torch imports it with the first dynamic size."""


@cache
def register_all() -> None:
    """Import what registers operators for streams, collectives and exporters, which torch does when it first traces."""
    importlib.import_module(TRACING)
