"""Merge the projections to queries, keys and values into one, with concatenated weights."""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch.nn import functional

import purefx as px
from examples.rewrites import Rewriting
from examples.zoo import by_name


@px.rule(where=lambda m: all(m.tensor(each) is not None for each in ("a", "b", "c", "d", "e", "f")))
def three(
    x: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, size: Any, mask: Any, scale: Any
) -> Any:
    q, k, v = (
        functional.linear(x, *each).view(size).transpose(1, 2) for each in ((a, b), (c, d), (e, f))
    )
    return functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)


@three.becomes
def _(
    m: px.Match,
    x: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    e: Any,
    f: Any,
    size: Any,
    mask: Any,
    scale: Any,
) -> Any:
    weight, bias = (
        torch.cat([m.tensor(each) for each in several]) for several in ((a, c, e), (b, d, f))
    )
    for each in (a, b, c, d, e, f):
        m.drop(each)
    parts = functional.linear(
        x, m.parameter("qkv_weight", weight), m.parameter("qkv_bias", bias)
    ).chunk(3, -1)
    q, k, v = (parts[number].view(size).transpose(1, 2) for number in range(3))
    return functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def in_fx(module: torch.fx.GraphModule) -> None:
    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if node.target is not aten.scaled_dot_product_attention.default:
            continue
        linears = [each.args[0].args[0] for each in node.args[:3]]
        if (
            any(each.target is not aten.linear.default for each in linears)
            or len({each.args[0] for each in linears}) > 1
        ):
            continue
        path = linears[0].args[1].target.rpartition(".")[0].rpartition(".")[0]
        owner = module.get_submodule(path)
        owners = [module.get_submodule(each.args[1].target.rpartition(".")[0]) for each in linears]
        owner.register_parameter(
            "qkv_weight", torch.nn.Parameter(torch.cat([each.weight for each in owners]))
        )
        owner.register_parameter(
            "qkv_bias", torch.nn.Parameter(torch.cat([each.bias for each in owners]))
        )
        with module.graph.inserting_before(linears[0]):
            reads = [module.graph.get_attr(f"{path}.qkv_{each}") for each in ("weight", "bias")]
            whole = module.graph.call_function(aten.linear.default, (linears[0].args[0], *reads))
            parts = module.graph.call_function(aten.chunk.default, (whole, 3, -1))
        for number, each in enumerate(linears):
            with module.graph.inserting_before(each):
                part = module.graph.call_function(getitem, (parts, number))
            each.replace_all_uses_with(part)
            reads = each.args[1:]
            module.graph.erase_node(each)
            for read in reads:
                delattr(
                    module.get_submodule(read.target.rpartition(".")[0]),
                    read.target.rpartition(".")[2],
                )
                module.graph.erase_node(read)
    module.recompile()


REWRITING = Rewriting(
    "one projection",
    by_name("bert"),
    three,
    in_fx,
    lambda model: None,
    [three],
    crosses_modules=True,
)
