"""``PASSES``: the published passes of the installed torch that ``make audit`` asks, with what each may assume and looks for."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from attrs import evolve, frozen

from purefx.laws import fx_passes
from purefx.laws.fx_passes import Contract
from purefx.lowering.fx import Over

from . import looked_for as seeds

GraphModule = torch.fx.GraphModule

CLOSE = 1e-5
"""Zeros of two signs, and sums in another order, are no mistake here."""

ANYTHING, FUNCTIONAL, INFERENCE = (
    evolve(contract, rtol=CLOSE, atol=CLOSE)
    for contract in (fx_passes.ANYTHING, fx_passes.FUNCTIONAL, fx_passes.INFERENCE)
)

GRAPH = ANYTHING.without("aliasing")
"""Any graph, but callers do not write to what is returned."""

CHECKED = evolve(FUNCTIONAL, effects=True).without("assertions")
"""Functional graphs that assert and print, for a pass whose work is that nothing is asserted any more."""

STATIC = evolve(INFERENCE, dynamic=False)

FROZEN = evolve(STATIC, writes="nowhere", state="read")

CORE = Contract(rtol=1e-4, atol=1e-4, aliasing=False)


def fakes_of(module: GraphModule) -> list[Any]:
    """Return the fake values of the placeholders."""
    return [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]


def mode_of(module: GraphModule) -> Any:
    """Return the fake mode of a module, or a new one."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    values = [node.meta.get("val") for node in module.graph.nodes]
    return next(
        (value.fake_mode for value in values if isinstance(value, FakeTensor)), FakeTensorMode()
    )


def examples_of(module: GraphModule) -> list[Any]:
    """Return a tensor of ones for each placeholder that is a tensor."""
    fakes = fakes_of(module)
    return [
        torch.ones(fake.shape, dtype=fake.dtype) if isinstance(fake, torch.Tensor) else fake
        for fake in fakes
    ]


HELPERS: tuple[Callable[..., Any], ...] = (fakes_of, mode_of, examples_of)


def describes(source: str) -> bool:
    """Say whether a pass reads the fake values of its graph."""
    return any(helper.__name__ in source for helper in HELPERS)


@frozen
class Published:
    """A pass of torch."""

    where: str
    """Module and name, as it is imported; where there is more than one of it, which, in parentheses."""
    contract: Contract
    why: str
    """Where the contract comes from."""
    body: str
    """What is done to ``module``, or ``graph`` or ``ep``; what ``where`` names is ``run`` there."""
    looks_for: Sequence[Any] = ()
    """What programs are drawn around: pairs of a function and example arguments."""
    over: Over = "graph_module"

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.where.rpartition(".")[2]

    @property
    def source(self) -> str:
        """The text of a function ``the_pass``, with what it needs of this file."""
        given = {"graph_module": "module", "graph": "graph", "exported_program": "ep"}[self.over]
        body = textwrap.dedent(self.body).strip()
        if re.search(r"\brun\b", body) and "import" not in body:
            module, _, name = self.where.partition(" ")[0].rpartition(".")
            body = f"from {module} import {name} as run\n\n{body}"
        if self.where.startswith(
            "torch._inductor"
        ):  # its passes run with the fake mode of the graph
            body = textwrap.indent(body, "    ")
            body = f"from torch._inductor.virtualized import V\n\nwith V.set_fake_mode(mode_of(module)):\n{body}"
        function = f"def the_pass({given}):\n{textwrap.indent(body, '    ')}\n"
        needed = [helper for helper in HELPERS if helper.__name__ in body]
        if examples_of in needed:
            needed = [fakes_of, *needed]
        return "\n\n".join([*map(inspect.getsource, dict.fromkeys(needed)), function])

    @property
    def run(self) -> Callable[[Any], Any]:
        """What calls the pass."""
        found: dict[str, Any] = {"torch": torch, "GraphModule": GraphModule, "Any": Any}
        exec(f"from __future__ import annotations\n\n{self.source}", found)
        found["the_pass"].__name__ = found["the_pass"].__qualname__ = self.name
        return found["the_pass"]


ANY = "its documentation: any graph"
ANY_MODULE = "its documentation: any module"
ANY_EXPORT = "its documentation: any exported program"
EXPORTED = "its documentation: exported graphs"
AOT = "called on functional graphs of AOTAutograd"
CALLED = "called by inductor on functional graphs"
FREEZES = "called by inductor when it freezes: state is not written"

TAGS = """
nodes = [node for node in module.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
for number, node in enumerate(nodes):
    node.tag = f"part_{number * 3 // len(nodes)}"
return run(module, ["part_0", "part_1", "part_2"]) if len(nodes) > 2 else module
"""

PARTITIONER = """
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner as run
from torch.fx.passes.operator_support import OperatorSupportBase

class Support(OperatorSupportBase):
    def is_node_supported(self, submodules, node):
        supported = ("add", "mul", "neg", "relu", "sin", "sub", "select", "slice", "view")
        return node.op == "call_function" and str(node.target).split(".")[1:2] and str(node.target).split(".")[1] in supported

return run(module, Support(), allows_single_node_partition=True).partition_and_fuse()
"""

SPLITTER = """
import contextlib, io
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.splitter_base import _SplitterBase as run, _SplitterSettingBase

class Support(OperatorSupportBase):
    def is_node_supported(self, submodules, node):
        supported = (["add"], ["mul"], ["neg"], ["sin"], ["relu"])
        return node.op == "call_function" and str(node.target).split(".")[1:2] in supported

with contextlib.redirect_stdout(io.StringIO()):  # it prints how many parts there are
    return run(module, examples_of(module), Support(), _SplitterSettingBase(min_acc_module_size=1))()
"""

REPLACED = """
aten = torch.ops.aten
run(module, lambda x: aten.neg.default(aten.neg.default(x)), lambda x: aten.clone.default(x))
run(module, lambda x, y: aten.add.Tensor(x, y), lambda x, y: aten.add.Tensor(y, x))
"""

DEFERRED = """
shape_env = mode_of(module).shape_env
if shape_env is not None:
    run(module, shape_env, "audit", export=True)
"""

SPLIT = """
names = [node.name for node in module.graph.nodes]
return run(module, module, lambda node: {part})
"""

REINPLACED = """
from torch._inductor.fx_passes.reinplace import reinplace_inplaceable_ops as run
from torch._inductor.fx_utils import FakeTensorUpdater

run(FakeTensorUpdater(module), module.graph)
"""

GROUPED = """
from torch._inductor import config
from torch._inductor.fx_passes.group_batch_fusion import group_batch_fusion_passes as run

names = ("batch_linear_post_grad", "batch_aten_tanh", "batch_aten_sigmoid", "batch_aten_relu")
pairs = ("batch_aten_add", "batch_aten_mul", "batch_aten_sub")
options = {name: {} for name in names} | {name: {"min_fuse_set_size": 2} for name in pairs}
with config.patch(post_grad_fusion_options=options):
    run(module.graph, pre_grad=False)
"""

SPLIT_CAT = """
from torch._inductor import config
from torch._inductor.fx_passes.post_grad import post_grad_passes as run

names = ("normalization", "unbind_stack", "split_cat", "select_cat", "move_view_after_cat")
with config.patch(post_grad_fusion_options={f"{name}_aten_pass": {} for name in names}):
    run(module, is_inference=True)
"""

MATCHED = """
from torch._inductor import pattern_matcher as matching

aten = torch.ops.aten
patterns = matching.PatternMatcherPass()
negated = matching.CallFunction(aten.neg, matching.CallFunction(aten.neg, matching.Arg()))
added = matching.CallFunction(aten.add.Tensor, matching.Arg(), matching.Arg())

@matching.register_graph_pattern(negated, pass_dict=patterns)
def _(match, x):
    match.replace_by_example(lambda x: aten.clone.default(x), [x])

@matching.register_graph_pattern(added, pass_dict=patterns)
def _(match, x, y):
    match.replace_by_example(lambda x, y: aten.sub.Tensor(x, aten.neg.default(y)), [x, y])

patterns.apply(module)
"""

FX = (
    Published(
        "torch.fx.Graph.eliminate_dead_code", GRAPH,
        "its documentation asks that the graph is functional or impure nodes are known",
        "module.graph.eliminate_dead_code()", seeds.ASSERTED,
    ),
    Published("torch.fx.Transformer.transform", GRAPH, ANY, "return torch.fx.Transformer(module).transform()"),
    Published(
        "torch.fx.passes.tools_common.legalize_graph", GRAPH, "its documentation: any graph whose nodes are out of order",
        "return run(module)",
    ),
    Published("torch.fx.passes.tools_common.stable_topological_sort", GRAPH, ANY, "return run(module)"),
    Published(
        "torch.fx.passes.dialect.common.cse_pass.CSEPass", GRAPH, "its documentation: ATen graphs; it knows random operators",
        "return run()(module)", seeds.TWICE,
    ),
    Published(
        "torch._functorch.compile_utils.fx_graph_cse", FUNCTIONAL, AOT, "return GraphModule(module, run(module.graph))",
        seeds.TWICE,
    ),
    Published(
        "torch.fx.passes.split_module.split_module", GRAPH, "its documentation: any graph, any callback",
        SPLIT.format(part="names.index(node.name) * 3 // len(names)"),
    ),
    Published("torch.fx.passes.infra.partitioner.CapabilityBasedPartitioner", GRAPH, ANY_MODULE, PARTITIONER, seeds.ADDED),
    Published(
        "torch.fx.experimental.const_fold.split_const_subgraphs", GRAPH, ANY_MODULE,
        "folded = run(module)\nfolded.run_folding()\nreturn folded", (*seeds.CONSTANTS, *seeds.FROM_STATE),
    ),
    Published("torch.fx.passes.split_utils.split_by_tags", GRAPH, "its documentation: every node has a tag, in order", TAGS),
    Published("torch.fx.passes.annotate_getitem_nodes.annotate_getitem_nodes", GRAPH, ANY, "run(graph)", over="graph"),
    Published(
        "torch.fx.passes.reinplace.reinplace", FUNCTIONAL, "its documentation: functional graphs",
        "return run(module, *fakes_of(module))", seeds.SCATTERED,
    ),
    Published("torch.fx.subgraph_rewriter.replace_pattern", GRAPH, ANY, REPLACED, (*seeds.NEGATED, *seeds.ADDED)),
    Published(
        "torch.fx.experimental.normalize.NormalizeArgs", GRAPH, ANY_MODULE, "return run(module).transform()", seeds.MULTIPLIED
    ),
    Published(
        "torch.fx.passes.runtime_assert.insert_deferred_runtime_asserts", GRAPH, "called on every exported graph", DEFERRED
    ),
    Published("torch.fx.symbolic_trace", GRAPH, ANY_MODULE, "return run(module)", seeds.SCATTERED),
    Published(
        "torch.fx.experimental.normalize.NormalizeOperators", GRAPH, ANY_MODULE, "return run(module).transform()", seeds.ADDED
    ),
    Published(
        "torch.fx.experimental.proxy_tensor.make_fx", STATIC, "its documentation: traces what runs on the given inputs",
        "return run(module, tracing_mode='real')(*examples_of(module))", (*seeds.SCATTERED, *seeds.TWICE),
    ),
    Published(
        "torch.fx.passes.split_module.split_module (original order)", GRAPH, "its documentation: any graph, any callback",
        SPLIT.format(part="names.index(node.name) % 2, keep_original_order=True"),
    ),
    Published(
        "torch.fx.GraphModule (pickled and loaded)", GRAPH, "its documentation: graph modules can be pickled",
        "import pickle\n\nreturn pickle.loads(pickle.dumps(module))",
    ),
    Published(
        "torch.fx.passes.splitter_base._SplitterBase", INFERENCE, "used for inference on accelerators", SPLITTER, seeds.ADDED
    ),
    Published(
        "torch._functorch.compile_utils.strip_overloads", FUNCTIONAL, AOT, "run(module)", (*seeds.SCATTERED, *seeds.TWICE)
    ),
)  # fmt: skip

POST_GRAD, JOINT = "torch._inductor.fx_passes.post_grad", "torch._inductor.fx_passes.joint_graph"

INDUCTOR = (
    Published(f"{POST_GRAD}.remove_noop_ops", INFERENCE, CALLED, "run(module.graph)", seeds.SAME),
    Published(f"{POST_GRAD}.remove_assert_ops", CHECKED, CALLED, "run(module.graph)", seeds.ASSERTED),
    Published(f"{POST_GRAD}.reorder_for_locality", FUNCTIONAL, CALLED, "run(module.graph)", seeds.SIDE_BY_SIDE),
    Published(f"{POST_GRAD}.view_to_reshape", FUNCTIONAL, CALLED, "run(module)", seeds.SEPARATE),
    Published(
        f"{JOINT}.remove_no_ops", INFERENCE, CALLED,
        f"from {JOINT} import constant_fold_uniform_value as run\n\nrun(module)", seeds.CONSTANTS,
    ),
    Published(f"{JOINT}.remove_redundant_views", FUNCTIONAL, CALLED, "run(module)", seeds.REINTERPRETED),
    Published(
        f"{JOINT}.joint_graph_passes", FUNCTIONAL, "called by inductor on joint graphs", "return run(module)",
        (*seeds.CONVERTED, *seeds.CONSTANTS, *seeds.REINTERPRETED),
    ),
    Published(
        f"{POST_GRAD}.post_grad_passes", INFERENCE, CALLED, "run(module, is_inference=True)",
        (*seeds.MULTIPLIED, *seeds.CUT, *seeds.SAME),
    ),
    Published(
        "torch._inductor.fx_passes.reinplace.reinplace_inplaceable_ops", FUNCTIONAL, CALLED, REINPLACED, seeds.SCATTERED
    ),
    Published("torch._inductor.fx_passes.replace_random.replace_random_passes", FUNCTIONAL, CALLED, "run(module)"),
    Published(
        "torch._inductor.fx_passes.group_batch_fusion.group_batch_fusion_passes", STATIC, "called by inductor, post_grad",
        GROUPED, seeds.SIDE_BY_SIDE,
    ),
    Published(
        "torch._inductor.constant_folding.constant_fold", FROZEN, FREEZES, "run(module)", (*seeds.CONSTANTS, *seeds.FROM_STATE)
    ),
    Published("torch._inductor.fx_passes.dedupe_symint_uses.dedupe_symints", FUNCTIONAL, CALLED, "run(module.graph)"),
    Published(f"{POST_GRAD}.decompose_auto_functionalized", FUNCTIONAL, CALLED, "run(module.graph)"),
    Published("torch._inductor.pattern_matcher.stable_topological_sort", GRAPH, ANY, "run(module.graph)"),
    Published(
        "torch._inductor.fx_passes.split_cat (of aten)", STATIC, "options of post_grad_passes", SPLIT_CAT, seeds.CUT
    ),
    Published(
        "torch._inductor.fx_passes.freezing_patterns.freezing_passes", FROZEN, FREEZES, "run(module, fakes_of(module))",
        seeds.FOLDED,
    ),
    Published(
        "torch._inductor.pattern_matcher.PatternMatcherPass", GRAPH, "it does not match across mutations", MATCHED,
        (*seeds.NEGATED, *seeds.ADDED),
    ),
)  # fmt: skip

VIEWS = "torch._export.passes.replace_view_ops_with_view_copy_ops_pass.ReplaceViewOpsWithViewCopyOpsPass"

EXPORT = (
    Published(VIEWS, FUNCTIONAL, "functional graphs", "return run()(module)", (*seeds.CONVERTED, *seeds.CUT)),
    Published(
        "torch._export.passes.constant_folding.constant_fold", FROZEN, EXPORTED, "run(module)",
        (*seeds.CONSTANTS, *seeds.FROM_STATE),
    ),
    Published(
        "torch._export.passes.remove_runtime_assertions._RemoveRuntimeAssertionsPass", GRAPH.without("assertions"), EXPORTED,
        "return run()(module)", seeds.ASSERTED,
    ),
    Published(
        "torch.export.ExportedProgram.run_decompositions", GRAPH, ANY_EXPORT, "return ep.run_decompositions({})",
        over="exported_program",
    ),
    Published(
        "torch.export.ExportedProgram.run_decompositions (core)", CORE, ANY_EXPORT, "return ep.run_decompositions()",
        over="exported_program",
    ),
    Published("torch.export.passes.move_to_device_pass", ANYTHING, ANY_EXPORT, "return run(ep, 'cpu')", over="exported_program"),
    Published("torch.export.ExportedProgram (the same)", ANYTHING, "the control", "return ep", over="exported_program"),
    Published(
        "torch.fx.GraphModule (made anew)", Contract(), "the control",
        "import copy\n\nreturn GraphModule(module, copy.deepcopy(module.graph))",
    ),
)  # fmt: skip

PASSES = (*FX, *INDUCTOR, *EXPORT)
