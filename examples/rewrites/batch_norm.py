"""Fold a batch norm in evaluation mode into the convolution before it."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights

import purefx as px
from examples.rewrites import Rewriting
from examples.zoo import by_name

X = Any


@px.rule(
    where=lambda m: all(
        m.tensor(each) is not None for each in ("w", "weight", "bias", "mean", "var")
    )
)
def normed(
    x: X, w: X, s: X, p: X, d: X, g: X, weight: X, bias: X, mean: X, var: X, mom: X, eps: X
) -> X:
    return torch.batch_norm(
        functional.conv2d(x, w, None, s, p, d, g), weight, bias, mean, var, False, mom, eps, False
    )


@normed.becomes
def _(
    m: px.Match,
    x: X,
    w: X,
    s: X,
    p: X,
    d: X,
    g: X,
    weight: X,
    bias: X,
    mean: X,
    var: X,
    mom: X,
    eps: X,
) -> X:
    tensors = [m.tensor(each) for each in (mean, var)]
    new = fuse_conv_bn_weights(m.tensor(w), None, *tensors, eps, m.tensor(weight), m.tensor(bias))
    for each in (w, weight, bias, mean, var):
        m.drop(each)
    return functional.conv2d(
        x, m.parameter("weight", new[0]), m.parameter("bias", new[1]), s, p, d, g
    )


def in_fx(module: torch.fx.GraphModule) -> None:
    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if (
            node.target is not aten.batch_norm.default
            or node.args[0].target is not aten.conv2d.default
        ):
            continue
        conv = node.args[0]
        if len(conv.users) > 1 or node.args[5]:
            continue
        names = [conv.args[1].target, *[each.target for each in node.args[1:5]]]
        w, weight, bias, mean, var = [_tensor(module, name) for name in names]
        new = fuse_conv_bn_weights(w, None, mean, var, node.args[7], weight, bias)
        path = names[0].rpartition(".")[0]
        owner = module.get_submodule(path)
        owner.weight = new[0]
        owner.register_parameter("bias_folded", new[1])
        with module.graph.inserting_before(conv):
            read = module.graph.get_attr(f"{path}.bias_folded")
        conv.args = (conv.args[0], conv.args[1], read, *conv.args[3:])
        node.replace_all_uses_with(conv)
        reads = node.args[1:5]
        module.graph.erase_node(node)
        for each in reads:
            module.graph.erase_node(each)
    module.recompile()


def _tensor(module: torch.fx.GraphModule, name: str) -> torch.Tensor:
    path, _, attribute = name.rpartition(".")
    return getattr(module.get_submodule(path), attribute)


REWRITING = Rewriting(
    "batch norm",
    by_name("resnet"),
    normed,
    in_fx,
    lambda model: None,
    [normed],
    tolerance=1e-4,
    crosses_modules=True,
)
