"""``Changes``: a program of other sizes, dtypes or literals, of whose values nothing is known any more.

State is a part of what it was, of the new dtype.  Whether operators take what they then get, ``infer`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen

from ...ir.arguments import CONTAINERS, Arg, Body, Ref, children_of, with_children
from ...ir.graph import Graph, Input, Node
from ...ir.inference.walk import without_value
from ...ir.program import Program
from ...ir.signature import TensorType, UserInput
from ...ir.state import Slot, State

__all__ = ["Changes", "mapped"]

Map = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


@frozen
class Changes:
    """What stands in place of sizes, dtypes and literals, wherever they stand.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),)))
    >>> smaller = Changes(size=lambda size: 1 if size == 3 else size).program(program)
    >>> [tuple(slot.value.shape) for _, slot in smaller.state.pairs], tuple(px.infer(smaller).main.nodes[0].meta["val"].shape)
    ([(1, 2), (1,)], (1, 1))
    """

    size: Map = _same
    dtype: Map = _same
    literal: Map = _same

    def program(self, program: Program) -> Program | None:
        """Return a program with the changes, without fake values; None where tensors of state share memory."""
        state = self._state(program.state)
        if state is None:
            return None
        inputs = tuple([self._input(spec) for spec in program.signature.inputs])
        signature = evolve(program.signature, inputs=inputs)
        graphs = {name: self._graph(program.graphs[name]) for name in program.order}
        return program.evolve(state=state, signature=signature).with_graphs(graphs)

    def _input(self, spec: Any) -> Any:
        if type(spec) is not UserInput or type(spec.type) is not TensorType:
            return spec
        kind = spec.type
        return evolve(spec, type=TensorType(self.dtype(kind.dtype), tuple([self.size(size) for size in kind.shape]), kind.device))

    def _graph(self, graph: Graph) -> Graph:
        inputs = tuple([Input(formal.name, without_value(formal.meta)) for formal in graph.inputs])
        nodes = [
            Node(
                node.name,
                node.do,
                mapped(node.args, self.literal),
                mapped(node.kwargs, self.literal),
                node.stack,
                without_value(node.meta),
            )
            for node in graph.nodes
        ]
        return Graph(inputs, tuple(nodes), graph.output)

    def _state(self, state: State) -> State | None:
        cells: dict[int, set[int]] = {}
        for _, slot in state.pairs:
            cells.setdefault(slot.storage, set()).add(slot.cell)
        made: dict[int, Any] = {}
        slots: dict[str, Slot] = {}
        for name, slot in state.pairs:
            value = made[slot.cell] if slot.cell in made else made.setdefault(slot.cell, self._tensor(slot.value))
            if value is not slot.value and len(cells[slot.storage]) > 1:
                return None
            slots[name] = slot if value is slot.value else evolve(slot, value=value)
        return State(state.order, state.slots.update(slots))

    def _tensor(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        sizes, dtype = [self.size(size) for size in value.shape], self.dtype(value.dtype)
        if sizes == list(value.shape) and dtype is value.dtype:
            return value
        part = value.detach()[tuple([slice(size) for size in sizes])].to(dtype).clone(memory_format=torch.contiguous_format)
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(part, requires_grad=value.requires_grad)
        return part.requires_grad_(value.requires_grad)


def mapped(arg: Arg, leaf: Map) -> Any:
    """Return an argument with other literals.

    Args:
        arg: any argument.
        leaf: gives what stands in place of a literal; may return it unchanged.

    >>> mapped((Ref("x"), (1, 2)), lambda literal: literal + 1)
    (Ref(name='x'), (2, 3))
    """
    if type(arg) in CONTAINERS:
        return with_children(arg, [mapped(part, leaf) for part in children_of(arg)])
    return arg if type(arg) in (Ref, Body) else leaf(arg)
