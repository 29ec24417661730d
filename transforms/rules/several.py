"""Patterns with several results: parts that share values, found together from one of them and replaced at one place.

The parts are found from the last of them that a walk over the graph comes to: the others are users of values that are known by
then.  All that they compute then stands at one place, behind what it uses and before what uses it, if there is such a place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve

from ...ir.arguments import Ref, refs_in
from ...ir.errors import RuleError
from ...ir.graph import Node
from .matching import Found, NodeOf, match, root_of, roots_of
from .pattern import Pattern, inner, role, shown, subparts

__all__ = ["check_results", "spot", "ways"]

UsersOf = Callable[[str], Sequence[Node]]


def check_results(name: str, parts: tuple[Any, ...]) -> None:
    """Check that parts can be found together.

    Args:
        name: of the rule.
        parts: the results of its pattern.

    Raises:
        RuleError: one of them stands there twice, or has no value in common with the others.
    """
    if len({id(part) for part in parts}) < len(parts):
        raise RuleError(f"{name} returns one value twice: return it once, and let the replacement give one value for it")
    known, left = _values_in(parts[:1]), list(parts[1:])
    while left:
        joined = next((part for part in left if not known.isdisjoint(_values_in([part]))), None)
        if joined is None:
            raise RuleError(
                f"{name} looks for {shown(parts[0])} and for {shown(left[0])}, which have no value in common: write two rules"
            )
        known |= _values_in([joined])
        left = [part for part in left if part is not joined]


def _values_in(parts: Sequence[Any]) -> set[object]:
    # Variables, and what is computed of them.
    return {each for each in subparts(*parts) if role(each) in ("variable", "operator", "item", "index")}


def ways(pattern: Pattern, node: Node, node_of: NodeOf, users_of: UsersOf) -> Iterator[Found]:
    """Find the ways in which a node is what a rule looks for, or the last of several results.

    Args:
        pattern: of the rule.
        node: of the graph.
        node_of: the node that computes a value; None for an input.
        users_of: the nodes that use a value and may be one of the other results, in order.
    """
    if not pattern.is_tuple:
        yield from match(pattern.results[0], Ref(node.name), node_of)
        return
    for number, each in enumerate(pattern.results):
        if root_of(node) in roots_of(each):
            for found in match(each, Ref(node.name), node_of):
                yield from _with_others(pattern.results, {number: node}, found, node_of, users_of)


def _with_others(
    parts: tuple[Any, ...], roots: Mapping[int, Node], found: Found, node_of: NodeOf, users_of: UsersOf
) -> Iterator[Found]:
    if len(roots) == len(parts):
        results = tuple([roots[number] for number in range(len(parts))])
        if _refs(found).isdisjoint([root.name for root in results]):  # what a replacement computes with is not replaced by it
            yield evolve(found, several=results)
        return
    known = {id(part): node.name for part, node in zip(found.parts, found.nodes, strict=True)}
    taken = {node.name for node in roots.values()}
    for number, part in enumerate(parts):
        if number not in roots and (names := _candidates(part, known, found, users_of, {})) is not None:
            for name in names:
                node = node_of(name)
                if node is not None and name not in taken:
                    for more in match(part, Ref(name), node_of, found):
                        yield from _with_others(parts, {**roots, number: node}, more, node_of, users_of)
            return


def _refs(found: Found) -> set[str]:
    return set(refs_in(tuple(found.values.values()), ()))


def _candidates(
    part: Any, known: Mapping[int, str], found: Found, users_of: UsersOf, done: dict[int, list[str] | None]
) -> list[str] | None:
    # The values that may be a part, as users of what is known; None where nothing in it is.
    if id(part) in known:
        return [known[id(part)]]
    if id(part) in done:
        return done[id(part)]
    result: list[str] | None = None
    several = [_candidates(each, known, found, users_of, done) for each in inner(part)]
    there = [names for names in several if names is not None]
    match role(part):  # pyright: ignore[reportMatchNotExhaustive]
        case "variable":
            value = found.values.get(part.target)
            result = [value.name] if type(value) is Ref else None
        case "any_of" if None not in several:
            result = [*dict.fromkeys([name for names in there for name in names])]
        case "list" if there:
            result = there[0]
        case "operator" | "item" | "index" if there:
            nearest = min(([users_of(name) for name in names] for names in there), key=lambda users: sum(map(len, users)))
            wanted = set(roots_of(part))
            result = [*dict.fromkeys([node.name for users in nearest for node in users if root_of(node) in wanted])]
    done[id(part)] = result
    return result


def spot(span: Sequence[Node], inner: Collection[str], found: Found) -> int | None:
    """Return where the nodes that replace several results may stand: before which node of a span; None if nowhere.

    That is before the first other user of a result, and behind all that the match uses.

    Args:
        span: the nodes from the first to the last of a match, those between them included.
        inner: the nodes of the match, by name.
        found: the match.
    """
    roots, used = {root.name for root in found.roots}, _refs(found)
    users = [number for number, node in enumerate(span) if node.name not in inner and not roots.isdisjoint(node.refs())]
    place = users[0] if users else len(span) - 1
    return None if any(node.name in used for node in span[place:]) else place
