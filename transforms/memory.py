"""Memory of the values of one graph: its writers and the values that escape.

A transformation that replaces one value by another (a clean-up, a rule) uses it to check that the change is unobservable.
Callers of a body determine which of its inputs and state alias, so a body that writes treats them as one memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from attrs import frozen

from ..ir.effects.declared import NodeEffects
from ..ir.effects.resolved import UnionFind, item_of, slot_storage, storages, unpacked_calls
from ..ir.graph import Get, Graph, Node
from ..ir.inference import agrees, described
from ..ir.persistent import closure
from ..ir.program import Program
from ..ir.signature import StateInput
from ..ir.torch_private import OpOverload, schema_of

OUTSIDE = ("outside",)
"""The memory of inputs and of state, where they need not be distinguished."""


def computes(effect: NodeEffects) -> bool:
    """Return whether the only effect of a node is its result, which may alias its operands.

    >>> computes(NodeEffects(aliases=("x",))), computes(NodeEffects(random=True))
    (True, False)
    """
    acts = (
        effect.writes
        or effect.writes_slots
        or effect.random
        or effect.ordered
        or effect.domains
        or effect.completes
    )
    return not acts and effect.scope == (0, 0)


class Memory:
    """The sets of values of a graph that share memory.

    Args:
        program: the program.
        name: the id of the graph.
        effects: the effects of its nodes.

    >>> from purefx.ir import Input, Node, Op, Ref
    >>> graph = Graph((Input("x"),), (Node("y", Op("toy.neg"), (Ref("x"),)),), (Ref("y"),))
    >>> found = Memory(Program.of({"": graph}), "", [NodeEffects()])
    >>> found.given, found.is_written("y"), found.is_outside("y"), found.is_outside("x")
    ({'y'}, False, False, True)
    """

    def __init__(self, program: Program, name: str, effects: Sequence[NodeEffects]) -> None:
        self.program = program
        self.graph: Graph = program.graphs[name]
        self.effects = dict(zip([node.name for node in self.graph.nodes], effects, strict=True))
        self.sets: UnionFind = storages(program, self.graph, list(effects))
        self.written: set[object] = set()
        """The sets that some node writes."""
        if name != program.root and any(
            effect.writes or effect.writes_slots or effect.completes for effect in effects
        ):
            for key in list(self._keys_outside()):
                self.sets.join(
                    OUTSIDE, key
                )  # its callers determine which inputs and which state alias
        for effect in effects:
            self.written |= self.touched(effect)
        self.outside = {self.sets.find(key) for key in self._keys_outside()}
        self._apart = unpacked_calls(self.graph, effects)
        self.given = output_aliases(self.graph, self._sources)
        """The values that are outputs, or may alias them."""

    def _sources(self, name: str) -> tuple[str, ...]:
        # The values that a value may alias; a result of a call aliases only the values of that result, not of all results.
        if name not in self.effects or name in self._apart:
            return ()
        item = item_of(self.graph.by_name[name])
        if item is None or item[0] not in self._apart:
            return self.effects[name].aliases
        return item[0], *self.effects[item[0]].results[item[1]].values

    def find(self, name: object) -> object:
        """Return the set that a value is in."""
        return self.sets.find(name)

    def replace(self, made: Iterable[tuple[str, NodeEffects]], results: Mapping[str, str]) -> None:
        """Add new values with their effects, and let results take the place of other values.

        Args:
            made: the new values; none of them writes.
            results: the value that each replaced value becomes.
        """
        for name, effect in made:
            keys = [slot_storage(self.program, slot) for slot in effect.aliases_slots]
            for key in (*effect.aliases, *keys):
                self.sets.join(name, key)
        for old, result in results.items():
            self.sets.join(result, old)
        self.written = set(map(self.sets.find, self.written))
        self.outside = set(map(self.sets.find, self.outside))

    def touched(self, effect: NodeEffects) -> set[object]:
        """Return the sets that a node writes, or completes."""
        found = {self.sets.find(name) for name in (*effect.writes, *effect.completes)}
        return found | self.of_slots(effect.writes_slots)

    def of_slots(self, slots: Iterable[str]) -> set[object]:
        """Return the sets of some state."""
        return {self.sets.find(slot_storage(self.program, slot)) for slot in slots}

    def is_written(self, name: str) -> bool:
        """Return whether anything writes the memory of a value, or of one of its results, at any time."""
        if not self.written:
            return False
        effect = self.effects.get(name)
        parts = (
            [(name, number) for number in range(len(effect.results))] if effect is not None else []
        )
        return any(self.sets.find(key) in self.written for key in (name, *parts))

    def is_outside(self, name: str) -> bool:
        """Return whether a value may alias an input or state."""
        return self.sets.find(name) in self.outside

    def _keys_outside(self) -> Iterable[object]:
        yield from self.graph.input_names
        for effect in self.effects.values():
            yield from [
                slot_storage(self.program, slot)
                for slot in (*effect.aliases_slots, *effect.reads_slots, *effect.writes_slots)
            ]

    def reaches_outside(self, effect: NodeEffects) -> bool:
        """Return whether a node writes, or completes, memory of an input or of state."""
        return not self.outside.isdisjoint(self.touched(effect))


def is_view(node: Node) -> bool:
    """Return whether the result of a node always aliases an operand.

    >>> import torch
    >>> from purefx.ir.operators import op_of
    >>> [is_view(Node("y", op_of(op))) for op in (torch.ops.aten.view.default, torch.ops.aten.reshape.default)]
    [True, False]
    """
    target = node.target
    if not isinstance(target, OpOverload):
        return node.projection is not None
    schema = schema_of(target)
    return schema.name not in MAY_COPY and any(one.alias_info is not None for one in schema.returns)


MAY_COPY = frozenset(
    f"aten::{name}"
    for name in (
        "reshape",
        "reshape_as",
        "flatten",
        "ravel",
        "contiguous",
        "to",
        "cpu",
        "resolve_conj",
        "resolve_neg",
    )
)
"""Operators that return either a view or a copy of their operand, depending on its type and layout."""


def has_other_strides(one: Any, other: Any) -> bool:
    """Return whether two fake tensors have equal sizes and different strides.

    >>> has_other_strides(torch.ones(2, 3), torch.ones(3, 2).t()), has_other_strides(torch.ones(2), torch.ones(3))
    (True, False)
    """
    if agrees(one, other):
        return False  # nearly all
    mine, theirs = _layout(one), _layout(other)
    return bool(mine and theirs and mine[0] == theirs[0] and mine != theirs)


def _layout(value: Any) -> Any:
    # The sizes and strides of a tensor; None for other values.
    return cast("Any", described(value))[-2:] if isinstance(value, torch.Tensor) else None


def is_layout_observed(
    node: Node, users: Callable[[str], Iterable[Node]], is_changed: Callable[[str], bool]
) -> bool:
    """Return whether the strides of a value affect results: of operators that read them, or of views that are written.

    Views have them, too, and so have results with equal sizes and strides, such as those of pointwise operators.

    Args:
        node: computes the value.
        users: returns the users of a value.
        is_changed: returns whether anything writes the memory of a value.

    >>> from purefx.ir import Op, Ref
    >>> x, y = Node("x", Op("toy.x")), Node("y", Op("aten.view.default"), (Ref("x"), (2,)))
    >>> [is_layout_observed(node, {"x": [y], "y": []}.__getitem__, lambda name: False) for node in (x, y)]
    [True, False]
    """
    todo, seen = [node], {node.name}
    while todo:
        here = todo.pop()
        if is_changed(here.name):
            return True
        for user in users(here.name):
            if user.op_name in STRIDED:
                return True
            if user.name not in seen and (is_view(user) or _layout(user.val) == _layout(here.val)):
                seen.add(user.name)
                todo.append(user)
    return False


STRIDED = frozenset(
    {"aten.view.default", "aten.view.dtype", "aten._unsafe_view.default", "aten.as_strided.default"}
)
"""Operators that depend on the strides of their operand."""


def output_aliases(graph: Graph, aliases: Callable[[str], Iterable[str]]) -> set[str]:
    """Return the values that are outputs, or may alias them.

    Args:
        graph: the graph.
        aliases: returns the values that a value may alias; none for an input.

    >>> from purefx.ir import Input, Node, Op, Ref
    >>> graph = Graph((Input("x"),), (Node("y", Op("toy.view"), (Ref("x"),)),), (Ref("y"),))
    >>> sorted(output_aliases(graph, {"y": ("x",), "x": ()}.__getitem__))
    ['x', 'y']
    """
    return set(closure(graph.output_refs(), aliases))


@frozen
class Aliases:
    """The memory that a value may have: of values and state outside of some nodes, or allocated by one of them."""

    outside: frozenset[object]
    """Values and state from outside of the nodes."""
    views: tuple[Node, ...]
    """The nodes on the way, which alias or may alias an operand."""
    values: frozenset[object]
    """All values on the way, and those outside."""
    owned: frozenset[tuple[str, int | None]]
    """The nodes that may allocate the memory, each with the number of one of its results, or None for all."""

    @property
    def is_certain(self) -> bool:
        """Whether the value aliases its base in every run."""
        return all(map(is_view, self.views))

    def shares(self, owned: Iterable[tuple[str, int | None]]) -> frozenset[tuple[str, int | None]]:
        """Return those of some allocations that may be the memory of this value."""
        return frozenset([one for one in owned if any(is_overlap(one, own) for own in self.owned)])


def is_overlap(one: tuple[str, int | None], other: tuple[str, int | None]) -> bool:
    """Return whether two allocations may be the same: separate results of one operator are not.

    >>> is_overlap(("y", 0), ("y", 1)), is_overlap(("y", 0), ("y", None)), is_overlap(("y", None), ("z", None))
    (False, True, False)
    """
    return one[0] == other[0] and (one[1] == other[1] or None in (one[1], other[1]))


def aliased(
    result: str,
    among: Sequence[Node],
    effects_of: Callable[[Node], NodeEffects],
    copies: Callable[[Node], bool],
) -> Aliases:
    """Return what a result may alias.

    Args:
        result: the name of a value.
        among: the nodes to follow; other values are outside.
        effects_of: returns the effects of a node.
        copies: returns whether a node that may alias an operand allocates memory.

    >>> from purefx.ir import Op, Ref
    >>> y = Node("y", Op("toy.view"), (Ref("x"),))
    >>> found = aliased("y", [y], lambda node: NodeEffects(aliases=("x",)), lambda node: False)
    >>> set(found.outside), set(found.owned)
    ({'x'}, {('y', None)})
    """
    nodes = {node.name: node for node in among}
    todo: list[tuple[str, int | None]] = [(result, None)]
    seen, outside, views = set[tuple[str, int | None]](), set[object](), dict[str, Node]()
    owned = set[tuple[str, int | None]]()
    while todo:
        value = name, _ = todo.pop()
        if name not in nodes:
            outside.add(name)
            continue
        if value in seen:
            continue
        seen.add(value)
        node = nodes[name]
        effects, item = effects_of(node), item_of(node)
        outside.update([("state", slot) for slot in effects.aliases_slots])
        is_aliasing = bool(effects.aliases) and not copies(node)
        if is_aliasing:
            views[name] = node
            todo += [item] if item is not None else [(each, None) for each in effects.aliases]
        if type(node.do) is not Get and not (is_aliasing and is_view(node)):
            owned.add(value)
    # Several results of one operator do not alias each other.
    wholes = {node.projection[0] for node in views.values() if node.projection is not None}
    values = (outside | {name for name, _ in seen}) - wholes
    return Aliases(frozenset(outside), tuple(views.values()), frozenset(values), frozenset(owned))


def state_of_inputs(program: Program) -> dict[str, int]:
    """Return the cell of each state input of the root.

    >>> state_of_inputs(Program.of({"": Graph((), (), ())}))
    {}
    """
    state, pairs = program.state, zip(program.main.inputs, program.signature.inputs, strict=False)
    return {
        formal.name: state[spec.slot].cell for formal, spec in pairs if type(spec) is StateInput
    }
