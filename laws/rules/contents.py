"""``Operand``: what a variable of a rule is in a drawn program, and the numbers that it holds in each call.

Numbers are made of the dtype, the sizes and the call, so that the same operand is the same whenever it is asked.  Among them are
zeros of both signs, negative ones and whole ones; in the last call also what is infinite or not a number, and the least and the
largest whole number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import evolve, frozen

__all__ = ["CALLS", "Operand", "leaves_of", "only_finite", "with_leaves"]

CALLS = 3
"""How often in a row each program runs, with other numbers each time."""

ORDINARY = (1.0, -2.0, 0.0, 0.5, -1.0, 3.0, -0.25, 2.0, -3.0)
SPECIAL = (float("inf"), -0.0, -1.0, float("nan"), 4096.0, float("-inf"), 0.5, 0.0, -2.0)
WHOLE = (1, -2, 0, 3, -1, 2, 5, -7)
FEW = (0, 1, 1, 0, 0, 1, 0)
"""Numbers that can be positions in whatever has two of something."""
BETWEEN = (0.5, 0.25, 1.0, 0.0, 0.75)
"""Numbers that can be probabilities."""


@frozen(eq=False)
class Operand:
    """A tensor that a program is given, or an argument as it stands.

    >>> Operand(torch.zeros(2)), Operand(-1), Operand(torch.zeros(1, dtype=torch.int64), "few").at(0)
    (float32[2], -1, tensor([0]))
    """

    value: Any
    style: str = "signed"
    """What the numbers of a tensor are: ``"signed"``, ``"few"`` or ``"between"``; ``"given"``, those that it has, which change
    places from call to call; ``"held"``, always those that it has."""
    finite: bool = False
    """Whether nothing that is infinite or not a number may be among them."""

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self.value, torch.Tensor)

    @property
    def is_finite(self) -> bool:
        """Whether its numbers have to be finite in all calls; those that somebody gave may be what they are."""
        is_own = self.style in ("given", "held") and self.is_tensor
        return self.finite and not (is_own and not bool(self.value.isfinite().all()))

    def at(self, call: int, index: int = 0) -> torch.Tensor:
        """Return the tensor that is passed in a call.

        Args:
            call: the number of the call; numbers of the last are unusual.
            index: of the operand, so that two of them have other numbers.
        """
        like = self.value
        if self.style == "held":
            return like.clone()
        if self.style == "given":
            return like.reshape(-1).roll(call).reshape(like.shape).clone()
        start = 2 * index + 3 * call
        if like.dtype.is_floating_point or like.dtype.is_complex:
            numbers: Sequence[Any] = self._fractions(call)
        elif self.style == "few" or like.dtype is torch.bool:
            numbers = FEW
        else:
            limits = torch.iinfo(like.dtype)
            numbers = (*WHOLE, limits.min, limits.max) if call == CALLS - 1 and not self.finite else WHOLE
        count = like.numel()
        found = [numbers[(start + number) % len(numbers)] for number in range(count)]
        if like.dtype.is_complex:
            found = [complex(one, other) for one, other in zip(found, reversed(found), strict=True)]
        if not like.dtype.is_signed and like.dtype is not torch.bool:
            found = [abs(number) for number in found]
        return torch.tensor(found, dtype=like.dtype).reshape(like.shape)

    def grown(self, size: int, by: int) -> Operand:
        """Return an operand in which each size that is one number is larger.

        >>> Operand(torch.zeros(2, 3)).grown(3, 1)
        float32[2, 4]
        """
        value = self.value.new_empty([one + by if one == size else one for one in self.value.shape])
        return evolve(self, value=value) if by else self

    def _fractions(self, call: int) -> Sequence[float]:
        if self.style == "between":
            return BETWEEN
        if call == 1:
            return [round(3 * number / 7 + 0.1, 4) for number in range(-7, 8, 2)]
        return SPECIAL if call == CALLS - 1 and not self.finite else ORDINARY

    def __repr__(self) -> str:
        if not self.is_tensor:
            return repr(self.value)
        return f"{str(self.value.dtype).removeprefix('torch.')}{list(self.value.shape)}"


def leaves_of(operands: Sequence[Any]) -> Iterator[Operand]:
    """Iterate over the tensors among what variables are; a variable may be a list of some.

    >>> list(leaves_of([Operand(1), [Operand(torch.zeros(2))]]))
    [float32[2]]
    """
    for each in operands:
        yield from ([one for one in each if one.is_tensor] if isinstance(each, list) else [each] if each.is_tensor else [])


def with_leaves(operands: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """Return what variables are as a pattern is called with it: the tensors in their places, other arguments as they stand.

    >>> with_leaves([Operand(1), [Operand(torch.zeros(2))]], ["here"])
    [1, ['here']]
    """
    rest = iter(tensors)

    def one(operand: Operand) -> Any:
        return next(rest) if operand.is_tensor else operand.value

    return [[one(part) for part in each] if isinstance(each, list) else one(each) for each in operands]


def only_finite(operands: Sequence[Any]) -> list[Any]:
    """Return the same operands without what is infinite or not a number.

    >>> bool(only_finite([Operand(torch.zeros(9))])[0].at(CALLS - 1).isfinite().all())
    True
    """
    return [
        [evolve(one, finite=True) for one in each] if isinstance(each, list) else evolve(each, finite=True) for each in operands
    ]
