"""Replace written-out attention by ``scaled_dot_product_attention``."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

import purefx as px
from examples.rewrites import Rewriting
from examples.zoo import qwen3


@px.rule(where=lambda m: m["p"] == 0.0 or m["train"] is False)
def written_out(q: Any, k: Any, v: Any, scale: Any, mask: Any, p: Any, train: Any) -> Any:
    scores = q @ k.transpose(2, 3) * scale + mask
    return (
        torch.dropout(torch.softmax(scores, -1, dtype=torch.float32).to(torch.float32), p, train)
        @ v
    )


@written_out.becomes
def _(m: px.Match, q: Any, k: Any, v: Any, scale: Any, mask: Any, p: Any, train: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def in_fx(module: torch.fx.GraphModule) -> None:
    aten = torch.ops.aten
    for node in module.graph.find_nodes(
        op="call_function", target=aten._assert_tensor_metadata.default
    ):
        module.graph.erase_node(node)

    def pattern(q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = aten.mul.Tensor(aten.matmul.default(q, aten.transpose.int(k, 2, 3)), 8**-0.5)
        weights = aten.softmax.int(aten.add.Tensor(scores, mask), -1, torch.float32)
        return aten.matmul.default(
            aten.dropout.default(aten.to.dtype(weights, torch.float32), 0.0, False), v
        )

    def replacement(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return aten.scaled_dot_product_attention.default(q, k, v, mask, scale=8**-0.5)

    torch.fx.replace_pattern(module, pattern, replacement)


REWRITING = Rewriting("attention", qwen3(4), written_out, in_fx, lambda model: None, [written_out])
