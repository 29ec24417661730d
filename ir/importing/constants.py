"""Turn objects among the arguments of nodes into named state, for ``import_fx`` and ``lift_constants``.

Each object becomes one slot of the innermost module around all of its uses, and each use reads the slot.  Contents are not
inspected.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

import torch

from ..arguments import CONTAINERS, Arg, Body, Ref, arg_leaves, children_of, with_children
from ..calls.call_graph import all_instances
from ..calls.parts import part_names
from ..errors import UnsupportedProgram
from ..graph import Get, Graph, Node, Stack
from ..meta import EMPTY_META, Meta
from ..names import FROM_ROOT, is_below, join, parent_of, relative, way_to
from ..own_operators import user_stack
from ..program import Program
from ..state import SlotKind, State
from ..tensors import TensorIds
from ..torch_private import FakeTensor
from ..verify.findings import OBJECTS, PLAIN, short

KEPT: tuple[Any, ...] = (*OBJECTS, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
"""Types of arguments besides literals and references.  fx writes any other object as its ``repr``, which could be code."""

MUTABLE = (list, dict)
"""Containers that should have been ``Items`` or ``Record``: references in them would be lost, so they are not constants."""


def is_constant(leaf: Any) -> bool:
    """Return whether an object among the arguments of a node must become state: a tensor, a script object, or another object.

    >>> is_constant(torch.ones(1)), is_constant(1.5), is_constant(Ref("x")), is_constant([1])
    (True, False, False, False)
    """
    return not (type(leaf) in NO_CONSTANTS or isinstance(leaf, (*KEPT, *MUTABLE)))


NO_CONSTANTS = PLAIN | CONTAINERS | {Ref, Body}


def has_constants(node: Node) -> bool:
    """Return whether a node has objects among its arguments that must become state.

    >>> from purefx.ir import Op
    >>> has_constants(Node("y", Op("toy.neg"), ((torch.ones(1),),))), has_constants(Node("y", Op("toy.neg"), (Ref("x"), 1)))
    (True, False)
    """
    operands = (*node.args, *[value for _, value in node.kwargs])
    return any(
        type(arg) is not Ref and type(arg) not in PLAIN and _constants_in(arg) for arg in operands
    )


_Use = tuple[str, Stack]
"""The place of a constant: the graph, and the module calls around it."""


def with_constants(
    program: Program, *, origins: Mapping[int, Meta] = MappingProxyType({})
) -> Program:
    """Turn the constants among arguments into state; return the same program if there are none.

    Args:
        program: any program; it need not be valid, because such arguments are not.
        origins: the meta of constants that were made from others, by the ``id`` of the object.

    Raises:
        UnsupportedProgram: one is a module, or a tensor without contents.

    >>> from purefx.ir import Op
    >>> node = Node("y", Op("toy.add"), (Ref("x"), torch.ones(2)))
    >>> [(node.name, *node.refs()) for node in with_constants(Program.of({"": Graph((), (node,), ())})).main.nodes]
    [('y_constant',), ('y', 'x', 'y_constant')]
    """
    uses: dict[_Use, list[tuple[Any, str]]] = {}
    for name in program.order:
        graph = program.graphs[name]
        for node in graph.nodes:
            if has_constants(node):
                found = [(leaf, node.name) for leaf in _constants_in((node.args, node.kwargs))]
                uses.setdefault((name, user_stack(node)), []).extend(found)
        if returned := _constants_in(graph.output):
            uses.setdefault((name, ()), []).extend([(leaf, "output") for leaf in returned])
    if not uses:
        return program
    for (name, _), leaves in uses.items():
        for leaf, at in leaves:
            _check(leaf, f"{at} in {name or 'the root graph'}")
    lifting = _Lifting(
        program, {use: [leaf for leaf, _ in leaves] for use, leaves in uses.items()}, origins
    )
    graphs = {name: lifting.graph(name) for name in dict.fromkeys([name for name, _ in uses])}
    return program.with_graphs(graphs).evolve(state=lifting.state)


def _check(leaf: Any, where: str) -> None:
    if isinstance(leaf, torch.nn.Module):
        advice = "put it into the state (SlotKind.MODULE) and call it with purefx.call_module, or use swap_modules"
        raise UnsupportedProgram(
            f"{where} has {short(leaf)} among its arguments, and a module is not a value; {advice}"
        )
    if isinstance(leaf, FakeTensor):
        raise UnsupportedProgram(
            f"{where} has a fake tensor among its arguments, which has no contents; pass the real tensor"
        )


class _Lifting:
    """Names the constants of a program, and replaces them by reads.

    Args:
        program: the program.
        uses: the constants at each place.
        origins: the meta of constants.
    """

    def __init__(
        self, program: Program, uses: Mapping[_Use, list[Any]], origins: Mapping[int, Meta]
    ) -> None:
        self.program = program
        self.origins = origins
        self.places = all_instances(program)
        self.parts = part_names(program)
        self.slots: dict[tuple[object, str], str] = {}
        """The name of each constant; in a split program, one for each part that uses it."""
        self.entered = {place for places in self.places.values() for place in places}
        """The modules that are called around a use."""
        for name, stack in uses:
            self.entered.update(
                [join(place, frame.path) for frame in stack for place in self.places_of(name)]
            )
        self.state = self._named(uses)

    def places_of(self, graph: str) -> tuple[str, ...]:
        """Return the instances of a graph."""
        return self.places.get(graph, ("",))

    def _homes(self, use: _Use) -> list[str]:
        name, stack = use
        return [join(place, stack[-1].path) if stack else place for place in self.places_of(name)]

    def _part(self, home: str) -> str:
        part = home.partition(".")[0]
        return part if part in self.parts else ""

    def _named(self, uses: Mapping[_Use, list[Any]]) -> State:
        state = self.program.state
        known = {_identity(slot.value): name for name, slot in reversed(state.pairs)}
        values: dict[object, Any] = {}
        homes: dict[tuple[object, str], list[str]] = {}
        for use, leaves in uses.items():
            for leaf in leaves:
                values.setdefault(_identity(leaf), leaf)
                for home in self._homes(use):
                    homes.setdefault((_identity(leaf), self._part(home)), []).append(home)
        numbers, slots = TensorIds(state), dict(state.pairs)
        used = {*state.order, *self.program.types}
        for key, found in homes.items():
            identity, part = key
            if identity in known and not part:
                self.slots[key] = known[identity]
                continue
            owner = self._owner(found)
            name = next(
                path
                for number in count()
                if (path := join(owner, f"_constant{number}")) not in used
            )
            used.add(name)
            is_parameter = isinstance(values[identity], torch.nn.Parameter)
            kind = SlotKind.PARAMETER if is_parameter else SlotKind.CONSTANT
            slots[name] = numbers.slot(values[identity], kind, persistent=is_parameter)
            self.slots[key] = name
        return State.of(slots) if len(slots) > len(state) else state

    def _owner(self, homes: list[str]) -> str:
        # The innermost called module around all of them; a module that is kept as an object cannot hold slots.
        found = homes[0]
        for home in homes:
            while found and home != found and not is_below(home, found):
                found = parent_of(found)
        found = next((outer for outer in reversed(way_to(found)) if outer in self.entered), "")
        held = (
            next((outer for outer in way_to(found) if outer in self.program.state.modules), None)
            if found
            else None
        )
        return found if held is None else parent_of(held)

    def graph(self, name: str) -> Graph:
        """Return a graph with a read before the first use in each module call that owns the constant."""
        graph, places = self.program.graphs[name], self.places_of(name)
        names = graph.names()
        nodes: list[Node] = []
        known: dict[tuple[str, Stack], Ref] = {}

        def read(arg: Arg, stack: Stack, user: str, meta: Any) -> Arg:
            if type(arg) in CONTAINERS:
                return with_children(
                    arg, [read(part, stack, user, meta) for part in children_of(arg)]
                )
            if not is_constant(arg):
                return arg
            slot = self.slots[_identity(arg), self._part(self._homes((name, stack))[0])]
            key = slot, _scope(slot, stack, places)
            if key not in known:
                known[key] = Ref(names.fresh(f"{user}_constant"))
                ways = {relative(slot, place) for place in places}
                spelled = ways.pop() if len(ways) == 1 else FROM_ROOT + slot
                meta = MappingProxyType({**meta, **self.origins.get(id(arg), EMPTY_META)})
                nodes.append(Node(known[key].name, Get(spelled), (), (), key[1], meta))
            return known[key]

        for node in graph.nodes:
            if has_constants(node):
                trace = node.meta.get("stack_trace")
                meta = EMPTY_META if trace is None else {"stack_trace": trace}
                args, kwargs = read((node.args, node.kwargs), user_stack(node), node.name, meta)
                node = Node(node.name, node.do, args, kwargs, node.stack, node.meta)
            nodes.append(node)
        output = read(graph.output, (), "output", EMPTY_META)
        return Graph(graph.inputs, tuple(nodes), output)


def _scope(slot: str, stack: Stack, places: tuple[str, ...]) -> Stack:
    # The innermost call around a use whose module has the slot.
    for depth in range(len(stack), 0, -1):
        if all(is_below(slot, join(place, stack[depth - 1].path)) for place in places):
            return stack[:depth]
    return ()


def _constants_in(arg: Arg) -> list[Any]:
    return [leaf for leaf in arg_leaves((arg,)) if is_constant(leaf)]


def _identity(value: Any) -> object:
    return ("script", hash(value)) if isinstance(value, torch.ScriptObject) else id(value)
