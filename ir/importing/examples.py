"""Fake values for the nodes of a traced graph: what it gives for an example, computed without contents.

One idea: a copy of the module is run on fake tensors, so nothing of the module or of the example is written to.  What only a
run with contents can know is left out, with all that depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx

from ..errors import InputValueError
from ..torch_private import FAKE_REFUSALS, FakeTensorMode, fake_copy
from .traced_signature import bound_example

__all__ = ["example_values"]


def example_values(module: torch.fx.GraphModule, inputs: Any) -> Mapping[Any, Any]:
    """Return the fake value of each node of a graph module.

    Args:
        module: the graph module; it is not changed.
        inputs: the arguments of an example call: a tuple, or a dict of them by name.

    Raises:
        InputValueError: the graph does not run on the example; the message names the node.

    >>> traced = torch.fx.symbolic_trace(torch.nn.ReLU())
    >>> [tuple(value.shape) for value in example_values(traced, (torch.ones(2, 3),)).values()]
    [(2, 3), (2, 3), (2, 3)]
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    args = _arguments(module, inputs)
    copied = fake_copy(module, mode)
    fakes = [mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in args]
    run = _Run(copied)
    with mode, torch.no_grad():
        try:
            run.run(*fakes, enable_io_processing=False)
        except FAKE_REFUSALS:
            pass  # what is not known without contents, and all behind it, stays unknown
        except Exception as error:
            name = run.current.name if run.current is not None else "the call"
            raise InputValueError(
                f"the graph does not run on example_inputs: {name} raises {type(error).__name__}: {error}"
            ) from error
    return {
        fx_node: run.found[other]
        for fx_node, other in zip(module.graph.nodes, copied.graph.nodes, strict=True)
        if other in run.found
    }


def _arguments(module: torch.fx.GraphModule, inputs: Any) -> list[Any]:
    if not isinstance(inputs, tuple | dict):
        raise InputValueError(f"example_inputs are a tuple, or a dict by name, not a {type(inputs).__name__}")
    args, kwargs = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)
    return bound_example(module, args, kwargs)


class _Run(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.found: dict[torch.fx.Node, Any] = {}
        self.current: torch.fx.Node | None = None

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node and remember what it gives."""
        self.current = n
        self.found[n] = result = super().run_node(n)
        return result
