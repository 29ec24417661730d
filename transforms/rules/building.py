"""``Builder``: the nodes that a term becomes, in the place of a match.

The operands decide the overload, as in torch.  Values of new nodes are not worked out here (``infer`` does that), and whether
they may stand there is not decided here (``application.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch

from ...ir.analysis.history import made_of_value
from ...ir.arguments import Arg, Items, Ref
from ...ir.errors import RuleError
from ...ir.graph import Call, Get, Node
from ...ir.importing.regions import is_from_region
from ...ir.meta import ORIGIN, Meta
from ...ir.names import Names, stem_of, word_of
from ...ir.operators import GETITEM, op_of
from ...ir.origins import made_of
from ...ir.torch_private import schema_of
from .amounts import Amount, Computed, Known, Sizes, now
from .overloads import bound, converted, numbers_as_tensors, takes_sizes, values_as_numbers
from .place import Match
from .terms import ARITHMETIC, AnyOf, Applied, Given, Item, Kept, Read, Term, applied

__all__ = ["OF_A_VALUE", "Builder", "origin_of_match"]

AS_TENSORS = frozenset({"add", "sub", "mul", "div"})
"""Operators that torch calls with a number as it does with a tensor: ``x * 2`` is ``mul.Tensor``."""

OF_A_VALUE = frozenset({"val", "tensor_meta", "example_value", "unbacked_bindings"})
"""Meta that describes the value of a node; the rest describes its place, and new nodes have it from the root of the match."""

OF_AN_OPERATOR = frozenset({ORIGIN, "torch_fn", "source_fn_stack"})
"""Meta that names the function an operator came from; another operator came from none."""


def meta_of(root: Node, origin: Meta) -> Meta:
    """Return the meta of nodes that replace one: its place, and not its value or operator.

    Args:
        root: the node.
        origin: the meta of the nodes that they are made of.

    >>> from ...ir.graph import Op
    >>> sorted(meta_of(Node("y", Op("toy.neg"), meta={"val": 1, "custom": 2, "torch_fn": ("neg_1", "neg")}), {}))
    ['custom']
    """
    found = {key: value for key, value in root.meta.items() if key not in OF_A_VALUE and key not in OF_AN_OPERATOR}
    if is_from_region(root.meta):  # it says where the node is
        found["torch_fn"] = root.meta["torch_fn"]
    return MappingProxyType({**found, **origin})


def origin_of_match(place: Match, rule: str) -> Meta:
    """Return the provenance of nodes that replace a match: all nodes that were matched.

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
        place: the match that they replace.
        names: those that are taken.
        origin: the provenance of the nodes.
    """

    def __init__(self, place: Match, names: Names, origin: Meta) -> None:
        self.place = place
        self.names = names
        self.meta = meta_of(place.root, origin)
        self.nodes: list[Node] = []
        self.has_tensors = False
        """Whether a tensor is among the arguments, which is to become a constant of the program."""
        self._made: dict[str | int, tuple[Any, Ref]] = {}

    def results(self, term: Any) -> tuple[Ref, ...]:
        """Return the values that replace those of the roots of the match."""
        count = len(self.place.found.several)
        if not count:
            return (self.result(term),)
        if not isinstance(term, list | tuple) or len(term) != count:
            raise RuleError(f"{self.place.place}: a replacement of {count} results returns a tuple of as many, not {term!r}")
        return tuple(map(self.result, term))

    def result(self, term: Any) -> Ref:
        """Return the value that replaces that of a root."""
        found = self.arg(term)
        if type(found) is not Ref:
            raise RuleError(f"{self.place.place}: a replacement returns one value that it computes or was given, not {term!r}")
        return found

    def arg(self, term: Any) -> Arg:
        """Return the argument that a term becomes; its nodes are made where they are not yet."""
        match term:
            case Given(ref=ref):
                return ref
            case Known(what="dim" | "new dim", dim=dim):
                return dim
            case Applied() | Item() | Read() | Kept() | Amount() | torch.SymInt():
                number = now(term) if isinstance(term, Amount) else term
                # One node for each number: sizes that are proven to be equal are printed alike.
                key = f"size {number}" if isinstance(number, torch.SymInt) else id(term)
                key = term.slot if isinstance(term, Read) else key
                if key not in self._made:
                    self._made[key] = term, self._node(term)  # held, so that no other term has its id
                return self._made[key][1]
            case Sizes():
                raise RuleError(f"{self.place.place}: {term!r} is not known in a replacement: pass its sizes one by one")
            case AnyOf(terms=terms):  # one of several results, or a part of a tensor: getitem gives either
                return self.arg(terms[0])
            case list():
                return Items([self.arg(one) for one in term])
            case tuple():
                return type(term)([self.arg(one) for one in term])
            case torch.Tensor():
                self.has_tensors = True
                return term
            case Term():
                raise RuleError(f"{term!r} is not a value of the program: use the variables that are passed to the replacement")
            case _:
                return term

    def _node(self, term: Any) -> Ref:
        args, kwargs = (), ()
        match term:
            case Kept(node=node):
                return self._add(stem_of(node.name), lambda name: node.evolve(name=name))
            case Read(slot):
                do, word = Get(slot), slot
            case Item(whole, index):
                do, word, args = GETITEM, "getitem", (self.arg(whole), index)
            case Known(what="size", whole=whole, dim=dim):
                return self.arg(applied(torch.ops.aten.sym_size.int, (whole, dim), {}))
            case Computed(function, operands):
                do, word, args = op_of(function), function.__name__, tuple(map(self.arg, operands))
            case Amount() | torch.SymInt():
                return self.arg(self._size(term))
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
        return Ref(name)

    def _size(self, term: Any) -> Known | Given:
        # The operand of the match that has a size which the replacement took of the match, as in `m.shape("x")[0]`.
        place = self.place
        for arg in place.found.values.values():
            value = place.val(arg) if type(arg) is Ref else None
            if isinstance(value, torch.SymInt) and str(value) == str(term):
                return place.given(arg)
            for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and str(size) == str(term):
                    return Known(place.given(arg), "size", dim)
        raise RuleError(f"{place.place}: {term!r} is not known in a replacement, and no operand has it: write it as x.shape[0]")

    def _arithmetic(self, term: Any) -> Callable[..., Any] | None:
        # The function of Python that computes a term of numbers alone, as the exporter has it; None for one of tensors.
        function = ARITHMETIC.get(term.name) if isinstance(term, Applied) and not term.kwargs else None
        return function if function is not None and all(map(self._is_number, term.args)) else None

    def _is_number(self, term: Any) -> bool:
        match term:
            case Given():
                return isinstance(now(term), int | float | torch.SymInt | torch.SymFloat)
            case Applied():
                return self._arithmetic(term) is not None or all(map(_gives_number, term.overloads))
            case _:
                return isinstance(term, Amount | torch.SymInt | int | float)

    def _overload(self, term: Applied) -> Any:
        # A use of a value is a tensor unless it is known to be a number.
        if len(term.overloads) == 1:
            return next(iter(term.overloads))  # `infer` refuses operands that it does not take
        given = [_kind(arg) for arg in term.args], {name: _kind(arg) for name, arg in term.kwargs.items()}
        fitting = [one for one in term.overloads if bound(one, *given) is not None]
        if not fitting:
            raise RuleError(f"{self.place.place}: no overload of {term.name} takes what stands here, {term!r}")
        if len(fitting) == 1:
            return fitting[0]
        if term.name in AS_TENSORS:
            return next((one for one in fitting if schema_of(one).overload_name == "Tensor"), fitting[0])
        return min(fitting, key=lambda one: (numbers_as_tensors(one, *given), values_as_numbers(one, *given)))


def _kind(term: Any) -> Any:
    # A value that is known to be a tensor fits no number.
    value = 1 if isinstance(term, Amount) else now(term) if isinstance(term, Given) else term
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
