"""Replace a linear layer and its activation by one custom operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import purefx as px
from examples.rewrites import Rewriting
from examples.zoo import by_name


@torch.library.custom_op("purefx_examples::linear_relu", mutates_args=())
def linear_relu(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Compute both at once."""
    return torch.relu(functional.linear(x, w, b))


px.declare(linear_relu, px.PURE)


@linear_relu.register_fake
def _(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], w.shape[0])


@px.rule
def fuse(x: Any, w: Any, b: Any) -> Any:
    return torch.relu(functional.linear(x, w, b))


@fuse.becomes
def _(m: px.Match, x: Any, w: Any, b: Any) -> Any:
    return m.call(torch.ops.purefx_examples.linear_relu, x, w, b)


def in_fx(module: torch.fx.GraphModule) -> None:
    def pattern(x: Any, w: Any) -> Any:
        return torch.ops.aten.relu.default(torch.ops.aten.linear.default(x, w))

    def replacement(x: Any, w: Any) -> Any:
        return torch.ops.purefx_examples.linear_relu.default(x, w, None)

    torch.fx.replace_pattern(module, pattern, replacement)


REWRITING = Rewriting(
    "linear + relu", by_name("t5"), fuse, in_fx, lambda model: None, [fuse], crosses_modules=True
)
