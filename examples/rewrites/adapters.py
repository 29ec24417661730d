"""Add low-rank adapters to the linear layers that match a path; each layer gets its own parameters."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

import torch
from torch.nn import functional

import purefx as px
from examples.rewrites import Rewriting
from examples.zoo import llama

WHERE, RANK = "*.[qv]_proj", 2


@px.rule(at=torch.ops.aten.linear, once=True)
def adapt(m: px.Match) -> Any:
    if not fnmatch(m.path, WHERE):
        return None
    x, (rows, columns) = m.arguments["input"], m.arguments["weight"].shape
    a, b = (
        m.parameter("lora_a", torch.full((RANK, columns), 0.01)),
        m.parameter("lora_b", torch.full((rows, RANK), 0.02)),
    )
    return m.value + functional.linear(functional.linear(x, a), b)


def in_fx(module: torch.fx.GraphModule) -> None:
    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if node.target is not aten.linear.default or not fnmatch(
            node.args[1].target.rpartition(".")[0], WHERE
        ):
            continue
        path = node.args[1].target.rpartition(".")[0]
        rows, columns = node.args[1].meta["val"].shape
        owner = module.get_submodule(path)
        owner.register_parameter("lora_a", torch.nn.Parameter(torch.full((RANK, columns), 0.01)))
        owner.register_parameter("lora_b", torch.nn.Parameter(torch.full((rows, RANK), 0.02)))
        users = list(node.users)
        with module.graph.inserting_after(node):
            a = module.graph.get_attr(f"{path}.lora_a")
        with module.graph.inserting_after(a):
            b = module.graph.get_attr(f"{path}.lora_b")
        with module.graph.inserting_after(b):
            small = module.graph.call_function(aten.linear.default, (node.args[0], a))
        with module.graph.inserting_after(small):
            large = module.graph.call_function(aten.linear.default, (small, b))
        with module.graph.inserting_after(large):
            added = module.graph.call_function(aten.add.Tensor, (node, large))
        for user in users:
            user.replace_input_with(node, added)
    module.recompile()


class Adapted(torch.nn.Module):
    """A linear layer with its adapter, in eager."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.a, self.b = (
            torch.full((RANK, linear.in_features), 0.01),
            torch.full((linear.out_features, RANK), 0.02),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the layer gives, and the adapter."""
        return self.linear(x) + functional.linear(functional.linear(x, self.a), self.b)


def by_hand(model: Any) -> None:
    for path in [path for path, _ in model.named_modules() if fnmatch(path, WHERE)]:
        model.set_submodule(path, Adapted(model.get_submodule(path)))


REWRITING = Rewriting("low-rank adapters", llama(4), adapt, in_fx, by_hand, [adapt])
