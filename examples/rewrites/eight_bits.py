"""Quantise weights of linear layers to eight bits, with a scale for each row, and remove the old weights."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

import purefx as px
from examples.rewrites import Rewriting, owner_of
from examples.zoo import llama


@px.rule(where=lambda m: m.tensor("w") is not None)
def linear(x: Any, w: Any) -> Any:
    return functional.linear(x, w)


@linear.becomes
def _(m: px.Match, x: Any, w: Any) -> Any:
    weight = m.tensor(w)
    scale = weight.abs().amax(1, keepdim=True) / 127
    small = m.buffer("weight_int8", (weight / scale).round().to(torch.int8))
    m.drop(w)
    return x @ (small.to(torch.float32) * m.buffer("scale", scale)).t()


def in_fx(module: torch.fx.GraphModule) -> None:
    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if node.target is not aten.linear.default or len(node.args) > 2:
            continue
        path, _, name = node.args[1].target.rpartition(".")
        owner = module.get_submodule(path)
        weight = getattr(owner, name).detach()
        scale = weight.abs().amax(1, keepdim=True) / 127
        owner.register_buffer("weight_int8", (weight / scale).round().to(torch.int8))
        owner.register_buffer("scale", scale)
        with module.graph.inserting_before(node):
            small = module.graph.get_attr(f"{path}.weight_int8")
            factor = module.graph.get_attr(f"{path}.scale")
            plain = module.graph.call_function(aten.to.dtype, (small, torch.float32))
            whole = module.graph.call_function(aten.mul.Tensor, (plain, factor))
            turned = module.graph.call_function(aten.t.default, (whole,))
            result = module.graph.call_function(aten.matmul.default, (node.args[0], turned))
        node.replace_all_uses_with(result)
        read = node.args[1]
        module.graph.erase_node(node)
        if not read.users:
            module.graph.erase_node(read)
            delattr(owner, name)
    module.recompile()


def by_hand(model: Any) -> None:
    for path, _ in [
        (path, each) for path, each in model.named_modules() if isinstance(each, torch.nn.Linear)
    ]:
        owner, name = owner_of(model, path)
        weight = getattr(owner, name).weight
        scale = weight.detach().abs().amax(1, keepdim=True) / 127
        weight.data = (weight.detach() / scale).round() * scale


REWRITING = Rewriting("weights of 8 bits", llama(4), linear, in_fx, by_hand, [linear])
