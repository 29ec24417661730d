"""PyTorch programs as immutable values: import them, rewrite them with pure functions, lower them back to torch.fx.

    import purefx as px
    program = px.transform(px.capture(model, (x,)))    # a tree of modules
    print(program)                                     # program.text() is all of it
    module = px.lower(px.rules.fusions(program))       # runs as the model

import      capture import_ep import_fx
look        print(program) stats tree diff history became report mermaid verify
lower       lower to_ep to_fx unflatten to_script
pipeline    transform DEFAULT transformation Fuel bisect
hierarchy   outline inline deduplicate expand dispatch insert_ivals functionalize inplace_mutations sink_state lift_state
            remove_effect_tokens bodies_to_regions regions_to_bodies
clean up    lift_constants restore_names name_inputs infer normalize_stacks move_non_tensor_nodes
simplify    eliminate_dead_code eliminate_common_subexpressions fold_constants remove_noops
change      rule any_of through module swap_modules observe to_dtype to_device Program.with_state
fx passes   from_fx_pass as_fx_pass
split       split_by_module split_by_tags split_balanced relay_skips join parts split_provenance
            lower_stages pipeline_stage sum_tied_gradients
train       training_module px.training.capture_joint px.training.partition_joint
debug       first_difference minimize
save        save load parse digest alpha_equal
operators   op declare Effects PURE
packages    px.ir (all values of a program) px.rules (rule sets) px.training px.laws (oracles and laws for tests)
            px.errors (all errors)

help(px.lower) describes one of them.  Each is imported when it is first used.
"""

from __future__ import annotations

import sys as _sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # ``_front`` imports them when they are first used
    # isort: off
    from purefx import errors as errors, ir as ir, training as training
    from purefx._doors import capture as capture, to_ep as to_ep, unflatten as unflatten
    from purefx.ir import (
        PURE as PURE,
        Call as Call,
        Effects as Effects,
        Frame as Frame,
        Get as Get,
        Graph as Graph,
        Input as Input,
        Node as Node,
        Op as Op,
        Program as Program,
        PurefxError as PurefxError,
        Ref as Ref,
        declare as declare,
        op as op,
    )
    from purefx.ir.analysis.diff import diff as diff
    from purefx.ir.analysis.digest import alpha_equal as alpha_equal, digest as digest
    from purefx.ir.analysis.history import became as became, history as history
    from purefx.ir.calls.parts import parts as parts, split_provenance as split_provenance
    from purefx.ir.importing import import_ep as import_ep, import_fx as import_fx
    from purefx.ir.store import load as load, save as save
    from purefx.ir.text import mermaid as mermaid, parse as parse
    from purefx.ir.verify import verify as verify
    from purefx.laws.first_difference import first_difference as first_difference
    from purefx.lowering import (
        Stages as Stages,
        as_fx_pass as as_fx_pass,
        from_fx_pass as from_fx_pass,
        lower as lower,
        lower_stages as lower_stages,
        pipeline_stage as pipeline_stage,
        sum_tied_gradients as sum_tied_gradients,
        to_fx as to_fx,
        to_script as to_script,
    )
    from purefx.lowering.training import training_module as training_module
    from purefx.report import report as report
    from purefx.stats import stats as stats, tree as tree
    from purefx.transforms import (
        DEFAULT as DEFAULT,
        Fuel as Fuel,
        Match as Match,
        Rewrite as Rewrite,
        Rule as Rule,
        RuleSet as RuleSet,
        Transformation as Transformation,
        any_of as any_of,
        bisect as bisect,
        bodies_to_regions as bodies_to_regions,
        deduplicate as deduplicate,
        dispatch as dispatch,
        eliminate_common_subexpressions as eliminate_common_subexpressions,
        eliminate_dead_code as eliminate_dead_code,
        expand as expand,
        fold_constants as fold_constants,
        functionalize as functionalize,
        infer as infer,
        inline as inline,
        inplace_mutations as inplace_mutations,
        insert_ivals as insert_ivals,
        join as join,
        lift_constants as lift_constants,
        lift_state as lift_state,
        minimize as minimize,
        module as module,
        move_non_tensor_nodes as move_non_tensor_nodes,
        name_inputs as name_inputs,
        normalize_stacks as normalize_stacks,
        observe as observe,
        outline as outline,
        regions_to_bodies as regions_to_bodies,
        relay_skips as relay_skips,
        remove_effect_tokens as remove_effect_tokens,
        remove_noops as remove_noops,
        restore_names as restore_names,
        rule as rule,
        sink_state as sink_state,
        split_balanced as split_balanced,
        split_by_module as split_by_module,
        split_by_tags as split_by_tags,
        swap_modules as swap_modules,
        through as through,
        to_device as to_device,
        to_dtype as to_dtype,
        transform as transform,
        transformation as transformation,
    )

    # isort: on
    __version__: str

from purefx._front import Front as _Front

if not TYPE_CHECKING:
    __all__ = []  # so that ``help(px)`` is the text above; names are in ``_front.HOMES``

_sys.modules[__name__].__class__ = _Front

del TYPE_CHECKING, annotations
