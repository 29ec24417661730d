"""Clean a raw trace: name inputs, restore names of state, normalize stacks, infer missing values, lift constants.

Each pass can be used alone, on any program. Nothing here traces.
"""

from __future__ import annotations

from .add_runtime_assertions import add_runtime_assertions
from .collect_call_signatures import collect_call_signatures
from .constants import lift_constants, mark_non_persistent
from .infer import infer
from .name_inputs import name_inputs
from .normalize_stacks import normalize_stacks
from .restore_names import restore_names

__all__ = [
    "add_runtime_assertions", "collect_call_signatures", "infer", "lift_constants", "mark_non_persistent", "name_inputs",
    "normalize_stacks", "restore_names",
]  # fmt: skip
