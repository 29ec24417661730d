"""Passes of ``torch._inductor``, as ``make audit`` asks them."""

from __future__ import annotations

from typing import Any

import torch

from .looked_for import (
    ADDED,
    ASSERTED,
    CONSTANTS,
    CONVERTED,
    CUT,
    FOLDED,
    FROM_STATE,
    MULTIPLIED,
    NEGATED,
    REINTERPRETED,
    SAME,
    SCATTERED,
    SEPARATE,
    SIDE_BY_SIDE,
)
from .published import CHECKED, FROZEN, FUNCTIONAL, GRAPH, INFERENCE, STATIC, GraphModule, fakes_of, in_inductor, published


@published(
    "torch._inductor.fx_passes.post_grad.remove_noop_ops", INFERENCE, "called by inductor on functional graphs", looks_for=SAME
)
@in_inductor
def remove_noop_ops(module: GraphModule) -> None:
    from torch._inductor.fx_passes.post_grad import remove_noop_ops as run

    run(module.graph)


@published(
    "torch._inductor.fx_passes.post_grad.remove_assert_ops",
    CHECKED,
    "called by inductor on functional graphs",
    looks_for=ASSERTED,
)
def remove_assert_ops(module: GraphModule) -> None:
    from torch._inductor.fx_passes.post_grad import remove_assert_ops as run

    run(module.graph)


@published(
    "torch._inductor.fx_passes.post_grad.reorder_for_locality",
    FUNCTIONAL,
    "called by inductor on functional graphs",
    looks_for=SIDE_BY_SIDE,
)
@in_inductor
def reorder_for_locality(module: GraphModule) -> None:
    from torch._inductor.fx_passes.post_grad import reorder_for_locality as run

    run(module.graph)


@published(
    "torch._inductor.fx_passes.post_grad.view_to_reshape",
    FUNCTIONAL,
    "called by inductor on functional graphs",
    looks_for=SEPARATE,
)
@in_inductor
def view_to_reshape(module: GraphModule) -> None:
    from torch._inductor.fx_passes.post_grad import view_to_reshape as run

    run(module)


@published(
    "torch._inductor.fx_passes.joint_graph.remove_no_ops",
    INFERENCE,
    "called by inductor on functional graphs",
    looks_for=CONSTANTS,
)
@in_inductor
def remove_no_ops(module: GraphModule) -> None:
    from torch._inductor.fx_passes.joint_graph import constant_fold_uniform_value

    constant_fold_uniform_value(module)


@published(
    "torch._inductor.fx_passes.joint_graph.remove_redundant_views",
    FUNCTIONAL,
    "called by inductor on functional graphs",
    looks_for=REINTERPRETED,
)
@in_inductor
def remove_redundant_views(module: GraphModule) -> None:
    from torch._inductor.fx_passes.joint_graph import remove_redundant_views as run

    run(module)


@published(
    "torch._inductor.fx_passes.joint_graph.joint_graph_passes",
    FUNCTIONAL,
    "called by inductor on joint graphs",
    looks_for=(*CONVERTED, *CONSTANTS, *REINTERPRETED),
)
@in_inductor
def joint_graph_passes(module: GraphModule) -> GraphModule:
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes as run

    return run(module)


@published(
    "torch._inductor.fx_passes.post_grad.post_grad_passes",
    INFERENCE,
    "called by inductor on functional graphs",
    looks_for=(*MULTIPLIED, *CUT, *SAME),
)
@in_inductor
def post_grad_passes(module: GraphModule) -> None:
    from torch._inductor.fx_passes.post_grad import post_grad_passes as run

    run(module, is_inference=True)


@published(
    "torch._inductor.fx_passes.reinplace.reinplace_inplaceable_ops",
    FUNCTIONAL,
    "called by inductor on functional graphs",
    looks_for=SCATTERED,
)
@in_inductor
def reinplace_inplaceable_ops(module: GraphModule) -> None:
    from torch._inductor.fx_passes.reinplace import reinplace_inplaceable_ops as run
    from torch._inductor.fx_utils import FakeTensorUpdater

    run(FakeTensorUpdater(module), module.graph)


@published(
    "torch._inductor.fx_passes.replace_random.replace_random_passes", FUNCTIONAL, "called by inductor on functional graphs"
)
@in_inductor
def replace_random_passes(module: GraphModule) -> None:
    from torch._inductor.fx_passes.replace_random import replace_random_passes as run

    run(module)


@published(
    "torch._inductor.fx_passes.group_batch_fusion.group_batch_fusion_passes",
    STATIC,
    "called by inductor, post_grad",
    looks_for=SIDE_BY_SIDE,
)
@in_inductor
def group_batch_fusion_passes(module: GraphModule) -> None:
    from torch._inductor import config
    from torch._inductor.fx_passes.group_batch_fusion import group_batch_fusion_passes as run

    names = ("batch_linear_post_grad", "batch_aten_tanh", "batch_aten_sigmoid", "batch_aten_relu")
    pairs = ("batch_aten_add", "batch_aten_mul", "batch_aten_sub")
    options = {name: {} for name in names} | {name: {"min_fuse_set_size": 2} for name in pairs}
    with config.patch(post_grad_fusion_options=options):
        run(module.graph, pre_grad=False)


@published(
    "torch._inductor.constant_folding.constant_fold",
    FROZEN,
    "called by inductor when it freezes: state is not written",
    looks_for=(*CONSTANTS, *FROM_STATE),
)
@in_inductor
def constant_fold(module: GraphModule) -> None:
    from torch._inductor.constant_folding import constant_fold as run

    run(module)


@published("torch._inductor.fx_passes.dedupe_symint_uses.dedupe_symints", FUNCTIONAL, "called by inductor on functional graphs")
@in_inductor
def dedupe_symints(module: GraphModule) -> None:
    from torch._inductor.fx_passes.dedupe_symint_uses import dedupe_symints as run

    run(module.graph)


@published("torch._inductor.fx_passes.post_grad.decompose_auto_functionalized", FUNCTIONAL, "called by inductor")
@in_inductor
def decompose_auto_functionalized(module: GraphModule) -> None:
    from torch._inductor.fx_passes.post_grad import decompose_auto_functionalized as run

    run(module.graph)


@published("torch._inductor.pattern_matcher.stable_topological_sort", GRAPH, "its documentation: any graph")
def inductor_sort(module: GraphModule) -> None:
    from torch._inductor.pattern_matcher import stable_topological_sort as run

    run(module.graph)


@published("torch._inductor.fx_passes.split_cat (of aten)", STATIC, "options of post_grad_passes", looks_for=CUT)
@in_inductor
def split_cat(module: GraphModule) -> None:
    from torch._inductor import config
    from torch._inductor.fx_passes.post_grad import post_grad_passes as run

    names = ("normalization", "unbind_stack", "split_cat", "select_cat", "move_view_after_cat")
    with config.patch(post_grad_fusion_options={f"{name}_aten_pass": {} for name in names}):
        run(module, is_inference=True)


@published(
    "torch._inductor.fx_passes.freezing_patterns.freezing_passes", FROZEN, "called when inductor freezes", looks_for=FOLDED
)
@in_inductor
def freezing_passes(module: GraphModule) -> None:
    from torch._inductor.fx_passes.freezing_patterns import freezing_passes as run

    run(module, fakes_of(module))


@published(
    "torch._inductor.pattern_matcher.PatternMatcherPass",
    GRAPH,
    "it does not match across mutations",
    looks_for=(*NEGATED, *ADDED),
)
@in_inductor
def pattern_matcher(module: GraphModule) -> None:
    from torch._inductor import pattern_matcher as matching

    aten: Any = torch.ops.aten
    patterns = matching.PatternMatcherPass()
    negated = matching.CallFunction(aten.neg, matching.CallFunction(aten.neg, matching.Arg()))
    added = matching.CallFunction(aten.add.Tensor, matching.Arg(), matching.Arg())

    @matching.register_graph_pattern(negated, pass_dict=patterns)
    def _(match: object, x: object) -> None:
        match.replace_by_example(  # type: ignore[attr-defined]
            lambda x: aten.clone.default(x), [x]
        )

    @matching.register_graph_pattern(added, pass_dict=patterns)
    def _(match: object, x: object, y: object) -> None:
        match.replace_by_example(  # type: ignore[attr-defined]
            lambda x, y: aten.sub.Tensor(x, aten.neg.default(y)), [x, y]
        )

    patterns.apply(module)
