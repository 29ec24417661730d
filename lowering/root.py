"""The root of a lowered program: takes what the original ``forward`` took, gives what it gave.

One idea: binding, checks and pytrees are around the body, not in it; an error inside is noted with its place.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

import torch

from .arguments import CallPlan
from .compiled import Body
from .interpreter import LoweredInterpreter, run_tape
from .module import LoweredModule
from .notes import note_from_traceback

__all__ = ["LoweredInterpreterRoot", "LoweredRoot"]


class _Root(torch.nn.Module):
    """What both kinds of root share."""

    purefx_plan: CallPlan
    purefx_codes: dict[CodeType, Body]

    def _run_body(self, leaves: Any) -> Any:
        raise NotImplementedError

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program as the original module.

        Raises:
            InputError: the arguments are structured differently from the exported ones.
            InputValueError: an argument has a wrong type, shape, dtype or value.
        """
        plan = self.purefx_plan
        leaves = plan.leaves(args, kwargs)
        try:
            results = self._run_body(leaves)
        except Exception as error:
            note_from_traceback(error, self.purefx_codes)
            raise
        return plan.result(results)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:  # noqa: FBT001, FBT002  torch's signature
        # After .double() or .half() the exported dtypes of floating inputs no longer hold.
        before = _floating_dtype(self)
        result = super()._apply(fn, recurse)
        if _floating_dtype(self) is not before:
            self.purefx_plan.checks.floating = True
        return result


def _floating_dtype(module: torch.nn.Module) -> torch.dtype | None:
    for tensors in (module.parameters(), module.buffers()):
        for tensor in tensors:
            if tensor.is_floating_point():
                return tensor.dtype
    return None


class LoweredRoot(_Root, LoweredModule):
    """The root module made by ``lower``: a ``torch.fx.GraphModule`` that takes and gives pytrees."""

    def _run_body(self, leaves: Any) -> Any:
        return self.purefx_place.body.run(self, *leaves)


class LoweredInterpreterRoot(_Root, LoweredInterpreter):
    """The root module made by ``lower(..., to="interpreter")``."""

    def _run_body(self, leaves: Any) -> Any:
        place = self.purefx_place
        if torch.compiler.is_compiling():
            return place.body.run(self, *leaves)
        return run_tape(place, self, tuple(leaves))
