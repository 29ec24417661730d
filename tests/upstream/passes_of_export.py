"""Passes of ``torch.export``, and two controls that change nothing, as ``make audit`` asks them."""

from __future__ import annotations

import copy
from typing import Any

from purefx.laws.fx_passes import Contract

from .looked_for import ASSERTED, CONSTANTS, CONVERTED, CUT, FROM_STATE
from .published import ANYTHING, FROZEN, FUNCTIONAL, GRAPH, GraphModule, published


@published(
    "torch._export.passes.replace_view_ops_with_view_copy_ops_pass.ReplaceViewOpsWithViewCopyOpsPass",
    FUNCTIONAL,
    "functional graphs",
    looks_for=(*CONVERTED, *CUT),
)
def view_copies(module: GraphModule) -> Any:
    from torch._export.passes.replace_view_ops_with_view_copy_ops_pass import ReplaceViewOpsWithViewCopyOpsPass

    return ReplaceViewOpsWithViewCopyOpsPass()(module)


@published(
    "torch._export.passes.constant_folding.constant_fold",
    FROZEN,
    "its documentation: exported graphs",
    looks_for=(*CONSTANTS, *FROM_STATE),
)
def export_constant_fold(module: GraphModule) -> None:
    from torch._export.passes.constant_folding import constant_fold as run

    run(module)


@published(
    "torch._export.passes.remove_runtime_assertions._RemoveRuntimeAssertionsPass",
    GRAPH.without("assertions"),
    "its documentation: exported graphs",
    looks_for=ASSERTED,
)
def remove_runtime_assertions(module: GraphModule) -> Any:
    from torch._export.passes.remove_runtime_assertions import _RemoveRuntimeAssertionsPass

    return _RemoveRuntimeAssertionsPass()(module)


@published(
    "torch.export.ExportedProgram.run_decompositions", GRAPH, "its documentation: any exported program", over="exported_program"
)
def run_decompositions(ep: Any) -> Any:
    return ep.run_decompositions({})


CORE = Contract(rtol=1e-4, atol=1e-4, aliasing=False)


@published("torch.export.ExportedProgram.run_decompositions (core)", CORE, "its documentation: any", over="exported_program")
def core_aten(ep: Any) -> Any:
    return ep.run_decompositions()


@published(
    "torch.export.passes.move_to_device_pass", ANYTHING, "its documentation: any exported program", over="exported_program"
)
def move_to_device_pass(ep: Any) -> Any:
    from torch.export.passes import move_to_device_pass as run

    return run(ep, "cpu")


@published("torch.export.ExportedProgram (the same)", ANYTHING, "the control", over="exported_program")
def same_export(ep: Any) -> Any:
    return ep


@published("torch.fx.GraphModule (made anew)", Contract(), "the control")
def made_anew(module: GraphModule) -> GraphModule:
    return GraphModule(module, copy.deepcopy(module.graph))
