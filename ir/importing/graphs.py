"""The graphs of one ``GraphModule``, those that are nested in it included, become ``Graph`` values.

Arguments, operators, meta and the module calls around them; what the exporter left in no module call is placed where its
neighbours are.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import torch
import torch.fx
from torch.fx.immutable_collections import immutable_list

from ..analysis.numbers import SYMBOLIC
from ..arguments import TREES, Arg, Body, Items, Record, Ref, refs_in
from ..callables import class_name
from ..errors import InvalidProgram, UnsupportedProgram, Violation
from ..graph import Frame, Graph, Input, Node, Op, Stack, common_prefix
from ..meta import freeze_meta
from ..names import is_identifier
from ..operators import Said, op_of
from ..origins import INPUT, Imported
from ..torch_private import EMPTY_STACK_KEY, HigherOrderOperator, OpOverload, OpOverloadPacket
from ..verify.findings import short, source_of
from .module_calls import Aliases, Entries, call_of
from .regions import is_from_region, place_boundaries, place_regions, settle_bodies


def check_output(graph: Any, name: str) -> list[Any]:
    """Return the nodes of an fx graph if it has one ``output``, as its last node: torch returns there, and runs nothing after it.

    Args:
        graph: the fx graph.
        name: what the program calls it.

    Raises:
        InvalidProgram: it has none, or several, or nodes after it.

    >>> import torch
    >>> check_output(torch.fx.symbolic_trace(torch.nn.ReLU()).graph, "")
    [input_1, relu, output]
    """
    nodes = list(graph.nodes)
    places = [place for place, node in enumerate(nodes) if node.op == "output"]
    if len(places) == 1 and places[0] == len(nodes) - 1:
        return nodes
    if len(places) == 1:
        said = f"the fx graph has {nodes[places[0] + 1].name!r} after its output, where nothing runs"
    else:
        said = f"the fx graph has {len(places) or 'no'} output nodes, not one"
    advice = "let graph.output(...) be called once and be the last node"
    raise InvalidProgram([Violation("signature-outputs", said, graph=name, node="output", advice=advice)])


def where(fx_node: Any) -> str:
    """Return how messages name a node: with the line of the user where that is known."""
    trace = str(fx_node.meta.get("stack_trace") or "").strip().splitlines()
    name = fx_node.name if is_identifier(fx_node.name) else short(fx_node.name)
    return f"node {name}" + (f" ({trace[-2].strip()})" if len(trace) > 1 else "")


def container_of(arg: Any, convert: Callable[[Any], Arg]) -> Arg | None:
    """Return a container among the arguments of an fx node as a value, with its parts converted; None if it is none.

    >>> container_of([1, 2], str), container_of(slice(1), str), container_of("a", str)
    (['1', '2'], slice('None', '1', 'None'), None)
    """
    if isinstance(arg, list):
        return Items([convert(part) for part in arg])
    if isinstance(arg, tuple):
        return tuple([convert(part) for part in arg])
    if isinstance(arg, dict):
        return Record(tuple([(convert(key), convert(part)) for key, part in arg.items()]))
    return slice(convert(arg.start), convert(arg.stop), convert(arg.step)) if type(arg) is slice else None


def result_of(node: Node, inputs: Container[str]) -> Ref:
    """Return what stands for the result of a node: that of an in-place operator on an input is the input.

    >>> from purefx.ir.operators import op_of
    >>> import torch
    >>> result_of(Node("y", op_of(torch.ops.aten.add_.Tensor), (Ref("x"), 1)), {"x"})
    Ref(name='x')
    """
    returns = node.do.effects.returns if type(node.do) is Op else ()
    if len(returns) == 1 and returns[0] is not None:
        written = returns[0].find(node.args, node.kwargs)
        if type(written) is Ref and written.name in inputs:
            return written
    return Ref(node.name)


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
        (Frame(path='a', call=1),)
        """
        if not raw:
            return None
        key = tuple(raw.items())
        stack: Any = self._known.get(key, self)  # nothing that is read is the reader
        if stack is self:
            stack = self._known[key] = self._parse(key)
        return stack

    def _parse(self, entries: Entries) -> Stack | None:
        if len(entries) == 1 and entries[0][0] == EMPTY_STACK_KEY:
            return None
        if self.aliases.ways:
            return self._unaliased(entries)
        above = entries[:-1]
        outer = self._known.get(above)
        if outer is None:  # most calls are made in one that has others: what is around them is parsed once
            outer = ()
            for entry in above:
                outer = self._inside(outer, *entry)
            if above and dict(above).keys() != {EMPTY_STACK_KEY}:
                self._known[above] = outer
        return self._inside(outer, *entries[-1])

    def _inside(self, outer: Stack, key: str, module: tuple[object, object]) -> Stack:
        path, kind = module
        path = str(path)  # as modules are named: only the key has the number of the call
        name, _, number = key.partition("@")
        self._note(name, path, kind)
        if not path:
            return outer
        frame = self._frame(path, number.rpartition("@")[2])
        return (*outer, frame)

    def _note(self, key: str, place: str, kind: object) -> None:
        self.objects.setdefault(key, {})[place] = None
        if kind:  # "" where a program that was made again does not know the class
            self.types.setdefault(place, class_name(kind))

    def _unaliased(self, entries: Entries) -> Stack:
        frames: list[Frame] = []
        for key, (path, kind) in entries:
            if not path:
                self._note(key, "", kind)
        entries = self.aliases.unwound(tuple([entry for entry in entries if entry[1][0]]))
        for depth, (key, (path, kind)) in enumerate(entries, 1):
            path = str(path)
            number = key.rpartition("@")[2] if "@" in key else ""
            place = self.aliases.where.get(path, path)
            self._note(key.partition("@")[0], place, kind)
            if place != path:
                number = str(self.aliases.numbers.get(call_of(entries[:depth]), 0))
            if place:
                frames.append(self._frame(place, number))
        return tuple(frames)

    def _frame(self, path: str, number: str) -> Frame:
        place = (path, int(number) if number.isdigit() else 0)
        frame = self._frames.get(place)
        if frame is None:
            frame = self._frames[place] = Frame(*place)
        return frame

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


FxNode = torch.fx.Node

LITERALS = frozenset(
    {
        int, bool, float, complex, str, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout,
        torch.memory_format,
    }
)  # fmt: skip


OBJECTS: tuple[Any, ...] = (
    OpOverload, HigherOrderOperator, *SYMBOLIC, torch.ScriptObject,
    type, range, OpOverloadPacket, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial,
)  # fmt: skip
"""Values, and callables that are not instances of user classes: fx writes arguments into Python text by their ``repr``."""

LISTS = frozenset({list, tuple, immutable_list})

FLAT = LITERALS | {FxNode}
"""What arguments are that hold no others."""


class Called:
    """An operator that nodes call, with what is known of it.

    Args:
        op: what those nodes do.
    """

    __slots__ = ("flat", "gives_input", "name", "op", "takes_item")

    def __init__(self, op: Op) -> None:
        returns = op.effects.returns
        self.op = op
        self.name = op.name
        self.gives_input = len(returns) == 1 and returns[0] is not None
        """Whether its result can be what it was given."""
        self.takes_item = op.target is operator.getitem
        self.flat: set[tuple[type, ...]] = set()
        """Types of arguments that it was called with, where none holds others."""


class _Known(dict[Any, Arg]):
    """The value of each fx node."""

    user: Any = None
    """The fx node that is read."""

    def __missing__(self, fx_node: Any) -> Arg:
        message = f"it uses {str(fx_node.name)!r}, which no node before it in its graph defines"
        advice = "keep the node that makes the value, and put it before those that use it"
        name, source = str(self.user.name), source_of(self.user.meta)
        raise InvalidProgram([Violation("earlier-values", message, node=name, source=source, advice=advice)])


class NodeReader:
    """Reads the nodes of one graph.

    Args:
        graph: what the program calls it.
        stacks: reads the stacks of all graphs.
        op_of: gives an operator by its target.
        placed: the stacks of fx nodes that have others than their meta says.
        provenance: whether nodes get an origin.
    """

    def __init__(
        self, graph: str, stacks: StackReader, op_of: Callable[[Any], Op], placed: Mapping[Any, Any], *, provenance: bool
    ) -> None:
        self.graph = graph
        self.read_stack = stacks.read
        self.op_of = op_of
        self.placed = placed
        self.provenance = provenance
        self.known = _Known()
        self.inputs: dict[str, Input] = {}
        self.nodes: list[Node] = []
        self.stacks: dict[str, Stack | None] = {}
        self.renamed: dict[str, str] = {}
        """What stands for the results of in-place operators on inputs: those."""
        self.called: dict[int, Called] = {}
        """By the ``id`` of the target, which is there as long as the fx graph is."""

    def formal(self, fx_node: Any) -> None:
        """Read an input."""
        name, meta = fx_node.name, fx_node.meta
        self.known[fx_node] = Ref(name)
        origin = Imported(name, INPUT) if self.provenance and not self.graph else None
        self.inputs[name] = Input(name, freeze_meta(meta, origin))

    def body(self, fx_node: Any, name: str) -> None:
        """Read an attribute that is a graph."""
        self.known[fx_node] = Body(name)

    def literal(self, fx_node: Any, value: Arg) -> None:
        """Read an attribute that is a literal."""
        self.known[fx_node] = value
        self.is_plain = False

    def node(self, fx_node: Any) -> None:
        """Read a call of an operator."""
        target, name, meta, given, named = fx_node.target, fx_node.name, fx_node.meta, fx_node.args, fx_node.kwargs
        called, known = self.called.get(id(target)), self.known
        known.user = fx_node
        if called is None:
            called = self.called[id(target)] = Called(self.op_of(target))
        kinds = tuple(map(type, given))
        if kinds in called.flat and not named:
            args, pairs = tuple([known[arg] if type(arg) is FxNode else arg for arg in given]), ()
        else:
            args, pairs = tuple([self.argument(arg) for arg in given]), ()
            if named:
                pairs = tuple([(key, self.argument(value)) for key, value in named.items()])
            elif FLAT.issuperset(kinds):
                called.flat.add(kinds)
        raw = (self.placed.get(fx_node) if self.placed else None) or meta.get("nn_module_stack")
        try:
            stack = self.read_stack(raw)
        except (AttributeError, TypeError, ValueError) as error:
            raise _unreadable(raw, name) from error
        if called.takes_item and type(args[0]) is Ref:
            stack = self.stacks.get(args[0].name, stack)  # a projection belongs to what it projects
        self.stacks[name] = stack
        stack, trace = stack or (), meta.get("stack_trace")
        origin = Imported(name, called.name, self.graph, stack, trace) if self.provenance else None
        node = Node(name, called.op, args, pairs, stack, freeze_meta(meta, origin))
        self.nodes.append(node)
        known[fx_node] = self._result(node) if called.gives_input else Ref(name)

    def _result(self, node: Node) -> Ref:
        ref = result_of(node, self.inputs)
        if ref.name != node.name:
            self.renamed[node.name] = ref.name
        return ref

    def argument(self, arg: Any) -> Arg:
        """Return an argument as a value.

        Raises:
            UnsupportedProgram: it is of a type that no argument has.
        """
        kind = type(arg)
        if kind is FxNode:
            return self.known[arg]
        if kind in LITERALS:
            return arg
        if kind in LISTS and LITERALS.issuperset(map(type, arg)):
            return tuple(arg) if kind is tuple else Items(arg)  # most are sizes
        found = container_of(arg, self.argument)
        if found is not None:
            return found
        if isinstance(arg, OBJECTS):
            return arg
        # What it prints is not shown: a class may print anything.
        said = f"an argument of type {kind.__module__}.{kind.__qualname__} is not supported"
        raise UnsupportedProgram(f"{where(self.known.user)}: {said}")


def _unreadable(raw: Any, name: str) -> InvalidProgram:
    said = f"its nn_module_stack is {str(raw)[:80]!r}, not a dict of key to (path, class)"
    return InvalidProgram([Violation("meta", said, node=name, advice="correct node.meta['nn_module_stack']")])


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
        fx_nodes = check_output(module.graph, name)
        reader = NodeReader(name, self.stacks, self._op, self.placed, provenance=self.provenance)
        output: Arg = ()
        for fx_node in fx_nodes:
            kind = fx_node.op
            if kind == "call_function":
                reader.node(fx_node)
            elif kind == "placeholder":
                reader.formal(fx_node)
            elif kind == "output":
                reader.known.user = fx_node
                output = reader.argument(fx_node.args[0])
            elif kind == "get_attr":
                found = attribute_at(module, fx_node)
                if isinstance(found, TREES):  # of `flat_apply`, which flex attention indexes captured tensors with
                    reader.literal(fx_node, found)
                else:
                    reader.body(fx_node, self._body(name, found, fx_node))
            else:
                raise UnsupportedProgram(f"{where(fx_node)}: an exported program has no {kind!r} node")
        graph = Graph(tuple(reader.inputs.values()), tuple(reader.nodes), output)
        if not name:
            self.renamed = reader.renamed
        return graph.with_nodes(self._placed(name, reader, graph))

    def _placed(self, name: str, reader: NodeReader, graph: Graph) -> list[Node]:
        # The nodes, those that the exporter left in no call where their neighbours are.
        nodes, stacks = reader.nodes, reader.stacks
        strays = {node.name for node in nodes if not node.stack and is_from_region(node.meta)}
        if strays and not name:
            outside = {formal for formal in reader.inputs if formal not in self.slots}.union(refs_in((graph.output,)))
            nodes = place_regions(nodes, strays, outside)
        if any(op.effects.scope for op in self._ops.values()):
            nodes = place_boundaries(nodes)
        if None in stacks.values():
            nodes = place_unplaced(nodes, stacks)
            self._unplaced[name] = frozenset(node for node, stack in stacks.items() if stack is None)
        return nodes

    def _op(self, target: Any) -> Op:
        op = self._ops.get(target)
        if op is None:
            op = self._ops[target] = op_of(target, self.said)
        return op

    def _body(self, owner: str, found: Any, fx_node: Any) -> str:
        if not isinstance(found, torch.fx.GraphModule):
            raise UnsupportedProgram(f"{where(fx_node)}: reads the attribute {fx_node.target!r}, a {type(found).__name__}")
        name = f"{owner}.{fx_node.target}" if owner else f"${fx_node.target}"
        self._todo.append((name, found))
        return name


def attribute_at(module: torch.fx.GraphModule, fx_node: Any) -> Any:
    """Return the attribute that a node reads; None where there is none."""
    found: Any = module
    for part in str(fx_node.target).split("."):
        found = getattr(found, part, None)
    return found


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
