"""What is read of exported programs and graphs, leaving them as they are, and what is refused."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest
import torch
import torch.fx
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

import purefx as px
from purefx.ir import Apply, Sym
from purefx.ir.importing.constraints import read_guard
from tests.importing.traced_graphs import compare, graph_modules, outcome
from tests.models import Block, Shared, Tower, exported, parent

# What is read from an exported program: stacks, signature, state, constraints, bodies.


def test_stacks_name_module_calls() -> None:
    """The second call of a module is numbered, in strict and non-strict export alike."""
    for strict in (False, True):
        program = px.import_ep(exported(Shared(), torch.ones(3, 4), strict=strict))
        stacks = {"/".join(map(str, node.stack)) for node in program.main.nodes}
        assert {"a", "a@1", "a/a.linear", "a@1/a.linear@1", "items.0", "tied"} <= stacks


class InBranch(
    parent(items=lambda: nn.ModuleList([nn.ReLU()]), w=lambda: nn.Parameter(torch.ones(4)))
):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.items[0](x), lambda x: x + 1, (x,)) + self.w


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("decomposed", [False, True])
def test_modules_have_their_classes(strict: bool, decomposed: bool) -> None:
    """Those of eager: of the root and of all that are called; they come back from an exported program that is written again."""
    x = torch.ones(3, 4)
    for model in (Shared(), nn.ReLU(), InBranch()):
        ep = exported(model, x, strict=strict)
        program = px.import_ep(ep.run_decompositions() if decomposed else ep)
        eager = {
            path: f"{type(part).__module__}.{type(part).__qualname__}"
            for path, part in model.named_modules()
        }
        types = {module.path: module.type_name for module in program.modules}
        assert types.keys() == dict(model.named_modules(remove_duplicate=False)).keys()
        assert types[""] == eager[""]
        known = {path: kind for path, kind in types.items() if kind}
        assert known == {path: eager.get(path, kind) for path, kind in known.items()}
        module: Any = px.lower(px.transform(program))
        assert module.type_name() == eager[""]
        again = px.import_ep(px.to_ep(program))
        assert {module.path: module.type_name for module in again.modules} == types
        raw = [
            node.meta["nn_module_stack"]
            for node in px.to_ep(program).graph.nodes
            if node.op == "call_function"
        ]
        assert {next(iter(stack.values())) for stack in raw} == {("", eager[""])}
    if strict:
        assert (
            types["items.0"] == "torch.nn.modules.activation.ReLU"
        )  # without it, no stack is inside of branches


def test_nodes_without_a_stack_join_their_neighbours() -> None:
    """A hand-written pass that forgets the stack does not cut a module in two."""
    ep = exported(Tower(2), torch.ones(2, 4))
    graph = ep.graph_module.graph
    relu = next(node for node in graph.nodes if node.target is torch.ops.aten.relu.default)
    with graph.inserting_after(relu):
        neg = graph.call_function(torch.ops.aten.neg.default, (relu,))
    relu.replace_all_uses_with(neg, lambda user: user is not neg)
    program = px.transform(px.import_ep(ep), *px.DEFAULT[:-1])
    assert not any("#" in name for name in program.order)
    assert any(node.name == neg.name for node in program.graphs["layers.0"].nodes)


def test_the_result_of_an_in_place_operator_is_its_operand() -> None:
    """``self.count.add_(1)`` twice: the second write names the buffer, not the result of the first."""
    program = px.import_ep(exported(Shared(), torch.ones(3, 4)))
    writes = [node for node in program.main.nodes if node.do.name == "aten.add_.Tensor"]  # type: ignore[union-attr]
    buffers = {
        spec.slot: formal.name
        for formal, spec in program.inputs
        if isinstance(spec, px.ir.StateInput)
    }
    assert [node.args[0] for node in writes[:2]] == [px.Ref(buffers["a.count"])] * 2


def test_dynamic_sizes_and_their_bounds() -> None:
    """Symbols, derived sizes and ranges become expressions."""

    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, x]) + y

    size = Dim("size", min=3, max=64)
    ep = torch.export.export(
        Two(), (torch.ones(4), torch.ones(8)), dynamic_shapes={"x": {0: size}, "y": {0: 2 * size}}
    )
    program = px.import_ep(ep)
    x, y = (spec.type.shape[0] for spec in program.signature.inputs)  # type: ignore[union-attr]
    assert isinstance(x, Sym)
    assert y == Apply("*", (2, x))
    assert px.ir.Range(x, 3, 64) in program.constraints.ranges


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L['x'].size()[0] % 4 == 0", {4: True, 6: False}),
        ("4 <= L['x'].size()[0] <= 8", {4: True, 9: False}),
        ("not (L['x'].size()[0] == 3 or L['x'].size()[0] > 10)", {3: False, 4: True, 11: False}),
        ("max(L['x'].size()[0], 5) == 5", {4: True, 6: False}),
    ],
)
def test_guards_are_translated(text: str, expected: dict[int, bool]) -> None:
    """Guards become expressions that say what Python said."""
    from purefx.ir.expression import InputDim, evaluate

    guard = read_guard(text, {"L['x']": 0})
    assert {size: bool(evaluate(guard, {InputDim(0, 0): size})) for size in expected} == expected


class Starred(nn.Module):
    def forward(self, y: torch.Tensor, *args: torch.Tensor, parts: Any) -> torch.Tensor:
        if args[0].shape[0] % 2 == 0 and args[1].shape[0] > 5 and parts["a b"][1].shape[0] > 3:
            return y.sum() + args[0].reshape(2, -1).sum() + args[1].sum()
        return y.sum()


@pytest.mark.parametrize("strict", [False, True])
def test_guards_belong_to_the_arguments_that_they_name(strict: bool) -> None:
    """Also to items of ``*args``, which the signature names differently."""
    shapes: Any = (
        {0: Dim.DYNAMIC},
        ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}),
        {"a b": (None, {0: Dim.DYNAMIC})},
    )
    args, x = (torch.ones(3), torch.ones(8), torch.ones(7)), torch.ones(2)
    ep = torch.export.export(
        Starred(),
        args,
        {"parts": {"a b": (x, torch.ones(6))}},
        dynamic_shapes=shapes,
        strict=strict,
    )
    lowered = px.lower(px.transform(px.import_ep(ep)))
    assert (
        lowered(torch.ones(5), torch.ones(6), torch.ones(9), parts={"a b": (x, torch.ones(4))})
        == 20
    )
    for rows, message in (
        ((4, 7, 9, 4), "args_0"),
        ((4, 6, 5, 4), "args_1"),
        ((4, 6, 9, 3), "parts"),
    ):
        given = [torch.ones(count) for count in rows]
        with pytest.raises(px.errors.InputValueError, match=message):
            lowered(*given[:3], parts={"a b": (x, given[3])})


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "L['x'].size()[0] == eval('1')",
        "L['z'] > 1",
        "x =",
        "lambda: 1",
    ],
)
def test_guards_that_are_not_understood_are_refused(text: str) -> None:
    """Never evaluated, never dropped."""
    with pytest.raises(px.errors.UnsupportedProgram, match="guard"):
        read_guard(text, {"L['x']": 0})


def test_projections_belong_to_what_they_project() -> None:
    """A region over several modules is one operator; its projections do not stand in the modules inside it."""

    class Region(parent(a=Block, b=Block)):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                x = self.b(self.a(x))
            return self.a(x)

    program = px.import_ep(exported(Region(), torch.ones(2, 4)))
    by_name = program.main.by_name
    for node in program.main.nodes:
        if node.do.target is operator.getitem:  # type: ignore[union-attr]
            assert node.stack == by_name[node.args[0].name].stack


# The law of ``import_fx``: lowering what was imported gives what the graph module does, whatever the graph is.


INPUTS = (torch.linspace(-1, 2, 16).reshape(4, 4), torch.linspace(1, -3, 16).reshape(4, 4))


@given(graph_modules(), st.booleans(), st.sampled_from(["graph_module", "interpreter"]))
@settings(max_examples=30, deadline=None)
def test_lowered_is_the_graph_module(
    module: torch.fx.GraphModule, with_example: bool, to: Any
) -> None:
    """Outputs, inputs that are written to, gradients, state, over two calls; at every stage; and through text."""
    before = copy.deepcopy(module.state_dict())
    program = px.import_fx(module, example_inputs=INPUTS if with_example else None)
    expected = outcome(module, INPUTS)
    compare(outcome(px.lower(program, to=to), INPUTS), expected)
    assert list(px.lower(program).state_dict()) == list(before)
    compare(outcome(px.lower(px.transform(program), to=to), INPUTS), expected)
    compare(outcome(px.lower(px.inline(program), to=to), INPUTS), expected)
    compare(dict(module.state_dict()), dict(before))
    state = {name: program.state[name].value for name in program.state}
    assert px.parse(program.text(), state=state) == program


@given(graph_modules(depth=1))
@settings(max_examples=10, deadline=None)
def test_what_was_lowered_can_be_imported_again(module: torch.fx.GraphModule) -> None:
    """A lowered module is a GraphModule too."""
    again = px.import_fx(px.lower(px.import_fx(module)))
    compare(outcome(px.lower(again), INPUTS), outcome(module, INPUTS))
