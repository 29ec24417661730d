"""The hierarchy of the backward: its nodes stand in calls of the modules that they are the gradients of, whoever traced them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.functional_export import (
    _dynamo_graph_capture_for_export,
    dynamo_graph_capture_for_export,
)
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

import purefx as px
from tests.importing.joints import Blocks, Recomputed, drawn, inside, joint_graph, tree_of
from tests.models import parent

X = drawn(2, 4)


def captured(model: nn.Module) -> px.Program:
    """Trace at once."""
    return px.training.capture_joint(model, (X,))


def by_dynamo(model: nn.Module) -> px.Program:
    """Trace what Dynamo captured."""
    return px.import_fx(joint_graph(dynamo_graph_capture_for_export(model)(X), X))


def by_dynamo_inlined(model: nn.Module) -> px.Program:
    """Trace what Dynamo captured with parameters as attributes."""
    return px.import_fx(joint_graph(_dynamo_graph_capture_for_export(model)(X), X))


def by_notes(model: nn.Module) -> px.Program:
    """Trace the module itself, with its calls noted."""
    with px.training.module_calls(model):
        return px.import_fx(joint_graph(model, X))


def by_make_fx(model: nn.Module) -> px.Program:
    """Trace a function that takes gradients."""
    parameters = dict(model.named_parameters())

    def gradients(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
        loss = functional_call(model, parameters, (x,)).square().sum()
        return loss, torch.autograd.grad(loss, list(parameters.values()))

    with px.training.module_calls(model):
        return px.import_fx(make_fx(gradients)(parameters, X))


def by_func_grad(model: nn.Module) -> px.Program:
    """Trace a gradient of torch.func, under which each operator makes several nodes of autograd."""

    def gradients(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
        return torch.func.grad(
            lambda parameters: functional_call(model, parameters, (x,)).square().sum()
        )(parameters)

    with px.training.module_calls(model):
        return px.import_fx(make_fx(gradients)(dict(model.named_parameters()), X))


TRACERS = (captured, by_dynamo, by_dynamo_inlined, by_notes, by_make_fx, by_func_grad)


@pytest.mark.parametrize("tracer", TRACERS, ids=lambda tracer: tracer.__name__)
@pytest.mark.filterwarnings("ignore:While compiling")
def test_the_backward_of_equal_blocks_is_one_body(
    tracer: Callable[[nn.Module], px.Program],
) -> None:
    """Each block is called twice, forward and backward, and there are two bodies of blocks."""
    torch.manual_seed(0)
    program = tracer(Blocks())
    loss = tracer in (
        by_make_fx,
        by_func_grad,
    )  # which is computed and differentiated outside of the module
    assert inside(program) > (0.9 if loss else 0.99)
    tree = px.transform(program)
    bodies = tree_of(tree)
    blocks = [f"blocks.{number}" for number in range(3)]
    assert (
        len({bodies[path, 0] for path in blocks}) == len({bodies[path, 1] for path in blocks}) == 1
    )
    assert "backward" in [node.meta.get("phase") for node in program.main.nodes]
    assert all(
        (node.meta.get("phase") == "backward") == any(frame.call for frame in node.stack)
        for node in inner(program)
    )


def inner(program: px.Program) -> list[px.Node]:
    """Return the nodes that stand in a module call."""
    return [node for node in program.main.nodes if node.stack]


def test_all_ways_to_ask_for_gradients_are_noticed() -> None:
    """Also when a backward runs for the second time, through what the first one has made."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def asked(ask: Callable[[torch.Tensor, torch.Tensor], Any]) -> list[str]:
        with px.training.module_calls(model):
            graph = make_fx(lambda x: ask(model(x).sum(), x))(drawn(2, 4, grad=True))
        nodes = px.import_fx(graph).main.nodes
        return [
            str(node.stack[-1]) if node.stack else ""
            for node in nodes
            if "tanh_backward" in str(node.do)
        ]

    assert asked(lambda y, x: torch.autograd.grad(y, x)) == ["1@1"]
    assert asked(lambda y, x: torch.autograd.grad(outputs=[y], inputs=[x])) == ["1@1"]
    assert asked(lambda y, _: y.backward()) == ["1@1"]
    assert asked(lambda y, _: torch.autograd.backward([y])) == ["1@1"]
    twice = asked(
        lambda y, x: torch.autograd.grad(
            torch.autograd.grad(y, x, create_graph=True)[0].square().sum(), x
        )
    )
    assert twice[0] == "1@1"


def test_only_modules_have_calls() -> None:
    with (
        pytest.raises(px.errors.ArgumentError, match="module_calls takes"),
        px.training.module_calls(3),  # type: ignore[arg-type]
    ):
        pass


def test_a_sum_is_where_the_value_was_used() -> None:
    """One gradient comes through a residual connection from another block; the sum is in the block that has the connection."""
    program = px.training.capture_joint(Blocks(), (X,))
    sums = [node for node in program.main.nodes if node.meta.get("is_gradient_acc")]
    assert [str(node.stack[-1]) for node in sums] == ["blocks.2@1", "blocks.1@1", "blocks.0@1"]


@pytest.mark.parametrize(
    "capture", [_dynamo_graph_capture_for_export, dynamo_graph_capture_for_export]
)
def test_what_dynamo_captured_has_the_state_of_the_module(capture: Callable[..., Any]) -> None:
    """The captured module has the tensors under names of Dynamo's, which the module gives back."""
    torch.manual_seed(0)
    model = Blocks().eval()
    graph = capture(model)(X)
    program = px.restore_names(px.import_fx(joint_graph(graph, X), state=graph), model)
    assert all(program.state[name].value is value for name, value in model.named_parameters())
    slots = [spec.slot for spec in program.signature.outputs if type(spec) is px.ir.StateGradient]
    tangent = drawn(2, 4)
    (result,), gradients = px.lower(px.transform(program))(X, tangents=(tangent,))
    wanted = torch.autograd.grad(expected := model(X), list(model.parameters()), tangent)
    assert torch.equal(result, expected)
    by_name = dict(zip([name for name, _ in model.named_parameters()], wanted, strict=True))
    assert all(
        torch.equal(by_name[slot], gradient)
        for slot, gradient in zip(slots, gradients, strict=True)
    )
    assert len(slots) == len(by_name)


class Wide(
    parent(
        first=lambda: nn.Linear(4, 4), left=lambda: nn.Linear(4, 4), right=lambda: nn.Linear(4, 4)
    )
):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).tanh()
        return self.left(y) * self.right(y)


def test_a_sum_over_modules_is_around_them() -> None:
    program = px.training.capture_joint(Wide(), (X,))
    (found,) = [node for node in program.main.nodes if node.meta.get("is_gradient_acc")]
    assert found.stack == ()


class Outer(parent(inner=Recomputed)):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_what_is_computed_again_is_a_further_call() -> None:
    """It is in the modules that it was called in, and in the backward of those."""
    model = Outer()

    def gradient(x: torch.Tensor) -> Any:
        return torch.autograd.grad(model(x).square().sum(), x)

    with px.training.module_calls(model):
        graph = make_fx(gradient)(drawn(2, 4, grad=True))
    stacks = [
        list(map(str, node.stack))
        for node in px.import_fx(graph).main.nodes
        if "aten.tanh" in str(node.do)
    ]
    forward, again, backward = stacks
    assert forward == ["inner", "inner.rest", "inner.rest.1"]
    assert again == ["inner@1", "inner.rest@2", "inner.rest.1@2"]
    assert backward == ["inner@1", "inner.rest@1", "inner.rest.1@1"]


def test_a_step_of_an_optimizer() -> None:
    """Parameters and what the optimizer keeps are state; what writes them is in no module."""
    torch.manual_seed(0)
    model = Blocks().eval()
    parameters, moments = (
        dict(model.named_parameters()),
        {name: torch.zeros_like(p) for name, p in model.named_parameters()},
    )

    def step(
        parameters: dict[str, torch.Tensor], moments: dict[str, torch.Tensor], x: torch.Tensor
    ) -> torch.Tensor:
        loss = functional_call(model, parameters, (x,)).square().mean()
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        with torch.no_grad():
            for parameter, moment, gradient in zip(
                parameters.values(), moments.values(), gradients, strict=True
            ):
                moment.mul_(0.9).add_(gradient, alpha=0.1)
                parameter.sub_(moment, alpha=0.1)
        return loss

    def fresh(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            name: value.detach().clone().requires_grad_(value.requires_grad)
            for name, value in tensors.items()
        }

    with px.training.module_calls(model):
        graph = make_fx(step)(fresh(parameters), fresh(moments), X)
    state = parameters | {f"moments.{name}": value for name, value in moments.items()}
    program = px.restore_names(px.import_fx(graph), state, inputs=(parameters, moments, X))
    assert list(program.state) == list(state)
    tree = px.transform(program)
    assert len({tree_of(tree)[f"blocks.{number}", 1] for number in range(3)}) == 1
    lowered = px.lower(tree)
    losses: list[float] = []
    theirs, kept = fresh(parameters), fresh(moments)
    for _ in range(5):
        with torch.no_grad():  # the mode is not in the graph
            losses.append(lowered(X).item())
        assert losses[-1] == step(theirs, kept, X).item()
    assert losses == sorted(losses, reverse=True)
    ours = lowered.state_dict()
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert all(torch.equal(ours[f"moments.{name}"], value) for name, value in kept.items())
