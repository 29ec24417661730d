"""State, modules and call signatures after a swap, and the arguments that a swapped module is called with.

Leaves are packed into the pytrees of the original; containers that are passed whole stay whole.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from attrs import define, evolve, field

from ...ir.arguments import Arg, Items, Record, Ref
from ...ir.calls.argument_tree import ArgumentTree, leaf_ranges
from ...ir.calls.parts import is_part, with_listed
from ...ir.errors import SwapError
from ...ir.graph import Op
from ...ir.names import way_to
from ...ir.own_operators import PACK, attribute_of
from ...ir.persistent import pmap
from ...ir.program import Module, Program
from ...ir.signature import SunkInput
from ...ir.state import Slot, SlotKind, State, describe_tensor
from ...ir.tensors import TensorIds

__all__ = ["Origin", "Packing", "covering", "found_in", "new_modules", "new_state", "stands_for"]

PLAIN_KEYS = (str, int, bool, type(None))

Emit = Callable[[str, Op, tuple[Arg, ...]], Ref]
"""Adds a node with a preferred name, and returns its value."""


@define(frozen=True)
class Origin:
    """Where a leaf comes from: which leaf of what a swapped module gave."""

    whole: str
    spec: Any
    leaf: int


@define
class Packing:
    """Makes arguments in one graph."""

    emit: Emit
    getitem: Op
    origins: dict[str, Origin] = field(factory=dict)
    """What is known of leaves, by the name of the value."""

    def arguments(self, in_spec: Any, leaves: Sequence[Arg]) -> tuple[tuple[Arg, ...], tuple[tuple[str, Arg], ...]]:
        """Return the positional and the keyword arguments that leaves make up."""
        tree = ArgumentTree.of(in_spec)
        parts = self._parts(tree.specs, leaves)
        count = len(tree.positional)
        return tuple(parts[:count]), tuple(zip(tree.keyword, parts[count:], strict=True))

    def _parts(self, specs: Sequence[Any], leaves: Sequence[Arg]) -> list[Arg]:
        pairs = zip(specs, leaf_ranges(specs), strict=True)
        return [self.argument(spec, leaves[numbers.start : numbers.stop]) for spec, numbers in pairs]

    def argument(self, spec: Any, leaves: Sequence[Arg]) -> Arg:
        """Return one argument.  Nesting is what a caller of the original wrote, so it is shallow."""
        if spec.is_leaf():
            return leaves[0]
        whole = self._whole(spec, leaves)
        if whole is not None:
            return whole
        if spec.type not in (tuple, list, dict) or not all(type(key) in PLAIN_KEYS for key in spec.context or ()):
            return self.emit("packed", PACK, (Items(leaves), spec))
        parts = self._parts(spec.children(), leaves)
        if spec.type is dict:
            return Record(tuple(zip(spec.context, parts, strict=True)))
        return Items(parts) if spec.type is list else tuple(parts)

    def _whole(self, spec: Any, leaves: Sequence[Arg]) -> Arg | None:
        first = self.origins.get(leaves[0].name) if leaves and type(leaves[0]) is Ref else None
        if first is None:
            return None
        for number, leaf in enumerate(leaves):
            origin = self.origins.get(leaf.name) if type(leaf) is Ref else None
            if origin is None or origin.whole != first.whole or origin.leaf != first.leaf + number:
                return None
        keys = _way(first.spec, first.leaf, spec)
        if keys is None:
            return None
        found = Ref(first.whole)
        for key in keys:
            found = self.emit("part", self.getitem, (found, key))
        return found


def _way(outer: Any, leaf: int, wanted: Any) -> list[Any] | None:
    """Return the keys that lead to an equal pytree in another one, that begins at a leaf; None if there is none.

    >>> from purefx.ir.torch_private import pytree
    >>> _way(pytree.tree_structure((0, {"a": [1, 2]})), 1, pytree.tree_structure([1, 2]))
    [1, 'a']
    """
    keys: list[Any] = []
    start = 0
    while outer != wanted or start != leaf:
        if outer.is_leaf() or outer.type not in (tuple, list, dict):
            return None
        children = outer.children()
        names = list(outer.context) if outer.type is dict else list(range(len(children)))
        ranges = leaf_ranges(children)
        place = next(place for place, numbers in enumerate(ranges) if leaf - start in numbers)
        start += ranges[place].start
        if type(names[place]) not in PLAIN_KEYS:
            return None
        keys.append(names[place])
        outer = children[place]
    return keys


def covering(paths: Container[str], name: str) -> str | None:
    """Return the swapped module that a path or a slot is at or below; None for one that stays.

    >>> covering({"a.b"}, "a.b.weight"), covering({"a.b"}, "a.bc")
    ('a.b', None)
    """
    while name and name not in paths:
        name = name.rpartition(".")[0]
    return name or None


def found_in(by: torch.nn.Module | Program, path: str) -> Any:
    """Return what a replacement has at a path below it: a module or a tensor that others use; None if there is nothing.

    >>> found_in(torch.nn.Sequential(torch.nn.ReLU()), "0"), found_in(Program.of({}), "0")
    (ReLU(), None)
    """
    if not isinstance(by, Program):
        return attribute_of(by, path)
    slot = by.state.slots.get(path)
    return None if slot is None else slot.value


def stands_for(program: Program, path: str, slot: str, by: torch.nn.Module | Program, reader: str) -> Slot:
    """Return what a reader outside of a swapped module reads from now on, under the name of a slot that went with it.

    Raises:
        SwapError: the replacement has nothing of that name, or something else.
    """
    name = slot[len(path) + 1 :]
    value, old = found_in(by, name), program.state[slot]
    said = f"module {path!r}: {reader} reads its {name}"
    if not isinstance(value, torch.Tensor):
        raise SwapError(f"{said}, and its replacement has no such tensor; give it one, or swap a module around both")
    mine, theirs = describe_tensor(old.value)[1:3], describe_tensor(value)[1:3]
    if mine != theirs:
        raise SwapError(f"{said}, which is {mine[0]} {mine[1]}, and its replacement has {theirs[0]} {theirs[1]} there")
    kind = SlotKind.PARAMETER if isinstance(value, torch.nn.Parameter) else SlotKind.BUFFER
    return Slot(kind, value, 0, 0)


def new_state(state: State, arrivals: Mapping[str, Mapping[str, Slot]]) -> State:
    """Return the state with that of what was swapped in.

    Args:
        state: the state before.
        arrivals: for each swapped module, the slots that come, by name.
    """
    numbers = TensorIds(state)  # those that go too: what comes may be the same tensor
    stays = {name: covering(arrivals, name) for name in state.order}
    # A name that was there before keeps its place; new ones come where the first of their module was.
    waiting = {path: {new: slot for new, slot in slots.items() if new not in state} for path, slots in arrivals.items()}
    slots: dict[str, Slot] = {}
    for name, path in stays.items():
        if path is None:
            slots[name] = state[name]
            continue
        slots.update({new: numbers.renumbered(slot) for new, slot in waiting.pop(path, {}).items()})
        if name in arrivals[path]:
            slots[name] = numbers.renumbered(arrivals[path][name])
    for rest in waiting.values():
        slots.update({new: numbers.renumbered(slot) for new, slot in rest.items()})
    return State(tuple(slots), pmap(slots))


def new_modules(program: Program, arrivals: Mapping[str, tuple[Module, ...]]) -> tuple[Module, ...]:
    """Return the hierarchy with that of what was swapped in; a program that lists none beside its parts lists none then."""
    if all(is_part(module) for module in program.modules):
        return program.modules
    found: list[Module] = []
    waiting = dict(arrivals)
    around = {outer for path in arrivals for outer in way_to(path)}  # what holds a replacement is no longer one with its alias
    for module in program.modules:
        path = covering(arrivals, module.path)
        stays = evolve(module, cell=None) if module.path in around and module.cell is not None else module
        found += [stays] if path is None else waiting.pop(path, ())
    rest = [module for waited in waiting.values() for module in waited]
    return with_listed(tuple(found), [module.path for module in rest], {module.path: module.type_name for module in rest})


def new_lifted(program: Program, paths: set[str], state: State) -> tuple[SunkInput, ...]:
    """Return the inputs that ``sink_state`` took away, as far as their state is still there."""
    return tuple([place for place in program.signature.lifted if covering(paths, place.slot) is None and place.slot in state])
