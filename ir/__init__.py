"""The values: programs, graphs, nodes and state.  Import it as ``purefx.ir``.

They are immutable; uses, effects, digests and text are derived from them. Transformations and execution are elsewhere.
"""

from __future__ import annotations

from .analysis.diff import Diff
from .analysis.history import tracked
from .arguments import Arg, Body, Items, Record, Ref, same_arg
from .calls.parts import Part, SplitProvenance
from .effects.declared import ANYTHING, PURE, ArgAt, Effects, Unless
from .effects.dependencies import dependencies
from .effects.registered import declare
from .effects.resolved import node_effects
from .errors import (
    CaptureError,
    CaptureWarning,
    EffectsError,
    FuelError,
    FxPassError,
    InputError,
    InputValueError,
    InvalidProgram,
    MinimizeError,
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
)
from .expression import Apply, Expr, InputDim, InputValue, Sym
from .graph import Call, Frame, Get, Graph, Input, Node, Op, Stack
from .meta import Meta, freeze_meta
from .operators import op
from .origins import made_of, with_origins_of
from .persistent import PMap, pmap
from .program import CallSignature, Module, Program, Step
from .rewriter import Rewriter
from .show.notebook import program_page as _program_page  # noqa: F401  # pyright: ignore[reportUnusedImport]
from .signature import (
    Constraints,
    InputGradient,
    InputMutation,
    LiteralType,
    LossOutput,
    NumberType,
    ObjectType,
    Range,
    RestType,
    Signature,
    StateGradient,
    StateInput,
    StateMutation,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from .state import Slot, SlotKind, State
from .state_changes import state_uses

__all__ = [
    "ANYTHING", "PURE", "Apply", "Arg", "ArgAt", "Body", "Call", "CallSignature", "CaptureError", "CaptureWarning",
    "Constraints", "Diff", "Effects", "EffectsError", "Expr", "Frame", "FuelError", "FxPassError", "Get", "Graph", "Input",
    "InputDim", "InputError", "InputGradient", "InputMutation", "InputValue", "InputValueError", "InvalidProgram", "Items",
    "LiteralType", "LossOutput", "Meta", "MinimizeError", "ModeWarning", "Module", "NamingError", "Node", "NumberType",
    "ObjectType", "Op", "PMap", "ParseError", "Part", "PartitionError", "PipelineError", "Program", "PurefxError", "Range",
    "Record", "Ref", "RestType", "Rewriter", "RuleError", "Signature", "Slot", "SlotKind", "SplitProvenance", "Stack",
    "StageError", "State", "StateGradient", "StateInput", "StateMutation", "Step", "StoreError", "SwapError", "Sym",
    "TensorType", "Token", "Unless", "UnsupportedProgram", "UserInput", "UserOutput", "declare", "dependencies", "freeze_meta",
    "made_of", "node_effects", "op", "pmap", "same_arg", "state_uses", "tracked", "with_origins_of",
]  # fmt: skip
