"""PyTorch programs as immutable values: import them, rewrite them with pure functions, lower them back to torch.fx.

    import purefx as px
    module = px.lower(px.transform(px.import_ep(ep)))

Everything public is here; the packages behind it are ``purefx.ir``, ``purefx.transforms`` and ``purefx.lowering``.
"""

from __future__ import annotations

from purefx.capture import capture
from purefx.ir import (
    Arg,
    Body,
    Call,
    CallSignature,
    CaptureError,
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
    NamingError,
    Node,
    NumberType,
    ObjectType,
    Op,
    ParseError,
    PartitionError,
    PipelineError,
    PMap,
    Program,
    PurefxError,
    Range,
    Record,
    Ref,
    RestType,
    Signature,
    Slot,
    SlotKind,
    StageError,
    State,
    StateGradient,
    StateInput,
    StateMutation,
    Step,
    StoreError,
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
from purefx.ir.importing import import_ep, import_fx
from purefx.ir.parts import Part, Whereabouts, parts, where_went
from purefx.ir.store import load, save
from purefx.ir.text import mermaid, parse
from purefx.ir.verify import Violation, verify
from purefx.lowering import Stages, Tie, lower, lower_stages, pipeline_stage, sum_tied_gradients
from purefx.stats import ModuleStats, Stats, stats
from purefx.to_ep import to_ep
from purefx.transforms import (
    DEFAULT,
    Fuel,
    Rewrite,
    Transformation,
    add_runtime_assertions,
    bisect,
    collect_call_signatures,
    deduplicate,
    dispatch,
    expand,
    functionalize,
    infer,
    inline,
    inplace_mutations,
    insert_ivals,
    join,
    lift_state,
    move_non_tensor_nodes,
    normalize_stacks,
    outline,
    relay_skips,
    remove_effect_tokens,
    sink_state,
    split_balanced,
    split_by_module,
    split_by_tags,
    swap_modules,
    transform,
    transformation,
)
from purefx.unflatten import unflatten

__all__ = [
    "DEFAULT", "Arg", "Body", "Call", "CallSignature", "CaptureError", "Constraints", "Diff", "DiffError", "Effects",
    "Frame", "Fuel", "FuelError", "Get", "Graph", "Input", "InputError", "InputGradient", "InputMutation",
    "InputValueError", "InvalidProgram", "Items", "LiteralType", "LossOutput", "ModeWarning", "Module",
    "ModuleStats", "NamingError", "Node", "NumberType", "ObjectType", "Op", "PMap", "ParseError", "Part",
    "PartitionError",
    "PipelineError", "Program", "PurefxError", "Range", "Record", "Ref", "RestType", "Rewrite", "Signature", "Slot",
    "SlotKind", "StageError", "Stages", "State", "StateGradient", "StateInput", "StateMutation", "Stats", "Step",
    "StoreError", "SwapError", "TensorType", "Tie", "Token", "Transformation", "UnsupportedProgram", "UserInput",
    "UserOutput", "Violation", "Whereabouts", "add_runtime_assertions", "alpha_equal", "bisect", "capture",
    "collect_call_signatures", "deduplicate", "diff", "digest",
    "dispatch", "expand", "functionalize", "import_ep", "import_fx", "infer", "inline", "inplace_mutations",
    "insert_ivals",
    "join", "lift_state", "load", "lower", "lower_stages", "mermaid", "move_non_tensor_nodes", "normalize_stacks",
    "outline", "parse",
    "parts", "pipeline_stage", "pmap", "relay_skips", "remove_effect_tokens", "save", "sink_state", "split_balanced",
    "split_by_module", "split_by_tags", "stats", "sum_tied_gradients", "swap_modules", "to_ep", "transform",
    "transformation", "unflatten", "verify", "where_went",
]  # fmt: skip
