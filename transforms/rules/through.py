"""Chains: a value that a pattern finds behind views and casts of it, and what those were, for the replacement to write again.

Which values are behind one is said here; the nodes between are inner ones of the match, as any others (``matching.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import field, frozen

from ...ir.arguments import Arg, Ref
from ...ir.errors import RuleError
from ...ir.graph import Node, Op
from .terms import Term, Var, applied

__all__ = ["Chain", "Through", "chains", "through"]

VIEWS = frozenset([f"aten.{name}" for name in (
    "_reshape_alias", "_unsafe_view", "alias", "clone", "contiguous", "expand", "expand_as", "flatten", "mT", "moveaxis",
    "movedim", "numpy_T", "permute", "ravel", "reshape", "reshape_as", "squeeze", "swapaxes", "swapdims", "t", "transpose",
    "unflatten", "unsqueeze", "view", "view_as",
)])  # fmt: skip
"""Operators that give the elements of their operand in another order or shape, all of them: no selection, no conjugate."""

CASTS = frozenset({"aten.to.dtype", "aten._to_copy.default", "aten.type_as.default"})
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
        if node.do.name in CASTS:
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
