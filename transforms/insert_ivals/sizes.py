"""Sizes: numbers computed in one module call and used in another are recomputed where they are used.

The exporter computes a size once for all modules, so children take arguments that the original did not have. A size can be
read from any tensor that has it, so it is recomputed from the other operands of the call: from the leaves of its signature if
that is preserved.  A size that no such tensor has stays an argument.  So does a size that an assertion checks, because symbols
are often equal only by that assertion.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from attrs import frozen

from ...ir.analysis.numbers import SYMBOLIC
from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.graph import Frame, Node, Op, Stack, common_prefix
from ...ir.inference import borders_of, changes_sizes, values_of
from ...ir.meta import ORIGIN, Meta
from ...ir.operators import op_of
from ...ir.origins import made_of
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ..transformation import Fuel
from .versions import Leaves

SIZE = op_of(torch.ops.aten.sym_size.int)
FLOORDIV = op_of(operator.floordiv)

Key = tuple[int, str]
"""A symbolic number: its symbols are specific to one export."""

Home = tuple[str, Frame | None]
"""A size, and the call that computes it; None for the root."""


@frozen
class _Place:
    """A dimension of a tensor that is visible in a call."""

    tensor: str
    dim: int
    made: int
    """The number of the node that makes the tensor, and everything of the inner call that returns it; -1 for an input."""
    factor: int = 1
    """The factor of the dimension: the exporter writes ``n`` if a module divided ``2*n`` by two."""


def sizes_again(program: Program, leaves: Leaves, edit: Rewriter, fuel: Fuel) -> Sizes | None:
    """Recompute sizes of a flat program in other calls; returns None if it has no sizes.

    Args:
        program: the flat program.
        leaves: the arguments and results of its preserved calls.
        edit: the edits of its root, to which recomputed sizes are added.
        fuel: a rewrite is one use.
    """
    nodes = program.main.nodes
    numbers = _sizes(nodes)
    leaving = any(
        name in numbers and numbers[name].stack != node.stack
        for node in nodes
        for name in node.refs()
    )
    if not leaving and not numbers.keys() & program.main.output_refs():
        return None
    if any(changes_sizes(do) for graph in program.graphs.values() for do in graph.distinct):
        return None
    found = Sizes(program, leaves, edit, numbers)
    for number, stack, size in found.uses():
        found.rewrite(number, stack, size, fuel)
    return found


def _sizes(nodes: tuple[Node, ...]) -> dict[str, Node]:
    # Numbers computed only from sizes of tensors.
    found: dict[str, Node] = {}
    for node in nodes:
        if isinstance(node.val, SYMBOLIC) and _is_plain(node):
            first = node.args[0] if node.args else None
            reads_size = node.op_name == SIZE.name and type(first) is Ref
            if reads_size or all(name in found for name in node.refs()):
                found[node.name] = node
    return found


class Sizes:
    """Recomputes sizes in other calls, at most once for each call."""

    def __init__(
        self, program: Program, leaves: Leaves, edit: Rewriter, numbers: Mapping[str, Node]
    ) -> None:
        graph = program.main
        self.nodes = graph.nodes
        self.output = tuple(graph.output_refs())
        self.leaves = leaves
        self.edit = edit
        self.numbers = numbers
        self.checked = _checked(graph.nodes)
        self.spans = _spans(graph.nodes)
        self.values = values_of(graph)
        self.root, self.borders = program.root, borders_of(program)
        self.made: dict[str, tuple[int, Stack]] = {formal.name: (-1, ()) for formal in graph.inputs}
        self.made.update(
            (node.name, (number, node.stack)) for number, node in enumerate(graph.nodes)
        )
        self.visible: dict[Frame | None, dict[Key, dict[_Place, None]]] = {}
        """The readable dimensions of each call, by size."""
        self._look_around()
        self.known: dict[Home, tuple[int, Arg]] = {}
        """The name of each recomputed size in each call."""
        self.again: set[str] = set()
        """The sizes that are recomputed for some user."""

    def uses(self) -> Iterator[tuple[int, Stack, str]]:
        """Yield the uses of sizes that no assertion depends on: the number of the user, the calls around it, the size."""
        for number, node in enumerate(self.nodes):
            if is_boundary(node) or node.name in self.checked or node.declared.ordered:
                continue
            for name in dict.fromkeys(node.refs()):
                if name in self.numbers and self.numbers[name].stack != node.stack:
                    yield number, node.stack, name
        for name in dict.fromkeys(self.output):
            if name in self.numbers and self.numbers[name].stack:
                yield len(self.nodes), (), name

    def rewrite(self, number: int, stack: Stack, size: str, fuel: Fuel) -> None:
        """Recompute a size in the innermost possible call around a use, if that changes the interface of a call."""
        made = self.numbers[size].stack
        shared = len(common_prefix([made, stack]))
        for depth in range(len(stack), shared - (shared < len(made)), -1):
            scope = stack[:depth]
            if scope and size in self.leaves.takes.get(scope[-1], ()):
                return  # the signature names it
            if depth == shared < len(made) and size in self.leaves.gives.get(made[depth], ()):
                return  # the signature names it
            at = number if depth == len(stack) else self.spans[stack[depth]][0]
            # As it was computed, if possible, so that equal modules stay equal.
            new = self._computed(size, scope, at, read=False) or self._computed(
                size, scope, at, read=True
            )
            if new is not None:
                if fuel.burn("compute", size, "again in", scope[-1] if scope else "the root"):
                    for key, node in new.items():
                        self.known[key] = at, Ref(node.name)
                        self.edit.before(at, node)
                    self.edit.use(number, size, self.known[size, scope[-1] if scope else None][1])
                    self.again.add(size)
                return

    def _look_around(self) -> None:
        for name, (_, stack) in self.made.items():
            self._show(name, stack)
        for node in self.nodes:
            if is_boundary(node):
                continue
            for name in node.refs():
                if (
                    name in self.made
                    and self.made[name][1] != node.stack
                    and isinstance(self.values.get(name), torch.Tensor)
                ):
                    self._let_through(name, self.made[name][1], node.stack)
        for frame, names in self.leaves.takes.items():
            for name in names:
                self._show(name, (frame,))

    def _let_through(self, name: str, made: Stack, used: Stack) -> None:
        shared = len(common_prefix([made, used]))
        for depth in range(shared, len(made)):
            self._show(name, made[:depth])  # the calls that return it, and the one that uses it
        for depth in range(shared + 1, len(used) + 1):
            if used[depth - 1] not in self.leaves.takes:
                self._show(name, used[:depth])

    def _show(self, name: str, scope: Stack) -> None:
        value = self.values.get(name)
        if not isinstance(value, torch.Tensor):
            return
        number, stack = self.made[name]
        if len(stack) > len(scope) and stack[: len(scope)] == scope:
            number = self.spans[stack[len(scope)]][1]  # an inner call returns it at its end
        for dim, size in enumerate(value.shape):
            if isinstance(size, torch.SymInt):
                places = self.visible.setdefault(scope[-1] if scope else None, {})
                env, text = _key(size)
                places.setdefault((env, text), {}).setdefault(_Place(name, dim, number))
                times, _, symbol = text.partition("*")
                if times.isdigit() and symbol.isidentifier():
                    places.setdefault((env, symbol), {}).setdefault(
                        _Place(name, dim, number, int(times))
                    )

    def _computed(self, size: str, scope: Stack, at: int, *, read: bool) -> dict[Home, Node] | None:
        # Operands first, without recursion: a number is computed from numbers, or read from a tensor.
        frame = scope[-1] if scope else None
        new: dict[Home, Node] = {}
        todo = [(size, False)]
        while todo:
            part, ready = todo.pop()
            key = (part, frame)
            if key in new or (key in self.known and self.known[key][0] <= at):
                continue
            node, value = self.numbers[part], self.values[part]
            if node.stack == scope and self.made[part][0] < at:
                continue  # already there
            is_size = node.op_name == SIZE.name
            may_read = is_size or (read and bool(node.refs()))
            place = self._place(part, frame, at, multiples=read) if may_read else None
            if place is None and is_size:
                return None
            if place is None and not ready:
                todo += [(part, True), *[(inner, False) for inner in node.refs()]]
                continue
            again, origin = self.edit.names.fresh(part), node.meta.get(ORIGIN)
            meta = MappingProxyType(
                {"val": value} if origin is None else {"val": value, ORIGIN: origin}
            )
            if place is not None:
                self._read(place, again, key, scope, meta, new)
                continue
            found = {inner: self._found(inner, frame, at, new) for inner in node.refs()}
            new[key] = node.evolve(
                name=again, args=replace_refs(node.args, found), stack=scope, meta=meta
            )
        return new

    def _is_sure(self, name: str, dim: int | None = None) -> bool:
        # Whether it is the recorded size for all sizes of the program: a squeezed tensor of one row has other dimensions.
        return all(border.agrees(self.root, name, dim) for border in self.borders)

    def _read(
        self, place: _Place, name: str, key: Home, scope: Stack, meta: Meta, new: dict[Home, Node]
    ) -> None:
        args, origin = (Ref(place.tensor), place.dim), made_of([meta])
        meta = MappingProxyType({**meta, **origin})
        if place.factor == 1:
            new[key] = Node(name, SIZE, args, (), scope, meta)
            return
        sized: Any = self.values[place.tensor]
        whole = MappingProxyType({"val": sized.shape[place.dim], **origin})
        times = self.edit.names.fresh(SIZE.name.split(".")[1])
        new[times, key[1]] = Node(times, SIZE, args, (), scope, whole)
        new[key] = Node(name, FLOORDIV, (Ref(times), place.factor), (), scope, meta)

    def _found(self, name: str, frame: Frame | None, at: int, new: dict[Home, Node]) -> Arg:
        made, known = new.get((name, frame)), self.known.get((name, frame))
        if made is not None:
            return Ref(made.name)
        return known[1] if known is not None and known[0] <= at else Ref(name)

    def _place(self, part: str, frame: Frame | None, at: int, *, multiples: bool) -> _Place | None:
        value = self.values[part]
        if not isinstance(value, torch.SymInt):
            return None
        places = [
            place
            for place in self.visible.get(frame, {}).get(_key(value), ())
            if place.made < at and (multiples or place.factor == 1)
        ]
        places.sort(
            key=lambda place: (place.factor, place.made, self.made[place.tensor][0], place.dim)
        )
        # The borders are asked last: their values are expensive.
        sure = (place for place in places if self._is_sure(place.tensor, place.dim))
        return next(sure, None) if places and self._is_sure(part) else None


def _key(size: torch.SymInt) -> Key:
    # As text: comparing symbolic sizes would install guards.
    return id(size.node.shape_env), str(size)


def _is_plain(node: Node) -> bool:
    return type(node.do) is Op and not node.kwargs and not node.do.effects.acts


def _checked(nodes: tuple[Node, ...]) -> set[str]:
    # The operands of assertions, and the values that they are computed from.
    found: set[str] = set()
    for node in reversed(nodes):
        if node.declared.ordered or node.name in found:
            found.update(node.refs())
    return found


def _spans(nodes: tuple[Node, ...]) -> dict[Frame, tuple[int, int]]:
    # The first and the last node of each call.
    found: dict[Frame, tuple[int, int]] = {}
    for number, node in enumerate(nodes):
        for frame in node.stack:
            found[frame] = (found[frame][0] if frame in found else number, number)
    return found
