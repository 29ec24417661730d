"""Convert a flat program to a ``torch.export.ExportedProgram``, the inverse of ``ir/importing``.

Names, ranges and fake values, which an exported program records twice, are derived here in one pass.
"""

from __future__ import annotations

from .make import DIALECTS, make_ep

__all__ = ["DIALECTS", "make_ep"]
