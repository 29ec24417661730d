"""What a rule puts where it matched: ``Match``, which a rule asks about the place, and the nodes that a term becomes.

A replacement is a term over what the variables were there.  Which overload an operator is follows from the operands, as torch
chooses it.  Values of new nodes are not worked out here (``infer`` does that).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from attrs import field, frozen
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...ir.arguments import Arg, Items, Ref
from ...ir.errors import RuleError
from ...ir.graph import Kwargs, Node, place_of
from ...ir.names import Names, word_of
from ...ir.operators import GETITEM, op_of
from ...ir.program import Program
from ...ir.torch_private import schema_of
from .terms import Applied, Item, Term, applied, bound, converted, numbers_as_tensors

__all__ = ["Builder", "Given", "Match"]

AS_TENSORS = frozenset({"add", "sub", "mul", "div"})
"""Operators that torch calls with a number as it does with a tensor: ``x * 2`` is ``mul.Tensor``."""

OF_A_VALUE = frozenset({"val", "tensor_meta", "example_value", "unbacked_bindings"})
"""Meta that says what a node computes; the rest says where it comes from, and new nodes have it from the root of the match."""


@frozen(eq=False, repr=False)
class Given(Term):
    """A value of the program that a variable matched; what is known of it can be asked as of a tensor."""

    ref: Ref
    value: Any = None
    """Its fake value; None if it is unknown."""

    def __repr__(self) -> str:
        return self.ref.name

    def __getattr__(self, name: str) -> Any:
        """Return what is known of a tensor, or a method that applies the operator of its name."""
        if name in ("dtype", "device", "ndim", "shape") and isinstance(self.value, torch.Tensor):
            return tuple(map(size_of, self.value.shape)) if name == "shape" else getattr(self.value, name)
        if name == "dim" and isinstance(self.value, torch.Tensor):
            return self.value.dim
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


@frozen(eq=False)
class Match:
    """Where a rule matched: what its variables are there, and the nodes that its operators are.

    Conditions on sizes hold where the program's own constraints prove them: a symbolic size compares as true only then.

    >>> import torch, purefx as px
    >>> square = px.rule(where=lambda m: m.shape("x") == (2, 2))(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))
    >>> programs = [px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(size),))) for size in ((2, 2), (3,))]
    >>> [square(program) is program for program in programs]
    [False, True]
    """

    program: Program
    graph: str
    """The id of the graph; a body that several modules share is matched once."""
    nodes: tuple[Node, ...]
    """The nodes that the rule matched, the root first."""
    values: Mapping[str, Arg]
    """What each variable is."""
    known: Mapping[str, Any] = field(repr=False)
    """The fake values of the graph, by name."""

    @property
    def root(self) -> Node:
        """The node whose value is replaced."""
        return self.nodes[0]

    @property
    def place(self) -> str:
        """Where the root is, as messages say it."""
        return place_of(self.root)

    def __getitem__(self, variable: str) -> Arg:
        """Return what a variable is: the use of a value, or a number, a type, a list as it stands."""
        return self.values[variable]

    def given(self, arg: Arg) -> Any:
        """Return an argument in the form that a replacement is written with."""
        if type(arg) is Ref:
            return Given(arg, self.known.get(arg.name))
        return type(arg)([self.given(one) for one in arg]) if isinstance(arg, tuple) else arg

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Applied:
        """Return the value that an operator computes: one without a function of torch, as of a library of yours.

        Args:
            op: an operator or one of its overloads, ``torch.ops.<library>.<operator>``.
            args: values and arguments as they stand.
            kwargs: those that are given by name.

        Raises:
            RuleError: the arguments fit none of its overloads.
        """
        return applied(op, args, kwargs)

    def val(self, variable: str) -> Any:
        """Return the fake value of a variable or of a node of the match, None if unknown; or the argument that stands there."""
        arg = self.values.get(variable, Ref(variable))
        return self.known.get(arg.name) if type(arg) is Ref else arg

    def shape(self, variable: str) -> tuple[Any, ...] | None:
        """Return the sizes of a tensor, numbers or ``Size``; None if it is unknown, or is not a tensor."""
        value = self.val(variable)
        return tuple(map(size_of, value.shape)) if isinstance(value, torch.Tensor) else None

    def dtype(self, variable: str) -> torch.dtype | None:
        """Return the data type of a tensor; None if it is unknown, or is not a tensor."""
        value = self.val(variable)
        return value.dtype if isinstance(value, torch.Tensor) else None


class Builder:
    """Makes the nodes of one replacement."""

    def __init__(self, found: Match, names: Names) -> None:
        self.found = found
        self.names = names
        self.meta = {key: value for key, value in found.root.meta.items() if key not in OF_A_VALUE}
        self.nodes: list[Node] = []
        self._made: dict[int, Ref] = {}

    def result(self, term: Any) -> Ref:
        """Return the value that stands in the place of the root."""
        found = self.arg(term)
        if type(found) is not Ref:
            raise RuleError(f"{self.found.place}: a replacement returns one value that it computes or was given, not {term!r}")
        return found

    def arg(self, term: Any) -> Arg:
        """Return the argument that a term becomes; its nodes are made where they are not yet."""
        match term:
            case Given(ref=ref):
                return ref
            case Applied() | Item():
                if id(term) not in self._made:
                    self._made[id(term)] = self._node(term)
                return self._made[id(term)]
            case list():
                return Items([self.arg(one) for one in term])
            case tuple():
                return type(term)([self.arg(one) for one in term])
            case torch.Tensor():
                raise RuleError(
                    f"{self.found.place}: a replacement cannot bring a tensor of its own, since rules add no state;\n"
                    "compute it (torch.ops.aten.full, ...), or make it state of the program first"
                )
            case Term():
                raise RuleError(
                    f"{term!r} is not a value of the program: write a replacement with the variables that it is given"
                )
            case _:
                return term

    def _node(self, term: Applied | Item) -> Ref:
        kwargs: Kwargs = ()
        if isinstance(term, Item):
            op, args, word = GETITEM, (self.arg(term.whole), term.index), "getitem"
        else:
            overload = self._overload(term)
            given, named = converted(overload, term.args, term.kwargs)
            args = tuple([self.arg(one) for one in given])
            kwargs = tuple([(key, self.arg(one)) for key, one in named.items()])
            op, word = op_of(overload), term.name
        name = self.names.fresh(word_of(word))
        self.nodes.append(Node(name, op, args, kwargs, self.found.root.stack, self.meta))
        return Ref(name)

    def _overload(self, term: Applied) -> Any:
        # A use of a value is a tensor unless it is known to be a number.
        given = [self._kind(arg) for arg in term.args], {name: self._kind(arg) for name, arg in term.kwargs.items()}
        fitting = [one for one in term.overloads if bound(one, *given) is not None]
        if not fitting:
            raise RuleError(f"{self.found.place}: no overload of {term.name} takes what stands here, {term!r}")
        if term.name in AS_TENSORS:
            return next((one for one in fitting if schema_of(one).overload_name == "Tensor"), fitting[0])
        return min(fitting, key=lambda one: numbers_as_tensors(one, *given))

    def _kind(self, term: Any) -> Any:
        value = self.found.known.get(term.ref.name) if isinstance(term, Given) else term
        if isinstance(value, torch.SymInt | torch.SymFloat):
            return 1 if isinstance(value, torch.SymInt) else 1.0
        return value if type(value) in (int, float, bool) else term
