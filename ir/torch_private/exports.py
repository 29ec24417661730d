"""Private names of torch for exported programs: guards, verifiers, hooks, joint graphs.

One idea: a name is given a type and a reason here, and nothing more.
"""

# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import torch
import torch._guards
import torch.export._unlift
import torch.fx.traceback
from torch._export.verifier import SpecViolationError, TrainingIRVerifier, Verifier

from .modules import hooks_of

__all__ = [
    "EXPORT_HOOKS", "SpecViolationError", "TrainingIRVerifier", "Verifier", "checks_inputs", "guards_of", "retraced_joint",
    "script_class", "set_guards",
]  # fmt: skip


def guards_of(ep: torch.export.ExportedProgram) -> list[str]:
    """Return the guards that ``ep.module()`` enforces, as Python text; no public attribute has them."""
    return list(getattr(ep, "_guards_code", None) or [])


def checks_inputs(module: Any) -> bool:
    """Say whether a module is the one that ``ep.module()`` calls first: it asserts what holds of the inputs, and nothing else.

    No public name has its class; it has no state, and torch sets its ``forward`` on the instance.
    """
    kind = getattr(torch.export._unlift, "GuardsFn", None)
    return kind is not None and type(module) is kind and not hooks_of(module) and "forward" in module.__dict__


def set_guards(ep: torch.export.ExportedProgram, guards: list[str]) -> None:
    """Give an exported program the guards that ``ep.module()`` enforces; its constructor asks the fake values alone."""
    ep._guards_code = guards


def script_class(value: Any) -> str:
    """Return the class of a script object as torch names it in signatures; that of any other object by its Python name."""
    if isinstance(value, torch.ScriptObject):
        return str(cast(Any, value)._type().qualified_name())
    return f"{type(value).__module__}.{type(value).__qualname__}"


EXPORT_HOOKS = "torch.export._unlift"
"""Where the hooks of ``ep.module()`` come from, which check its inputs."""


def retraced_joint(ep: torch.export.ExportedProgram) -> torch.fx.GraphModule:
    """Return the joint forward and backward graph of an exported program, which says of each node where it comes from.

    It is what ``torch.export.experimental._export_forward_backward`` makes before its second trace, which drops all meta.
    """
    # Importing these takes longer than all of purefx, and few programs are joint.
    from torch._decomp import core_aten_decompositions
    from torch._functorch.aot_autograd import _aot_export_function

    module = ep.graph_module
    values = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    mode = torch._guards.detect_fake_mode(values)

    def run(*leaves: Any) -> Any:
        with torch.fx.traceback.preserve_node_meta():
            return torch.fx.Interpreter(module).run(*leaves)

    with mode or nullcontext():
        table: Any = core_aten_decompositions()
        traced, *_ = _aot_export_function(run, tuple(values), decompositions=table, no_tangents=True, trace_joint=True)
    joint = cast(torch.fx.GraphModule, traced)
    joint.graph.eliminate_dead_code()
    return joint
