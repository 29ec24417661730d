"""``fold_constants``: run operators on constants, and store their results as constants.

Nodes whose operands are all known run in order, on the tensors of the state.  Results with other users become constants of the
program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from attrs import Factory, define

from ...ir.analysis.numbers import computed_of
from ...ir.arguments import Arg, Ref, thawed
from ...ir.calls.call_graph import all_instances
from ...ir.effects.resolved import program_effects, written_slots
from ...ir.graph import Get, Graph, Node, Op
from ...ir.importing.constants import with_constants
from ...ir.inference import as_tuple, values_of
from ...ir.meta import ORIGIN, Meta
from ...ir.names import join
from ...ir.origins import made_of
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.signature import StateGradient, StateInput
from ...ir.state import Slot, SlotKind, describe_tensor, is_plain, lazy_bits
from ...ir.torch_private import OpOverload, device_of
from ..cleanup import infer
from ..memory import Memory, computes
from ..transformation import UNLIMITED, Fuel, transformation

LIMIT = 1 << 20

RUN = frozenset({"aten", "prims"})
"""The libraries whose operators are run; others may read more than their schema names."""

UNDEFINED = ("empty", "new_empty", "_empty")
"""Parts of the names of operators whose results have undefined contents."""


@transformation(
    proven=True,
    forgets={"deduplicated", "state as inputs"},
    laws=[
        "results of operators on constants are constants",
        "existing state is unchanged",
        "only nodes with constant operands are removed",
    ],
)
def fold_constants(
    program: Program, *, limit: int = LIMIT, parameters: bool = False, fuel: Fuel = UNLIMITED
) -> Program:
    """Compute the values that depend on constants only, and store them as constants.

    Before::

        s = get scale                           # a buffer that nothing writes
        t = aten.exp.default(s)
        y = aten.mul.Tensor(x, t)

    After::

        y_constant = get _constant0             # exp of the buffer
        y = aten.mul.Tensor(x, y_constant)

    The contents of constants and buffers are known if no node writes them and no result is or aliases them; so are results of
    operators on literals (``zeros``, ``arange``).  Folding assumes that they are not written or loaded later, in the lowered
    module or in a tensor that it shares: load first, then fold.  Parameters are trained and loaded, so they are folded only with
    ``parameters=True``.  Operators of torch run on the CPU, without gradients, if they are pure and deterministic.  Values that
    are written, returned, large, or views of state are not folded.  In a body that several modules share, only a tensor that is
    the same in all of them is known: call ``expand`` first to fold the rest.

    Args:
        program: a program at any stage, with the contents of its state.
        limit: the maximum number of bytes of a result.
        parameters: whether parameters are constants, too. It assumes that they are not trained, loaded or written later; those
            that the program returns, aliases or returns gradients of are computed as before.
        fuel: a rewrite is one node that becomes a constant; bodies before their callers, the last first.

    Returns:
        The program with constants in its state, which ``state_dict`` does not contain.  They are reads, even in a flat program
        that takes its state as inputs; ``lift_state`` turns them into inputs.

    >>> import torch, purefx as px
    >>> class Scaled(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x * torch.arange(3.0).exp()
    >>> program = px.import_ep(torch.export.export(Scaled(), (torch.ones(3),)))
    >>> folded = px.fold_constants(program)
    >>> [str(node).split()[2] for node in folded.main.nodes], folded.state["_constant0"].value
    (['get', 'aten.mul.Tensor(x,'], tensor([1.0000, 2.7183, 7.3891]))
    """
    effects = program_effects(program)
    known = _Known(program, parameters=parameters)
    typed = infer(program)  # for the sizes of results before they are computed
    graphs, origins = dict[str, Graph](), dict[int, Meta]()
    for name in program.bottom_up:
        memory, inferred = Memory(program, name, effects[name]), values_of(typed.graphs[name])
        folding = _Folding(
            program, name, program.graphs[name], memory, known, inferred, limit, fuel
        )
        graphs[name] = folding.run()
        origins |= folding.origins
    return with_constants(program.with_graphs(graphs), origins=origins)


class _Known:
    """The constant state."""

    def __init__(self, program: Program, *, parameters: bool) -> None:
        self.program = program
        self.places = all_instances(program)
        self.passed = {body for _, node in program.nodes() for body in node.bodies}
        self.kinds = {
            SlotKind.BUFFER,
            SlotKind.CONSTANT,
            *([SlotKind.PARAMETER] if parameters else []),
        }
        self.unknown = self._unknown()

    def _unknown(self) -> set[int]:
        # Storages that a node may write, that the caller may write because they are returned, or that are loaded.
        state, gradients = (
            self.program.state,
            [spec for spec in self.program.signature.outputs if type(spec) is StateGradient],
        )
        slots = [*written_slots(self.program, or_returned=True), *[spec.slot for spec in gradients]]
        found = {state[slot].storage for slot in slots if slot in state}
        found |= {
            slot.storage for _, slot in state.pairs if slot.kind not in self.kinds
        }  # trained under another name
        return found.union(*state.entangled)

    def read(self, graph: str, slot: str) -> Any:
        """Return the value of a read, if it is constant and the same in all calls of its graph; None otherwise."""
        state = self.program.state
        found = {
            state[name].cell: state[name]
            for place in self.places[graph]
            if (name := join(place, slot)) in state
        }
        return self._value(found.popitem()[1]) if len(found) == 1 else None

    def input(self, slot: str) -> Any:
        """Return the value of an input of the root, if it is constant; None otherwise."""
        return self._value(self.program.state[slot])

    def _value(self, slot: Slot) -> Any:
        value = slot.value
        fits = slot.kind in self.kinds and slot.storage not in self.unknown and _has_contents(value)
        return value.detach() if fits else None


def _has_contents(value: Any) -> bool:
    return is_plain(value) and value.device.type == "cpu" and not lazy_bits(value)


@define
class _Folding:
    """Folds one graph."""

    program: Program
    name: str
    graph: Graph
    memory: Memory
    known: _Known
    inferred: Mapping[str, Any]
    limit: int
    fuel: Fuel
    values: dict[str, Any] = Factory(dict)
    """The known tensors, by name."""
    origins: dict[int, Meta] = Factory(dict)
    """The origin of each new constant, by the ``id`` of its tensor."""

    def run(self) -> Graph:
        """Return the graph with tensors instead of values computed from constants; the same object if it has none."""
        if self.name in self.known.passed and not self.graph.reads:
            return self.graph  # state is an operand of such a body
        if self.name == self.program.root:
            for formal, spec in self.program.inputs:
                self._keep(
                    formal.name, self.known.input(spec.slot) if type(spec) is StateInput else None
                )
        for node in self.graph.nodes:
            self._keep(node.name, self._value(node))
        return self._folded()

    def _keep(self, name: str, value: Any) -> None:
        if value is not None:
            self.values[name] = value

    def _value(self, node: Node) -> Any:
        do = node.do
        if type(do) is Get:
            return self.known.read(self.name, do.slot)
        known = all(name in self.values for name in node.refs())
        if type(do) is not Op or not known or not self._is_sure(node, do):
            return None
        return _result(node, do, self.values, self.inferred.get(node.name))

    def _is_sure(self, node: Node, do: Op) -> bool:
        # Whether it is pure and deterministic, and its result is small.
        if (
            not computes(self.memory.effects[node.name])
            or self.memory.is_written(node.name)
            or is_boundary(node)
        ):
            return False
        if node.projection is not None:
            return True
        target: Any = do.target
        if not isinstance(target, OpOverload) or target.namespace not in RUN:
            return False
        name = target.name().partition("::")[2]
        tagged = {
            torch.Tag.nondeterministic_seeded,
            torch.Tag.nondeterministic_bitwise,
            torch.Tag.data_dependent_output,
        }
        parts = as_tuple(self.inferred.get(node.name))
        small = all(isinstance(part, torch.Tensor) and _bytes(part) <= self.limit for part in parts)
        return small and not name.startswith(UNDEFINED) and tagged.isdisjoint(target.tags)

    def _folded(self) -> Graph:
        edit, gone = Rewriter(self.graph), set[str]()
        outputs = set(self.graph.output_refs())
        users = self.graph.users
        for node in reversed(self.graph.nodes):
            if node.name not in self.values or (
                node.name not in users and node.name not in outputs
            ):
                continue
            if gone.issuperset(users.get(node.name, ())) and node.name not in outputs:
                edit.erase(node.name)
                gone.add(node.name)
            elif self._becomes_constant(node) and self.fuel.burn(
                "fold", node.name, graph=self.name
            ):
                value = self.values[node.name]
                edit.drop(node.name, value)
                if ORIGIN in node.meta:
                    of = computed_of([node.name], self.graph.by_name)
                    self.origins[id(value)] = made_of([self.graph.metas[name] for name in of])
                gone.add(node.name)
        return edit.graph() if gone else self.graph

    def _becomes_constant(self, node: Node) -> bool:
        value = self.values[node.name]
        if (
            type(node.do) is Get
            or not isinstance(value, torch.Tensor)
            or node.name in self.memory.given
        ):
            return False
        named = any(is_boundary(self.graph.by_name[user]) for user in self.graph.users[node.name])
        return (
            not (named or self.memory.is_outside(node.name))
            and value.untyped_storage().nbytes() <= self.limit
        )


def _bytes(inferred: torch.Tensor) -> float:
    sizes = list(inferred.shape)
    if not all(type(size) is int for size in sizes) or device_of(inferred).type != "cpu":
        return float("inf")
    return math.prod(sizes) * inferred.element_size()


def _result(node: Node, do: Op, values: Mapping[str, Any], inferred: Any) -> Any:
    # The result of the operator, if it has the inferred type.
    def known(ref: Any) -> Arg:
        return values[ref.name] if type(ref) is Ref else ref

    args, kwargs = (
        thawed(node.args, known),
        {key: thawed(value, known) for key, value in node.kwargs},
    )
    assert do.target is not None
    try:
        with torch.no_grad():
            found = do.target(*args, **kwargs)
    except Exception:  # noqa: BLE001  it also raises when the program runs
        return None
    if node.projection is not None:
        return found
    mine, theirs = as_tuple(found), as_tuple(inferred)
    fits = len(mine) == len(theirs) and all(map(_has_contents, mine))
    same = fits and all(
        describe_tensor(one)[1:5] == describe_tensor(other)[1:5]
        for one, other in zip(mine, theirs, strict=True)
    )
    return found if same else None
