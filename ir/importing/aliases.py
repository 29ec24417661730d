"""Aliases: modules that a strict export names by how they were reached, put back where they are.

One idea: a strict export names a module by its identity and by the way to it (``b.peer``, ``up.blocks[1]``), which need not
be a place in the hierarchy.  The same identity under a place, the module that it is reached through, or the state that its
own operators read tell which module it is; one that none of them tells keeps its way as its path.  Nothing here is done for
exports that name places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..paths import is_below, join

__all__ = ["Alias", "Aliases", "Entries"]

EXPORT_ROOT = "_export_root"
"""How the exporter calls the root in the bodies of operators."""

Entries = tuple[tuple[str, Any], ...]
"""A module stack as the exporter has it: pairs of a key and (path, class)."""

Alias = tuple[tuple[str, str], ...]
"""A call that was reached another way: path and key suffix of each call around it, then its own."""


class Aliases:
    """What a strict export calls modules, and where they are.

    Args:
        places: the paths of the hierarchy, in order.
        slots: the state behind each input of the root graph.
    """

    def __init__(self, places: Iterable[str], slots: Mapping[str, str]) -> None:
        self.places = dict.fromkeys(places)
        self.slots = slots
        self.where: dict[str, str] = {}
        """The place of each way that is none."""
        self.ways: dict[str, str] = {}
        """The identity of the module that each way leads to; nothing where places are named."""
        self.numbers: dict[Alias, int] = {}
        """The number of each call that was reached another way."""

    def learn(self, nodes: Iterable[Any]) -> None:
        """Find the places of all modules that fx nodes are in; inputs of nested graphs are named like those of the root."""
        ways: dict[str, dict[str, None]] = {}
        read: dict[str, set[str]] = {}
        stacks: dict[Entries, None] = {}
        for node in nodes:
            entries = _inner_entries(node)
            if not entries:
                continue
            if not entries[0][0].partition("@")[0].isdigit():
                return  # the exporter named places
            for key, (path, _) in entries:
                ways.setdefault(key.partition("@")[0], {})[path] = None
            stacks[entries] = None
            used = [used.name for used in node.all_input_nodes if used.op == "placeholder" and used.name in self.slots]
            innermost = _in_order(entries)[-1][1][0]
            read.setdefault(innermost, set()).update([self.slots[name].rpartition(".")[0] for name in used])
        self.ways = {way: key for key, found in ways.items() for way in found}
        if any(way not in self.places for way in self.ways):
            self._settle(ways, read)
            whole = [self.unwound(entries) for entries in stacks]
            self._number({call_of(entries[:depth]): None for entries in whole for depth in range(1, len(entries) + 1)})

    def unwound(self, entries: Entries) -> Entries:
        """Return a stack with the calls that a recursion has overwritten: the exporter has one entry for each module."""
        ordered = _in_order(entries)
        if ordered == entries:
            return entries
        first = ordered[0][1][0].split(".")
        above = [way for depth in range(1, len(first)) if (way := ".".join(first[:depth])) in self.ways]
        return (*[(self.ways[way], (way, None)) for way in above], *ordered)

    def _settle(self, ways: Mapping[str, Mapping[str, None]], read: Mapping[str, set[str]]) -> None:
        taken = {way for found in ways.values() for way in found if way in self.places}
        if EXPORT_ROOT in self.ways and EXPORT_ROOT not in self.places:
            self.where[EXPORT_ROOT] = ""
        strange: dict[str, list[str]] = {}
        for key, found in ways.items():
            places = [way for way in found if way in self.places]
            others = [way for way in found if way not in self.places]
            if places:
                place = min(places, key=list(self.places).index) if len(places) > 1 else places[0]
                self.where.update(dict.fromkeys(others, place))
            elif EXPORT_ROOT not in self.where or EXPORT_ROOT not in others:
                strange[key] = others
        found = True
        while found:  # what was found says more of what is inside it and around it
            found = False
            for key in sorted(strange, key=lambda key: min(strange[key], key=lambda way: (len(way), way))):
                options = self._options(strange[key], read)
                place = next((option for option in options if option in self.places and option and option not in taken), None)
                if place is not None:
                    found = True
                    taken.add(place)
                    self.where.update(dict.fromkeys(strange.pop(key), place))

    def _options(self, found: list[str], read: Mapping[str, set[str]]) -> Iterator[str]:
        # Where a module may be: below the one that it is reached through, where its operators read, above one inside it.
        for way in found:
            above, _, name = way.rpartition(".")
            if above in self.where:
                yield join(self.where[above], name)
        owners = set[str]().union(*[read.get(way, ()) for way in found])
        if len(owners) == 1:
            yield from owners
        for inner, place in sorted(self.where.items()):
            for way in found:
                rest = inner[len(way) :]
                if is_below(inner, way) and place.endswith(rest):
                    yield place[: -len(rest)]

    def _number(self, calls: Iterable[Alias]) -> None:
        # Calls that are named by their place have their numbers; the others come behind them, in an order that does not
        # depend on how the nodes happened to stand.
        following: dict[str, int] = {}
        strange: list[Alias] = []
        for call in calls:
            path, number = call[-1]
            if path in self.where:
                strange.append(call)
            else:
                following[path] = max(following.get(path, 0), int(number or 0) + 1)
        for call in sorted(strange):
            place = self.where[call[-1][0]]
            self.numbers[call] = following.get(place, 0)
            following[place] = self.numbers[call] + 1


def call_of(entries: Entries) -> Alias:
    """Return the calls of a stack by path and number, without what differs from process to process.

    >>> call_of((("L__self__", ("", "M")), ("1234", ("a", "A")), ("99@1", ("a.peer", "B"))))
    (('a', ''), ('a.peer', '1'))
    """
    return tuple([(path, key.partition("@")[2]) for key, (path, _) in entries if path])


def _in_order(entries: Entries) -> Entries:
    # A module that was called again by one that it called: its entry has the way of the later call, and the earlier place.
    ordered = list(entries)
    for index in range(len(ordered) - 1):
        way = ordered[index][1][0]
        later = next(
            (at for at in range(index + 1, len(ordered)) if ordered[at][1][0] and is_below(way, ordered[at][1][0])), None
        )
        if later is not None:
            ordered.insert(later, ordered.pop(index))
    return tuple(ordered)


def _inner_entries(node: Any) -> Entries:
    # Nothing where the stack is not what an exporter writes: the reader of the nodes says what is wrong.
    raw = node.meta.get("nn_module_stack")
    entries: Entries = tuple(raw.items()) if isinstance(raw, Mapping) else ()
    for key, value in entries:
        if type(key) is not str or type(value) is not tuple or len(value) != 2 or type(value[0]) is not str:
            return ()
    return tuple([entry for entry in entries if entry[1][0]])
