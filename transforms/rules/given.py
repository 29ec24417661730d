"""What a rule is given of a program: values to compute with, sizes to compare, state to read; nothing here is built.

``Given`` is a value that is there, ``Size`` a size that only a run knows, ``Read`` state, new or old, and ``Kept`` the value that
a match stands for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...ir.arguments import Ref
from ...ir.errors import RuleError
from .terms import Term

__all__ = ["ASKED", "Given", "Kept", "Read", "Size", "size_of"]


ASKED = frozenset({"dtype", "device", "ndim", "shape", "dim"})
"""Attributes of tensors that can be asked of a value."""


@frozen(eq=False, repr=False)
class Given(Term):
    """A value of the program that a variable matched; what is known of it can be asked as of a tensor."""

    ref: Ref
    val: Callable[[Ref], Any]
    """Gives its fake value; None if it is unknown."""

    def __repr__(self) -> str:
        return self.ref.name

    def __getattr__(self, name: str) -> Any:
        """Return what is known of a tensor, or a method that applies the operator of its name."""
        if name in ASKED and isinstance(value := self.val(self.ref), torch.Tensor):
            return tuple(map(size_of, value.shape)) if name == "shape" else getattr(value, name)
        return super().__getattr__(name)


@frozen(eq=False)
class Size:
    """A size that only a run knows; a comparison is true where the program's constraints prove it, and installs no guard.

    What is not proven is false, so ``a != b`` is not the opposite of ``a == b``: both are false where neither is known.
    """

    value: torch.SymInt

    def __repr__(self) -> str:
        return str(self.value)

    def __bool__(self) -> bool:
        raise RuleError(f"whether the size {self} is 0 is known only when the program runs; compare it, as in `size != 0`")

    __hash__ = None  # type: ignore[assignment]


def size_of(value: Any) -> Any:
    """Return a size that a condition can look at: a number as it is.

    >>> size_of(3)
    3
    """
    return Size(value) if isinstance(value, torch.SymInt) else value


def _add_arithmetic() -> None:
    for name in ("add", "sub", "mul", "floordiv", "mod", "radd", "rsub", "rmul"):
        plain = getattr(operator, name.removeprefix("r"))
        turned = name.startswith("r")
        setattr(
            Size, f"__{name}__", lambda mine, other, of=plain, turned=turned: size_of(_numbers(of, mine, other, turned=turned))
        )
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        plain = getattr(operator, name)
        setattr(Size, f"__{name}__", lambda mine, other, plain=plain: bool(statically_known_true(_numbers(plain, mine, other))))


def _numbers(plain: Any, mine: Size, other: Any, *, turned: bool = False) -> Any:
    theirs = other.value if isinstance(other, Size) else other
    return plain(theirs, mine.value) if turned else plain(mine.value, theirs)


_add_arithmetic()


@frozen(eq=False, repr=False)
class Read(Term):
    """Reads a piece of state, as the body that is rewritten names it."""

    slot: str

    def __repr__(self) -> str:
        return f"get {self.slot}"


@frozen(eq=False, repr=False)
class Kept(Term):
    """The value at the root of a match, computed as it was; its operator stays, and others use what the rule makes of it."""

    def __repr__(self) -> str:
        return "m.value"
