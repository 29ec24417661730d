"""What purefx raises and warns of, each also the builtin that a caller would catch: ``except px.errors.ParseError``.

All errors are ``PurefxError``; warnings are ``UserWarning``.  ``Violation`` is what ``px.verify`` finds.
"""

from __future__ import annotations

from purefx.ir.errors import (
    ArgumentError,
    CallError,
    CaptureError,
    CaptureWarning,
    EffectsError,
    FlatCallWarning,
    FuelError,
    FxPassError,
    InputError,
    InputValueError,
    InvalidProgram,
    MinimizeError,
    MissingDependency,
    ModeWarning,
    NamingError,
    ParseError,
    PartitionError,
    PipelineError,
    PurefxError,
    RuleError,
    StageError,
    StoreError,
    SwapError,
    UnsupportedProgram,
    Violation,
)

__all__ = [
    "ArgumentError",
    "CallError",
    "CaptureError",
    "CaptureWarning",
    "EffectsError",
    "FlatCallWarning",
    "FuelError",
    "FxPassError",
    "InputError",
    "InputValueError",
    "InvalidProgram",
    "MinimizeError",
    "MissingDependency",
    "ModeWarning",
    "NamingError",
    "ParseError",
    "PartitionError",
    "PipelineError",
    "PurefxError",
    "RuleError",
    "StageError",
    "StoreError",
    "SwapError",
    "UnsupportedProgram",
    "Violation",
]
