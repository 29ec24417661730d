"""Lower programs to torch modules.  Import it as ``purefx.lowering``.

Code is generated once for each distinct body; fx graphs are built on first access.
"""

from __future__ import annotations

from .code.script import to_script
from .fx import as_fx_pass, from_fx_pass, to_fx
from .lower import lower
from .modules.context import LoweringContext
from .modules.pickling import reduce_context, reduce_module
from .stages import Stages, Tie, lower_stages, pipeline_stage, sum_tied_gradients
from .swaps.assignment import admitted

LoweringContext.reduce_context = staticmethod(reduce_context)
LoweringContext.reduce_module = staticmethod(reduce_module)
LoweringContext.admitted = staticmethod(admitted)

__all__ = [
    "Stages", "Tie", "as_fx_pass", "from_fx_pass", "lower", "lower_stages", "pipeline_stage", "sum_tied_gradients", "to_fx",
    "to_script",
]  # fmt: skip
