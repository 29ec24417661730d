"""Convert a program to another dtype or device, as ``module.to`` would convert its module.

No conversion runs the program.
"""

from __future__ import annotations

from .devices import to_device
from .to_dtype import to_dtype

__all__ = ["to_device", "to_dtype"]
