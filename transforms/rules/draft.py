"""A program while rules rewrite it: ``Draft``, the current nodes of a graph, and ``Pending``, the changes of the state.

A rewrite takes time proportional to the nodes that it adds and removes, and their users.  ``legality.py`` checks legality.
A new name of state is free at all instances of a body, so one read serves them all.  A slot is dropped when nothing reads it any
more; state that is still read, written or promised to a caller stays.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import Factory, define

from ...ir.analysis.history import made_of_value
from ...ir.arguments import Ref, replace_refs
from ...ir.calls.call_graph import all_instances
from ...ir.effects.resolved import written_slots
from ...ir.errors import RuleError
from ...ir.forks import cached_property
from ...ir.graph import Call, Graph, Node
from ...ir.importing.calls import is_from_region
from ...ir.inference import CallValues, agrees
from ...ir.meta import OF_A_VALUE, ORIGIN, Meta, without_value
from ...ir.names import Names, join, nested
from ...ir.origins import made_of, with_replaced_origins
from ...ir.program import Program
from ...ir.signature import StateGradient, StateInput
from ...ir.state import Slot, SlotKind
from ...ir.state_changes import state_uses, with_slots, without_slots
from ...ir.tensors import TensorIds
from ..state import lift_state
from ..transformation import observed

OF_AN_OPERATOR = frozenset({ORIGIN, "torch_fn", "source_fn_stack"})
"""Meta that names the source function of an operator; other operators do not inherit it."""


def meta_of(root: Node, origin: Meta) -> Meta:
    """Return the meta of nodes that replace a root: its place and a provenance, without its value and operator.

    >>> from ...ir.graph import Op
    >>> sorted(meta_of(Node("y", Op("toy.neg"), meta={"val": 1, "custom": 2, "torch_fn": ("neg_1", "neg")}), {}))
    ['custom']
    """
    found = {
        key: value
        for key, value in root.meta.items()
        if key not in OF_A_VALUE and key not in OF_AN_OPERATOR
    }
    if is_from_region(root.meta):  # it describes the place of the node
        found["torch_fn"] = root.meta["torch_fn"]
    return MappingProxyType({**found, **origin})


def origin_of_match(place: Any, rule: str) -> Meta:
    """Return the provenance of the replacement of a match: all matched nodes."""
    nodes, matched = place.scope.draft.nodes, place.found.distinct
    metas = [node.meta for node in matched]
    metas += [
        nodes[name].meta for name in place.notes.reads if name in nodes
    ]  # numbers and constants
    metas += [
        made_of_value(place.program, place.graph, node.name)
        for node in matched
        if type(node.do) is Call
    ]
    return made_of(metas, rule)


class Draft:
    """A graph under rewriting.

    Args:
        graph: the original graph; it is not changed.

    >>> from purefx.ir import Input, Op
    >>> y = Node("y", Op("toy.neg"), (Ref("x"),))
    >>> draft = Draft(Graph((Input("x"),), (y,), (Ref("y"),)))
    >>> draft.insert([Node("z", Op("toy.exp"), (Ref("x"),))], "y")
    >>> draft.replace("y", Ref("z"), {"y": y})
    >>> [str(node) for node in draft.graph().nodes], draft.graph().output
    (['z = toy.exp(x) ! pure'], (Ref(name='z'),))
    """

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.inputs = {formal.name: formal for formal in graph.inputs}
        self.nodes = dict(graph.by_name)
        """The current nodes."""
        self.is_changed = False
        self.made: dict[str, list[str]] = {}
        """The names of a node of the graph and of the nodes inserted before it, in order."""
        self.has_values = True
        """Whether all new values are known and have the types of those that they replace, so inference can be skipped."""
        self.is_retyped = False
        """Whether the graph returns a value of another type than before."""
        self._at: dict[str, str] = {}
        self._users: dict[str, dict[str, None]] = {}
        self._output = graph.output
        self._returned = set(graph.output_refs())

    @cached_property
    def names(self) -> Names:
        """The used names."""
        return Names([*self.inputs, *self.source.by_name])

    def users(self, name: str) -> Collection[str]:
        """Return the names of the current users of a value."""
        return self._users[name] if name in self._users else self.source.users.get(name, ())

    def is_returned(self, name: str) -> bool:
        """Return whether the graph returns a value."""
        return name in self._returned

    def is_used_beyond(self, name: str, nodes: Collection[str]) -> bool:
        """Return whether the graph returns a value, or a node outside of some uses it."""
        return name in self._returned or any(user not in nodes for user in self.users(name))

    def span(self, inner: Collection[str], last: str) -> list[Node]:
        """Return the current nodes from the first of some to the last of them, in order.

        Args:
            inner: the nodes, by name.
            last: the last of them.
        """
        first, *_, end = sorted(
            [self.source.position[self._at.get(name, name)] for name in (*inner, last)]
        )
        there = self.source.nodes[first : end + 1]
        names = [
            name
            for node in there
            for name in self.made.get(node.name, (node.name,))
            if name in self.nodes
        ]
        return [self.nodes[name] for name in names[: names.index(last) + 1]]

    # -- the edit ---------------------------------------------------------------------------------------------------------------

    def insert(self, made: Iterable[Node], before: str) -> None:
        """Insert nodes before a current node."""
        at = self._at.get(before, before)
        there = self.made.setdefault(at, [at])
        place = there.index(before)
        there[place:place] = [node.name for node in made]
        for node in made:
            self.nodes[node.name] = node
            self._at[node.name] = at
            for name in node.refs():
                self._own(name)[node.name] = None

    def move(self, names: Iterable[str], before: str) -> None:
        """Move current nodes, in order, to the place before another one."""
        for name in names:
            at, old = self._at.get(before, before), self._at.get(name, name)
            self.made.setdefault(old, [old]).remove(name)
            there = self.made.setdefault(at, [at])
            there.insert(there.index(before), name)
            self._at[name] = at

    def add_origin(self, name: str, origin: Meta) -> None:
        """Add the origin of a match to a node or an input that replaces it."""
        table: dict[str, Any] = self.nodes if name in self.nodes else self.inputs
        (table[name],) = with_replaced_origins([table[name]], {name: [origin]})

    def replace(self, name: str, by: Ref, inner: Collection[str]) -> None:
        """Redirect all users of a value to another one, and remove those of ``inner`` that are unused, the last first."""
        if by.name == name:
            return
        self.is_changed, users, known = True, self._own(name), {name: by}
        was, now = self.value(name), self.value(by.name)
        is_known = was is not None and now is not None
        is_alike = is_known and agrees(now, was)
        self.has_values &= is_alike
        is_stale = is_known and not is_alike
        self._users[name] = {}
        theirs = self._own(by.name)
        for user in users:
            node = self.nodes[user].using(known)
            self.nodes[user] = node.evolve(meta=without_value(node.meta)) if is_stale else node
            theirs[user] = None
        if name in self._returned:
            self.is_retyped |= is_stale
            self._output = replace_refs(self._output, known)
            self._returned.discard(name)
            self._returned.add(by.name)
        while unused := [
            one
            for one in inner
            if one in self.nodes and one not in self._returned and not self.users(one)
        ]:
            for one in unused:
                for used in self.nodes.pop(one).refs():
                    self._own(used).pop(one, None)

    def _own(self, name: str) -> dict[str, None]:
        if name not in self._users:
            self._users[name] = dict.fromkeys(self.source.users.get(name, ()))
        return self._users[name]

    def graph(self) -> Graph:
        """Return the current graph."""
        nodes, there = self.nodes, self.source.nodes
        kept = [
            nodes[name]
            for node in there
            for name in self.made.get(node.name, (node.name,))
            if name in nodes
        ]
        return Graph(tuple(self.inputs.values()), tuple(kept), self._output)

    def value(self, name: str) -> Any:
        """Return the fake value of a current or removed node or of an input; None if unknown."""
        node = self.nodes.get(name) or self.source.by_name.get(name) or self.inputs.get(name)
        return None if node is None else node.val


# -- state ----------------------------------------------------------------------------------------------------------------------


@define(eq=False)
class Pending:
    """A program during one walk over its graphs: its instances, and the changes of its state."""

    program: Program
    """The program before the changes."""
    dropped: dict[str, None]
    """State to drop as soon as nothing reads it."""
    added: dict[str, Slot] = Factory(dict)

    @cached_property
    def paths(self) -> Mapping[str, tuple[str, ...]]:
        """The paths of the modules of each graph."""
        return all_instances(self.program)

    @cached_property
    def calls(self) -> CallValues:
        """The values of each call."""
        return CallValues(self.program)

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """The state of the program, and the added one."""
        return dict(self.program.state.slots.items())

    @cached_property
    def _ids(self) -> TensorIds:
        return TensorIds(self.program.state)

    @cached_property
    def _written(self) -> frozenset[int]:
        # The memory that the program writes, or returns to a caller who may write it; rules add no writes.
        slots = written_slots(self.program, or_returned=True)
        return frozenset(
            self.program.state[slot].storage for slot in slots if slot in self.program.state
        )

    def tensor(self, slot: str) -> torch.Tensor | None:
        """Return the tensor of a slot; None if the slot has no tensor, or the program writes or returns it."""
        found = self.slots.get(slot)
        if (
            found is None
            or not isinstance(found.value, torch.Tensor)
            or found.storage in self._written
        ):
            return None
        return found.value

    def constant(self, slot: str, *, buffers: bool, parameters: bool) -> torch.Tensor | None:
        """Return the tensor of a slot that neither training nor loading changes; None if they may.

        Args:
            slot: its name from the root.
            buffers: include persistent buffers, although others may be loaded.
            parameters: include parameters, although they are trained and loaded.
        """
        value = self.tensor(slot)
        if value is None:
            return None
        storage = self.slots[slot].storage
        trained = [
            self.slots[spec.slot].storage
            for spec in self.program.signature.outputs
            if type(spec) is StateGradient
        ]
        others = {
            each.kind for each in self.slots.values() if each.storage == storage and each.persistent
        }
        is_open = storage in trained or any(
            storage in pair for pair in self.program.state.entangled
        )
        is_open |= (SlotKind.BUFFER in others and not buffers) or (
            SlotKind.PARAMETER in others and not parameters
        )
        return None if is_open else value

    def free(self, owner: str, word: str, paths: Sequence[str], taken: Container[str]) -> str:
        """Return a slot name, relative to a body, that is free at all its instances.

        Args:
            owner: the module that has the slot, relative to the body.
            word: the preferred name; a number is appended if it exists.
            paths: the instances.
            taken: further names that are used.

        Raises:
            RuleError: the name is not a valid attribute name.
        """
        if not word.isidentifier():
            raise RuleError(
                f"{word!r} cannot be the name of state: use a valid attribute name, without dots"
            )
        used = {*self.slots, *self.program.types}
        number, name = 0, nested(owner, word)
        while name in taken or any(join(path, name) in used for path in paths):
            number += 1
            name = nested(owner, f"{word}_{number}")
        return name

    def change(self, path: str, added: Mapping[str, Slot], dropped: Iterable[str]) -> None:
        """Add and drop state of one instance of a body, by names relative to the body; unread names of dropped state go too."""
        for name, new in added.items():
            self.slots[join(path, name)] = self.added[join(path, name)] = self._ids.renumbered(new)
        self.dropped.update(dict.fromkeys([join(path, slot) for slot in dropped]))

    def applied(self, program: Program) -> Program:
        """Return a program with the added state, and without dropped state that nothing reads."""
        program = with_slots(program, self.added) if self.added else program
        if not self.dropped:
            return program
        state = program.state
        tied = {
            name
            for slot in self.dropped
            if slot in state.slots
            for name in state.by_cell[state[slot].cell]
        }
        return without_slots(program, tied - state_uses(program).keys())


def as_staged(program: Program) -> Program:
    """Return a program with all its state as inputs, if it had state inputs before reads of new state were added.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), ())})
    >>> as_staged(program) is program
    True
    """
    if "state as inputs" not in program.facts or "state as inputs" in observed(program):
        return program
    if any(type(spec) is StateInput for spec in program.signature.inputs):
        return lift_state.apply(program)
    return program.evolve(facts=program.facts - {"state as inputs"})
