"""PyTorch programs as immutable values: import them, rewrite them with pure functions, lower them back to torch.fx.

    import purefx as px
    module = px.lower(px.transform(px.import_ep(ep)))

Everything public is here; the packages behind it are ``purefx.ir``, ``purefx.transforms`` and ``purefx.lowering``.
"""

from __future__ import annotations

from purefx.ir import (
    Arg,
    Body,
    Call,
    CallSignature,
    Constraints,
    DiffError,
    Effects,
    Frame,
    FuelError,
    Get,
    Graph,
    Input,
    InputError,
    InputGradient,
    InputMutation,
    InputValueError,
    InvalidProgram,
    Items,
    LiteralType,
    LossOutput,
    ModeWarning,
    Module,
    Node,
    NumberType,
    ObjectType,
    Op,
    ParseError,
    PipelineError,
    PMap,
    Program,
    PurefxError,
    Range,
    Record,
    Ref,
    Signature,
    Slot,
    SlotKind,
    State,
    StateGradient,
    StateInput,
    StateMutation,
    Step,
    SwapError,
    TensorType,
    Token,
    UnsupportedProgram,
    UserInput,
    UserOutput,
    pmap,
)
from purefx.ir.diff import Diff, diff
from purefx.ir.digest import alpha_equal, digest
from purefx.ir.importing import import_ep
from purefx.ir.text import parse
from purefx.ir.verify import Violation, verify
from purefx.lowering import lower
from purefx.transforms import (
    DEFAULT,
    Fuel,
    Rewrite,
    Transformation,
    bisect,
    deduplicate,
    dispatch,
    expand,
    functionalize,
    inline,
    inplace_mutations,
    insert_ivals,
    lift_state,
    outline,
    remove_effect_tokens,
    sink_state,
    swap_modules,
    transform,
    transformation,
)
from purefx.unflatten import unflatten

__all__ = [
    "DEFAULT", "Arg", "Body", "Call", "CallSignature", "Constraints", "Diff", "DiffError", "Effects", "Frame", "Fuel",
    "FuelError", "Get", "Graph", "Input", "InputError", "InputGradient", "InputMutation", "InputValueError",
    "InvalidProgram", "Items", "LiteralType", "LossOutput", "ModeWarning", "Module", "Node", "NumberType", "ObjectType",
    "Op", "PMap", "ParseError", "PipelineError", "Program", "PurefxError", "Range", "Record", "Ref", "Rewrite",
    "Signature", "Slot", "SlotKind", "State", "StateGradient", "StateInput", "StateMutation", "Step", "SwapError", "TensorType",
    "Token", "Transformation", "UnsupportedProgram", "UserInput", "UserOutput", "Violation", "alpha_equal", "bisect",
    "deduplicate", "diff", "digest", "dispatch", "expand", "functionalize", "import_ep", "inline", "inplace_mutations",
    "insert_ivals", "lift_state", "lower", "outline", "parse", "pmap", "remove_effect_tokens", "sink_state", "swap_modules",
    "transform", "transformation", "unflatten", "verify",
]  # fmt: skip
