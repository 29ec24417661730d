"""Clean a raw trace: name inputs, restore names of state, normalize stacks, infer missing values, lift constants.

Each pass can be used alone, on any program. No pass traces.
"""

from __future__ import annotations

from .infer import infer
from .module_calls import normalize_stacks
from .names import name_inputs, restore_names
from .state import lift_constants

__all__ = [
    "infer", "lift_constants", "name_inputs",
    "normalize_stacks", "restore_names",
]  # fmt: skip
