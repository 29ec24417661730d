"""``joint_modules``: small modules with what makes the cut of a training step hard, and the arguments of one call.

Writes to state and to intermediate values, views, draws, tied and frozen parameters, results that are views, module calls inside
module calls.  Autograd accepts all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import frozen
from torch import nn
from torch.nn import functional

from purefx.laws.strategies.recipes import PrintedWhole

WIDTH = 4


class Block(nn.Module):
    """Does the steps of its plan one after the other; a list among them is a block of its own."""

    def __init__(self, plan: Plan, owner: Block | None = None) -> None:
        super().__init__()
        self.plan = plan
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm, self.scale = nn.LayerNorm(WIDTH), nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.register_buffer("seen", torch.ones(WIDTH))
        self.register_buffer("count", torch.zeros(()))
        if owner is not None:
            self.second.weight = owner.second.weight  # tied
            self.first.weight.requires_grad = False
        self.blocks = nn.ModuleList([Block(step, self) for step in plan if isinstance(step, tuple)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Do the plan."""
        blocks = iter(self.blocks)
        for step in self.plan:
            x = next(blocks)(x) if isinstance(step, tuple) else STEPS[step](self, x)
        return x


Plan = tuple[Any, ...]
"""Numbers of ``STEPS``, and plans."""


def _remember(block: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * block.seen.clone()
    with torch.no_grad():
        block.seen.mul_(0.5).add_(x.mean(0))
        block.count.add_(1)
    return y


def _write(_: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, 1:].mul_(0.5)
    return y + y.relu_()


def _write_later(_: Any, x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    z = y.clone()
    y.add_(3)
    return z * y


def _pieces(_: Any, x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, 1)
    return torch.cat([right.sin(), left * right], 1)


def _attend(_: Any, x: torch.Tensor) -> torch.Tensor:
    return (x @ x.t() / WIDTH).softmax(-1) @ x


STEPS: tuple[Callable[[Any, torch.Tensor], torch.Tensor], ...] = (
    lambda _, x: x.tanh(),
    lambda block, x: block.first(x),
    lambda block, x: block.second(x) + x,
    lambda block, x: block.norm(x),
    lambda block, x: x * block.scale,
    _remember,
    lambda block, x: x * block.seen.sin(),
    _write,
    _write_later,
    lambda _, x: functional.dropout(x, 0.4),
    _pieces,
    _attend,
    lambda _, x: functional.gelu(x) * x.detach(),
    lambda _, x: x.t().contiguous().t().exp().clamp(max=3.0),
    lambda block, x: x + block.count,
    lambda _, x: x + torch.rand_like(x),
    lambda _, x: x.reshape(-1)[::1].view(-1, WIDTH) - x.mean(),
)


class Root(nn.Module):
    """A block whose result is given in some form."""

    def __init__(self, plan: Plan, form: int) -> None:
        super().__init__()
        self.block, self.form = Block(plan), form
        self.gain = nn.Parameter(torch.linspace(-1.0, 1.0, WIDTH))

    def forward(self, x: torch.Tensor) -> Any:
        """Give a loss, two results of which one is a view, or a result with one that needs no gradient."""
        y = self.block(x.sin() * self.gain)
        return (y.square().sum(), (y, y[1:]), {"y": y * 2, "constant": y.detach()})[self.form]


@frozen
class JointModule(PrintedWhole):
    """A module to draw, and whether its argument wants a gradient."""

    plan: Plan
    form: int = 0
    grads: bool = False

    def build(self) -> tuple[nn.Module, torch.Tensor]:
        """Return the module, the same weights each time, and an argument."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return Root(self.plan, self.form), torch.randn(3, WIDTH, requires_grad=self.grads)


def joint_modules() -> st.SearchStrategy[JointModule]:
    """Return a strategy of modules."""
    steps = st.integers(0, len(STEPS) - 1)
    inner = st.lists(steps, max_size=4).map(tuple)
    plans = st.lists(st.one_of(steps, steps, inner), min_size=1, max_size=7).map(tuple)
    return st.builds(JointModule, plans, st.integers(0, 2), st.booleans())
