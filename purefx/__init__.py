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
    Effects,
    Frame,
    Get,
    Graph,
    Input,
    InputError,
    InputMutation,
    InputValueError,
    InvalidProgram,
    Items,
    LiteralType,
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
    StateInput,
    StateMutation,
    Step,
    TensorType,
    Token,
    UnsupportedProgram,
    UserInput,
    UserOutput,
    pmap,
)
from purefx.ir.digest import alpha_equal, digest
from purefx.ir.importing import import_ep
from purefx.ir.text import parse
from purefx.ir.verify import Violation, verify
from purefx.lowering import lower
from purefx.transforms import (
    DEFAULT,
    Transformation,
    deduplicate,
    expand,
    functionalize,
    inline,
    inplace_mutations,
    lift_state,
    outline,
    remove_effect_tokens,
    sink_state,
    transform,
    transformation,
)

__all__ = [
    "DEFAULT", "Arg", "Body", "Call", "CallSignature", "Constraints", "Effects", "Frame", "Get", "Graph", "Input",
    "InputError", "InputMutation", "InputValueError", "InvalidProgram", "Items", "LiteralType", "Module", "Node",
    "NumberType", "ObjectType", "Op", "PMap", "ParseError", "PipelineError", "Program", "PurefxError", "Range", "Record",
    "Ref", "Signature", "Slot", "SlotKind", "State", "StateInput", "StateMutation", "Step", "TensorType", "Token",
    "Transformation", "UnsupportedProgram", "UserInput", "UserOutput", "Violation", "alpha_equal", "deduplicate",
    "digest", "expand", "functionalize", "import_ep", "inline", "inplace_mutations", "lift_state", "lower", "outline",
    "parse", "pmap", "remove_effect_tokens", "sink_state", "transform", "transformation", "verify",
]  # fmt: skip
