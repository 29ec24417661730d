"""Clean a raw trace: name inputs, restore names of state, normalize stacks, infer missing values, lift constants.

Each pass can be used alone, on any program. Nothing here traces.
"""

from __future__ import annotations

from .add_runtime_assertions import add_runtime_assertions
from .infer import infer
from .module_calls import collect_call_signatures, normalize_stacks
from .names import name_inputs, restore_names
from .state import lift_constants, mark_non_persistent

__all__ = [
    "add_runtime_assertions", "collect_call_signatures", "infer", "lift_constants", "mark_non_persistent", "name_inputs",
    "normalize_stacks", "restore_names",
]  # fmt: skip
