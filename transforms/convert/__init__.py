"""Conversions: the program of the same module in another dtype.

``to_dtype`` has the transformation, ``casts`` finds which casts follow it.  Nothing here runs a program.
"""

from __future__ import annotations

from .to_dtype import to_dtype

__all__ = ["to_dtype"]
