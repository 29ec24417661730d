"""Convert between programs and plain ``torch.fx.GraphModule``s, and between transformations and fx passes.

``laws/fx_passes`` checks passes.
"""

from __future__ import annotations

from .passes import FxPass, Over, as_fx_pass, from_fx_pass, to_fx

__all__ = ["FxPass", "Over", "as_fx_pass", "from_fx_pass", "to_fx"]
