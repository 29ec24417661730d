"""A flat program becomes a ``torch.export.ExportedProgram``: the opposite of ``ir/importing``.

Everything that an exported program says twice (names in the graph and in the signature, ranges beside fake
values) is derived here from the program in one pass, so the two cannot disagree.  Flattening is not done here: that
takes transformations, and ``purefx.to_ep`` composes them with this.
"""

from __future__ import annotations

from .make import DIALECTS, make_ep

__all__ = ["DIALECTS", "make_ep"]
