"""Terms: patterns and replacements as values over operators, and how plain torch code becomes one.

A term is a variable, an operator applied to terms, one item of a result that has several, or an argument as it is.  A function
of torch that is called with a term applies the operator of its name, without shapes.  Nothing here looks at a program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from types import FunctionType
from typing import Any

import torch
from attrs import field, frozen

from ...ir.arguments import Arg, Ref
from ...ir.errors import RuleError
from ...ir.graph import Call, Node, Op
from ...ir.names import join
from ...ir.program import Program
from ...ir.torch_private import overloads_of, parameters_of, schema_of
from .amounts import Amount, Computed, Known, Made, Rest, Sizes, Unanswered, parts_of, subterms, unpacked, written
from .overloads import INSTEAD, bound, operator_named, takes_sizes
from .spelling import ATTRIBUTES, CASTS, DEVICES, NEVER_WRITTEN, OF_PYTHON, TURNED, follow, steps, typical

__all__ = [
    "ARITHMETIC", "AnyCall", "AnyOf", "Applied", "Chain", "Given", "Item", "Kept", "ModuleCall", "Read", "Term", "Through",
    "Var", "any_of", "applied", "chains", "parts_of", "subterms", "through", "written",
]  # fmt: skip

FOLLOWED = frozenset({"norm"})
"""Methods of tensors that torch writes in Python, and which are not the operator of their name."""

AS_MANY_AS_GIVEN = frozenset({"broadcast_tensors", "meshgrid"})
"""Operators that have as many results as there are tensors in the list that they are given."""


class Term(Made):
    """A value that a program computes, in the writing of a rule: torch's functions and Python's operators apply to it.

    >>> x = Var("x")
    >>> torch.relu(x + 1)
    relu(add(x, 1))
    >>> torch.nn.functional.softmax(x, -1)
    softmax(x, -1)
    """

    @classmethod
    def __torch_function__(cls, function: Any, types: object, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Apply the operator that a function of torch calls, or follow the function to the operators that it calls."""
        if isinstance(function, FunctionType):
            return follow(function, args, kwargs or {})
        return applied(function, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        """Return a method of tensors that applies the operator of its name, or what an attribute computes."""
        if (answer := typical(name)) is not None:
            return answer
        if name in ATTRIBUTES:
            return applied(ATTRIBUTES[name], (self,), {})
        if name in CASTS:
            return lambda: applied("to", (self, CASTS[name]), {})
        if name == "to":
            return lambda *args, **kwargs: _to(self, *args, **kwargs)
        if name in DEVICES:
            return lambda: _to(self, name)
        if name in ("shape", "size", "numel", "nelement", "dtype"):
            return _known(self, name)
        method = getattr(torch.Tensor, name, None)
        if name in FOLLOWED and isinstance(method, FunctionType):
            return lambda *args, **kwargs: follow(method, (self, *args), kwargs)
        if name.startswith("__") or name in NEVER_WRITTEN or not overloads_of(name):
            raise AttributeError(
                f"a rule cannot ask a value for {name!r}: no operator of that name is in a program, and what a tensor is\n"
                "is known only where the rule matches; use a variable for what may differ, and look at it in `where=`"
            )
        return lambda *args, **kwargs: applied(name, (self, *args), kwargs)

    def __rtruediv__(self, number: Any) -> Applied:
        return self.reciprocal() * number  # as torch computes it

    @property
    def is_tensor(self) -> bool | None:
        """Whether it is one tensor, and not several results; None where a rule does not know."""
        return self._gives_tensor()

    def _gives_tensor(self) -> bool | None:
        return None

    def __getitem__(self, index: Any) -> Term:
        """Return one of several results, or the part of a tensor that an index takes."""
        if type(index) is int and not self.is_tensor:
            if index < 0:
                raise RuleError(
                    f"[{index}] in a rule is one of several results, by number; write x.select(0, {index}) for a part of a tensor"
                )
            item = Item(self, index)
            return item if self.is_tensor is False else AnyOf([item, applied("select", (self, 0, index), {})])
        ways = [_part(self, each) for each in steps(index, _is_tensor)]
        return ways[0] if len(ways) == 1 else AnyOf(ways)

    def __setitem__(self, index: object, value: object) -> None:
        raise RuleError(f"[{index}] = ... writes into a value, and a rule writes none: {INSTEAD}")

    def __iter__(self) -> Any:
        if (count := unpacked()) is not None:
            return iter([self[number] for number in range(count)])
        if isinstance(self, Var):
            return iter([Rest(self)])
        most = max([len(schema_of(each).returns) for each in self.overloads]) if isinstance(self, Applied) else 0
        if most > 1:
            return iter([Item(self, number) for number in range(most)])
        if isinstance(self, Applied) and self.name in AS_MANY_AS_GIVEN and isinstance(self.args[0], list | tuple):
            return iter([Item(self, number) for number in range(len(self.args[0]))])
        raise RuleError(
            "how many results there are is not known in a rule: write parts[0], parts[1], or a, b = parts; any number of values\n"
            "is a variable of its own: torch.cat([x, *rest])"
        )

    def __bool__(self) -> bool:
        raise Unanswered("a rule cannot branch on a value: nothing is computed; look at the values that it matched in `where=`")

    def __len__(self) -> int:
        raise Unanswered("the length of a value is known only where a rule matches; write x.size(0), or a variable")


def _add_operators() -> None:
    for python, name in OF_PYTHON.items():
        setattr(Term, f"__{python}__", lambda self, *others, name=name: applied(name, (self, *others), {}))
    for python, name in TURNED.items():
        setattr(Term, f"__{python}__", lambda self, other, name=name: applied(name, (other, self), {}))
    Term.__hash__ = object.__hash__  # `==` applies an operator, so a term is known by what it is


_add_operators()


@frozen(eq=False, repr=False)
class Var(Term):
    """Anything: a value, a number, a list of values; the same thing wherever it stands in one rule.

    >>> Var("x")
    x
    """

    name: str

    def __repr__(self) -> str:
        return self.name


for _kind in (Amount, Rest):  # torch's functions are called with numbers and lists too
    _kind.__torch_function__ = Term.__torch_function__  # type: ignore[attr-defined]


@frozen(eq=False, repr=False)
class Applied(Term):
    """An operator, in any of the overloads that its arguments fit, applied to terms and to arguments as they stand."""

    name: str
    overloads: Mapping[Any, Mapping[str, Any]]
    """What each parameter of an overload gets."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    plans: dict[Any, Any] = field(factory=dict, init=False)
    """How nodes are compared with it, worked out once for all that are written alike (``matching.py``)."""

    def _gives_tensor(self) -> bool | None:
        # Whatever overload it is; those of numbers alone do not count.
        kinds = {tuple([str(each.type) for each in schema_of(one).returns]) for one in self.overloads}
        is_one = {kind == ("Tensor",) for kind in kinds if any("Tensor" in each for each in kind)}
        return is_one == {True} if is_one else None

    def _parts(self) -> Sequence[Any]:
        return [*self.args, *self.kwargs.values()]

    def _text(self, part: Callable[[Any], str]) -> str:
        by_name = [f"{key}={part(value)}" for key, value in self.kwargs.items()]
        return f"{self.name}({', '.join([*map(part, self.args), *by_name])})"


@frozen(eq=False, repr=False)
class Item(Term):
    """One of the results of an operator that has several."""

    whole: Term
    index: int

    def _gives_tensor(self) -> bool:
        return True

    def _parts(self) -> Sequence[Any]:
        return [self.whole]

    def _text(self, part: Callable[[Any], str]) -> str:
        return f"{part(self.whole)}[{self.index}]"


def _to(term: Term, *args: Any, **kwargs: Any) -> Applied:
    # Where a device alone is given, the program has the type and the layout as well: those of the value.
    where = args[0] if len(args) == 1 else None if args else kwargs.get("device")
    if isinstance(where, str | torch.device) and "dtype" not in kwargs:
        rest = {key: value for key, value in kwargs.items() if key != "device"}
        return applied(torch.ops.aten.to.dtype_layout, (term,), {"dtype": Known(term, "dtype"), "device": where, **rest})
    return applied("to", (term, *args), kwargs)


def _known(term: Term, name: str) -> Any:
    # What an attribute or a method gives that asks for what is known of a value.
    match name:
        case "shape":
            return Sizes(term)
        case "size":
            return lambda dim=None: Sizes(term) if dim is None else Sizes(term)[dim]
        case "dtype":
            return Known(term, "dtype")
        case _:
            return lambda: Known(term, "numel")


@frozen(eq=False, repr=False)
class AnyCall(Term):
    """An operator, whatever its arguments are."""

    name: str
    overloads: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"{self.name}(...)"


@frozen(eq=False, repr=False)
class AnyOf(Term):
    """One of several terms, the first that matches."""

    terms: tuple[Any, ...] = field(converter=tuple)

    def _gives_tensor(self) -> bool | None:
        found = {each.is_tensor if isinstance(each, Term) else None for each in self.terms}
        return found.pop() if len(found) == 1 else None

    def _parts(self) -> Sequence[Any]:
        return self.terms

    def _text(self, part: Callable[[Any], str]) -> str:
        return f"any_of({', '.join(map(part, self.terms))})"


def _part(term: Term, taken: Sequence[tuple[str, tuple[Any, ...]]]) -> Term:
    # What operators of an index take of a value, in order; dimensions from the last on are known where the rule matches.
    for name, (dim, *args) in taken:
        known = Known(term, "new dim" if name == "unsqueeze" else "dim", dim) if type(dim) is int and dim < 0 else dim
        term = applied(name, (term, known, *args), {})
    return term


def _is_tensor(part: Any) -> bool | None:
    # Whether a part of an index is a tensor of positions; None if a variable may be that or a number.
    if isinstance(part, Term):
        return None if type(part) is Var else part.is_tensor is not False
    return isinstance(part, torch.Tensor)


def any_of(*terms: Any) -> AnyOf:
    """Return a term that matches where one of several does.

    Args:
        terms: tried in this order.

    >>> x = Var("x")
    >>> any_of(torch.relu(x), x.clamp(0))
    any_of(relu(x), clamp(x, 0))

    Raises:
        RuleError: one of them is a function.
    """
    if functions := [each for each in terms if callable(each) and not isinstance(each, Term)]:
        raise RuleError(f"any_of takes terms, and {functions[0]!r} is a function: call it with variables")
    return AnyOf(terms)


def applied(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Applied:
    """Return the term that applies an operator.

    Args:
        function: an operator, one of its overloads, a function of torch, or the name of an operator of aten.
        args: terms, and arguments as they stand.
        kwargs: those that are given by name.

    Raises:
        RuleError: no operator is behind the function, or the arguments fit none of its overloads.

    >>> applied(torch.ops.aten.relu.default, (Var("x"),), {})
    relu(x)
    """
    name, overloads = operator_named(function)
    if len(args) == 2 and isinstance(args[1], Amount | torch.SymInt) and any(map(takes_sizes, overloads)):
        takes_one = any(one.kind == "int" and one.name != "dtype" for each in overloads for one in parameters_of(each)[1:2])
        args = args if takes_one else (args[0], [args[1]])  # x.reshape(n) is x.reshape([n]), x.split(n) is not
    fitting = {one: found for one in overloads if (found := bound(one, args, kwargs)) is not None}
    if not fitting and (len(args) > 2 or any(isinstance(each, Rest) for each in args)):
        sized = (args[0], list(args[1:]))  # x.reshape(2, 3) is x.reshape([2, 3])
        fitting = {one: found for one in filter(takes_sizes, overloads) if (found := bound(one, sized, kwargs)) is not None}
        args = sized if fitting else args
    if not fitting:
        shown = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])
        for each in args:
            if isinstance(each, Rest):
                each.refuse()
        if "out" in kwargs:
            raise RuleError(f"{name}(out=...) writes into a value, and a rule writes none: {INSTEAD}")
        raise RuleError(f"no overload of {name} takes ({shown}):\n  " + "\n  ".join(str(schema_of(one)) for one in overloads))
    numbers = {id(term): found for one, given in fitting.items() for term, found in _numbers(one, given)}
    if numbers:
        args, kwargs = _with(args, numbers), {key: _with(value, numbers) for key, value in kwargs.items()}
        fitting = {one: {key: _with(value, numbers) for key, value in given.items()} for one, given in fitting.items()}
    return Applied(name, fitting, tuple(args), dict(kwargs))


ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "div": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod,
}  # fmt: skip
"""What computes numbers of numbers, where the same name computes tensors of tensors."""


def _numbers(overload: Any, given: Mapping[str, Any]) -> Iterator[tuple[Any, Computed]]:
    # Arithmetic on variables where an operator takes whole numbers: `x.reshape(n * 2, -1)`.
    for one in parameters_of(overload):
        if "Tensor" not in one.kind and "int" in one.kind:
            value = given[one.name]
            for each in value if isinstance(value, list | tuple) else [value]:
                if (found := _as_number(each)) is not each:
                    yield each, found


def _as_number(term: Any) -> Any:
    is_arithmetic = isinstance(term, Applied) and term.name in ARITHMETIC and not term.kwargs
    if not is_arithmetic or not any(isinstance(each, Var) for each in subterms(term)):
        return term
    return Computed(ARITHMETIC[term.name], tuple(map(_as_number, term.args)))


def _with(value: Any, found: Mapping[int, Any]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)([_with(one, found) for one in value])
    return found.get(id(value), value)


VIEWS = frozenset([f"aten.{name}" for name in (
    "_reshape_alias", "_unsafe_view", "alias", "clone", "contiguous", "expand", "expand_as", "flatten", "mT", "moveaxis",
    "movedim", "numpy_T", "permute", "ravel", "reshape", "reshape_as", "squeeze", "swapaxes", "swapdims", "t", "transpose",
    "unflatten", "unsqueeze", "view", "view_as",
)])  # fmt: skip
"""Operators that give the elements of their operand in another order or shape, all of them: no selection, no conjugate."""

CASTING = frozenset({"aten.to.dtype", "aten._to_copy.default", "aten.type_as.default"})
"""Operators that give the elements of their operand in another type."""


@frozen(eq=False, repr=False)
class Through(Term):
    """A term, or views and casts of it."""

    whole: Any
    chain: Var | None
    views: bool
    casts: bool

    def _parts(self) -> list[Any]:
        return [self.whole, *([] if self.chain is None else [self.chain])]

    def _text(self, part: Callable[[Any], str]) -> str:
        return f"through({', '.join(map(part, self._parts()))})"

    def passes(self, node: Node) -> bool:
        """Return whether a node is a view or a cast that it looks through."""
        if type(node.do) is not Op or not node.args or type(node.args[0]) is not Ref:
            return False
        if node.do.name in CASTING:
            return self.casts and dict(node.kwargs).get("device") is None
        return self.views and node.do.name.rpartition(".")[0] in VIEWS


@frozen(repr=False)
class Chain:
    """The views and casts that a pattern looked through; called, they are written again, of another value."""

    nodes: tuple[Node, ...] = field(eq=lambda nodes: tuple([(node.do, node.args[1:], node.kwargs) for node in nodes]))
    """The outermost first."""

    def __repr__(self) -> str:
        return " of ".join([node.do.name for node in self.nodes if type(node.do) is Op]) or "nothing"

    def __call__(self, value: Any) -> Any:
        """Return the same views and casts of another value."""
        for node in reversed(self.nodes):
            assert type(node.do) is Op
            value = applied(node.do.target, (value, *node.args[1:]), dict(node.kwargs))
        return value


def through(term: Any, chain: Any = None, *, views: bool = True, casts: bool = False) -> Any:
    """Return a term that matches another one, or views and casts of it, however many.

    Args:
        term: what stands at the end of the chain.
        chain: a variable that is the chain: in the replacement ``chain(y)`` is the same views and casts of ``y``.
        views: whether it looks through operators that give all elements in another order or shape (``view``, ``transpose``,
            ``expand``, ``contiguous``).
        casts: whether it looks through casts to another type.

    >>> import torch
    >>> through(torch.relu(Var("x")), Var("shape"))
    through(relu(x), shape)

    Raises:
        RuleError: it would look through nothing, or the chain is no variable.
    """
    if not views and not casts:
        raise RuleError("px.through looks through views, casts or both: say views=True or casts=True")
    if not isinstance(term, Term):
        return term  # a pattern that is run on tensors
    if chain is not None and not isinstance(chain, Var):
        raise RuleError(f"the chain of px.through is a variable of the pattern, and {chain!r} is none")
    return Through(term, chain, views, casts)


def chains(term: Through, value: Arg, node_of: Callable[[Arg], Node | None]) -> Iterator[tuple[Arg, tuple[Node, ...]]]:
    """Iterate over the values behind one, the furthest first, each with the nodes that lead to it.

    Args:
        term: says what it looks through.
        value: the use of a value.
        node_of: the node that computes a value.
    """
    found: list[tuple[Arg, tuple[Node, ...]]] = [(value, ())]
    while (node := node_of(found[-1][0])) is not None and term.passes(node):
        found.append((node.args[0], (*found[-1][1], node)))
    yield from reversed(found)


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
        shape: Any = tuple(sizes) if any(isinstance(size, Known) for size in sizes) else value.shape
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


@frozen(eq=False, repr=False)
class ModuleCall(Term):
    """A call of a module, whatever it is called with."""

    glob: str | None
    type_name: str | None

    def __repr__(self) -> str:
        return f"module({self.glob or self.type_name})"

    def is_at(self, node: Node, path: str, program: Program) -> bool:
        """Return whether a node calls a module that is meant.

        Args:
            node: of a body.
            path: where the body stands, from the root.
            program: says which class modules are of.
        """
        if type(node.do) is not Call:
            return False
        called = join(path, node.do.instance.path)
        if self.glob is not None:
            return fnmatchcase(called, self.glob)
        names = [each.type_name or "" for each in program.modules if each.path == called]
        return any(self.type_name in (name, name.rpartition(".")[2]) for name in names)
