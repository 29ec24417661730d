"""Amounts: numbers that are known only where a pattern matches: sizes of values, numbers computed of them, and lists of them.

A program has such a number as a literal, or as the result of operators where only a run knows it.  Whether a number of the
program is this one is decided by proof (``patterns.py``), so it does not matter how it is computed.
"""

from __future__ import annotations

import dis
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen

from ...ir.errors import RuleError
from ...ir.torch_private import unguarded

__all__ = [
    "Amount", "Computed", "Known", "Made", "Rest", "Sizes", "Unanswered", "fits", "note_sizes", "now", "parts_of", "subterms",
    "unpacked", "written",
]  # fmt: skip


class Made:
    """What may be made of other things."""

    def _fits(self, kind: str) -> bool:  # noqa: ARG002  it may be anything
        """Return whether it may be what a parameter of a type takes."""
        return True

    def _now(self) -> Any:
        """Return the fake value that it has by now, as an operand of a replacement has; None otherwise."""
        return None

    def _parts(self) -> Sequence[Any]:
        """Return what it is made of."""
        return []

    def _text(self, part: Callable[[Any], str]) -> str:  # noqa: ARG002  of nothing else
        """Return it as text; ``part`` gives that of what it is made of."""
        return repr(self)

    def __repr__(self) -> str:
        return written(self)


def fits(term: Made, kind: str) -> bool:
    """Return whether a term may be what a parameter of a type takes.

    >>> from .terms import Var
    >>> fits(Var("x"), "Tensor"), fits(Var("x").shape, "Tensor")
    (True, False)
    """
    return term._fits(kind)  # pyright: ignore[reportPrivateUsage]  no name of a tensor's method is taken


def parts_of(term: Any) -> Sequence[Any]:
    """Return what a term is made of.

    >>> import torch
    >>> from .terms import Var
    >>> parts_of(torch.add(Var("x"), 1))
    [x, 1]
    """
    if isinstance(term, Made):
        return term._parts()  # pyright: ignore[reportPrivateUsage]  no name of a tensor's method is taken
    return term if isinstance(term, list | tuple) else []


def subterms(*terms: Any) -> list[Any]:
    """Return terms and all that they are made of, each object once: one value in many places of a pattern is walked once.

    >>> import torch
    >>> from .terms import Var
    >>> x = Var("x")
    >>> y = torch.relu(x)
    >>> subterms(torch.add(y, y))
    [add(relu(x), relu(x)), relu(x), x]
    """
    todo, found = [*reversed(terms)], dict[int, Any]()
    while todo:
        each = todo.pop()
        if id(each) not in found:
            found[id(each)] = each
            todo += reversed(parts_of(each))
    return list(found.values())


SHOWN = 100
"""Parts of a term that messages show at most: one in which values are used twice is longer than anybody reads."""


def written(term: Any, most: float = SHOWN) -> str:
    """Return a term as text, as far as it is shown.

    Args:
        term: what a rule looks for.
        most: how many of its parts are shown.

    >>> import torch
    >>> from .terms import Var
    >>> x = Var("x")
    >>> written(torch.add(torch.relu(x), 1, alpha=2)), written(torch.add(torch.relu(x), 1), 3)
    ('add(relu(x), 1, alpha=2)', 'add(relu(x), ...)')
    """
    left = most

    def part(each: Any) -> str:
        nonlocal left
        left -= 1
        if left < 0:
            return "..."
        if isinstance(each, list):
            return f"[{', '.join(map(part, each))}]"
        if isinstance(each, Made):
            return each._text(part)  # pyright: ignore[reportPrivateUsage]
        return repr(each)

    return part(term)


class Unanswered(RuleError, TypeError):
    """Code looks at what only a run, or a match, knows."""


UNPACK = bytes([dis.opmap["UNPACK_SEQUENCE"]])


def unpacked() -> int | None:
    """Return into how many names a value is unpacked whose ``__iter__`` asks, as in ``a, b = value``; None if it is not.

    >>> class Value:
    ...     def __iter__(self):
    ...         return iter(["of", unpacked()])
    >>> of, count = Value()
    >>> count, [*Value()]
    (2, ['of', None])
    """
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame and frame.f_back
    code, at = (frame.f_code.co_code, frame.f_lasti) if frame is not None else (b"", 0)
    return code[at + 1] if code[at : at + 1] == UNPACK else None


class Amount(Made):
    """A number that is known of values; arithmetic gives another one."""

    def on(self, value: Callable[[Any], Any]) -> Any:
        """Return the number, or None where there is none.

        Args:
            value: gives what a term is, a tensor or a number.
        """
        raise NotImplementedError

    def _refuse(self, *others: Any) -> Any:
        if any(isinstance(other, Made) and not isinstance(other, Amount) for other in others):
            return NotImplemented  # a tensor is compared with it
        raise Unanswered(
            f"{self!r} is known only where a rule matches, or when the program runs, and cannot be compared or converted here:\n"
            "look at it in `where=`; x.shape[0] ** 0.5 is a root of it, x.shape[0] // 2 a whole number"
        )

    __bool__ = __float__ = __int__ = __index__ = _refuse
    __hash__ = object.__hash__


def now(part: Any) -> Any:
    """Return the number of an amount of values that are known by now, as of operands of a replacement; None otherwise."""
    known = lambda each: each._now() if isinstance(each, Made) else each  # noqa: E731  # pyright: ignore[reportPrivateUsage]
    return part.on(known) if isinstance(part, Amount) else known(part)


def _add_arithmetic() -> None:
    def method(name: str) -> Any:
        function = getattr(operator, name.removeprefix("r"))

        def applies(self: Amount, *others: Any) -> Any:
            if not all(isinstance(other, Amount | int | float) for other in others):
                return NotImplemented  # a tensor computes with it
            return Computed(function, (*others, self) if name.startswith("r") else (self, *others))

        return applies

    for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow"):
        setattr(Amount, f"__{name}__", method(name))
        setattr(Amount, f"__r{name}__", method(f"r{name}"))
    setattr(Amount, "__neg__", method("neg"))  # noqa: B010  as those above

    def comparison(name: str) -> Any:
        function = getattr(operator, name)

        def compares(self: Amount, other: Any) -> Any:
            mine, theirs = now(self), now(other)
            if mine is None or theirs is None or isinstance(theirs, torch.Tensor):
                return self._refuse(other)  # pyright: ignore[reportPrivateUsage]
            fact = function(mine, theirs)
            answer = fact if isinstance(fact, bool) else unguarded(fact.node.shape_env, lambda: bool(fact))
            return self._refuse() if answer is None else answer  # pyright: ignore[reportPrivateUsage]

        return compares

    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Amount, f"__{name}__", comparison(name))


_add_arithmetic()


@frozen(eq=False, repr=False)
class Known(Amount):
    """What is known of a value: a size, how many elements it has, its type, or the number of a dimension from the last on."""

    whole: Any
    what: str
    dim: int | None = None
    rank: int | None = None
    """How many dimensions the value has, where the pattern says so."""

    def _parts(self) -> Sequence[Any]:
        return [self.whole]

    def _text(self, part: Callable[[Any], str]) -> str:
        return f"{self.what}({part(self.whole)}{'' if self.dim is None else f', {self.dim}'})"

    def on(self, value: Callable[[Any], Any]) -> Any:
        """Return the number, or the type; None where there is none."""
        tensor = value(self.whole)
        return self.of(tensor) if isinstance(tensor, torch.Tensor) else None

    def of(self, tensor: torch.Tensor) -> Any:
        """Return what it is of a tensor; None if it has no such dimension."""
        rank = tensor.dim()
        match self.what, self.dim:
            case "size", int(dim) if -rank <= dim < rank and self.rank in (None, rank):
                return tensor.shape[dim]
            case ("dim" | "new dim") as what, int(dim):
                return rank + dim + (what == "new dim")
            case "dtype", _:
                return tensor.dtype
            case "numel", _:
                return tensor.numel()
            case _:
                return None


@frozen(eq=False, repr=False)
class Computed(Amount):
    """What is computed of such numbers, and of variables that are numbers."""

    function: Callable[..., Any]
    operands: tuple[Any, ...]

    def _parts(self) -> Sequence[Any]:
        return self.operands

    def _text(self, part: Callable[[Any], str]) -> str:
        return f"{self.function.__name__}({', '.join(map(part, self.operands))})"

    def on(self, value: Callable[[Any], Any]) -> Any:
        """Return the number; None where there is none."""
        operands = [each.on(value) if isinstance(each, Amount) else value(each) for each in self.operands]
        try:
            return None if any(each is None for each in operands) else self.function(*operands)
        except (ArithmeticError, TypeError):
            return None


class Sizes(Made):
    """The sizes of a value, or some: one can be taken (``x.shape[0]``), or all be passed on (``y.reshape(x.shape)``)."""

    def __init__(self, whole: Any, part: slice | None = None) -> None:
        self.whole = whole
        self.part = part

    def _fits(self, kind: str) -> bool:
        return "List[int]" in kind

    def _parts(self) -> Sequence[Any]:
        return [self.whole]

    def _text(self, part: Callable[[Any], str]) -> str:
        ends = [] if self.part is None else [self.part.start, self.part.stop]
        some = f"[{':'.join(['' if end is None else str(end) for end in ends])}]" if ends else ""
        return f"shape({part(self.whole)}){some}"

    def on(self, value: Callable[[Any], Any]) -> Any:
        """Return the sizes as a list; None where there are none."""
        tensor = value(self.whole)
        return [*tensor.shape][self.part or slice(None)] if isinstance(tensor, torch.Tensor) else None

    def __getitem__(self, dim: Any) -> Any:
        if type(dim) is int and self.part is None:
            return Known(self.whole, "size", dim)
        if not isinstance(dim, slice) or self.part is not None:
            raise Unanswered(
                f"shape[{dim}]: in a rule one size is taken, by number, as in x.shape[0], or some, as in x.shape[:-1]"
            )
        dims = _dims(dim)
        return Sizes(self.whole, dim) if dims is None else tuple([self[one] for one in dims])

    def __iter__(self) -> Any:
        count = unpacked() if self.part is None else None
        return iter([Rest(self)] if count is None else [Known(self.whole, "size", dim, count) for dim in range(count)])

    def __add__(self, other: Any) -> Any:
        return (Rest(self), *other)

    def __radd__(self, other: Any) -> Any:
        return (*other, Rest(self))

    def __getattr__(self, name: str) -> Any:
        raise Unanswered("sizes are known only where a rule matches: take one, x.shape[0], or look at them in `where=`")

    __eq__ = __ne__ = __len__ = lambda self, *_: self.all  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def _dims(part: slice) -> Sequence[int] | None:
    # The numbers of the dimensions that a slice takes, however many there are; None where that depends on how many.
    start, stop = part.start or 0, part.stop
    if part.step is not None or not all(type(each) in (int, type(None)) for each in (start, stop)):
        return None
    if stop is not None and 0 <= start <= stop:
        return range(start, stop)
    return (
        range(start, 0) if stop is None and start < 0 else range(start, stop) if stop is not None and start < stop < 0 else None
    )


class Rest(Made):
    """Any number of items of a list: ``[x, *rest]``."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole

    def _fits(self, kind: str) -> bool:  # noqa: ARG002  it stands in lists alone
        return False

    def _parts(self) -> Sequence[Any]:
        return [self.whole]

    def _text(self, part: Callable[[Any], str]) -> str:
        return f"*{part(self.whole)}"

    def refuse(self) -> None:
        """Say that it stands in lists alone."""
        raise Unanswered(
            f"{self!r} is any number of values: a pattern passes them on in a list, torch.cat([x, *rest]), and cannot compute\n"
            "with each of them"
        )

    def __getattr__(self, name: str) -> Any:
        self.refuse()


def note_sizes(error: Exception) -> None:
    """Say how sizes are passed to functions of torch that make a tensor, where torch does not take them as they were written.

    >>> error = TypeError("zeros() takes 1 positional argument but 2 were given")
    >>> note_sizes(error)
    >>> error.__notes__
    ['sizes that only a match, or a run, knows are passed as a list: torch.zeros([x.shape[0], 1]), torch.zeros([*x.shape])']
    """
    if type(error) is TypeError and any(words in str(error) for words in ("tuple of ints", "positional argument")):
        error.add_note(
            "sizes that only a match, or a run, knows are passed as a list: torch.zeros([x.shape[0], 1]), torch.zeros([*x.shape])"
        )
