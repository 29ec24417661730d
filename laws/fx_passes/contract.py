"""``Contract``: what a pass over fx graphs may assume of the programs that it is given, and what it claims of itself.

A pass of a compiler is written for graphs of a certain form.  Programs of another form are not drawn for it, and what it does
to them is not held against it; what it claims beyond keeping the meaning is asked of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from attrs import evolve, field, frozen
from attrs.validators import in_

from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import node_effects
from ...ir.graph import Node, Op
from ...ir.program import Program
from ...ir.signature import InputMutation, InputSpec, OutputSpec, StateInput, StateMutation, TensorType, UserInput
from ...ir.state import SlotKind, State
from ...ir.torch_private import device_of
from ..law import Case
from ..tiers import case_with_calls

__all__ = ["ANYTHING", "FUNCTIONAL", "INFERENCE", "POINTWISE", "Contract", "Writes", "lifted"]

Writes = Literal["anywhere", "at the end", "nowhere"]

States = Literal["read", "inputs"]

TRAINS = {"aten.dropout.default": 2, "aten.native_dropout.default": 2, "aten.batch_norm.default": 5}
"""Which argument of an operator says that it trains."""

ALWAYS_TRAINS = frozenset({"aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.default"})


@frozen(kw_only=True)
class Contract:
    """What a pass may assume, and what it claims.

    By default it may assume nothing beyond a valid graph, and claims no more than that the meaning stays.

    >>> Contract(writes="nowhere", random=False).random
    False
    """

    writes: Writes = field(default="anywhere", validator=in_(("anywhere", "at the end", "nowhere")))
    """Where programs may write: ``"at the end"`` allows what compilers call the epilogue, copies of new contents into state and
    inputs after everything else."""
    state: States = field(default="read", validator=in_(("read", "inputs")))
    """How programs come by parameters and buffers: ``"read"`` with ``get_attr``, or as ``"inputs"`` like any others, which is
    how graphs of AOTAutograd have them."""
    random: bool = True
    """Whether programs may draw random numbers."""
    effects: bool = True
    """Whether programs may print, assert, or do anything else whose order is seen."""
    views: bool = True
    """Whether values may share memory: views, tied state, an output that is an input."""
    regions: bool = True
    """Whether operators may be given graphs: branches, loops, gradient modes."""
    dynamic: bool = True
    """Whether sizes may be known only when a program runs."""
    training: bool = True
    """Whether programs may do what only training does: dropout, statistics of a batch."""
    rtol: float = 0.0
    """How far numbers may be from those before, relative to them; by default they are compared bit by bit."""
    atol: float = 0.0
    """How far they may be apart in any case."""
    aliasing: bool = True
    """Whether the pass claims that outputs share memory with inputs, state and one another as before."""
    values: bool = True
    """Whether the pass claims that ``meta["val"]``, where a node has one, is what runs."""
    assertions: bool = True
    """Whether the pass claims that what a program asserts is asserted still, in order; what is printed stays in any case."""

    def broken_by(self, program: Program) -> str:
        """Return what in a program the pass need not reckon with, in words; empty where the program is within the contract.

        Args:
            program: a flat one.

        >>> import torch, purefx as px
        >>> program = px.import_ep(torch.export.export(torch.nn.Dropout(), (torch.ones(2),)))
        >>> ANYTHING.broken_by(program), FUNCTIONAL.broken_by(program), INFERENCE.broken_by(program)
        ('', '', 'it draws random numbers')
        """
        if not self.dynamic and (program.constraints.ranges or program.constraints.guards):
            return "it has sizes that are known only when it runs"
        if not self.regions and len(program.graphs) > 1:
            return "its operators are given graphs"
        if not self.views and _shares_state(program):
            return "state is tied or shares memory"
        return self._broken_by_nodes(program) or self._broken_by_outputs(program)

    def _broken_by_nodes(self, program: Program) -> str:
        for name in program.order:
            graph = program.graphs[name]
            for node, does in zip(graph.nodes, node_effects(program, graph), strict=True):
                if told := self._broken_by_node(node, does):
                    return told
        returns_contents = any(type(spec) in (StateMutation, InputMutation) for spec in program.signature.outputs)
        return WRITES if self.writes == "nowhere" and returns_contents else ""

    def _broken_by_node(self, node: Node, does: NodeEffects) -> str:
        if self.writes != "anywhere" and (does.writes or does.writes_slots):
            return WRITES
        if not self.random and does.random:
            return "it draws random numbers"
        if not self.effects and (does.ordered or does.domains):
            return "it has effects whose order is seen"
        if not isinstance(node.do, Op):
            return ""
        if not self.views and (does.aliases or does.aliases_slots) and node.do.name != "operator.getitem":
            return "values share memory"
        if not self.training and _trains(node, node.do.name):
            return "it trains"
        return ""

    def _broken_by_outputs(self, program: Program) -> str:
        if self.views:
            return ""
        given = list(program.main.output_refs())
        formals = {formal.name for formal in program.main.inputs}
        twice = len(set(given)) != len(given) or not formals.isdisjoint(given)
        return "an output is an input or another output" if twice else ""

    @property
    def barred(self) -> frozenset[str]:
        """What is not drawn, so that most programs are within the contract."""
        names = ("random", "effects", "regions", "training", "views", "dynamic")
        writes = {"anywhere": (), "at the end": ("writes",), "nowhere": ("writes", "new contents")}[self.writes]
        return frozenset([*writes, *[name for name in names if not getattr(self, name)]])

    def without(self, *claims: str) -> Contract:
        """Return the contract without some of its claims: ``"aliasing"``, ``"values"``, ``"assertions"``.

        >>> ANYTHING.without("aliasing").aliasing
        False
        """
        return evolve(self, **dict.fromkeys(claims, False))


WRITES = "it writes"


def _trains(node: Node, name: str) -> bool:
    place = TRAINS.get(name)
    return name in ALWAYS_TRAINS or (place is not None and node.args[place : place + 1] == (True,))


def _shares_state(program: Program) -> bool:
    slots = [slot for _, slot in program.state.pairs]
    return len({slot.storage for slot in slots}) != len(slots)


ANYTHING = Contract()
"""Any valid graph: what a pass must be ready for that says nothing of what it needs."""

FUNCTIONAL = Contract(writes="at the end", state="inputs", effects=False, aliasing=False)
"""What compilers of torch give their passes: functional graphs of inputs alone, with the copies of mutated ones at the end.
Callers restore aliases of outputs."""

INFERENCE = Contract(writes="at the end", state="inputs", aliasing=False, random=False, training=False, effects=False)
"""Functional graphs for inference."""

POINTWISE = Contract(
    writes="nowhere", aliasing=False, random=False, training=False, effects=False, views=False, regions=False, dynamic=False
)
"""The least: graphs of operators that compute, of fixed sizes, and nothing else."""


# -- state as inputs -------------------------------------------------------------------------------------------------------------


def lifted(case: Case) -> Case | None:
    """Return a case whose state is inputs like any others; None where that is none of plain tensors, each in its own memory.

    Every call is given the state as it is at first; what the program writes to it is written to those inputs.

    Args:
        case: of a flat program that takes its state as inputs.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),)))
    >>> found = lifted(case_with_calls(program, [(torch.ones(1, 2),)]))
    >>> [leaf.shape for leaf in found.calls[0]], len(found.program.state)
    ([torch.Size([1, 2]), torch.Size([1]), torch.Size([1, 2])], 0)
    """
    program = case.program
    if not program.state or not _is_plain(program):
        return case if not program.state else None
    places = {spec.slot: number for number, spec in enumerate(program.signature.inputs) if type(spec) is StateInput}
    wrote = [spec.slot for spec in program.signature.outputs if type(spec) is StateMutation]
    if not places.keys() >= set(wrote):
        return None
    signature = evolve(
        program.signature,
        inputs=tuple([_input(program, spec) for spec in program.signature.inputs]),
        outputs=tuple([_output(places, spec) for spec in program.signature.outputs]),
        in_spec=None,
        out_spec=None,
        arg_names=(),
    )
    made = program.evolve(signature=signature, state=State())
    return evolve(
        case_with_calls(made, [_leaves(program, leaves) for leaves in case.calls], seed=case.seed), tolerance=case.tolerance
    )


def _is_plain(program: Program) -> bool:
    slots = [slot for _, slot in program.state.pairs]
    tensors = all(isinstance(slot.value, torch.Tensor) and slot.kind is not SlotKind.MODULE for slot in slots)
    return tensors and len({slot.storage for slot in slots}) == len(slots) and len(program.graphs) >= 1


def _input(program: Program, spec: InputSpec) -> InputSpec:
    if type(spec) is not StateInput:
        return spec
    value = program.state[spec.slot].value
    return UserInput(TensorType(value.dtype, tuple(value.shape), str(device_of(value))), spec.slot)


def _output(places: dict[str, int], spec: OutputSpec) -> OutputSpec:
    return InputMutation(places[spec.slot]) if type(spec) is StateMutation else spec


def _leaves(program: Program, leaves: Sequence[Any]) -> list[Any]:
    rest = iter(leaves)
    specs = program.signature.inputs
    return [program.state[spec.slot].value.detach() if type(spec) is StateInput else next(rest) for spec in specs]
