"""Convert a model to bfloat16; norms stay in single precision."""

from __future__ import annotations

from typing import Any

import torch

import purefx as px
from examples.rewrites import Rewriting
from examples.zoo import llama


def halved(program: px.Program) -> px.Program:
    return px.to_dtype(program, torch.bfloat16)


def in_fx(module: torch.fx.GraphModule) -> None:
    aten = torch.ops.aten
    for part in [each for each in module.modules() if isinstance(each, torch.fx.GraphModule)]:
        for node in list(part.graph.nodes):
            if node.target is aten._assert_tensor_metadata.default:
                part.graph.erase_node(node)
        for node in list(part.graph.nodes):
            if node.target is not aten.to.dtype or node.args[1] is not torch.float32:
                continue
            users = {user.target for user in node.users}
            if users.isdisjoint({aten.pow.Tensor_Scalar, aten.expand.default, aten.matmul.default}):
                node.args = (node.args[0], torch.bfloat16, *node.args[2:])
            for user in [user for user in node.users if user.target is aten.add.Tensor]:
                user.replace_input_with(node, node.args[0])
        part.recompile()
    module.to(torch.bfloat16)


def by_hand(model: Any) -> None:
    model.to(torch.bfloat16)


REWRITING = Rewriting(
    "bfloat16", llama(4), halved, in_fx, by_hand, [halved], tolerance=0.0, at="to_7"
)
