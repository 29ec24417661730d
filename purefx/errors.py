"""What purefx raises and warns of, each also the builtin that a caller would catch: ``except px.errors.ParseError``.

All errors are ``PurefxError``; warnings are ``UserWarning``.  ``Violation`` is what ``px.verify`` finds.
"""

from __future__ import annotations

from purefx.ir import errors
from purefx.ir.errors import *  # noqa: F403 - each is listed there, once
from purefx.ir.errors import EffectsError, FuelError

__all__ = ["EffectsError", "FuelError"]
__all__ += errors.__all__
