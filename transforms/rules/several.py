"""Patterns with several results: terms that share values, found together from one of them and replaced at one place.

The terms are found from the last of them that a walk over the graph comes to: the others are users of values that are known by
then.  All that they compute then stands at one place, behind what it uses and before what uses it, if there is such a place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve

from ...ir.arguments import Ref, refs_in
from ...ir.errors import RuleError
from ...ir.graph import Node
from .matching import Found, NodeOf, match, operators_of, root_of
from .terms import AnyOf, Applied, Item, Var, parts_of, subterms

__all__ = ["check_results", "spot", "ways"]

UsersOf = Callable[[str], Sequence[Node]]


def check_results(name: str, terms: tuple[Any, ...]) -> None:
    """Check that terms can be found together.

    Args:
        name: of the rule.
        terms: the results of its pattern.

    Raises:
        RuleError: one of them stands there twice, or has no value in common with the others.

    >>> x, y = Var("x"), Var("y")
    >>> check_results("both", (x.sin(), x.cos()))
    >>> check_results("apart", (x.sin(), y.cos()))
    Traceback (most recent call last):
        ...
    purefx.ir.errors.RuleError: apart looks for sin(x) and for cos(y), which have no value in common: write two rules
    """
    if len({id(term) for term in terms}) < len(terms):
        raise RuleError(f"{name} returns one value twice: return it once, and let the replacement give one value for it")
    known, left = _values_in(terms[:1]), list(terms[1:])
    while left:
        joined = next((term for term in left if not known.isdisjoint(_values_in([term]))), None)
        if joined is None:
            shown = f"{name} looks for {terms[0]!r} and for {left[0]!r}"
            raise RuleError(f"{shown}, which have no value in common: write two rules")
        known |= _values_in([joined])
        left = [term for term in left if term is not joined]


def _values_in(terms: Sequence[Any]) -> set[object]:
    # Variables by name, and what is computed of them.
    named = [each for each in subterms(*terms) if isinstance(each, Var | Applied | Item)]
    return {each.name if isinstance(each, Var) else id(each) for each in named}


def ways(term: Any, node: Node, node_of: NodeOf, users_of: UsersOf) -> Iterator[Found]:
    """Find the ways in which a node is what a rule looks for, or the last of several results.

    Args:
        term: of the rule; a tuple where it has several results.
        node: of the graph.
        node_of: the node that computes a value; None for an input.
        users_of: the nodes that use a value and may be one of the other results, in order.
    """
    if type(term) is not tuple:
        yield from match(term, Ref(node.name), node_of)
        return
    for number, each in enumerate(term):
        if root_of(node) in operators_of(each):
            for found in match(each, Ref(node.name), node_of):
                yield from _with_others(term, {number: node}, found, node_of, users_of)


def _with_others(
    terms: tuple[Any, ...], roots: Mapping[int, Node], found: Found, node_of: NodeOf, users_of: UsersOf
) -> Iterator[Found]:
    if len(roots) == len(terms):
        results = tuple([roots[number] for number in range(len(terms))])
        if _refs(found).isdisjoint([root.name for root in results]):  # what a replacement computes with is not replaced by it
            yield evolve(found, several=results)
        return
    known = {id(term): node.name for term, node in zip(found.terms, found.nodes, strict=True)}
    taken = {node.name for node in roots.values()}
    for number, term in enumerate(terms):
        if number not in roots and (names := _candidates(term, known, found, users_of, {})) is not None:
            for name in names:
                node = node_of(name)
                if node is not None and name not in taken:
                    for more in match(term, Ref(name), node_of, found):
                        yield from _with_others(terms, {**roots, number: node}, more, node_of, users_of)
            return


def _refs(found: Found) -> set[str]:
    return set(refs_in(tuple(found.values.values()), ()))


def _candidates(
    term: Any, known: Mapping[int, str], found: Found, users_of: UsersOf, done: dict[int, list[str] | None]
) -> list[str] | None:
    # The values that may be a term, as users of what is known; None where nothing in it is.
    if id(term) in known:
        return [known[id(term)]]
    if id(term) not in done:
        done[id(term)] = _by_parts(term, lambda part: _candidates(part, known, found, users_of, done), found, users_of)
    return done[id(term)]


def _by_parts(term: Any, candidates: Callable[[Any], list[str] | None], found: Found, users_of: UsersOf) -> list[str] | None:
    match term:
        case Var(name):
            value = found.values.get(name)
            return [value.name] if type(value) is Ref else None
        case AnyOf(terms):
            several = [candidates(each) for each in terms]
            return None if None in several else [*dict.fromkeys([name for names in several for name in names or ()])]
        case Applied() | Item() | list() | tuple():
            several = [names for each in parts_of(term) if (names := candidates(each)) is not None]
            if not several or isinstance(term, list | tuple):
                return several[0] if several else None
            nearest = min(([users_of(name) for name in names] for names in several), key=lambda users: sum(map(len, users)))
            wanted = set(operators_of(term))
            return [*dict.fromkeys([node.name for users in nearest for node in users if root_of(node) in wanted])]
        case _:
            return None


def spot(
    span: Sequence[Node], inner: Collection[str], found: Found, follows: Collection[str] = (), leads: Collection[str] = ()
) -> int | None:
    """Return where the nodes that replace several results may stand: before which node of a span; None if nowhere.

    Args:
        span: the nodes from the first to the last of a match, those between them included.
        inner: the nodes of the match, by name.
        found: the match.
        follows: nodes that have to come after one of the match, beside users of its results.
        leads: nodes that have to come before one of them.
    """
    roots, used = {root.name for root in found.roots}, _refs(found)
    place: int | None = None
    for number, node in enumerate(span):
        is_other = node.name not in inner
        if place is None and is_other and (node.name in follows or not roots.isdisjoint(node.refs())):
            place = number
        if place is not None and (node.name in used or (is_other and node.name in leads)):
            return None
    return len(span) - 1 if place is None else place
