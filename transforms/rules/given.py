"""What a rule is given of a program: values to compute with, sizes to compare, state to read; nothing here is built.

``Given`` is a value that is there, ``Symbolic`` a tensor with sizes that only a run knows, ``Size`` such a size, ``Read`` state,
new or old, and ``Kept`` the value that a match stands for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextvars import ContextVar
from functools import reduce
from typing import Any

import torch
from attrs import frozen

from ...ir.arguments import Ref
from ...ir.errors import RuleError
from ...ir.graph import Node
from ...ir.torch_private import has_fixed_sizes, is_known_true
from .terms import Term
from .writing import Number

__all__ = ["ASKED", "Given", "Kept", "Read", "Size", "Symbolic", "Unproven", "holds", "known_of", "size_of"]


class Unproven(RuleError):
    """A replacement asks what only a run knows."""


ASKED = frozenset({"dtype", "device", "ndim", "shape", "dim", "size", "numel"})
"""Attributes of tensors that can be asked of a value."""


@frozen(eq=False, repr=False)
class Given(Term):
    """A value of the program that a variable matched; what is known of it can be asked as of a tensor."""

    ref: Ref
    val: Callable[[Ref], Any]
    """Gives its fake value; None if it is unknown."""

    def __repr__(self) -> str:
        return self.ref.name

    def _gives_tensor(self) -> bool | None:
        value = self.val(self.ref)
        return None if value is None else isinstance(value, torch.Tensor)

    def __getattr__(self, name: str) -> Any:
        """Return what is known of a tensor, or a method that applies the operator of its name."""
        if name in ASKED and isinstance(value := self.val(self.ref), torch.Tensor):
            return getattr(known_of(value, self.ref), name)
        return super().__getattr__(name)


@frozen(eq=False)
class Size(Number):
    """A size that only a run knows, and numbers that are computed of such; a comparison is a question of proof.

    A comparison is true where the program's constraints prove it, and installs no guard.  Where neither it nor its opposite is
    proven, a condition holds only if it holds whichever is the case (``holds``), and a replacement cannot ask.
    """

    value: Any
    """The symbolic number."""
    source: tuple[Any, ...] = ()
    """What computes it: an operator, or a function of Python, and its operands; a value of the program alone."""
    __torch_function__ = Term.__torch_function__  # torch.zeros([n, 1]), torch.arange(n)

    def __repr__(self) -> str:
        return str(self.value)

    def __bool__(self) -> bool:
        return _is_true("!=", operator.ne, self, 0)

    def __index__(self) -> int:
        raise RuleError(f"the size {self} is known only when the program runs: compute with it as it is, without int()")

    __int__ = __float__ = __index__
    __hash__ = None  # type: ignore[assignment]


def size_of(value: Any, *source: Any) -> Any:
    """Return a size that a condition can look at: a number as it is.

    Args:
        value: a number, or a symbolic one.
        source: what computes it, as ``Size`` has it.

    >>> size_of(3)
    3
    """
    return Size(value, source) if isinstance(value, torch.SymInt | torch.SymFloat) else value


@frozen(eq=False)
class Symbolic:
    """A tensor of which some sizes are known only to a run: attributes of its fake value, with sizes that compare by proof.

    It passes for a tensor where its class is asked, as fake values do.
    """

    value: Any
    ref: Ref | None = None

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return type(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its sizes."""
        return tuple([self._number(size, SIZE, dim) for dim, size in enumerate(self.value.shape)])

    def size(self, dim: int | None = None) -> Any:
        """Return its sizes, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Return its strides, or one of them."""
        strides = tuple([self._number(stride, STRIDE, dim) for dim, stride in enumerate(self.value.stride())])
        return strides if dim is None else strides[dim]

    def numel(self) -> Any:
        """Return how many numbers it has."""
        return reduce(operator.mul, self.shape) if self.shape else 1

    def _number(self, value: Any, overload: Any, dim: int) -> Any:
        return size_of(value, overload, self.ref, dim) if self.ref is not None else size_of(value)

    def __getattr__(self, name: str) -> Any:
        if name not in PLAIN:
            raise AttributeError(
                f"some sizes of this tensor are known only when the program runs, and {name!r} may depend on them;\n"
                f"what can be asked: shape, size, stride, numel, {', '.join(sorted(PLAIN))}"
            )
        return getattr(self.value, name)


PLAIN = frozenset(
    {"dtype", "device", "fake_device", "fake_mode", "layout", "ndim", "dim", "requires_grad", "is_floating_point", "is_complex",
     "element_size", "itemsize", "is_conj", "is_neg", "is_sparse", "names"}
)  # fmt: skip
"""Attributes of a tensor that do not depend on its sizes."""

SIZE, STRIDE = torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int


def known_of(value: Any, ref: Ref | None = None) -> Any:
    """Return what may be asked of a fake value: itself where all of its sizes are numbers.

    Args:
        value: of a tensor, a symbolic number, or anything else, which is returned as it is.
        ref: the value that it is of, for sizes that a replacement computes with.
    """
    if isinstance(value, torch.Tensor):
        return value if has_fixed_sizes(value) else Symbolic(value, ref)
    return size_of(value, ref) if ref is not None else size_of(value)


# -- proofs ----------------------------------------------------------------------------------------------------------------------

_ASSUMED: ContextVar[dict[str, bool] | None] = ContextVar("assumed", default=None)
"""The comparisons that are neither proven nor disproven, with what is assumed of each, while a condition is asked."""

OPPOSITES = {"!=": "==", ">=": "<", ">": "<="}

MOST_OPEN = 64
"""How often a condition is asked at most, with one assumption more each time."""


def holds(condition: Callable[[Any], Any], of: Any) -> bool:
    """Return whether a condition holds whatever the sizes are that the program's constraints leave open.

    It is asked with each outcome of the comparisons that are not proven; where they are many it counts as not proven.

    Args:
        condition: a function of one argument.
        of: the argument.

    >>> holds(lambda x: x == 1, 1)
    True
    """
    todo: list[dict[str, bool]] = [{}]
    for _ in range(MOST_OPEN):
        if not todo:
            return True
        before = todo.pop()
        assumed = dict(before)
        token = _ASSUMED.set(assumed)
        try:
            if not condition(of):
                return False
        finally:
            _ASSUMED.reset(token)
        decided = list(before.items())
        for comparison in [*assumed][len(before) :]:
            todo.append({**dict(decided), comparison: True})
            decided.append((comparison, False))
    return False


def _is_true(symbol: str, plain: Any, mine: Size, other: Any) -> bool:
    fact = plain(mine.value, _number(other))
    if is_known_true(fact):
        return True
    if isinstance(fact, bool) or is_known_true(torch.sym_not(fact)):
        return False
    assumed = _ASSUMED.get()
    if assumed is None:
        raise Unproven(
            f"whether {mine} {symbol} {other} is known only when the program runs, and a replacement is written before:\n"
            "look at it in `where=`, which holds only where sizes are proven"
        )
    # A comparison and its opposite are one question.
    opposite = OPPOSITES.get(symbol)
    outcome = assumed.setdefault(f"{mine} {opposite or symbol} {other}", False)
    return outcome if opposite is None else not outcome


def _add_arithmetic() -> None:
    for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow"):
        plain = getattr(operator, name)
        setattr(Size, f"__{name}__", lambda mine, other, of=plain: _computed(of, mine, other))
        setattr(Size, f"__r{name}__", lambda mine, other, of=plain: _computed(of, other, mine))
    setattr(Size, "__neg__", lambda mine: _computed(operator.neg, mine))  # noqa: B010  as those above
    for name, symbol in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
        plain = getattr(operator, name)
        setattr(Size, f"__{name}__", lambda mine, other, plain=plain, symbol=symbol: _is_true(symbol, plain, mine, other))


def _computed(of: Any, *operands: Any) -> Any:
    return size_of(of(*map(_number, operands)), of, *operands)


def _number(of: Any) -> Any:
    return of.value if isinstance(of, Size) else of


_add_arithmetic()


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
    """The value at the root of a match, computed as it was; its operator stays, and others use what the rule makes of it."""

    node: Node
    gives_tensor: bool | None = None

    def _gives_tensor(self) -> bool | None:
        return self.gives_tensor

    def __repr__(self) -> str:
        return "m.value"
