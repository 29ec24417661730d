"""Errors and warnings of purefx; each error is also the builtin that a caller would catch: ``except px.errors.ParseError``.

All errors are ``PurefxError``; warnings are ``UserWarning``.  ``px.verify`` returns ``Violation`` objects.
"""

from __future__ import annotations

from purefx.ir import errors
from purefx.ir.errors import *  # noqa: F403 - each is listed there, once
from purefx.ir.errors import EffectsError, FuelError

__all__ = ["EffectsError", "FuelError"]
__all__ += errors.__all__
