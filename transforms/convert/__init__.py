"""Conversions: the program of the same module in another dtype, or on another device.

``to_dtype`` and ``to_device`` are the transformations; ``casts`` finds which casts follow a dtype,
``devices`` what names a device, ``memory`` makes state anew.  Nothing here runs a program.
"""

from __future__ import annotations

from .to_device import to_device
from .to_dtype import to_dtype

__all__ = ["to_device", "to_dtype"]
