"""``Movable``: which numbers of a split program can be computed in another part, and from what.

A number is traced back through the parts to the operators that compute it; a value that is not a number, or must stay, is a
leaf.  No part is changed here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from attrs import frozen

from ...ir.analysis.numbers import is_number, numbers_in
from ...ir.arguments import Ref
from ...ir.calls.parts import Chain
from ...ir.effects.declared import NOTHING, NodeEffects
from ...ir.effects.dependencies import dependencies
from ...ir.effects.resolved import node_effects, storages
from ...ir.graph import Call, Graph, Node, Op
from ...ir.program import Program

__all__ = ["ROOT", "Movable", "Place", "Tree"]

Place = tuple[int, str]
"""A value: the number of a part and its name there; ``ROOT`` and the name in the root for what comes from outside."""

ROOT = -1

HERE = -1
"""Stands for the part itself among those that need a value."""

AFTER = -2
"""Stands for the caller."""


@frozen
class Tree:
    """How a number is computed: its operators, each after those whose results it uses.

    >>> Tree((), {}).nodes
    ()
    """

    nodes: tuple[tuple[Place, Node], ...]
    origins: dict[tuple[int, str], Place]
    """For each value that these use, by the part of the operator and the name there, where it comes from."""


class Movable:
    """What can be computed elsewhere.

    Args:
        program: a split program.
        chain: its parts.
        keep: the paths of parts that give no operator away.
        recompute: whether operators may be computed in several parts.
    """

    def __init__(self, program: Program, chain: Chain, *, keep: Collection[str], recompute: bool) -> None:
        self.program = program
        self.chain = chain
        self.recompute = recompute
        self.graphs = [program.graphs[part.graph] for part in chain.parts]
        self.formals = [
            {formal.name: actual for formal, actual in zip(graph.inputs, part.node.args, strict=True)}
            for graph, part in zip(self.graphs, chain.parts, strict=True)
        ]
        self.numbers = self._numbers()
        self.keep = frozenset(keep)
        self._free_in: dict[int, set[str]] = {}
        self.needed = [] if recompute else self._needed()

    def tree(self, value: str, target: int) -> Tree | None:
        """Return how a part can compute an input that is a number; None if it cannot, or if it is not a number.

        Args:
            value: what the root calls it.
            target: the number of the part.
        """
        goal = self._result(value)
        if goal[0] == ROOT or not self._moves(goal, target):
            return None
        nodes: dict[Place, Node] = {}
        origins: dict[tuple[int, str], Place] = {}
        todo = [(goal, False)]
        while todo:
            place, ready = todo.pop()
            node = self.graphs[place[0]].by_name[place[1]]
            if ready:
                nodes.setdefault(place, node)
                continue
            todo.append((place, True))
            for name in node.refs():
                origin = origins[place[0], name] = self._origin(place[0], name)
                if origin in nodes or not self._is_number(origin) or origin[0] == ROOT:
                    continue
                if self._moves(origin, target):
                    todo.append((origin, False))
                elif self.recompute:
                    return None  # it would take the number that it is made of instead
        return Tree(tuple(nodes.items()), origins)

    def is_inside_a_call(self) -> bool:
        """Return whether a boundary number is computed in a module call of its part, where it cannot be traced."""
        used = {self.chain.value(name) for part in self.chain.parts for name in part.node.refs()}
        for number, part in enumerate(self.chain.parts):
            for output, given in zip(part.outputs, part.given, strict=True):
                number_crosses = given in used and type(output) is Ref and output.name in self.numbers[number]
                if number_crosses and _is_of_a_call(self.graphs[number], output.name):
                    return True
        return False

    def _moves(self, place: Place, target: int) -> bool:
        number, name = place
        if number >= target or self.depths[target] or name not in self.free(number) or self._is_written(number, target):
            return False
        return self.recompute or self.needed[number].get(name) == {target}

    def _is_written(self, number: int, target: int) -> bool:
        # What a part reads only those write that depend on it; they do no harm where they must run behind the target.
        return any(
            writes and behind >> number & 1 and other != target and not behind >> target & 1
            for other, (writes, behind) in enumerate(zip(self.writing, self.behind, strict=True))
        )

    def _is_number(self, place: Place) -> bool:
        return place[0] != ROOT and place[1] in self.numbers[place[0]]

    def _origin(self, number: int, name: str) -> Place:
        # What a part is given it names as it likes; a number that it was given is what its maker made.
        if name not in self.formals[number]:
            return number, name
        actual = self.formals[number][name]
        if type(actual) is not Ref:
            return number, name
        return self._result(actual.name) if name in self.numbers[number] else (ROOT, self.chain.value(actual.name))

    def _result(self, value: str) -> Place:
        made = self.chain.makers.get(value)
        output = None if made is None else self.chain.parts[made[0]].outputs[made[1]]
        if made is None or type(output) is not Ref or output.name not in self.numbers[made[0]]:
            return ROOT, self.chain.value(value)
        return self._origin(made[0], output.name)

    @cached_property
    def done(self) -> list[NodeEffects]:
        """For each part what it does to the world."""
        done = node_effects(self.program, self.program.main)
        calls = {node.name: node_effect for node, node_effect in zip(self.program.main.nodes, done, strict=True)}
        return [calls[part.node.name] for part in self.chain.parts]

    @cached_property
    def writing(self) -> list[bool]:
        """For each part whether it writes into what others have."""
        return [bool(node_effect.writes or node_effect.writes_slots) for node_effect in self.done]

    @cached_property
    def behind(self) -> list[int]:
        """For each part which others must run before it, in any legal order: a bit for each."""
        main = self.program.main
        numbers = {part.node.name: number for number, part in enumerate(self.chain.parts)}
        found: list[int] = []
        for earlier in dependencies(self.program, main):
            bits = 0
            for other in earlier:
                name = main.nodes[other].name
                bits |= found[other] | (1 << numbers[name] if name in numbers else 0)
            found.append(bits)
        return [bits for bits, node in zip(found, main.nodes, strict=True) if node.name in numbers]

    @cached_property
    def depths(self) -> list[int]:
        """For each part in how many regions it begins, which parts before it opened."""
        return _depths(self.done)

    def _numbers(self) -> list[frozenset[str]]:
        known = {formal.name for formal in self.program.main.inputs if is_number(formal.meta)}
        found: list[frozenset[str]] = []
        for number, (part, graph) in enumerate(zip(self.chain.parts, self.graphs, strict=True)):
            formals = self.formals[number].items()
            given = {name for name, actual in formals if type(actual) is Ref and self.chain.value(actual.name) in known}
            found.append(numbers_in(graph, given))
            results = zip(part.outputs, part.given, strict=True)
            known.update(name for output, name in results if name and type(output) is Ref and output.name in found[-1])
        return found

    def free(self, number: int) -> set[str]:
        """Return the numbers that a part could let others compute.

        One operator makes them, which stands in no region and does nothing else, and what it reads is not written later.

        Args:
            number: of the part.
        """
        known = self._free_in.get(number)
        if known is None:
            given_away = self.chain.parts[number].path not in self.keep
            known = self._free_in[number] = self._found_free(number) if given_away else set()
        return known

    def _found_free(self, number: int) -> set[str]:
        part, graph, numbers = self.chain.parts[number], self.graphs[number], self.numbers[number]
        done = node_effects(self.program, graph, path=part.path)
        memory = storages(self.program, graph, done)
        inside = [depth != 0 for depth in _depths(done, self.depths[number])[1:]]
        written: set[object] = set()
        found: set[str] = set()
        for at in range(len(done) - 1, -1, -1):
            node, node_effect = graph.nodes[at], done[at]
            if node_effect.writes_slots:
                break
            if node.name in numbers and type(node.do) is Op and node_effect == NOTHING and not inside[at]:
                read = [memory.find(name) for name in node.refs() if name not in numbers]
                if written.isdisjoint(read):
                    found.add(node.name)
            written.update(memory.find(name) for name in node_effect.writes)
        return found

    def _needed(self) -> list[dict[str, set[int]]]:
        # For each number, which parts need it or what is made of it; HERE where a tensor of its own part does.
        users: dict[str, set[int]] = {}
        for number, part in enumerate(self.chain.parts):
            for name in part.node.refs():
                users.setdefault(self.chain.value(name), set()).add(number)
        for name in self.program.main.output_refs():
            users.setdefault(self.chain.value(name), set()).add(AFTER)
        found: list[dict[str, set[int]]] = []
        for number, (part, graph) in enumerate(zip(self.chain.parts, self.graphs, strict=True)):
            needed: dict[str, set[int]] = {}
            for output, given in zip(part.outputs, part.given, strict=True):
                if type(output) is Ref and given is not None:
                    needed.setdefault(output.name, set()).update(users.get(given, ()))
            for node in reversed(graph.nodes):
                mine = needed.get(node.name, set()) if node.name in self.free(number) else {HERE}
                for name in node.refs():
                    needed.setdefault(name, set()).update(mine)
            found.append(needed)
        return found


def _depths(done: Sequence[NodeEffects], depth: int = 0) -> list[int]:
    # How many regions are open before each step, and after the last: what a region does to its operators (a vmap makes other
    # sizes of them) it does nowhere else.  Below 0 where a region ends that was opened before all of them.
    found = [depth]
    for node_effect in done:
        closes, opens = node_effect.scope
        found.append(found[-1] - closes + opens)
    return found


def _is_of_a_call(graph: Graph, name: str) -> bool:
    node = graph.by_name.get(name)
    if node is not None and node.projection is not None:
        node = graph.by_name.get(node.projection[0])
    return node is not None and type(node.do) is Call
