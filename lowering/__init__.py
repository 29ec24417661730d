"""From values to torch modules.  Import it as ``purefx.lowering``.

One idea: generated code is made once for each distinct body, fx graphs when somebody looks.  Nothing here rewrites a
program beyond what running it needs.
"""

from __future__ import annotations

from .family import Family
from .lower import lower
from .pickling import reduce_family, reduce_module
from .stages import Stages, Tie, lower_stages, pipeline_stage, sum_tied_gradients
from .swaps import admitted

Family.reduce_family = staticmethod(reduce_family)
Family.reduce_module = staticmethod(reduce_module)
Family.admitted = staticmethod(admitted)

__all__ = ["Stages", "Tie", "lower", "lower_stages", "pipeline_stage", "sum_tied_gradients"]
