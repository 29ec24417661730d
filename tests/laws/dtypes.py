"""Laws of ``to_dtype``: double precision and back is the program, and says of each value what it computes.

Single precision fits into double precision, so nothing is lost on the way; ``there_and_back`` is what the laws are asked of.
"""

from __future__ import annotations

import torch
from attrs import evolve

from purefx.ir.program import Program
from purefx.ir.signature import TensorType, UserInput
from purefx.laws.law import Case, Transform
from purefx.laws.values import false_values
from purefx.transforms.convert import to_dtype
from purefx.transforms.transformation import Transformation
from tests.laws.aimed import law

__all__ = ["double_says_what_it_computes", "there_and_back"]


def _there_and_back(program: Program) -> Program:
    result = to_dtype.apply(to_dtype.apply(program, torch.float64), torch.float32)
    return program if result == program else result


there_and_back: Transformation = evolve(to_dtype, apply=_there_and_back)
"""``to_dtype`` to double precision and back."""


def _converts(transform: Transform, case: Case) -> bool:
    return to_dtype(case.program, torch.float64) is not case.program


@law("in double precision every value is what is said of it", acts=_converts)
def double_says_what_it_computes(transform: Transform, case: Case) -> list[str]:
    """Say which values are not what is said of them."""
    double = to_dtype(transform(case.program), torch.float64)
    return false_values(double, [[_as_given(leaf, double) for leaf in call] for call in case.calls])


def _as_given(leaf: object, double: Program) -> object:
    takes_double = any(
        isinstance(spec, UserInput) and isinstance(spec.type, TensorType) and spec.type.dtype is torch.float64
        for spec in double.signature.inputs
    )
    is_single = isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float32
    return leaf.double() if takes_double and is_single else leaf  # type: ignore[union-attr]
