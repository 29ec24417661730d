"""``capture`` warns of what ``torch.export`` drops: a backward of the module's own, hooks on tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import purefx as px
from purefx.errors import CaptureWarning, PurefxError


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Pass the gradient on."""
        return gradients[0]


class Model(torch.nn.Module):
    def __init__(self, after: Callable[[torch.nn.Linear, torch.Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)
        self.after = after

    def forward(self, x: torch.Tensor) -> Any:
        return self.after(self.linear, x)


def _hooked(linear: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    y = linear(x)
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient * 2)
    return y.sin()


def _noisy(linear: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(linear(x))


@torch.library.custom_op("what_export_drops::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    """Give the sine, with a gradient that is registered."""
    return x.sin()


@sine.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


sine.register_autograd(
    lambda ctx, gradient: gradient, setup_context=lambda ctx, inputs, output: None
)

DROPPED: dict[str, tuple[Callable[[torch.nn.Linear, torch.Tensor], Any], str]] = {
    "own backward": (
        lambda linear, x: StraightThrough.apply(linear(x)),
        "the backward of StraightThrough",
    ),
    "own backward, used": (
        lambda linear, x: {"y": [StraightThrough.apply(linear(x)).sin()]},
        "the backward of StraightThrough",
    ),
    "reentrant": (
        lambda linear, x: checkpoint(linear, x, use_reentrant=True),
        "CheckpointFunction (pass use_reentrant=False",
    ),
    "hook": (_hooked, "hooks on tensors (register_hook)"),
}

KEPT: dict[str, Callable[[torch.nn.Linear, torch.Tensor], Any]] = {
    "linear": lambda linear, x: linear(x),
    "dropout": _noisy,
    "checkpoint": lambda linear, x: checkpoint(_noisy, linear, x, use_reentrant=False),
    "registered gradient": lambda linear, x: sine(linear(x)),
    "cond": lambda linear, x: torch.cond(
        x.sum() > 0, lambda y: linear(y).sin(), lambda y: linear(y).cos(), (x,)
    ),
    "detached": lambda linear, x: StraightThrough.apply(linear(x)).detach() + linear(x),
}


def _example() -> tuple[torch.Tensor]:
    return (torch.arange(6.0).reshape(2, 3).requires_grad_(),)


def _warned(call: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    return [one for one in said if one.category is CaptureWarning]


@pytest.mark.parametrize("name", DROPPED)
def test_what_is_dropped_is_warned_of(name: str) -> None:
    after, told = DROPPED[name]
    (said,) = _warned(lambda: px.capture(Model(after), _example()))
    assert told in str(said.message)
    assert said.filename == __file__
    assert "px.training.capture_joint" in str(said.message)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_is_not(name: str) -> None:
    assert _warned(lambda: px.capture(Model(KEPT[name]), _example())) == []


def test_what_the_warning_names_keeps_it() -> None:
    for name in ("own backward", "hook"):
        eager = Model(DROPPED[name][0])
        module = px.training_module(px.training.capture_joint(Model(DROPPED[name][0]), _example()))
        for each in (eager, module):
            each(*_example()).sum().backward()
        torch.testing.assert_close(module.linear.weight.grad, eager.linear.weight.grad)


def test_the_module_and_the_process_are_as_before() -> None:
    model = Model(DROPPED["hook"][0])
    before, call, state = dict(vars(model)), torch.nn.Module._call_impl, torch.get_rng_state()
    with pytest.warns(CaptureWarning):
        px.capture(model, _example())
    with pytest.raises(PurefxError):
        px.capture(Model(lambda linear, x: {}[0]), _example())
    assert dict(vars(model)) == before
    assert torch.nn.Module._call_impl is call
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.overrides._get_current_function_mode_stack() == []
