"""``Builder``: the nodes that a term becomes, in the place of a match or of an edit.

Which overload an operator is follows from the operands, as torch chooses it.  Values of new nodes are not worked out here
(``infer`` does that), and whether they may stand there is not decided here (``application.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch

from ...ir.analysis.history import made_of_value
from ...ir.arguments import Arg, Items, Ref
from ...ir.errors import RuleError
from ...ir.graph import Call, Get, Node, place_of
from ...ir.importing.regions import is_from_region
from ...ir.meta import ORIGIN, Meta
from ...ir.names import Names, stem_of, word_of
from ...ir.operators import GETITEM, op_of
from ...ir.origins import made_of
from ...ir.torch_private import schema_of
from .amounts import Amount, Computed, Known, Sizes
from .fitting import bound, values_as_numbers
from .given import Given, Kept, Read, Size
from .modules import Called
from .overloads import converted, numbers_as_tensors, takes_sizes
from .place import Match, Place
from .terms import ARITHMETIC, AnyOf, Applied, Item, Term, applied
from .writing import Number

__all__ = ["OF_A_VALUE", "Builder", "meta_of", "origin_of_match"]

AS_TENSORS = frozenset({"add", "sub", "mul", "div"})
"""Operators that torch calls with a number as it does with a tensor: ``x * 2`` is ``mul.Tensor``."""

OF_A_VALUE = frozenset({"val", "tensor_meta", "example_value", "unbacked_bindings"})
"""Meta that says what a node computes; the rest says where it is, and new nodes have it from the root of the match."""

OF_AN_OPERATOR = frozenset({ORIGIN, "torch_fn", "source_fn_stack"})
"""Meta that says what function an operator came from; another operator came from none."""


def meta_of(root: Node, origin: Meta) -> Meta:
    """Return the meta of nodes that stand for one: where that is, and not what it computes and how.

    Args:
        root: the node.
        origin: what their meta says of what they are made of.

    >>> from ...ir.graph import Op
    >>> sorted(meta_of(Node("y", Op("toy.neg"), meta={"val": 1, "custom": 2, "torch_fn": ("neg_1", "neg")}), {}))
    ['custom']
    """
    found = {key: value for key, value in root.meta.items() if key not in OF_A_VALUE and key not in OF_AN_OPERATOR}
    if is_from_region(root.meta):  # that says where it is
        found["torch_fn"] = root.meta["torch_fn"]
    return MappingProxyType({**found, **origin})


def origin_of_match(place: Match, rule: str) -> Meta:
    """Return what the meta of nodes that take the place of a match says of what they are made of: of all that was matched.

    Args:
        place: the match.
        rule: its name.
    """
    scope, nodes = place.scope, place.nodes
    metas = [node.meta for node in nodes]
    metas += [node.meta for name in place.notes.reads if (node := scope.node_of(name)) is not None]  # numbers and constants
    metas += [made_of_value(scope.program, scope.graph, node.name) for node in nodes if type(node.do) is Call]
    return made_of(metas, rule)


class Builder:
    """Makes the nodes of one replacement.

    Args:
        place: where they stand.
        names: those that are taken.
        root: the node that they stand for; they say that they are where it is.
        origin: what its meta says of what they are made of.
        made: the values of terms that are made already.
    """

    def __init__(
        self, place: Place, names: Names, root: Node, origin: Meta, made: dict[str | int, tuple[Any, Ref]] | None = None
    ) -> None:
        self.place = place
        self.names = names
        self.root = root
        self.meta = meta_of(root, origin)
        self.nodes: list[Node] = []
        self.words: list[str] = []
        """What each of them wants to be called."""
        self.has_tensors = False
        """Whether a tensor stands among the arguments, which is to become a constant of the program."""
        self._made: dict[str | int, tuple[Any, Ref]] = {} if made is None else made

    @property
    def _at(self) -> str:
        return place_of(self.root)

    def results(self, term: Any, count: int) -> tuple[Ref, ...]:
        """Return the values that stand in the place of several results.

        Args:
            term: what a replacement returned.
            count: how many there are; one is not in a tuple.
        """
        if not isinstance(term, list | tuple) or len(term) != count:
            raise RuleError(f"{self._at}: a replacement for {count} results returns a tuple of {count} values, not {term!r}")
        return tuple(map(self.result, term))

    def result(self, term: Any) -> Ref:
        """Return the value that stands in the place of the root."""
        found = self.arg(term)
        if type(found) is not Ref:
            raise RuleError(f"{self._at}: a replacement returns one value that it computes or was given, not {term!r}")
        return found

    def arg(self, term: Any) -> Arg:
        """Return the argument that a term becomes; its nodes are made where they are not yet."""
        match term:
            case Given(ref=ref):
                return ref
            case Applied() | Item() | Read() | Kept() | Called() | Computed():
                key = term.slot if isinstance(term, Read) else id(term)
                if key not in self._made:
                    self._made[key] = term, self._node(term)  # held, so that no other term has its id
                return self._made[key][1]
            case Size():
                return self._size(term)
            case Known(whole=whole, what="size", dim=dim):
                return self.arg(applied(torch.ops.aten.sym_size.int, (whole, dim), {}))
            case Known(what="dim" | "new dim", dim=dim):
                return dim
            case Sizes():
                raise RuleError(
                    f"{self._at}: how many there are of {term!r} is not known where a replacement is written: take one by one"
                )
            case AnyOf(terms=terms):  # one of several results, or a part of a tensor: getitem gives either
                return self.arg(terms[0])
            case Amount():
                raise RuleError(f"{self._at}: {term!r} is not known where a replacement is written; m.dtype(...) says what is")
            case list():
                return Items([self.arg(one) for one in term])
            case tuple():
                return type(term)([self.arg(one) for one in term])
            case torch.Tensor():
                self.has_tensors = True
                return term
            case Term():
                raise RuleError(
                    f"{term!r} is not a value of the program: write a replacement with the variables that it is given"
                )
            case _:
                return term

    def _node(self, term: Applied | Item | Read | Kept | Called | Computed) -> Ref:
        args, kwargs = (), ()
        match term:
            case Kept(node=node):
                return self._add(stem_of(node.name), lambda name: node.evolve(name=name))
            case Read(slot):
                do, word = Get(slot), slot
            case Called(do, operands):
                word, args = do.instance.path.rpartition(".")[2], tuple(map(self.arg, operands))
            case Item(whole, index):
                do, word, args = GETITEM, "getitem", (self.arg(whole), index)
            case Computed(function, operands):
                do, word, args = op_of(function), function.__name__, tuple(map(self.arg, operands))
            case _ if (function := self._arithmetic(term)) is not None:
                do, word, args = op_of(function), function.__name__, tuple(map(self.arg, term.args))
            case _:
                overload = self._overload(term)
                said = {key: value for key, value in term.kwargs.items() if not _is_unchanged(value, term)}
                given, named = converted(overload, term.args, said)
                if takes_sizes(overload) and len(given) > 1 and self._is_number(given[1]):
                    given[1] = [given[1]]  # x.reshape(n) is x.reshape([n])
                do, word = op_of(overload), term.name
                args = tuple([self.arg(one) for one in given])
                kwargs = tuple([(key, self.arg(one)) for key, one in named.items()])
        return self._add(word_of(word), lambda name: Node(name, do, args, kwargs, self.place.stack, self.meta))

    def _add(self, word: str, make: Callable[[str], Node]) -> Ref:
        name = self.names.fresh(word)
        self.nodes.append(make(name))
        self.words.append(word)
        return Ref(name)

    def _size(self, size: Size) -> Ref:
        # One node for each number: sizes that are proven to be equal are printed alike.
        key = f"size {size.value}"
        if key not in self._made:
            if not size.source:
                raise RuleError(f"{self._at}: nothing here computes the size {size}: take it of a variable, as in x.shape[0]")
            function, *operands = size.source
            if type(function) is Ref:  # the program computes it
                return function
            do, args = op_of(function), tuple(map(self.arg, operands))
            word = word_of(function.__name__.partition(".")[0])
            self._made[key] = size, self._add(word, lambda name: Node(name, do, args, (), self.place.stack, self.meta))
        return self._made[key][1]

    def _arithmetic(self, term: Any) -> Callable[..., Any] | None:
        # The function of Python that computes a term of numbers alone, as the exporter has it; None for one of tensors.
        function = ARITHMETIC.get(term.name) if isinstance(term, Applied) and not term.kwargs else None
        return function if function is not None and all(map(self._is_number, term.args)) else None

    def _is_number(self, term: Any) -> bool:
        match term:
            case Given(ref=ref):
                return isinstance(self.place.scope.known.get(ref.name), int | float | torch.SymInt | torch.SymFloat)
            case Applied():
                return self._arithmetic(term) is not None or all(map(_gives_number, term.overloads))
            case _:
                return isinstance(term, Number | int | float)

    def _overload(self, term: Applied) -> Any:
        # A use of a value is a tensor unless it is known to be a number.
        given = [self._kind(arg) for arg in term.args], {name: self._kind(arg) for name, arg in term.kwargs.items()}
        fitting = [one for one in term.overloads if bound(one, *given) is not None]
        if not fitting:
            raise RuleError(f"{self._at}: no overload of {term.name} takes what stands here, {term!r}")
        if len(fitting) == 1:
            return fitting[0]
        if term.name in AS_TENSORS:
            return next((one for one in fitting if schema_of(one).overload_name == "Tensor"), fitting[0])
        return min(fitting, key=lambda one: (numbers_as_tensors(one, *given), values_as_numbers(one, *given)))

    def _kind(self, term: Any) -> Any:
        # What is known to be a tensor fits no number.
        if isinstance(term, Amount):
            return 1
        value = self.place.scope.known.get(term.ref.name) if isinstance(term, Given) else term
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, torch.SymInt | torch.SymFloat):
            return 1 if isinstance(value, torch.SymInt) else 1.0
        return value if type(value) in (int, float, bool) else term


def _gives_number(overload: Any) -> bool:
    return [str(one.type) for one in schema_of(overload).returns] in (["int"], ["SymInt"], ["float"])


def _is_unchanged(value: Any, term: Applied) -> bool:
    # Whether an argument says that the type stays, which an operator that takes one does by itself.
    return isinstance(value, Known) and value.what == "dtype" and value.whole is term.args[0]
