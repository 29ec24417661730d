"""A flat program becomes a ``torch.export.ExportedProgram``: the inverse of ``ir/importing``.

Redundant records of an exported program (names in the graph and in the signature, ranges and fake values) are derived from the
program in one pass, so they cannot disagree.  Flattening is not done here: that takes transformations, and ``purefx.to_ep``
composes them with this.
"""

from __future__ import annotations

from .make import DIALECTS, make_ep

__all__ = ["DIALECTS", "make_ep"]
