"""``import_fx`` of what each tracer makes, and what it refuses."""

from __future__ import annotations

import copy
import importlib
import operator
from typing import Any, NamedTuple, cast

import pytest
import torch
import torch.fx
import torch.fx.graph as codegens
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import purefx as px
from tests.importing.traced_graphs import compare, outcome
from tests.models import Shared, Tower, parent

X = torch.linspace(-2, 3, 12).reshape(3, 4)


def operators(program: px.Program) -> list[Any]:
    """Return the nodes of the root that call operators."""
    return [node for node in program.main.nodes if isinstance(node.do, px.Op)]


def check(module: torch.fx.GraphModule, *args: Any, **options: Any) -> px.Program:
    """Import a module and compare what was lowered with it, as imported and transformed; return the program."""
    program = px.import_fx(module, **options)
    expected = outcome(module, args)
    compare(outcome(px.lower(program), args), expected)
    compare(outcome(px.lower(px.transform(program), to="interpreter"), args), expected)
    assert px.import_fx(module, **options) == program
    return program


class Residual(nn.Module):
    """A convolution block with batch norm and pooling, as vision models have."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.bn = nn.BatchNorm2d(3)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(3, 2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = self.relu(self.bn(self.conv(x)) + x)
        return self.head(x)


@pytest.mark.parametrize("training", [True, False])
def test_symbolic_trace_of_a_vision_model(training: bool) -> None:
    """Leaf modules stay as they are, in their places, with their mode and their statistics."""
    module = torch.fx.symbolic_trace(Residual().train(training))
    program = check(module, torch.randn(2, 3, 5, 5))
    assert [entry.path for entry in program.modules] == [
        name for name, _ in module.named_modules()
    ][:5] + [f"head.{index}" for index in range(4)]
    lowered: Any = px.lower(program)
    assert [name for name, _ in lowered.named_modules()] == [
        name for name, _ in module.named_modules()
    ]
    assert lowered.head[3].training is training
    lowered.eval()
    assert not lowered.head[2].training


def test_symbolic_trace_keeps_places() -> None:
    """Operators of modules that were traced through stand in them, and outline finds the hierarchy."""

    class Leafless(torch.fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return False

    tower = Tower(2)
    program = check(torch.fx.GraphModule(tower, Leafless().trace(tower)), X)
    assert [str(frame) for frame in program.main.nodes[2].stack] == ["layers.0", "layers.0.up"]
    assert px.transform(program).order == ("", "Block", "Linear")
    assert {entry.path: entry.type_name for entry in program.modules}[
        "layers.1.up"
    ] == "torch.nn.modules.linear.Linear"


def test_make_fx() -> None:
    """Pytrees in and out, a tensor that the function closes over, a write to an input."""
    weight = torch.ones(4)

    def function(batch: dict[str, Any]) -> dict[str, Any]:
        return {"y": batch["a"] + weight, "z": [batch["b"].add_(1)]}

    module = make_fx(function)({"a": X, "b": X.clone()})
    program = px.import_fx(module)
    given, expected = {"a": X.clone(), "b": X.clone()}, {"a": X.clone(), "b": X.clone()}
    compare(px.lower(program)(given), module(expected))
    compare(given, expected)
    assert [str(getattr(spec, "argument", "")) for spec in program.signature.inputs] == [
        "batch['a']",
        "batch['b']",
    ]
    assert [slot.kind for _, slot in program.state.pairs] == [px.ir.SlotKind.BUFFER]
    assert program.main.nodes[1].meta["val"].shape == X.shape


def test_graph_of_dynamo() -> None:
    """What a backend of torch.compile is given: parameters as inputs, a region without gradients, places written in Python."""

    class Halves(parent(layers=lambda: nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]))):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            for layer in self.layers:
                x = layer(x).relu()
            with torch.no_grad():
                y = x * 2
            return x, y.view(-1)

    caught: list[torch.fx.GraphModule] = []

    def backend(module: torch.fx.GraphModule, _: Any) -> torch.fx.GraphModule:
        caught.append(module)
        return module

    torch.compile(Halves(), backend=backend)(X)
    formals = [
        node.meta["example_value"] for node in caught[0].graph.nodes if node.op == "placeholder"
    ]
    inputs = tuple(torch.randn(tuple(value.shape)).requires_grad_() for value in formals)
    program = px.import_fx(caught[0])
    compare(px.lower(px.transform(program))(*inputs), caught[0](*inputs))
    assert [node.stack[-1].path for node in program.main.nodes if "linear" in node.name] == [
        "layers.0",
        "layers.1",
    ]
    assert "tensor.relu" in [node.do.name for node in operators(program)]  # known by example_value
    region = [node.do.effects.scope for node in operators(program) if "grad" in node.name]
    assert region == [1, 1]


def test_module_of_an_exported_program() -> None:
    """``ep.module()`` with its guards, its own pytrees, shared modules and tied weights."""
    exported = torch.export.export(
        Shared(), (X,), dynamic_shapes=[{0: torch.export.Dim("n", min=2, max=8)}]
    )
    module = exported.module()
    program = check(module, X)
    lowered: Any = px.lower(program)
    assert lowered.tied.weight is lowered.a.linear.weight
    with pytest.raises(AssertionError):
        lowered(torch.ones(9, 4))


def test_higher_order_operators_and_the_state_of_their_bodies() -> None:
    """A branch reads a buffer of its own graph module, and calls a module."""

    def branch(factor: float) -> torch.fx.GraphModule:
        class Branch(parent(factor=lambda: torch.full((4,), factor))):
            def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
                return (x * self.factor,)

        return torch.fx.symbolic_trace(Branch())

    root, graph = nn.Module(), torch.fx.Graph()
    root.yes, root.no = branch(3.0), branch(5.0)
    x, yes, no = graph.placeholder("x"), graph.get_attr("yes"), graph.get_attr("no")
    total = graph.call_function(torch.ops.aten.sum.default, (x,))
    positive = graph.call_function(torch.ops.aten.gt.Scalar, (total, 0))
    chosen = graph.call_function(torch.ops.higher_order.cond, (positive, yes, no, (x,)))
    graph.output(graph.call_function(operator.getitem, (chosen, 0)))
    program = check(torch.fx.GraphModule(root, graph), X)
    check(torch.fx.GraphModule(root, graph), -X)
    assert program.order == ("", "$yes", "$no")
    mapped = make_fx(lambda x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)))(X)
    check(mapped, X)


def test_rest_and_defaults() -> None:
    """``*args``, ``**kwargs`` and defaults bind as in Python, and say so when they do not."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    scale = graph.create_node("placeholder", "scale", (2.0,), name="scale")
    rest = graph.create_node("placeholder", "*rest", name="rest")
    options = graph.create_node("placeholder", "**options", name="options")
    first = graph.call_function(torch.mul, (x, scale))
    count = graph.call_function(len, (rest,))
    names = graph.call_function(sorted, (options,))
    graph.output({"y": first, "count": count, "names": names, "none": None})
    module = torch.fx.GraphModule(nn.Module(), graph)
    program = px.import_fx(module)
    lowered: Any = px.lower(program)
    for call in ((X,), (X, 3.0), (X, 3.0, 1, 2)):
        compare(lowered(*call), module(*call))
    compare(lowered(X, b=1, a=2), module(X, b=1, a=2))
    with pytest.raises(px.errors.InputError, match="missing argument 'x'"):
        lowered(scale=1.0)
    with pytest.raises(px.errors.InputError, match="twice"):
        lowered(X, x=X)
    assert px.parse(program.text()) == program
    compare(torch.fx.GraphModule(lowered, lowered.graph)(X, 3.0, 1), module(X, 3.0, 1))


def test_a_default_that_is_no_literal_is_refused() -> None:
    module = torch.fx.symbolic_trace(nn.ReLU())
    next(iter(module.graph.nodes)).args = (Residual,)
    message = "the default of the argument input is the type .*Residual.*, not a literal; pass it"
    with pytest.raises(px.errors.UnsupportedProgram, match=message):
        px.import_fx(module)


class Pair(NamedTuple):
    """What fx knows how to write."""

    a: Any
    b: Any


def test_values_that_are_no_literals() -> None:
    """Named tuples and other objects among the arguments arrive as what they are."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(lambda pair: pair.a * pair.b, (Pair(x, 2),))
    z = graph.call_function(lambda kind, x: x.to(kind), (torch.float64, x))
    w = graph.call_function(lambda tensor, x: x + tensor, (torch.ones(4), x))
    graph.output((y, z, w))
    program = px.import_fx(torch.fx.GraphModule(nn.Module(), graph))
    compare(px.lower(program)(X), (X * 2, X.double(), X + 1))
    assert len({node.do.name for node in operators(program) if "lambda" in node.do.name}) == 3
    assert program.state.order == ("_constant0",)


def test_examples_make_methods_known() -> None:
    """With example inputs a method of a tensor is an operator; nothing of the example or of the module is written to."""

    class Writes(parent(bn=lambda: nn.BatchNorm1d(4))):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.bn(x.add_(1)).view(-1)

    module: Any = torch.fx.symbolic_trace(Writes())
    x = X.clone()
    unknown = px.import_fx(module)
    known = px.import_fx(module, example_inputs=(x,))
    assert px.import_fx(module, example_inputs={"x": x}) == known
    assert torch.equal(x, X) and int(module.bn.num_batches_tracked) == 0
    assert [node.do.effects.unknown for node in operators(unknown)] == [True, True, True]
    assert [node.do.effects.unknown for node in operators(known)] == [False, True, False]
    assert known.main.nodes[-1].meta["val"].shape == (12,)
    with pytest.raises(px.errors.InputError, match="unexpected"):
        px.import_fx(module, example_inputs={"z": x})
    with pytest.raises(px.errors.InputValueError, match="does not run on example_inputs: bn"):
        px.import_fx(module, example_inputs=(torch.ones(2, 3),))


def test_examples_of_rest_and_of_nested_arguments() -> None:
    """Each placeholder has the value that a call gives it: the items of ``*rest``, and leaves of arguments passed by name."""

    def rests(x: Any, *rest: Any) -> Any:
        return x.relu(), rest[0].sum(-1), rest[1].neg()

    def nested(parts: Any, y: Any) -> Any:
        return parts["a"].relu(), y.sum(-1), parts["b"][0].neg()

    x, y, z, hole = torch.ones(2), torch.ones(3, 4), torch.ones(5, 1), cast(Any, torch.fx).PH
    traced, parts = (
        torch.fx.symbolic_trace(nested, concrete_args={"parts": {"a": hole, "b": (hole,)}}),
        {"a": x, "b": (z,)},
    )
    calls: list[Any] = [
        (torch.fx.symbolic_trace(rests), (x, y, z)), (traced, (parts, y)), (traced, {"y": y, "parts": parts})
    ]  # fmt: skip
    for graph, inputs in calls:
        nodes = operators(px.import_fx(graph, example_inputs=inputs))
        found = {
            node.do.name: node.meta["val"].shape
            for node in nodes
            if node.do.name.startswith("tensor.")
        }
        assert found == {"tensor.relu": (2,), "tensor.sum": (3,), "tensor.neg": (5, 1)}


def test_the_module_stays_as_it_was() -> None:
    """Nothing is written to the graph module, and tensors are shared."""
    module = torch.fx.symbolic_trace(Residual())
    code, meta = module.code, [dict(node.meta) for node in module.graph.nodes]
    before = copy.deepcopy(module.state_dict())
    program = px.import_fx(module, example_inputs=(torch.randn(2, 3, 5, 5),))
    assert module.code == code
    assert [dict(node.meta) for node in module.graph.nodes] == meta
    compare(dict(module.state_dict()), dict(before))
    assert program.state["conv"].value is module.conv


def test_tags_are_kept() -> None:
    """What passes of torch write on nodes is in meta."""
    module = torch.fx.symbolic_trace(Residual())
    for number, node in enumerate(module.graph.nodes):
        node.tag = f"part{number % 2}"
    tags = {node.name: node.meta.get("tag") for node in px.import_fx(module).main.nodes}
    assert tags["conv"] == "part1" and tags["bn"] == "part0"


class Computed(nn.Module):
    """Has an attribute that is computed."""

    @property
    def value(self) -> torch.Tensor:
        """Something new each time."""
        return torch.ones(3)


def made(edit: Any, *, reads: str = "") -> torch.fx.GraphModule:
    """Return a graph module that returns its input, or an attribute, after an edit."""
    root, graph = nn.Module(), torch.fx.Graph()
    root.register_buffer("nothing", torch.ones(1))
    root.sub = Computed()
    x = graph.placeholder("x")
    graph.output(graph.create_node("get_attr", reads) if reads else x)
    module = torch.fx.GraphModule(root, graph)
    edit(module)
    return module


@pytest.mark.parametrize(
    ("edit", "reads", "message"),
    [
        (lambda module: module.register_forward_hook(lambda *_: None), "", "forward hooks"),
        (lambda module: module.graph.set_codegen(codegens._BoxedCodeGen()), "", "_BoxedCodeGen"),
        (
            lambda module: module.add_submodule("sub", Computed()),
            "sub.value",
            "computed when it is read",
        ),
        (lambda module: delattr(module, "nothing"), "nothing", "no attribute 'nothing'"),
        (
            lambda module: setattr(module, "forward", lambda x: -x),
            "",
            "overrides its graph; delete module.forward first",
        ),
    ],
)
def test_what_the_graph_does_not_show_is_refused(edit: Any, reads: str, message: str) -> None:
    with pytest.raises(px.errors.UnsupportedProgram, match=message):
        px.import_fx(made(edit, reads=reads))


def test_a_graph_that_nothing_uses_is_no_part_of_the_program() -> None:
    module = torch.fx.symbolic_trace(torch.nn.ReLU())
    module.add_submodule("branch", torch.fx.symbolic_trace(torch.nn.Tanh()))
    with module.graph.inserting_before(next(iter(module.graph.nodes))):
        module.graph.get_attr("branch")
    program = px.import_fx(module)
    assert program.facts == {"flat", "state sunk"}
    assert program.order == tuple(program.graphs)
    assert torch.equal(px.lower(program)(-torch.ones(2)), torch.zeros(2))


# Graphs that Dynamo captures for export, with and without its bytecode around them; docs/import.md runs the latter.


functional_export: Any = importlib.import_module("torch._dynamo.functional_export")


class Counts(nn.Module):
    """Keywords, nested arguments and results, a size, buffers that it writes, tied parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm, self.head = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)
        self.head.weight = self.lin.weight
        self.register_buffer("count", torch.zeros(()))
        self.count: torch.Tensor

    def forward(
        self, x: torch.Tensor, more: dict[str, Any], *, scale: torch.Tensor
    ) -> dict[str, Any]:
        self.count.add_(1)
        y = self.norm(self.lin(x)) * scale + more["a"] + more["b"][0]
        return {"y": self.head(y), "count": self.count * 1, "size": (x.size(0), y)}


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_a_capture_with_pytrees(to: Any) -> None:
    torch.manual_seed(0)
    model, args = Counts(), (torch.randn(4, 3), {"a": torch.randn(3), "b": (torch.randn(1),)})
    eager, scale = copy.deepcopy(model), torch.tensor(3.0)
    importlib.import_module("torch._dynamo").reset()
    graph = functional_export._dynamo_graph_capture_for_export(model)(*args, scale=scale)
    lowered = px.lower(px.transform(px.restore_names(px.import_fx(graph), model)), to=to)
    for _ in range(3):
        torch.testing.assert_close(lowered(*args, scale=scale), eager(*args, scale=scale))
    torch.testing.assert_close(dict(lowered.state_dict()), dict(eager.state_dict()))


def test_bytecode_around_a_graph_is_refused() -> None:
    graph = functional_export.dynamo_graph_capture_for_export(nn.Linear(4, 4))(X)
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"keep inputs = .*_dynamo_bytecode_flatten.*restore_names",
    ):
        px.import_fx(graph)
