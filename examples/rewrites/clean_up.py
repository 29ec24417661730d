"""Fold constants, compute equal values once, and remove dead code."""

from __future__ import annotations

import torch
from torch.fx.passes.dialect.common.cse_pass import CSEPass

import purefx as px
from examples.rewrites import Rewriting
from examples.zoo import llama


def clean(program: px.Program) -> px.Program:
    return px.transform(
        program, px.fold_constants, px.eliminate_common_subexpressions, px.eliminate_dead_code
    )


def in_fx(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    # torch.fx.experimental.const_fold makes modules that cannot be called with the arguments of an exported program.
    result = CSEPass()(module)
    made = module if result is None else result.graph_module
    made.graph.eliminate_dead_code()
    made.recompile()
    return made


REWRITING = Rewriting(
    "fold, CSE, DCE", llama(4), clean, in_fx, lambda model: None, [clean], at="expand"
)
