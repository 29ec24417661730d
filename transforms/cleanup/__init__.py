"""Clean-up passes: a raw trace becomes a clean program, one pure transformation for each step.

One idea: what a tracer leaves behind (tensors among arguments, names of its own, inputs that are state) is put right by passes
that can be used one by one, on any program.  Nothing here traces.
"""

from __future__ import annotations

from .lift_constants import lift_constants
from .mark_non_persistent import mark_non_persistent
from .name_inputs import name_inputs
from .restore_names import restore_names

__all__ = ["lift_constants", "mark_non_persistent", "name_inputs", "restore_names"]
