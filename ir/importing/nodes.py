"""fx nodes become ``Node`` values: arguments, operators, meta, the module calls around them.

One reader for each graph.  It sees of every node what the rules of ``verify`` would look at, and says so (``Witness``) unless
something is unusual.
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
from ..arguments import Arg, Body, Items, Ref, bodies_in
from ..errors import InvalidProgram, UnsupportedProgram, Violation
from ..graph import Graph, Input, Kwargs, Node, Op, Stack
from ..meta import freeze_meta
from ..origins import INPUT, Imported
from ..torch_private import HigherOrderOperator, OpOverload, OpOverloadPacket
from ..verify.well_formed import PLAIN_VALUES, meta_faults
from ..verify.witness import Witness
from .reading import container_of, result_of
from .stacks import StackReader

__all__ = ["NodeReader"]

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

    __slots__ = ("flat", "forms", "gives_input", "name", "op", "takes_item")

    def __init__(self, op: Op) -> None:
        returns = op.effects.returns
        self.op = op
        self.name = op.name
        self.gives_input = len(returns) == 1 and returns[0] is not None
        """Whether its result can be what it was given."""
        self.takes_item = op.target is operator.getitem
        self.flat: set[tuple[type, ...]] = set()
        """Types of arguments that it was called with, where none holds others."""
        self.forms: set[Any] = set()
        """The same of all arguments, with the types of what is in lists and tuples."""


class _Known(dict[Any, Arg]):
    """The value of each fx node; a use before its definition is kept by name, and ``verify`` reports it."""

    has_all = True
    gave_body = False
    """Whether a graph was asked for: they are apart, so that nodes that take none, nearly all, are not looked at for it."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: dict[Any, Body] = {}

    def __missing__(self, fx_node: Any) -> Arg:
        body = self.bodies.get(fx_node)
        if body is not None:
            self.gave_body = True
            return body
        self.has_all = False
        return Ref(fx_node.name)


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
        self.first: dict[int, tuple[Op, int]] = {}
        self.items: list[int] = []
        self.bodies: list[tuple[int, str]] = []
        self.asked: list[int] = []
        self.is_plain = True
        """Whether nothing was unusual: else the rules look at all of it."""
        self._keys: set[tuple[Any, ...]] = set()
        self._formals = 0

    def formal(self, fx_node: Any) -> None:
        """Read an input."""
        name, meta = fx_node.name, fx_node.meta
        self.known[fx_node] = Ref(name)
        origin = Imported(name, INPUT) if self.provenance and not self.graph else None
        self.inputs[name] = Input(name, freeze_meta(meta, origin))
        self._formals += 1
        keys = tuple(meta)
        if keys not in self._keys or type(meta.get("val")) not in PLAIN_VALUES or "stack_trace" in meta:
            self._look_at(meta, keys)

    def body(self, fx_node: Any, name: str) -> None:
        """Read an attribute that is a graph."""
        self.known.bodies[fx_node] = Body(name)

    def literal(self, fx_node: Any, value: Arg) -> None:
        """Read an attribute that is a literal."""
        self.known[fx_node] = value
        self.is_plain = False

    def node(self, fx_node: Any) -> None:
        """Read a call of an operator."""
        target, name, meta, given, named = fx_node.target, fx_node.name, fx_node.meta, fx_node.args, fx_node.kwargs
        called, known, index = self.called.get(id(target)), self.known, len(self.nodes)
        if called is None:
            called = self._meet(target, index)
        kinds = tuple(map(type, given))
        if kinds in called.flat and not named:
            args, pairs = tuple([known[arg] if type(arg) is FxNode else arg for arg in given]), ()
        else:
            args, pairs = self._arguments(given, named, called, index)
        if known.gave_body:
            self._note_bodies(args, pairs, index)
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
        if called.takes_item:
            self.items.append(index)
        keys = tuple(meta)
        if keys not in self._keys or type(meta.get("val")) not in PLAIN_VALUES or (type(trace) is not str and trace is not None):
            self._look_at(meta, keys)

    def _meet(self, target: Any, index: int) -> Called:
        called = self.called[id(target)] = Called(self.op_of(target))
        self.first.setdefault(id(called.op), (called.op, index))
        return called

    def _result(self, node: Node) -> Ref:
        ref = result_of(node, self.inputs)
        if ref.name != node.name:
            self.renamed[node.name] = ref.name
        return ref

    def _look_at(self, meta: Any, keys: tuple[Any, ...]) -> None:
        if meta_faults(meta):
            self.is_plain = False
        else:
            self._keys.add(keys)

    def _arguments(self, given: Any, named: Any, called: Called, index: int) -> tuple[tuple[Arg, ...], Kwargs]:
        args = tuple([self.argument(arg) for arg in given])
        pairs = tuple([(key, self.argument(value)) for key, value in named.items()]) if named else ()
        form: tuple[Any, ...] = (*map(_form, given), *[(_form(value), type(key), key) for key, value in named.items()])
        if self.known.gave_body:
            form = (*form, index)  # it stands for itself alone
        if form not in called.forms:
            called.forms.add(form)
            self.asked.append(index)
            if None in form or any(type(key) is not str or _form(value) is None for key, value in named.items()):
                self.is_plain = False
            if not named and FLAT.issuperset(form):
                called.flat.add(form)
        return args, pairs

    def _note_bodies(self, args: tuple[Arg, ...], pairs: Kwargs, index: int) -> None:
        self.bodies.extend([(index, body) for body in bodies_in(args, pairs)])
        self.known.gave_body = False
        if index not in self.asked[-1:]:
            self.asked.append(index)

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
        raise UnsupportedProgram(f"an argument of type {kind.__module__}.{kind.__qualname__} is not supported")

    def witness(self, graph: Graph) -> Witness | None:
        """Return what was seen, if all that is read is well-formed.

        Args:
            graph: made of what was read.
        """
        names = self.stacks.keys()
        if not self.is_plain or not self.known.has_all or not _are_plain(graph.output):
            return None
        if len(self.inputs) != self._formals or len(names) != len(self.nodes) or not names.isdisjoint(self.inputs):
            return None
        if "" in names or "" in self.inputs or not TEXTS.issuperset(map(type, (*names, *self.inputs))):
            return None
        return Witness(graph, self.first, self.items, self.bodies, self.asked)


def _unreadable(raw: Any, name: str) -> InvalidProgram:
    said = f"its nn_module_stack is {str(raw)[:80]!r}, not a dict of key to (path, class)"
    return InvalidProgram([Violation("meta", said, node=name, advice="correct node.meta['nn_module_stack']")])


TEXTS = frozenset({str})

OUTPUTS = LITERALS | {Ref}


def _form(arg: Any) -> Any:
    # The types of an argument and of what is in it; None where that is not all of it.
    kind = type(arg)
    if kind in LISTS:
        kinds = frozenset(map(type, arg))
        return (kind, kinds) if FLAT.issuperset(kinds) else None
    if kind is slice:
        kinds = (type(arg.start), type(arg.stop), type(arg.step))
        return (kind, kinds) if FLAT.issuperset(kinds) else None
    return None if isinstance(arg, (list, tuple, dict)) else kind


def _are_plain(output: Arg) -> bool:
    return type(output) is tuple and OUTPUTS.issuperset(map(type, output))
