"""How a training module is called: as the module that was captured, without tangents and gradients.

The joint program says how arguments and results are nested; its forward is cut out of a flat copy of it.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from ...ir.program import Program
from ...ir.signature import GIVEN, LossOutput, UserInput, UserOutput
from ...ir.torch_private import pytree
from ...transforms.training.halves import TANGENTS, without_tangents

__all__ = ["called_like", "result_spec", "uncalled"]


def uncalled(program: Program) -> Program:
    """Return a program whose arguments and results are flat."""
    return program.evolve(signature=evolve(program.signature, in_spec=None, out_spec=None, arg_names=()))


def called_like(joint: Program, forward: Program) -> Program:
    """Return the forward of a joint program, called as what was captured.

    Args:
        joint: says how arguments are nested.
        forward: it takes the arguments flat.
    """
    signature = joint.signature
    inputs = [spec for spec in signature.inputs if type(spec) is UserInput and spec.tangent_of is None]
    named = iter(inputs)
    specs = tuple([next(named) if type(spec) is UserInput else spec for spec in forward.signature.inputs])
    return forward.evolve(
        signature=evolve(
            forward.signature,
            inputs=specs,
            in_spec=without_tangents(signature.in_spec),
            out_spec=None,
            arg_names=tuple([name for name in signature.arg_names if name != TANGENTS]),
        )
    )


def result_spec(joint: Program) -> Any:
    """Return the pytree of what the module that was captured returns; None for a tuple of all that it gives.

    Args:
        joint: its result stands before its gradients.  Where nothing is known of it, one value is returned by itself.
    """
    signature = joint.signature
    given = [spec for spec in signature.outputs if type(spec) in GIVEN]
    own = sum(type(spec) in (UserOutput, LossOutput) for spec in given)
    spec = signature.out_spec
    if spec is not None and spec.num_leaves == own:
        return spec
    if spec is not None and spec.num_children and spec.child(0).num_leaves == own:
        return spec.child(0)
    return pytree.tree_structure(0) if own == 1 else None
