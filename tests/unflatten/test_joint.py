"""Joint forward and backward programs: loss and gradients are eager's."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest
import torch
from attrs import frozen
from torch import nn
from torch.export.experimental import _export_forward_backward

import purefx as px
from tests.importing.joints import Again, Blocks, Normed
from tests.models import parent
from tests.tables import in_turns
from tests.unflatten.harness import LOWERED


class Loss(nn.Module):
    """A loss of what a module gives, and that."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.loss = model, nn.MSELoss()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.model(x)
        return self.loss(y, y * 0.5 + 1), y.detach()


class Scale(parent(factor=lambda: torch.full((4,), 2.0))):
    """Multiplies by a buffer and then writes it: the backward needs what it held before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.factor.clone()
        self.factor.add_(1.0)
        return y


class Tied(nn.Module):
    """One weight in two modules: one gradient, which is the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids))


@frozen
class Case:
    """What a loss is computed of, and how to draw its argument."""

    make: Callable[[], nn.Module]
    argument: Callable[[], torch.Tensor]


CASES = {
    "blocks": Case(lambda: Blocks().eval(), lambda: torch.randn(2, 4, requires_grad=True)),
    "twice": Case(Again, lambda: torch.randn(2, 4, requires_grad=True)),
    "batch norm": Case(Normed, lambda: torch.randn(2, 2, 5, 5)),
    "old buffer": Case(
        lambda: nn.Sequential(nn.Linear(4, 4), Scale()),
        lambda: torch.randn(2, 4, requires_grad=True),
    ),
    "tied": Case(Tied, lambda: torch.tensor([1, 3, 0])),
}


@frozen
class Joint:
    """A case, exported."""

    case: Case
    eager: nn.Module
    forward: torch.export.ExportedProgram
    joint: torch.export.ExportedProgram

    @cached_property
    def program(self) -> px.Program:
        """The joint program, imported."""
        return px.import_ep(self.joint)


def exported(name: str, *, strict: bool) -> Joint:
    torch.manual_seed(0)
    case = CASES[name]
    eager = Loss(case.make())
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "`isinstance\\(treespec, LeafSpec\\)` is deprecated", FutureWarning
        )
        forward = torch.export.export(copy.deepcopy(eager), (case.argument(),), strict=strict)
        return Joint(case, eager, forward, _export_forward_backward(forward))


REFUSED = {("tied", False): "did not receive a gradient"}
"""What torch cannot make a joint program of."""

WAYS = [
    (name, strict) for name in CASES for strict in (False, True) if (name, strict) not in REFUSED
]


@pytest.mark.parametrize(("name", "strict"), REFUSED)
def test_torch_still_refuses(name: str, strict: bool) -> None:
    with pytest.raises(AssertionError, match=REFUSED[name, strict]):
        exported(name, strict=strict)


@pytest.fixture(params=WAYS, ids=str, scope="module")
def joint(request: pytest.FixtureRequest) -> Joint:
    name, strict = request.param
    return exported(name, strict=strict)


def expected(eager: nn.Module, arguments: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Return the results of eager, then the gradients to parameters and inputs."""
    results = eager(*arguments)
    wanting = [*eager.parameters(), *[argument for argument in arguments if argument.requires_grad]]
    return [*results, *torch.autograd.grad(results[0], wanting)]


@pytest.mark.parametrize(
    ("joint", "to"),
    in_turns(joint={str(way): way for way in WAYS}, to=LOWERED).args[1],
    indirect=["joint"],
)
def test_loss_and_gradients_are_those_of_eager(joint: Joint, to: Any) -> None:
    program = px.transform(joint.program)
    module, eager = px.lower(program, to=to), copy.deepcopy(joint.eager)
    for _ in range(3):
        arguments = (joint.case.argument(),)
        given = module(*arguments)
        wanted = expected(eager, arguments)
        assert type(given) is tuple
        assert len(given) == len(wanted)
        for mine, theirs in zip(given, wanted, strict=True):
            torch.testing.assert_close(mine, theirs)
    assert list(module.state_dict()) == list(eager.state_dict())
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value)


def test_the_signature_says_what_the_gradients_are_of(joint: Joint) -> None:
    program = joint.program
    assert [type(spec) for spec in program.signature.outputs].count(px.ir.LossOutput) == 1
    slots = [
        spec.slot for spec in program.signature.outputs if isinstance(spec, px.ir.StateGradient)
    ]
    assert slots == [name for name, _ in joint.eager.named_parameters()]
    leaves = [
        spec.leaf for spec in program.signature.outputs if isinstance(spec, px.ir.InputGradient)
    ]
    assert leaves == [0] * joint.case.argument().requires_grad


def test_provenance_in_the_meta_is_taken_where_there_is_any() -> None:
    """A joint program that another tool made, which keeps ``nn_module_stack`` and ``fwd_nn_module_stack``."""
    joint = exported("blocks", strict=False)
    for node in joint.joint.graph.nodes:
        if node.op == "call_function":
            is_backward = node.name == "full_like" or any(
                user.name == "full_like" for user in node.all_input_nodes
            )
            key = "fwd_nn_module_stack" if is_backward else "nn_module_stack"
            node.meta[key] = {
                "L__self__": ("", "M"),
                "L__self___loss": ("loss", "torch.nn.MSELoss"),
            }
    program = px.import_ep(joint.joint)
    assert {frame for node in program.main.nodes for frame in node.stack} == {
        px.Frame("loss"),
        px.Frame("loss", 1),
    }
    assert program.main.by_name["full_like"].stack == (px.Frame("loss", 1),)
