"""Programs in files: ``save`` and ``load``, one file for each, with or without weights.

The structure is the text form of the program, which its parser reads without running anything, and the tensors
are a safetensors file around it.  The format is in docs/format.md.  Lowered modules are not programs and not saved here.
"""

from __future__ import annotations

from .files import load, save

__all__ = ["load", "save"]
