"""fx nodes become ``Node`` values: arguments, operators, meta, the module calls around them.

One reader for each graph.  It refuses what it cannot read; ``verify`` checks the rest before a program is transformed or lowered.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
from torch.fx.immutable_collections import immutable_list

from ..analysis.numbers import SYMBOLIC
from ..arguments import Arg, Body, Items, Ref
from ..errors import InvalidProgram, UnsupportedProgram, Violation
from ..graph import Input, Node, Op, Stack
from ..meta import freeze_meta
from ..origins import INPUT, Imported
from ..torch_private import HigherOrderOperator, OpOverload, OpOverloadPacket
from ..verify.findings import source_of
from .reading import container_of, result_of, where
from .stacks import StackReader

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
