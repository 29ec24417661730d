"""Return the outputs of inner modules beside the result, for calibration or as features."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

import purefx as px
from examples.rewrites import Rewriting
from examples.zoo import llama


def observed(program: px.Program) -> px.Program:
    return px.observe(program, "*.mlp")


def in_fx(module: torch.fx.GraphModule) -> None:
    seen: dict[str, torch.fx.Node] = {}
    for node in module.graph.nodes:
        for path, _ in node.meta.get("nn_module_stack", {}).values():
            if path.endswith(".mlp"):
                seen[path] = node
    [output] = module.graph.find_nodes(op="output")
    output.args = ((*output.args[0], *seen.values()),)
    codegen: Any = module.graph._codegen  # pyright: ignore[reportPrivateUsage]
    info = codegen.pytree_info
    inner = pytree.tree_structure(dict.fromkeys(seen, 0))
    codegen.pytree_info = info._replace(out_spec=pytree.treespec_tuple([info.out_spec, inner]))
    module.recompile()


def by_hand(model: Any) -> None:
    seen: dict[str, Any] = {}
    for path, each in model.named_modules():
        if path.endswith(".mlp"):
            each.register_forward_hook(
                lambda _, args, result, path=path: seen.__setitem__(path, result)
            )
    plain = model.forward
    model.forward = lambda *args, **kwargs: (plain(*args, **kwargs), dict(seen))


REWRITING = Rewriting("observers", llama(4), observed, in_fx, by_hand, [observed])
