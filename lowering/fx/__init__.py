"""Plain ``torch.fx.GraphModule``s, and passes over them.

``plain`` makes a program a module that any fx pass takes, ``applied`` calls a pass in the way that fits it, ``passes`` turns
transformations into passes and passes into transformations.  Whether a pass is right is asked in ``laws/fx_passes``.
"""

from __future__ import annotations

from .applied import FxPass, Over
from .passes import as_fx_pass, from_fx_pass
from .plain import to_fx

__all__ = ["FxPass", "Over", "as_fx_pass", "from_fx_pass", "to_fx"]
