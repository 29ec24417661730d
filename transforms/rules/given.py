"""Operands of a replacement: values of the program, state reads, and the original value of a match.

Nothing is built here (``building.py``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from attrs import frozen

from ...ir.arguments import Ref
from ...ir.graph import Node
from .amounts import Known
from .terms import Term

__all__ = ["Given", "Kept", "Read"]

ASKED = frozenset({"dtype", "device", "ndim", "dim"})
"""Attributes of tensors that are known of a value whatever its sizes are."""


@frozen(eq=False, repr=False)
class Given(Term):
    """A value of the program that a variable matched; its type and sizes can be asked as those of a tensor.

    A size that only a run knows is a ``Known``: the program computes it where it is used.
    """

    ref: Ref
    val: Callable[[Ref], Any]
    """Returns its fake value; None if it is unknown."""

    def __repr__(self) -> str:
        return self.ref.name

    def _now(self) -> Any:
        return self.val(self.ref)

    def _gives_tensor(self) -> bool | None:
        value = self._now()
        return None if value is None else isinstance(value, torch.Tensor)

    def __getattr__(self, name: str) -> Any:
        """Return a fact of a tensor, or a method that applies the operator of its name."""
        value = self.val(self.ref) if name in ASKED or name in ("shape", "size", "numel", "nelement") else None
        if not isinstance(value, torch.Tensor):
            return super().__getattr__(name)
        if name in ASKED:
            return getattr(value, name)
        sizes = [size if type(size) is int else Known(self, "size", dim) for dim, size in enumerate(value.shape)]
        shape = tuple(sizes) if any(isinstance(size, Known) for size in sizes) else value.shape
        if name == "shape":
            return shape
        if name == "size":
            return lambda dim=None: shape if dim is None else shape[dim]
        return lambda: reduce(operator.mul, shape) if shape else 1


@frozen(eq=False, repr=False)
class Read(Term):
    """Reads a piece of state, as the body that is rewritten names it."""

    slot: str

    def _gives_tensor(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"get {self.slot}"


@frozen(eq=False, repr=False)
class Kept(Term):
    """The value at the root of a match as it was; its operator stays, and others use the replacement."""

    node: Node
    gives_tensor: bool | None = None

    def _gives_tensor(self) -> bool | None:
        return self.gives_tensor

    def __repr__(self) -> str:
        return "m.value"
