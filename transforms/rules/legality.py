"""``Legality``: whether what a rule builds may stand in the place of what it matched, by the one relation of dependencies.

Nodes of a match must be able to stand together, the replacement must have the effects of what it replaces, and share memory as
that did where somebody can see it.  Who uses what of a match is known to the walk (``application.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from attrs import evolve

from ...ir.arguments import Arg, Ref, refs_in
from ...ir.effects.declared import NOTHING, NodeEffects
from ...ir.effects.dependencies import dependencies
from ...ir.effects.resolved import resolver
from ...ir.errors import RuleError
from ...ir.graph import Call, Node, Op
from ...ir.inference import values_of
from ...ir.program import Program
from ...ir.torch_private import OpOverload, schema_of
from .place import Match
from .terms import arranged

__all__ = ["Legality"]

WITHOUT_SHARING: Mapping[str, Any] = {"aliases": (), "aliases_slots": (), "results": (), "reads_slots": ()}


MAY_COPY = frozenset(
    f"aten::{name}"
    for name in ("reshape", "reshape_as", "flatten", "ravel", "contiguous", "to", "cpu", "resolve_conj", "resolve_neg")
)
"""Operators that give a view of their operand, or a copy, as its type and layout are."""


class Legality:
    """What may be done in one graph.

    Args:
        program: the program of the graph.
        name: the id of the graph.
        paths: its instances.
    """

    def __init__(self, program: Program, name: str, paths: tuple[str, ...]) -> None:
        self.program = program
        self.name = name
        self.graph = program.graphs[name]
        self.paths = paths

    def is_movable(self, inner: Collection[str], position: Mapping[str, int], at: str) -> bool:
        """Return whether all nodes of a match can stand where the last one does: nothing between must come after one of them.

        Args:
            inner: the nodes of the match.
            position: the number of each node of the graph.
            at: the node of the graph where the match is replaced.
        """
        if len(inner) == 1 or not self.is_acting:
            return True
        if any(name not in position for name in inner):
            return False  # what is new has no relation to others yet: the next walk sees it
        first, last = min(position[name] for name in inner), position[at]
        if self.name != self.program.root and any(_writes(node) for node in self.graph.nodes[first:last]):
            return False  # whose memory the inputs of a body are, its callers decide
        between = [(name, self.graph.nodes[number]) for name in inner for number in self._after[position[name]] if number < last]
        return all(other.name in inner or (name in other.refs() and not self.acts(other)) for name, other in between)

    def check_effects(self, rule: str, place: Match, made: Sequence[Node], *, any_effects: bool) -> None:
        """Check that what a rule puts in the place of a match does what that did.

        Raises:
            RuleError: it does not, and the rule does not say that it may.
        """
        before, after = ([self.does(node) for node in nodes] for nodes in (place.nodes, made))
        writes = any(one.writes or one.writes_slots or one.scope != (0, 0) for one in (*before, *after))
        was, becomes = sorted(filter(None, map(_said, before))), sorted(filter(None, map(_said, after)))
        if (was == becomes or any_effects) and not writes:
            return
        raise RuleError(
            f"{rule} at {place.place}: what it matched {' and '.join(was) or 'only computes'},\n"
            f"and what stands there instead {' and '.join(becomes) or 'only computes'}. A rule replaces operators by others\n"
            "with the same effects, and none that write. Declare what an operator of a library does (px.declare), or say\n"
            "any_effects=True where the rule is right all the same."
        )

    def shares_alike(self, root: Node, inner: Sequence[Node], made: Sequence[Node], result: Arg) -> bool:
        """Return whether nobody can see that a result shares other memory than the root of the match did."""
        if not (self._is_written or root.name in self._escaping):
            return True
        before, old = self._memory(Ref(root.name), inner)
        after, new = self._memory(result, made)
        # What may share memory, and may not, does so in the same runs only where it is the same operators.
        is_certain = all(map(_is_view, (*old, *new))) or [_code(node) for node in old] == [_code(node) for node in new]
        return before == after and (is_certain or not before)

    def _memory(self, arg: Arg, among: Sequence[Node]) -> tuple[frozenset[object], list[Node]]:
        # The values from outside of some nodes, and the state, that a result of them may share memory with; and through which.
        nodes = {node.name: node for node in among}
        todo, seen, found = list(refs_in((arg,), ())), dict[str, None](), set[object]()
        while todo:
            name = todo.pop()
            if name not in nodes:
                found.add(name)
            elif name not in seen:
                seen[name] = None
                does = self.does(nodes[name])
                todo += () if self._is_other_type(nodes[name]) else does.aliases
                found.update([("state", slot) for slot in does.aliases_slots])
        through = [nodes[name] for name in seen]
        return frozenset(found), [node for node in through if self.does(node).aliases and not self._is_other_type(node)]

    def _is_other_type(self, node: Node) -> bool:
        # Whether it is a cast to another type than its operand has, which is new memory.
        target = node.do.target if type(node.do) is Op else None
        if not isinstance(target, OpOverload) or schema_of(target).name != "aten::to":
            return False
        given = arranged(target, node.args, dict(node.kwargs)) or {}
        operand = given.get("self")
        value = self.values.get(operand.name) if type(operand) is Ref else None
        dtype = given.get("dtype")
        return isinstance(value, torch.Tensor) and isinstance(dtype, torch.dtype) and value.dtype is not dtype

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """The fake values of the graph."""
        return MappingProxyType(values_of(self.graph))

    @cached_property
    def does(self) -> Callable[[Node], NodeEffects]:
        """Gives the effects of a node, of this graph or a new one."""
        return resolver(self.program, self.graph)

    def acts(self, node: Node) -> bool:
        """Return whether a node does more than compute its value."""
        if type(node.do) is Op:
            return node.do.effects.acts
        return type(node.do) is Call and evolve(self.does(node), **WITHOUT_SHARING) != NOTHING

    @cached_property
    def is_acting(self) -> bool:
        """Whether any node does more than compute its value."""
        return any(map(self.acts, self.graph.nodes))

    @cached_property
    def _is_written(self) -> bool:
        does = [self.does(node) for node in self.graph.nodes if self.acts(node)]
        return any(one.writes or one.writes_slots for one in does)

    @cached_property
    def _after(self) -> Mapping[int, set[int]]:
        # Which nodes must come after each, wherever the graph stands.
        found: dict[int, set[int]] = {number: set() for number in range(len(self.graph.nodes))}
        for path in self.paths:
            for after, earlier in enumerate(dependencies(self.program, self.graph, path=path)):
                for before in earlier:
                    found[before].add(after)
        return found

    @cached_property
    def _escaping(self) -> frozenset[str]:
        # The values whose memory others can see: what is returned, and what shares memory with it.
        todo, found = list(self.graph.output_refs()), set[str]()
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += self.does(self.graph.by_name[name]).aliases if name in self.graph.by_name else ()
        return frozenset(found)


def _is_view(node: Node) -> bool:
    # Whether the result always is the memory of an operand.
    target = node.do.target if type(node.do) is Op else None
    if not isinstance(target, OpOverload):
        return node.projection is not None
    schema = schema_of(target)
    return schema.name not in MAY_COPY and any(one.alias_info is not None for one in schema.returns)


def _code(node: Node) -> object:
    return node.do, node.args, node.kwargs


def _said(does: NodeEffects) -> str:
    # The effects of a node beside its result, in words; empty if it has none.
    ordered = [f"is in order in {' '.join(key) or 'everything'}" for key in does.domains]
    told = {"writes": does.writes or does.writes_slots, "draws random numbers": does.random, "is in order": does.ordered}
    told.update(dict.fromkeys(ordered, True), completes=does.completes)
    return ", ".join([words for words, holds in told.items() if holds])


def _writes(node: Node) -> bool:
    effects = node.do.effects if type(node.do) is Op else None
    return effects is not None and bool(effects.writes or effects.unknown or effects.scope or effects.through_bodies)
