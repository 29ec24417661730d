"""PyTorch programs as immutable values: import them, rewrite them with pure functions, lower them back to torch.fx.

    import purefx as px
    module = px.lower(px.transform(px.import_ep(ep)))

The verbs are here, with the types that people write.  ``px.ir`` has all values of a program, ``px.errors`` what is raised
and warned of, ``px.rules`` the rule sets that come with the library, ``px.laws`` oracles and laws for tests; behind them are
``purefx.transforms`` and ``purefx.lowering``.  Each name is imported when it is asked for.
"""

from __future__ import annotations

import sys as _sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # ``_front`` has them when they are asked for
    from purefx import errors as errors
    from purefx import ir as ir
    from purefx import training as training
    from purefx._doors import capture, to_ep, unflatten
    from purefx.ir import (
        PURE,
        Call,
        Effects,
        Frame,
        Get,
        Graph,
        Input,
        Node,
        Op,
        Program,
        PurefxError,
        Ref,
        declare,
        op,
    )
    from purefx.ir.analysis.diff import diff
    from purefx.ir.analysis.digest import alpha_equal, digest
    from purefx.ir.analysis.history import became, history
    from purefx.ir.calls.parts import parts, where_went
    from purefx.ir.importing import import_ep, import_fx
    from purefx.ir.store import load, save
    from purefx.ir.text import mermaid, parse
    from purefx.ir.verify import verify
    from purefx.laws.first_difference import first_difference
    from purefx.lowering import (
        Stages,
        as_fx_pass,
        from_fx_pass,
        lower,
        lower_stages,
        pipeline_stage,
        sum_tied_gradients,
        to_fx,
        to_script,
    )
    from purefx.lowering.training import training_module
    from purefx.report import report
    from purefx.stats import stats
    from purefx.transforms import (
        DEFAULT,
        Fuel,
        Match,
        Rewrite,
        Rule,
        RuleSet,
        Transformation,
        add_runtime_assertions,
        any_of,
        bisect,
        bodies_to_regions,
        canonicalize,
        collect_call_signatures,
        deduplicate,
        dispatch,
        eliminate_common_subexpressions,
        eliminate_dead_code,
        expand,
        fold_constants,
        functionalize,
        infer,
        inline,
        inplace_mutations,
        insert_ivals,
        join,
        lift_constants,
        lift_state,
        mark_non_persistent,
        minimize,
        module,
        move_non_tensor_nodes,
        name_inputs,
        normalize_stacks,
        observe,
        outline,
        regions_to_bodies,
        relay_skips,
        remove_effect_tokens,
        remove_noops,
        restore_names,
        rule,
        sink_state,
        split_balanced,
        split_by_module,
        split_by_tags,
        swap_modules,
        through,
        to_device,
        to_dtype,
        transform,
        transformation,
    )

from purefx._front import Front as _Front

__all__ = [
    "DEFAULT",
    "PURE",
    "Call",
    "Effects",
    "Frame",
    "Fuel",
    "Get",
    "Graph",
    "Input",
    "Match",
    "Node",
    "Op",
    "Program",
    "PurefxError",
    "Ref",
    "Rewrite",
    "Rule",
    "RuleSet",
    "Stages",
    "Transformation",
    "add_runtime_assertions",
    "alpha_equal",
    "any_of",
    "as_fx_pass",
    "became",
    "bisect",
    "bodies_to_regions",
    "canonicalize",
    "capture",
    "collect_call_signatures",
    "declare",
    "deduplicate",
    "diff",
    "digest",
    "dispatch",
    "eliminate_common_subexpressions",
    "eliminate_dead_code",
    "expand",
    "first_difference",
    "fold_constants",
    "from_fx_pass",
    "functionalize",
    "history",
    "import_ep",
    "import_fx",
    "infer",
    "inline",
    "inplace_mutations",
    "insert_ivals",
    "join",
    "lift_constants",
    "lift_state",
    "load",
    "lower",
    "lower_stages",
    "mark_non_persistent",
    "mermaid",
    "minimize",
    "module",
    "move_non_tensor_nodes",
    "name_inputs",
    "normalize_stacks",
    "observe",
    "op",
    "outline",
    "parse",
    "parts",
    "pipeline_stage",
    "regions_to_bodies",
    "relay_skips",
    "remove_effect_tokens",
    "remove_noops",
    "report",
    "restore_names",
    "rule",
    "save",
    "sink_state",
    "split_balanced",
    "split_by_module",
    "split_by_tags",
    "stats",
    "sum_tied_gradients",
    "swap_modules",
    "through",
    "to_device",
    "to_dtype",
    "to_ep",
    "to_fx",
    "to_script",
    "training_module",
    "transform",
    "transformation",
    "unflatten",
    "verify",
    "where_went",
]  # fmt: skip

_sys.modules[__name__].__class__ = _Front

del TYPE_CHECKING, annotations
