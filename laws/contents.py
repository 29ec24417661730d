"""``Contents``: what a tensor holds, as a value that compares bit by bit, reads as numbers, and can be compared with a tolerance.

One idea: dtype, shape and bytes are a tuple, so that meanings are equal exactly where ``==`` says so (NaN equals itself, -0.0 is
not 0.0); what people read are the numbers, and where the first ones differ.  It runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from attrs import frozen

__all__ = ["EXACT", "Contents", "Tolerance", "contents_of", "differences"]

SHOWN = 12
"""How many numbers of a tensor are shown."""

TOLD = 4
"""How many values are told that differ; the rest is counted."""


@frozen
class Tolerance:
    """How far numbers may be from what is expected: ``|given - expected| <= atol + rtol * |expected|``.

    >>> bool(Tolerance(atol=1e-6)), bool(Tolerance())
    (True, False)
    """

    rtol: float = 0.0
    atol: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.rtol or self.atol)


EXACT = Tolerance()


class Contents(NamedTuple):
    """The contents of a strided tensor.

    >>> contents_of(torch.tensor([[1.0, -0.5]]))
    float32[1, 2] (1.0, -0.5)
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def tensor(self) -> torch.Tensor:
        """Return a tensor that holds this."""
        dtype: torch.dtype = getattr(torch, self.dtype.removeprefix("torch."))
        flat = torch.frombuffer(bytearray(self.data), dtype=torch.uint8).view(dtype) if self.data else torch.empty(0, dtype=dtype)
        return flat.reshape(self.shape)

    def __repr__(self) -> str:
        numbers = self.tensor().reshape(-1)
        shown = [_number(value) for value in numbers[:SHOWN]]
        more = [f"and {numbers.numel() - SHOWN:,} more"] if numbers.numel() > SHOWN else []
        return f"{self.dtype.removeprefix('torch.')}{list(self.shape)} ({', '.join([*shown, *more])})"


def _number(value: torch.Tensor) -> str:
    return repr(value.item())


def contents_of(tensor: torch.Tensor) -> Contents:
    r"""Return what a strided tensor holds.

    Args:
        tensor: on the CPU, with contents.

    >>> contents_of(torch.tensor(2)).data[:1]
    b'\x02'
    """
    # A copy: of one element, the strides that torch calls contiguous need not be those that bytes have.
    plain = tensor.detach().resolve_conj().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
    data = bytes(plain.view(torch.uint8).tolist()) if plain.numel() else b""
    return Contents(str(tensor.dtype), tuple(tensor.shape), data)


def differences(given: Any, expected: Any, where: str, tolerance: Tolerance = EXACT) -> list[str]:
    """Return how what was seen differs from what should have been; empty where nothing does, or no more than a tolerance.

    Args:
        given: contents, other values, and tuples and lists of both.
        expected: the same.
        where: how the sentences begin.
        tolerance: for numbers that are not whole; all else has to be equal.

    >>> one, other = contents_of(torch.tensor([1.0, 2.0])), contents_of(torch.tensor([1.0, 2.5]))
    >>> differences((one,), (other,), "outputs")
    ['outputs[0]: got float32[2] (1.0, 2.0), expected float32[2] (1.0, 2.5): 1 of 2 numbers differ, by up to 0.5']
    >>> differences((one,), (other,), "outputs", Tolerance(rtol=0.3)), differences(1, 2, "calls")
    ([], ['calls: got 1, expected 2'])
    """
    if given == expected:
        return []
    if not _has_contents(given) and not _has_contents(expected):
        return [f"{where}: got {given}, expected {expected}"]
    found = list(_differing(given, expected, where, tolerance))
    return [*found[:TOLD], *([f"{where}: {len(found) - TOLD} more values differ"] if len(found) > TOLD else [])]


def _has_contents(value: Any) -> bool:
    todo = [value]
    while todo:
        part = todo.pop()
        if type(part) is Contents:
            return True
        if isinstance(part, tuple | list):
            todo.extend(part)
    return False


def _differing(given: Any, expected: Any, where: str, tolerance: Tolerance) -> Iterator[str]:
    todo = [(given, expected, where)]
    while todo:
        mine, theirs, place = todo.pop()
        if mine == theirs:
            continue
        if type(mine) is Contents and type(theirs) is Contents:
            told = _numbers(mine, theirs, tolerance)
            if told is not None:
                yield f"{place}: got {mine!r}, expected {theirs!r}{told}"
        elif type(mine) is type(theirs) and type(mine) in (tuple, list) and len(mine) == len(theirs):
            todo.extend(
                reversed([(one, other, f"{place}[{n}]") for n, (one, other) in enumerate(zip(mine, theirs, strict=True))])
            )
        else:
            yield f"{place}: got {mine!r}, expected {theirs!r}"


def _numbers(given: Contents, expected: Contents, tolerance: Tolerance) -> str | None:
    if given[:2] != expected[:2]:
        return ""
    mine, theirs = given.tensor(), expected.tensor()
    wide = torch.complex128 if theirs.is_complex() else torch.float64
    left, right = mine.to(wide), theirs.to(wide)
    inexact = theirs.is_complex() or theirs.is_floating_point()
    if tolerance and inexact and torch.allclose(left, right, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True):
        return None
    apart = (left != right) & ~(left.isnan() & right.isnan())
    if not bool(apart.any()):
        return ": the numbers are equal, their bits are not (the sign of a zero, or of what is no number)"
    most = (left - right).abs()[apart].max().item()
    return f": {int(apart.sum())} of {apart.numel()} numbers differ, by up to {most:.2g}"
