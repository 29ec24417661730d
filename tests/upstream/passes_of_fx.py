"""Passes of ``torch.fx``, as ``make audit`` asks them."""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from .looked_for import ADDED, ASSERTED, CONSTANTS, FROM_STATE, MULTIPLIED, NEGATED, SCATTERED, TWICE
from .published import ANY, AOT, FUNCTIONAL, GRAPH, INFERENCE, STATIC, GraphModule, fakes_of, mode_of, published


@published(
    "torch.fx.Graph.eliminate_dead_code",
    GRAPH,
    "its documentation asks that the graph is functional or impure nodes are known",
    looks_for=ASSERTED,
)
def eliminate_dead_code(module: GraphModule) -> None:
    module.graph.eliminate_dead_code()


@published("torch.fx.Transformer.transform", GRAPH, ANY)
def transformer(module: GraphModule) -> GraphModule:
    return torch.fx.Transformer(module).transform()


@published("torch.fx.passes.tools_common.legalize_graph", GRAPH, "its documentation: any graph whose nodes are out of order")
def legalize_graph(module: GraphModule) -> GraphModule:
    from torch.fx.passes.tools_common import legalize_graph as run

    return run(module)


@published("torch.fx.passes.tools_common.stable_topological_sort", GRAPH, "its documentation: any graph")
def stable_topological_sort(module: GraphModule) -> GraphModule:
    from torch.fx.passes.tools_common import stable_topological_sort as run

    return run(module)


@published(
    "torch.fx.passes.dialect.common.cse_pass.CSEPass",
    GRAPH,
    "its documentation: ATen graphs; it knows random operators",
    looks_for=TWICE,
)
def cse_pass(module: GraphModule) -> Any:
    from torch.fx.passes.dialect.common.cse_pass import CSEPass

    return CSEPass()(module)


@published("torch._functorch.compile_utils.fx_graph_cse", FUNCTIONAL, AOT, looks_for=TWICE)
def fx_graph_cse(module: GraphModule) -> GraphModule:
    from torch._functorch.compile_utils import fx_graph_cse as run

    return GraphModule(module, run(module.graph))


@published("torch.fx.passes.split_module.split_module", GRAPH, "its documentation: any graph, any callback")
def split_module(module: GraphModule) -> GraphModule:
    from torch.fx.passes.split_module import split_module as run

    names = [node.name for node in module.graph.nodes]
    return run(module, module, lambda node: names.index(node.name) * 3 // len(names))


def partitioned(module: GraphModule, contains: Callable[[torch.fx.Node], bool]) -> GraphModule:
    """Return a module in which the partitioner has fused what a backend supports."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    class Support(OperatorSupportBase):
        def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
            return node.op == "call_function" and contains(node)

    return CapabilityBasedPartitioner(module, Support(), allows_single_node_partition=True).partition_and_fuse()


@published(
    "torch.fx.passes.infra.partitioner.CapabilityBasedPartitioner", GRAPH, "its documentation: any graph module", looks_for=ADDED
)
def partitioner(module: GraphModule) -> GraphModule:
    supported = ("add", "mul", "neg", "relu", "sin", "sub", "select", "slice", "view")
    return partitioned(module, lambda node: str(node.target).split(".")[1:2] and str(node.target).split(".")[1] in supported)


@published(
    "torch.fx.experimental.const_fold.split_const_subgraphs",
    GRAPH,
    "its documentation: any module",
    looks_for=(*CONSTANTS, *FROM_STATE),
)
def split_const_subgraphs(module: GraphModule) -> GraphModule:
    from torch.fx.experimental.const_fold import split_const_subgraphs as run

    folded = run(module)
    folded.run_folding()
    return folded


@published("torch.fx.passes.split_utils.split_by_tags", GRAPH, "its documentation: every node has a tag, in order")
def split_by_tags(module: GraphModule) -> GraphModule:
    from torch.fx.passes.split_utils import split_by_tags as run

    nodes = [node for node in module.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    for number, node in enumerate(nodes):
        node.tag = f"part_{number * 3 // len(nodes)}"
    split: Any = run(module, ["part_0", "part_1", "part_2"]) if len(nodes) > 2 else module
    return split


@published("torch.fx.passes.annotate_getitem_nodes.annotate_getitem_nodes", GRAPH, "its documentation: any graph", over="graph")
def annotate_getitem_nodes(graph: torch.fx.Graph) -> None:
    from torch.fx.passes.annotate_getitem_nodes import annotate_getitem_nodes as run

    run(graph)


@published("torch.fx.passes.reinplace.reinplace", FUNCTIONAL, "its documentation: functional graphs", looks_for=SCATTERED)
def reinplace(module: GraphModule) -> GraphModule:
    from torch.fx.passes.reinplace import reinplace as run

    return run(module, *fakes_of(module))


@published("torch.fx.subgraph_rewriter.replace_pattern", GRAPH, "its documentation: any graph", looks_for=(*NEGATED, *ADDED))
def replace_pattern(module: GraphModule) -> None:
    from torch.fx.subgraph_rewriter import replace_pattern as run

    aten: Any = torch.ops.aten
    run(module, lambda x: aten.neg.default(aten.neg.default(x)), lambda x: aten.clone.default(x))
    run(module, lambda x, y: aten.add.Tensor(x, y), lambda x, y: aten.add.Tensor(y, x))


@published("torch.fx.experimental.normalize.NormalizeArgs", GRAPH, "its documentation: any module", looks_for=MULTIPLIED)
def normalize_args(module: GraphModule) -> GraphModule:
    from torch.fx.experimental.normalize import NormalizeArgs

    return NormalizeArgs(module).transform()


@published("torch.fx.passes.runtime_assert.insert_deferred_runtime_asserts", GRAPH, "called on every exported graph")
def insert_deferred_runtime_asserts(module: GraphModule) -> None:
    from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts as run

    shape_env = mode_of(module).shape_env
    if shape_env is not None:
        run(module, shape_env, "audit", export=True)


@published(
    "torch.fx.symbolic_trace", GRAPH, "its documentation: any module; used to make graph modules anew", looks_for=SCATTERED
)
def symbolic_trace(module: GraphModule) -> GraphModule:
    return torch.fx.symbolic_trace(module)


@published("torch.fx.experimental.normalize.NormalizeOperators", GRAPH, "its documentation: any module", looks_for=ADDED)
def normalize_operators(module: GraphModule) -> GraphModule:
    from torch.fx.experimental.normalize import NormalizeOperators

    return NormalizeOperators(module).transform()


@published(
    "torch.fx.experimental.proxy_tensor.make_fx",
    STATIC,
    "its documentation: traces what runs on the given inputs",
    looks_for=(*SCATTERED, *TWICE),
)
def make_fx(module: GraphModule) -> GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx as run

    leaves = [torch.ones(fake.shape, dtype=fake.dtype) if isinstance(fake, torch.Tensor) else fake for fake in fakes_of(module)]
    return run(module, tracing_mode="real")(*leaves)


@published("torch.fx.passes.split_module.split_module (original order)", GRAPH, "its documentation: any graph, any callback")
def split_in_order(module: GraphModule) -> GraphModule:
    from torch.fx.passes.split_module import split_module as run

    names = [node.name for node in module.graph.nodes]
    return run(module, module, lambda node: names.index(node.name) % 2, keep_original_order=True)


@published("torch.fx.GraphModule (pickled and loaded)", GRAPH, "its documentation: graph modules can be pickled")
def pickled(module: GraphModule) -> GraphModule:
    return pickle.loads(pickle.dumps(module))


@published("torch.fx.passes.splitter_base._SplitterBase", INFERENCE, "used for inference on accelerators", looks_for=ADDED)
def splitter(module: GraphModule) -> GraphModule:
    from torch.fx.passes.operator_support import OperatorSupportBase
    from torch.fx.passes.splitter_base import _SplitterBase, _SplitterSettingBase

    class Support(OperatorSupportBase):
        def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
            return node.op == "call_function" and str(node.target).split(".")[1:2] in (
                ["add"],
                ["mul"],
                ["neg"],
                ["sin"],
                ["relu"],
            )

    fakes = fakes_of(module)
    leaves = [torch.ones(fake.shape, dtype=fake.dtype) if isinstance(fake, torch.Tensor) else fake for fake in fakes]
    settings = _SplitterSettingBase(min_acc_module_size=1)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints how many parts there are
        return _SplitterBase(module, leaves, Support(), settings)()


@published("torch._functorch.compile_utils.strip_overloads", FUNCTIONAL, AOT, looks_for=(*SCATTERED, *TWICE))
def strip_overloads(module: GraphModule) -> None:
    from torch._functorch.compile_utils import strip_overloads as run

    run(module)
