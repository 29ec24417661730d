"""Private names of torch for joint forward and backward graphs: the trace of a module with its backward.

Importing AOTAutograd takes longer than all of purefx, so it is done where a joint graph is asked for.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

import torch
import torch.fx

__all__ = ["traced_joint"]

# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.


def traced_joint(module: torch.nn.Module, args: tuple[Any, ...]) -> torch.fx.GraphModule:
    """Return the joint forward and backward graph of a module, with descriptors of its inputs and outputs.

    Args:
        module: takes tensors and returns a tuple of tensors.
        args: fake tensors.
    """
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with ExitStack() as stack:
        # Once the stack is left nothing can be compiled of the result, but its graph is whole.
        return cast(torch.fx.GraphModule, aot_export_joint_with_descriptors(stack, module, args).graph_module)
