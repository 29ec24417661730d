"""Passes that make a clean program of a raw trace: names, stacks, signatures, values and checks.

One idea: what a tracer leaves beside the operators is put in order by pure functions, one for each thing, usable alone.
"""

from __future__ import annotations

from .add_runtime_assertions import add_runtime_assertions
from .collect_call_signatures import collect_call_signatures
from .infer import infer
from .normalize_stacks import normalize_stacks

__all__ = ["add_runtime_assertions", "collect_call_signatures", "infer", "normalize_stacks"]
