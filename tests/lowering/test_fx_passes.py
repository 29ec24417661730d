"""``to_fx``, ``as_fx_pass``, ``from_fx_pass``: plain graph modules, and passes between the two worlds."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import torch
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.fx.passes.infra.pass_manager import PassManager

import purefx as px
from purefx.errors import FxPassError, PipelineError, UnsupportedProgram
from purefx.laws.evaluate import meaning_differences
from purefx.laws.law import Case
from purefx.laws.purity import seeded
from purefx.laws.tiers import drawn_cases, share
from purefx.laws.toy import TensorMachine, tensor_meaning
from tests.models import module_class

TANH = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
        self.head = torch.nn.Linear(3, 3)
        self.head.weight = self.lin.weight
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("unused", torch.ones(2), persistent=False)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen.add_(1)
        return {"y": self.head(torch.relu(self.lin(x))) * self.seen}


ARGS = (torch.randn(2, 3, generator=torch.Generator().manual_seed(0)),)


@cache
def program() -> px.Program:
    return px.remove_effect_tokens(px.import_ep(torch.export.export(Model(), ARGS)))


def cases() -> list[Case]:
    return [
        *drawn_cases("aten", "flat", share(16), 5),
        *drawn_cases("modules", "flat", share(3), 5),
    ]


def rebuilt(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    return torch.fx.GraphModule(module, copy.deepcopy(module.graph))


def relu_to_tanh(module: torch.fx.GraphModule) -> None:
    for node in module.graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.tanh.default
    module.recompile()


class RealPass(PassBase):
    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        relu_to_tanh(graph_module)
        return PassResult(graph_module, True)


def test_plain_modules_compute_what_programs_mean() -> None:
    for case in cases():
        module = px.to_fx(case.program)
        assert all("purefx" not in type(inner).__module__ for inner in module.modules())
        machine = TensorMachine()
        with seeded(0), torch.no_grad():
            results = module(*map(machine.given, case.calls[0]))
        made = tuple(
            machine.shown(machine.save(one))
            for one in (results if isinstance(results, tuple) else (results,))
        )
        assert made == case.meaning(case.program).outputs[0]


def test_what_is_rebuilt_from_a_plain_module_means_the_same() -> None:
    again = px.from_fx_pass(rebuilt)
    for case in cases():
        result = again(case.program)
        assert meaning_differences(case.meaning(result), case.meaning(case.program)) == []
        assert result.state.order == case.program.state.order
        assert [slot.value for _, slot in result.state.pairs] == [
            slot.value for _, slot in case.program.state.pairs
        ] or all(
            mine.value is theirs.value
            for (_, mine), (_, theirs) in zip(
                result.state.pairs, case.program.state.pairs, strict=True
            )
        )


@pytest.mark.parametrize(
    "a_pass", [lambda module: None, lambda module: module, lambda module: PassResult(module, False)]
)
def test_a_pass_that_does_nothing_gives_the_same_object(a_pass: Any) -> None:
    for case in drawn_cases("aten", "flat", share(10), 5):
        assert px.from_fx_pass(a_pass)(case.program) is case.program


@pytest.mark.parametrize(
    "a_pass",
    [relu_to_tanh, RealPass(), PassManager(passes=[RealPass()])],
    ids=["function", "base", "manager"],
)
def test_passes_of_every_form(a_pass: Any) -> None:
    before = program()
    text = str(before)
    result = px.from_fx_pass(a_pass)(before)
    assert str(before) == text
    assert [node.do.name for node in result.main.nodes if isinstance(node.do, px.Op)].count(
        "aten.tanh.default"
    ) == 1
    assert not px.verify(result)
    assert result.signature.in_spec == before.signature.in_spec
    assert result.state["lin.weight"].value is before.state["lin.weight"].value
    module = px.lower(px.transform(result))
    expected = Model()
    expected.load_state_dict(module.state_dict())
    assert [name for name, _ in module.named_modules()] == [
        name for name, _ in expected.named_modules()
    ]
    assert module(*ARGS)["y"].shape == (2, 3)


def test_passes_over_graphs_and_exported_programs() -> None:
    def on_graph(graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
            node.target = torch.ops.aten.tanh.default

    def decomposed(ep: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        return ep.run_decompositions({})

    names = [
        node.do.name
        for node in px.from_fx_pass(on_graph, over="graph")(program()).main.nodes
        if isinstance(node.do, px.Op)
    ]
    assert "aten.tanh.default" in names
    result = px.from_fx_pass(decomposed, over="exported_program")(program())
    calls = [ARGS] * 3
    assert (
        meaning_differences(tensor_meaning(result, calls), tensor_meaning(program(), calls)) == []
    )


def test_fuel_goes_to_passes_that_take_it() -> None:
    def counted(module: torch.fx.GraphModule, fuel: px.Fuel) -> None:
        for node in module.graph.nodes:
            if node.op == "call_function" and fuel.burn("touch", node.name):
                node.meta["touched"] = True
                node.target = {torch.ops.aten.relu.default: torch.ops.aten.tanh.default}.get(
                    node.target, node.target
                )

    def has_tanh(one: px.Program) -> bool:
        return any(getattr(node.do, "name", "") == "aten.tanh.default" for node in one.main.nodes)

    assert "touch relu" in str(px.bisect(program(), px.from_fx_pass(counted), has_tanh))


def test_a_transformation_in_a_pass_manager() -> None:
    eager = module_class("Eager", lambda self, x, scale: {"y": torch.relu(x) * scale})
    traced = torch.export.export(eager(), (torch.ones(2), 3.0)).module()
    assert isinstance(traced, torch.fx.GraphModule)
    code = traced.code
    result = PassManager(passes=[px.as_fx_pass(TANH), RealPass()])(traced)
    assert result.modified
    assert traced.code == code
    assert torch.equal(
        result.graph_module(torch.ones(2), 3.0)["y"], torch.tanh(torch.ones(2)) * 3.0
    )
    untouched = torch.fx.symbolic_trace(torch.nn.Tanh())
    assert px.as_fx_pass(TANH)(untouched) == PassResult(untouched, modified=False)


def test_a_transformation_on_a_graph_in_place() -> None:
    module = px.to_fx(program())
    expected = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    assert px.as_fx_pass(TANH, over="graph")(module.graph) is None
    module.recompile()
    module.graph.lint()
    assert [node.name for node in module.graph.nodes if node.op == "placeholder"] == expected
    assert module.graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)
    assert torch.isfinite(module(*ARGS)[0]).all()


def test_new_tensors_of_a_pass_are_state() -> None:
    def doubled(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        with torch.no_grad():
            module.get_parameter("lin.bias").add_(1.0)
        module.register_buffer("extra", torch.full((3,), 5.0))
        node = next(
            iter(module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default))
        )
        with module.graph.inserting_after(node):
            read = module.graph.get_attr("extra")
        with module.graph.inserting_after(read):
            added = module.graph.call_function(torch.ops.aten.add.Tensor, (node, read))
        node.replace_all_uses_with(added, delete_user_cb=lambda user: user is not added)
        return module

    before = program()
    bias = before.state["lin.bias"].value.clone()
    result = px.from_fx_pass(doubled)(before)
    assert torch.equal(before.state["lin.bias"].value, bias)
    assert torch.equal(result.state["lin.bias"].value, bias + 1.0)
    assert result.state["lin.weight"].value is before.state["lin.weight"].value
    assert list(result.state) == [*before.state, "extra"]


def test_what_is_no_pass_is_refused() -> None:
    with pytest.raises(FxPassError, match="RealPass is a class; pass an instance"):
        px.from_fx_pass(RealPass)
    with pytest.raises(FxPassError, match="not a int"):
        px.from_fx_pass(3)
    with pytest.raises(px.errors.ArgumentError, match="over='modul'"):
        px.from_fx_pass(relu_to_tanh, over="modul")  # pyright: ignore[reportArgumentType]
    with pytest.raises(FxPassError, match="returned a str"):
        px.from_fx_pass(lambda module: module.code)(program())


def test_other_inputs_and_outputs_are_refused() -> None:
    def more_outputs(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        output = module.graph.output_node()
        results: Any = output.args[0]
        output.args = ((*results, *results),)
        return module

    with pytest.raises(FxPassError, match="2 outputs, but the program returns 1"):
        px.from_fx_pass(more_outputs)(program())
    flexible = px.capture(torch.nn.Bilinear(2, 2, 1), (torch.ones(1, 2), torch.ones(1, 2)))

    def without_second(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        first, second = module.graph.find_nodes(op="placeholder")
        second.replace_all_uses_with(first)
        module.graph.erase_node(second)
        return module

    with pytest.raises(FxPassError, match="with 1 inputs"):
        px.from_fx_pass(without_second)(flexible)


def test_trees_are_refused_with_advice() -> None:
    tree = px.transform(program())
    with pytest.raises(UnsupportedProgram, match=r"px.to_fx\(px.inline\(program\)\)"):
        px.to_fx(tree)
    with pytest.raises(PipelineError, match="requires a program that is 'flat'"):
        px.from_fx_pass(relu_to_tanh)(tree)
    with pytest.raises(TypeError, match="to_fx takes a purefx Program"):
        px.to_fx(torch.nn.ReLU())  # pyright: ignore[reportArgumentType]
    assert px.to_fx(px.inline(tree))(*ARGS)[0].shape == (2, 3)
