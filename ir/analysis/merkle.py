"""``Digests``: the identity of every body of a program, each made of its own and of those of its callees.

A body that calls thousands of others is a Merkle tree over their digests, so another callee changes as many hashes as the tree
has levels.  What a body is by itself is asked of the body, see ``own_identity`` in ``digest.py``, and not looked at here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from attrs import frozen

from ..facts import Edit
from ..graph import Graph
from ..persistent import PMap, pmap

__all__ = ["Digests", "Own", "digests", "followed", "hash_of"]

Own = tuple[str, tuple[str, ...]]
"""The hash of a body with a hole for each callee, and the callees in order."""

Tree = tuple[str, tuple[Any, ...]]
"""A hash, and what it is the hash of: trees, or digests at the lowest level."""

WIDTH = 32
"""How many entries a level takes together."""


def hash_of(text: str) -> str:
    """Return the hash of a text, 32 hexadecimal digits.

    >>> hash_of("a") == hash_of("a"), len(hash_of(""))
    (True, 32)
    """
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@frozen(eq=False)
class Digests:
    """The identities of the bodies of a program."""

    ranks: Mapping[str, int]
    """The place of each in ``bottom_up``: who calls a body comes behind it, except in a circle."""
    users: Mapping[str, tuple[tuple[str, int], ...]]
    """For each body who calls it, and the number of that call; those alone whose identity depends on it."""
    known: PMap[str, tuple[str, Tree | None]]
    """The digest of each, and the tree of its callees' where it has any."""

    def of(self, name: str) -> str:
        """Return the digest of a body; an empty text for one that is not there."""
        found = self.known.get(name)
        return "" if found is None else found[0]


def digests(program: Any, own: Callable[[Graph], Own]) -> Digests:
    """Return the digest of every body of a program.

    Args:
        program: any program.
        own: gives the identity of a body with holes for its callees.

    >>> from purefx.ir import Graph, Program
    >>> digests(Program.of({"": Graph((), (), ())}), lambda graph: ("hash", ())).of("")
    'hash'
    """
    known: dict[str, tuple[str, Tree | None]] = {}
    users: dict[str, list[tuple[str, int]]] = {}
    order = program.bottom_up
    for name in order:
        mine, callees = own(program.graphs[name])
        for number, callee in enumerate(callees):
            if callee in known:  # in a circle the last call is known by its name alone
                users.setdefault(callee, []).append((name, number))
        known[name] = _together(mine, _grown([known[callee][0] if callee in known else callee for callee in callees]))
    ranks = {name: rank for rank, name in enumerate(order)}
    return Digests(ranks, {name: tuple(calls) for name, calls in users.items()}, pmap(known))


def followed(known: Digests, edit: Edit, own: Callable[[Graph], Own]) -> Digests | None:
    """Return the digests after an edit; None where an edited graph calls others than it did.

    Args:
        known: the digests before it.
        edit: what was changed.
        own: gives the identity of a body with holes for its callees.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> followed(digests(program, lambda graph: ("a", ())), Edit(program, program, ("",)), lambda graph: ("b", ())).of("")
    'b'
    """
    before, after = edit.before.graphs, edit.after.graphs
    if any(own(before[name])[1] != own(after[name])[1] for name in edit.changed):
        return None
    changed: dict[str, tuple[str, Tree | None]] = {}
    given: dict[str, list[int]] = {name: [] for name in edit.changed if name in known.ranks}
    moved: dict[tuple[str, int], str] = {}
    todo = sorted((known.ranks[name], name) for name in given)
    while todo:
        _, name = heappop(todo)
        was = known.known[name]
        tree = was[1]
        for number in given[name]:
            assert tree is not None
            tree = _with_leaf(tree, len(own(after[name])[1]), number, moved[name, number])
        now = _together(own(after[name])[0], tree)
        changed[name] = now
        for user, number in known.users.get(name, ()) if now[0] != was[0] else ():
            moved[user, number] = now[0]
            if user not in given:
                given[user] = []
                heappush(todo, (known.ranks[user], user))
            given[user].append(number)
    return Digests(known.ranks, known.users, known.known.update(changed)) if changed else known


def _together(own: str, tree: Tree | None) -> tuple[str, Tree | None]:
    return (own, None) if tree is None else (hash_of(f"{own}\n{tree[0]}"), tree)


def _grown(leaves: Sequence[str]) -> Tree | None:
    if not leaves:
        return None
    level: Sequence[Any] = leaves
    while True:
        level = [_node(tuple(level[start : start + WIDTH])) for start in range(0, len(level), WIDTH)]
        if len(level) == 1:
            return level[0]


def _node(parts: tuple[Any, ...]) -> Tree:
    return hash_of("\n".join([part if type(part) is str else part[0] for part in parts])), parts


def _with_leaf(tree: Tree, count: int, number: int, leaf: str) -> Tree:
    """Return a tree with another digest at one place.

    Args:
        tree: as ``_grown`` gives it.
        count: how many digests it is of.
        number: the place.
        leaf: what is there now.
    """
    span = 1  # how many digests a part of this node is of
    while span * WIDTH < count:
        span *= WIDTH
    way: list[tuple[tuple[Any, ...], int]] = []
    part: Any = tree
    while span:
        place, number = divmod(number, span)
        way.append((part[1], place))
        part = part[1][place]
        span = span // WIDTH if span > 1 else 0
    made: Any = leaf
    for parts, place in reversed(way):
        made = _node((*parts[:place], made, *parts[place + 1 :]))
    return made
