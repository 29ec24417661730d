"""Change the activation of the first two of twelve layers that share one body."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

import purefx as px
from examples.rewrites import Rewriting
from examples.zoo import by_name


@px.rule(where=lambda m: m.path.startswith(("encoder.layer.0.", "encoder.layer.1.")))
def gelu(x: Any, how: Any) -> Any:
    return functional.gelu(x, approximate=how)


@gelu.becomes
def _(m: px.Match, x: Any, how: Any) -> Any:
    return torch.relu(x)


def in_fx(module: torch.fx.GraphModule) -> None:
    for node in list(module.graph.nodes):
        paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
        if node.target is torch.ops.aten.gelu.default and any(
            path in ("encoder.layer.0", "encoder.layer.1") for path in paths
        ):
            node.target, node.kwargs = torch.ops.aten.relu.default, {}
    module.recompile()


def by_hand(model: Any) -> None:
    for layer in model.encoder.layer[:2]:
        layer.intermediate.intermediate_act_fn = torch.nn.ReLU()


REWRITING = Rewriting("activation of two layers", by_name("bert"), gelu, in_fx, by_hand, [gelu])
