"""Objects among the arguments of nodes become named state: in ``import_fx``, or later in ``lift_constants``.

A tensor among operands is unnamed memory, so it becomes a slot of the innermost module around all of its uses, one slot for one
object, and each use reads the slot.  Contents are not inspected.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from attrs import frozen

from ..arguments import CONTAINERS, Arg, Body, Ref, children_of, with_children
from ..calls.call_graph import all_instances
from ..calls.parts import part_names
from ..errors import UnsupportedProgram
from ..graph import Get, Graph, Node, Stack
from ..meta import EMPTY_META, Meta
from ..names import FROM_ROOT, Names, is_below, join, relative, way_to
from ..own_operators import user_stack
from ..persistent import pmap
from ..program import Program
from ..state import SlotKind, State
from ..tensors import TensorIds
from ..torch_private import FakeTensor
from ..verify.findings import OBJECTS, PLAIN, short

KEPT: tuple[Any, ...] = (*OBJECTS, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
"""What an argument may be besides literals and references.  fx writes any other object as its ``repr``, which could be code."""

MUTABLE = (list, dict)
"""Containers that should have been ``Items`` or ``Record``: references in them would be lost, so they are not constants."""


def is_constant(leaf: Any) -> bool:
    """Return whether an object among the arguments of a node has to be state: a tensor, a script object, or another object.

    >>> is_constant(torch.ones(1)), is_constant(1.5), is_constant(Ref("x")), is_constant([1])
    (True, False, False, False)
    """
    kind = type(leaf)
    return not (kind in NO_CONSTANTS or isinstance(leaf, (*KEPT, *MUTABLE)))


NO_CONSTANTS = PLAIN | CONTAINERS | {Ref, Body}


def has_constants(node: Node) -> bool:
    """Return whether a node has objects among its arguments that have to be state.

    >>> from purefx.ir import Op
    >>> has_constants(Node("y", Op("toy.neg"), ((torch.ones(1),),))), has_constants(Node("y", Op("toy.neg"), (Ref("x"), 1)))
    (True, False)
    """
    for arg in node.args:
        if type(arg) is not Ref and type(arg) not in PLAIN and _holds_one(arg):
            return True
    return bool(node.kwargs) and any(_holds_one(value) for _, value in node.kwargs)


def _holds_one(arg: Arg) -> bool:
    return any(map(_holds_one, children_of(arg))) if type(arg) in CONTAINERS else is_constant(arg)


@frozen
class _Use:
    """What is needed to know of one use: the graph, and the module calls around it."""

    graph: str
    stack: Stack


def with_constants(program: Program, *, origins: Mapping[int, Meta] = MappingProxyType({})) -> Program:
    """Return a program whose constants are state; the same object if it has none among its arguments.

    Args:
        program: any program; it need not be valid, because such objects are not arguments.
        origins: what meta says of what a constant was made of, by the ``id`` of the object, where it was made of something.

    Raises:
        UnsupportedProgram: one is a module, or a tensor without contents.

    >>> from purefx.ir import Op
    >>> node = Node("y", Op("toy.add"), (Ref("x"), torch.ones(2)))
    >>> [(node.name, *node.refs()) for node in with_constants(Program.of({"": Graph((), (node,), ())})).main.nodes]
    [('y_constant',), ('y', 'x', 'y_constant')]
    """
    found = _Constants(program, origins)
    return found.program_after() if found.uses else program


class _Constants:
    """Finds the constants, gives each a name, and puts reads where they stood."""

    def __init__(self, program: Program, origins: Mapping[int, Meta]) -> None:
        self.program = program
        self.origins = origins
        self.values: dict[object, Any] = {}
        self.uses: dict[object, list[_Use]] = {}
        self.changed: dict[str, None] = {}
        """The graphs that have some."""
        for name in program.order:
            graph = program.graphs[name]
            for node in graph.nodes:
                if has_constants(node):
                    self._note((node.args, node.kwargs), _Use(name, user_stack(node)), node.name)
            if _holds_one(graph.output):
                self._note(graph.output, _Use(name, ()), "output")
        if self.uses:
            self.places = all_instances(program)
            self.parts = frozenset(part_names(program))
            self.entered = self._entered()
            """The modules that are called around some use."""
            self.slots: dict[tuple[object, str], str] = {}
            """The name of each constant; in a split program, one for each part that uses it."""
            self.state = self._state()

    def _note(self, arg: Arg, use: _Use, at: str) -> None:
        self.changed[use.graph] = None
        for leaf in _constants_in(arg):
            if isinstance(leaf, torch.nn.Module):
                raise UnsupportedProgram(
                    f"{at} in {use.graph or 'the root graph'} has {short(leaf)} among its arguments; a module is not a value: "
                    "put it into the state (SlotKind.MODULE) and call it with purefx.call_module, or use swap_modules"
                )
            if isinstance(leaf, FakeTensor):
                raise UnsupportedProgram(
                    f"{at} in {use.graph or 'the root graph'} has a fake tensor among its arguments, which has no contents; "
                    "put the real tensor there"
                )
            key = _identity(leaf)
            self.values.setdefault(key, leaf)
            self.uses.setdefault(key, []).append(use)

    def _state(self) -> State:
        state, program = self.program.state, self.program
        known = {_identity(slot.value): name for name, slot in reversed(state.pairs)}
        numbers = TensorIds(state)
        names = _Numbered([*state.order, *(module.path for module in program.modules)])
        slots = dict(state.pairs)
        for key, uses in self.uses.items():
            by_part: dict[str, list[str]] = {}
            for use in uses:
                for place in self._homes(use):
                    part = place.partition(".")[0]
                    by_part.setdefault(part if part in self.parts else "", []).append(place)
            for part, homes in by_part.items():
                if key in known and not part:
                    self.slots[key, part] = known[key]
                    continue
                name = names.fresh(self._owner(homes))
                is_parameter = isinstance(self.values[key], torch.nn.Parameter)
                kind = SlotKind.PARAMETER if is_parameter else SlotKind.CONSTANT
                slots[name] = numbers.slot(self.values[key], kind, persistent=is_parameter)
                self.slots[key, part] = name
        return State(tuple(slots), pmap(slots)) if len(slots) > len(state) else state

    def _entered(self) -> set[str]:
        found = {place for places in self.places.values() for place in places}
        for use in (use for uses in self.uses.values() for use in uses):
            found.update([join(place, frame.path) for frame in use.stack for place in self.places.get(use.graph, ("",))])
        return found

    def _homes(self, use: _Use) -> list[str]:
        inner = use.stack[-1].path if use.stack else ""
        return [join(place, inner) if inner else place for place in self.places.get(use.graph, ("",))]

    def _owner(self, homes: list[str]) -> str:
        # The innermost module around all of them that is called; nothing stands inside a module that is held as it is.
        found = homes[0]
        for home in homes:
            while found and home != found and not is_below(home, found):
                found = found.rpartition(".")[0]
        while found and found not in self.entered:
            found = found.rpartition(".")[0]
        held = set(self.program.state.modules)
        return found if not held else _outside(found, held)

    def program_after(self) -> Program:
        """Return the program with reads in place of constants."""
        graphs = {name: self._rewritten(name) for name in self.changed}
        return self.program.with_graphs(graphs).evolve(state=self.state)

    def _rewritten(self, name: str) -> Graph:
        graph = self.program.graphs[name]
        reading = _Reading(self, name, [formal.name for formal in graph.inputs] + [node.name for node in graph.nodes])
        for node in graph.nodes:
            reading.add(node)
        output = graph.output
        if _holds_one(output):
            output = reading.read_for(output, (), "output", EMPTY_META)
        return Graph(graph.inputs, tuple(reading.nodes), output)

    def slot_of(self, value: Any, use: _Use) -> str:
        """Return the name from the root of the slot that is read for a constant."""
        part = self._homes(use)[0].partition(".")[0]
        return self.slots[_identity(value), part if part in self.parts else ""]


class _Reading:
    """One walk over a graph that puts a read before the first use in each module call that owns the constant."""

    def __init__(self, constants: _Constants, graph: str, taken: list[str]) -> None:
        self.constants = constants
        self.graph = graph
        self.places = constants.places.get(graph, ("",))
        self.names = Names(taken)
        self.nodes: list[Node] = []
        self.known: dict[tuple[str, Stack], Ref] = {}

    def add(self, node: Node) -> None:
        """Add a node, with reads in place of its constants."""
        if not has_constants(node):
            self.nodes.append(node)
            return
        trace = node.meta.get("stack_trace")
        meta = EMPTY_META if trace is None else MappingProxyType({"stack_trace": trace})
        args, kwargs = self.read_for((node.args, node.kwargs), user_stack(node), node.name, meta)
        self.nodes.append(Node(node.name, node.do, args, kwargs, node.stack, node.meta))

    def read_for(self, arg: Arg, stack: Stack, name: str, meta: Any) -> Arg:
        """Return an argument with reads in place of constants."""
        if type(arg) in CONTAINERS:
            return with_children(arg, [self.read_for(part, stack, name, meta) for part in children_of(arg)])
        if not is_constant(arg):
            return arg
        slot = self.constants.slot_of(arg, _Use(self.graph, stack))
        key = (slot, self._scope(slot, stack))
        if key not in self.known:
            self.known[key] = Ref(self.names.fresh(f"{name}_constant"))
            made_of = self.constants.origins.get(id(arg))
            meta = meta if made_of is None else MappingProxyType({**meta, **made_of})
            self.nodes.append(Node(self.known[key].name, Get(self._spelled(slot)), (), (), key[1], meta))
        return self.known[key]

    def _scope(self, slot: str, stack: Stack) -> Stack:
        for depth in range(len(stack), 0, -1):
            if all(is_below(slot, join(place, stack[depth - 1].path)) for place in self.places):
                return stack[:depth]
        return ()

    def _spelled(self, slot: str) -> str:
        ways = {relative(slot, place) for place in self.places}
        return ways.pop() if len(ways) == 1 else FROM_ROOT + slot


class _Numbered:
    """Names ``_constant0``, ``_constant1`` ... in each module, of those that are free."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)
        self.next: dict[str, int] = {}

    def fresh(self, owner: str) -> str:
        """Return the next name in a module."""
        number = self.next.get(owner, 0)
        while (name := join(owner, f"_constant{number}")) in self.taken:
            number += 1
        self.next[owner] = number + 1
        return name


def _constants_in(arg: Arg) -> list[Any]:
    if type(arg) in CONTAINERS:
        return [leaf for part in children_of(arg) for leaf in _constants_in(part)]
    return [arg] if is_constant(arg) else []


def _outside(path: str, held: set[str]) -> str:
    return next((outer.rpartition(".")[0] for outer in way_to(path) if outer in held), path)


def _identity(value: Any) -> object:
    return ("script", hash(value)) if isinstance(value, torch.ScriptObject) else id(value)
