"""fx nodes become ``Node`` values, with their module stacks.

Arguments, operators, bodies of higher-order operators and ``nn_module_stack``; graphs of other tracers have a reader of their
own.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.fx

from ..analysis.numbers import SYMBOLIC
from ..arguments import Arg, Body, Ref, refs_in
from ..errors import InvalidProgram, UnsupportedProgram, Violation
from ..graph import Frame, Graph, Input, Node, Op, Stack, common_prefix
from ..meta import freeze_meta
from ..operators import Said, op_of
from ..origins import INPUT, Imported
from ..torch_private import EMPTY_STACK_KEY, HigherOrderOperator, OpOverload, OpOverloadPacket
from .module_calls import Aliases, Entries, call_of
from .reading import check_output, class_name, container_of, result_of, where
from .regions import is_from_region, place_boundaries, place_regions, settle_bodies

__all__ = ["GraphReader", "StackReader"]


class StackReader:
    """Parses stacks, each distinct one once, and collects the class names that they mention.

    Args:
        places: the paths of the hierarchy.
        slots: the state behind each input of the root graph.
    """

    def __init__(self, places: Iterable[str] = (), slots: Mapping[str, str] | None = None) -> None:
        self.types: dict[str, str] = {}
        self.aliases = Aliases(places, slots or {})
        self.objects: dict[str, dict[str, None]] = {}
        """The paths under which calls of each module were made, by what the exporter calls the module."""
        self._known: dict[Entries, Stack | None] = {}
        self._frames: dict[tuple[str, int], Frame] = {}

    def read(self, raw: Mapping[str, tuple[str, object]] | None) -> Stack | None:
        """Return the stack below the root module, or None if the node has none.

        >>> StackReader().read({"L__self__": ("", "M"), "L__self__a@1": ("a", "Sub")})
        (Frame(path='a', call=1, part=0),)
        """
        if not raw:
            return None
        key = tuple(raw.items())
        try:
            return self._known[key]
        except KeyError:
            stack = self._known[key] = self._parse(key)
            return stack

    def _parse(self, entries: Entries) -> Stack | None:
        if len(entries) == 1 and entries[0][0] == EMPTY_STACK_KEY:
            return None
        frames: list[Frame] = []
        if self.aliases.ways:
            entries = self.aliases.unwound(tuple([entry for entry in entries if entry[1][0]]))
        for depth, (key, (path, kind)) in enumerate(entries, 1):
            path = str(path)  # as modules are named: only the key has the number of the call
            number = key.rpartition("@")[2] if "@" in key else ""
            place = self.aliases.where.get(path, path)
            self.objects.setdefault(key.partition("@")[0], {})[place] = None
            if kind:  # "" where a program that was made again does not know the class
                self.types.setdefault(place, class_name(kind))
            if place != path:
                number = str(self.aliases.numbers.get(call_of(entries[:depth]), 0))
            if place:
                frames.append(self._frame(place, number))
        return tuple(frames)

    def cells(self, paths: Iterable[str]) -> dict[str, int]:
        """Return which modules are one object, as numbers by path: a strict export names a module by its identity.

        Args:
            paths: of the hierarchy, in order.

        >>> reader = StackReader()
        >>> for path in ("a", "b"):
        ...     _ = reader.read({"L__self__": ("", "M"), "1234": (path, "Sub")})
        >>> reader.cells(["", "a", "b", "c"])
        {'a': 0, 'b': 0}
        """
        keys: dict[str, str] = {}
        for key, found in self.objects.items():
            if len(found) > 1 and len({self.types.get(path) for path in found}) == 1:
                keys.update(dict.fromkeys(found, key))
        numbers: dict[str, int] = {}
        shared = [path for path in paths if path and path in keys] if keys else []
        return {path: numbers.setdefault(keys[path], len(numbers)) for path in shared}

    def _frame(self, path: str, number: str) -> Frame:
        place = (path, int(number) if number.isdigit() else 0)
        frame = self._frames.get(place)
        if frame is None:
            frame = self._frames[place] = Frame(*place)
        return frame


LITERALS = frozenset(
    {
        int, bool, float, complex, str, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout,
        torch.memory_format,
    }
)  # fmt: skip


class GraphReader:
    """Reads the graphs of one ``GraphModule``, those nested in it included.

    Args:
        places: the paths of the module hierarchy.
        slots: the state behind each input of the root.
    """

    def __init__(self, places: Iterable[str] = (), slots: Mapping[str, str] | None = None) -> None:
        self.graphs: dict[str, Graph] = {}
        self.stacks = StackReader(places, slots)
        self.slots: Mapping[str, str] = slots or {}
        self.renamed: dict[str, str] = {}
        """Values of the root that alias an input: the results of in-place operators on it."""
        self.placed: Mapping[Any, Any] = {}
        """Module stacks of fx nodes that do not have theirs in their meta."""
        self.said: Said = {}
        """What operators of other libraries are declared to do."""
        self.provenance = True
        """Whether nodes and inputs get an origin."""
        self._ops: dict[Any, Op] = {}
        self._todo: list[tuple[str, torch.fx.GraphModule]] = []
        self._unplaced: dict[str, frozenset[str]] = {}

    def read(self, module: torch.fx.GraphModule) -> None:
        """Fill ``graphs``: the root under ``""``, a nested one under ``"$" + its attribute path``.

        Raises:
            UnsupportedProgram: a node that an exported program cannot have, or an argument of an unknown type.
        """
        nested = [found for found in module.modules() if isinstance(found, torch.fx.GraphModule)]
        self.stacks.aliases.learn(node for found in nested for node in found.graph.nodes)
        self._todo.append(("", module))
        while self._todo:
            name, nested = self._todo.pop()
            if name not in self.graphs:
                self.graphs[name] = self._graph(name, nested)
        if len(self.graphs) > 1:
            settle_bodies(self.graphs, self._unplaced)

    def _graph(self, name: str, module: torch.fx.GraphModule) -> Graph:
        check_output(module.graph, name)
        known = _Known()
        inputs: dict[str, Input] = {}
        nodes: list[Node] = []
        stacks: dict[str, Stack | None] = {}
        output: Arg = ()
        for fx_node in module.graph.nodes:
            kind = fx_node.op
            if kind == "call_function":
                nodes.append(self._call(fx_node, known, stacks, name))
                node = nodes[-1]
                ref = known[fx_node] = result_of(node, inputs)
                if ref.name != node.name and not name:
                    self.renamed[node.name] = ref.name
            elif kind == "placeholder":
                ref = known[fx_node] = Ref(fx_node.name)
                origin = Imported(ref.name, INPUT, name) if self.provenance and not name else None
                inputs[ref.name] = Input(ref.name, freeze_meta(fx_node.meta, origin))
            elif kind == "output":
                output = self._convert(fx_node.args[0], known)
            elif kind == "get_attr":
                known[fx_node] = self._attribute(name, module, fx_node)
            else:
                raise UnsupportedProgram(f"{where(fx_node)}: an exported program has no {kind!r} node")
        strays = {node.name for node in nodes if not node.stack and is_from_region(node.meta)}
        if strays and not name:
            outside = {formal for formal in inputs if formal not in self.slots}.union(refs_in((output,)))
            nodes = place_regions(nodes, strays, outside)
        if any(op.effects.scope for op in self._ops.values()):
            nodes = place_boundaries(nodes)
        if None in stacks.values():
            nodes = place_unplaced(nodes, stacks)
            self._unplaced[name] = frozenset(node for node, stack in stacks.items() if stack is None)
        return Graph(tuple(inputs.values()), tuple(nodes), output)

    def _call(self, fx_node: Any, known: dict[Any, Arg], stacks: dict[str, Stack | None], graph: str) -> Node:
        target = fx_node.target
        op = self._ops.get(target)
        if op is None:
            op = self._ops[target] = op_of(target, self.said)
        name, meta = fx_node.name, fx_node.meta
        args: tuple[Arg, ...] = tuple(
            [
                known[arg] if type(arg) is FxNode else arg if type(arg) in LITERALS else self._convert(arg, known)
                for arg in fx_node.args
            ]
        )
        kwargs = fx_node.kwargs
        pairs = tuple([(key, self._convert(value, known)) for key, value in kwargs.items()]) if kwargs else ()
        stack = self._stack(name, self.placed.get(fx_node) or meta.get("nn_module_stack"))
        if target is operator.getitem and type(args[0]) is Ref:
            stack = stacks.get(args[0].name, stack)  # a projection belongs to what it projects
        stacks[name] = stack
        origin = Imported(name, op.name, graph, stack or (), meta.get("stack_trace")) if self.provenance else None
        return Node(name, op, args, pairs, stack or (), freeze_meta(meta, origin))

    def _stack(self, name: str, raw: Any) -> Stack | None:
        try:
            return self.stacks.read(raw)
        except (AttributeError, TypeError, ValueError) as error:
            said = f"its nn_module_stack is {str(raw)[:80]!r}, not a dict of key to (path, class)"
            raise InvalidProgram([Violation("meta", said, node=name, advice="correct node.meta['nn_module_stack']")]) from error

    def _attribute(self, owner: str, module: torch.fx.GraphModule, fx_node: Any) -> Arg:
        found: Any = module
        for part in str(fx_node.target).split("."):
            found = getattr(found, part, None)
        if not isinstance(found, torch.fx.GraphModule):
            raise UnsupportedProgram(f"{where(fx_node)}: reads the attribute {fx_node.target!r}, a {type(found).__name__}")
        name = f"{owner}.{fx_node.target}" if owner else f"${fx_node.target}"
        self._todo.append((name, found))
        return Body(name)

    def _convert(self, arg: Any, known: Mapping[Any, Arg]) -> Arg:
        kind = type(arg)
        if kind is FxNode:
            return known[arg]
        if kind in LITERALS:
            return arg
        found = container_of(arg, lambda part: self._convert(part, known))
        if found is not None:
            return found
        if isinstance(arg, OBJECTS):
            return arg
        # What it prints is not shown: a class may print anything.
        raise UnsupportedProgram(f"an argument of type {kind.__module__}.{kind.__qualname__} is not supported")


OBJECTS: tuple[Any, ...] = (
    OpOverload, HigherOrderOperator, *SYMBOLIC, torch.ScriptObject,
    type, range, OpOverloadPacket, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial,
)  # fmt: skip
"""Values, and callables that are not instances of user classes: fx writes arguments into Python text by their ``repr``."""

FxNode = torch.fx.Node


class _Known(dict[Any, Arg]):
    """The value of each fx node; a use before its definition is kept by name, and ``verify`` reports it."""

    def __missing__(self, fx_node: Any) -> Arg:
        return Ref(fx_node.name)


def place_unplaced(nodes: list[Node], stacks: Mapping[str, Stack | None]) -> list[Node]:
    """Give nodes without a module stack (hand-written passes forget it) the innermost one that holds all around them.

    That is the longest common prefix of the stacks of the nodes that they use and that use them.
    """
    around: dict[str, list[Stack]] = {name: [] for name, stack in stacks.items() if stack is None}
    for node in nodes:
        mine = stacks[node.name]
        for name in node.refs():
            theirs = stacks.get(name)
            if name in around and mine is not None:
                around[name].append(mine)
            if mine is None and theirs is not None:
                around[node.name].append(theirs)
    return [node.evolve(stack=common_prefix(around[node.name])) if node.name in around else node for node in nodes]
