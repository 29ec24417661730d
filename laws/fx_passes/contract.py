"""``Contract``: the assumptions of a pass over fx graphs about its argument, and its claims.

A compiler pass is written for graphs of a certain form.  It is not tested on programs of another form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from attrs import evolve, field, frozen
from attrs.validators import in_

from ...ir.effects.resolved import node_effects
from ...ir.importing.constraints import tensor_type
from ...ir.program import Program
from ...ir.signature import InputMutation, StateInput, StateMutation, UserInput
from ...ir.state import State
from ..law import Case

Writes = Literal["anywhere", "at the end", "nowhere"]

States = Literal["read", "inputs"]

TRAINS = {"aten.dropout.default": 2, "aten.native_dropout.default": 2, "aten.batch_norm.default": 5}
"""The position of the argument that is true in training."""

ALWAYS_TRAINS = frozenset(
    {"aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.default"}
)


@frozen(kw_only=True)
class Contract:
    """The assumptions and claims of a pass.

    By default it assumes only a valid graph, and claims to keep the meaning.

    >>> Contract(writes="nowhere", random=False).random
    False
    """

    writes: Writes = field(default="anywhere", validator=in_(("anywhere", "at the end", "nowhere")))
    """Where programs may write: ``"at the end"`` allows the epilogue of compilers, copies of new contents into state and inputs
    after everything else."""
    state: States = field(default="read", validator=in_(("read", "inputs")))
    """How programs get parameters and buffers: ``"read"`` with ``get_attr``, or as ``"inputs"``, as in graphs of AOTAutograd."""
    random: bool = True
    """Whether programs may draw random numbers."""
    effects: bool = True
    """Whether programs may print, assert, or have other ordered effects."""
    views: bool = True
    """Whether values may share memory: views, tied state, an output that is an input."""
    regions: bool = True
    """Whether operators may have bodies: branches, loops, gradient modes."""
    dynamic: bool = True
    """Whether sizes may be symbolic."""
    training: bool = True
    """Whether programs may contain training mode: dropout, batch statistics."""
    rtol: float = 0.0
    """Relative tolerance of numbers; by default they are compared bit by bit."""
    atol: float = 0.0
    """Absolute tolerance of numbers."""
    aliasing: bool = True
    """Whether the pass claims to keep the aliasing among outputs, inputs and state."""
    values: bool = True
    """Whether the pass claims that any ``meta["val"]`` of a node is right."""
    assertions: bool = True
    """Whether the pass claims to keep assertions in order; prints must always be kept."""

    def broken_by(self, program: Program) -> str:
        """Return the reason why a program is outside the contract; empty for a program within it.

        Args:
            program: a flat program.

        >>> import torch, purefx as px
        >>> program = px.import_ep(torch.export.export(torch.nn.Dropout(), (torch.ones(2),)))
        >>> ANYTHING.broken_by(program), FUNCTIONAL.broken_by(program), INFERENCE.broken_by(program)
        ('', '', 'it draws random numbers')
        """
        return next((reason for reason, holds in self._conditions(program) if holds), "")

    def _conditions(self, program: Program) -> Iterator[tuple[str, object]]:
        outputs, formals = (
            list(program.main.output_refs()),
            set(program.main.input_names),
        )
        kinds = [type(spec) for spec in program.signature.outputs]
        yield (
            "it has symbolic sizes",
            not self.dynamic and (program.constraints.ranges or program.constraints.guards),
        )
        yield "its operators have bodies", not self.regions and len(program.graphs) > 1
        yield "state is tied or shares memory", not self.views and _shares_state(program)
        repeated = len(set(outputs)) != len(outputs) or not formals.isdisjoint(outputs)
        yield "an output is an input or another output", not self.views and repeated
        yield (
            WRITES,
            self.writes == "nowhere" and (StateMutation in kinds or InputMutation in kinds),
        )
        for graph in map(program.graphs.__getitem__, program.order):
            for node, effects in zip(graph.nodes, node_effects(program, graph), strict=True):
                name = node.op_name
                place = TRAINS.get(name, len(node.args))
                trains = name in ALWAYS_TRAINS or node.args[place : place + 1] == (True,)
                is_view = name not in ("", "operator.getitem") and (
                    effects.aliases or effects.aliases_slots
                )
                yield WRITES, self.writes != "anywhere" and (effects.writes or effects.writes_slots)
                yield "it draws random numbers", not self.random and effects.random
                yield (
                    "it has ordered effects",
                    not self.effects and (effects.ordered or effects.domains),
                )
                yield "values share memory", not self.views and is_view
                yield "it trains", not self.training and trains

    @property
    def barred(self) -> frozenset[str]:
        """The features that generated programs omit, so that most are within the contract."""
        names = ("random", "effects", "regions", "training", "views", "dynamic")
        writes = {"anywhere": (), "at the end": ("writes",), "nowhere": ("writes", "new contents")}[
            self.writes
        ]
        return frozenset([*writes, *[name for name in names if not getattr(self, name)]])

    def admitted(self, case: Case | None) -> Case | None:
        """Return a case, with its state as inputs if the contract requires it; None outside the contract."""
        if case is None or self.broken_by(case.program):
            return None
        found = lifted(case) if self.state == "inputs" else case
        return found and evolve(found, common_state=True)

    def without(self, *claims: str) -> Contract:
        """Return the contract without some of its claims: ``"aliasing"``, ``"values"``, ``"assertions"``.

        >>> ANYTHING.without("aliasing").aliasing
        False
        """
        return evolve(self, **dict.fromkeys(claims, False))


WRITES = "it writes"


def _shares_state(program: Program) -> bool:
    slots = [slot for _, slot in program.state.pairs]
    return len({slot.storage for slot in slots}) != len(slots)


ANYTHING = Contract()
"""Any valid graph: for passes without assumptions."""

FUNCTIONAL = Contract(writes="at the end", state="inputs", effects=False, aliasing=False)
"""The graphs that compilers of torch pass to their passes: functional, state as inputs, copies into mutated inputs at the end.
Callers restore aliases of outputs."""

INFERENCE = Contract(
    writes="at the end", state="inputs", aliasing=False, random=False, training=False, effects=False
)
"""Functional graphs for inference."""

POINTWISE = Contract(
    writes="nowhere",
    aliasing=False,
    random=False,
    training=False,
    effects=False,
    views=False,
    regions=False,
    dynamic=False,
)
"""The simplest graphs: pure operators on fixed sizes."""


# -- state as inputs -------------------------------------------------------------------------------------------------------------


def lifted(case: Case) -> Case | None:
    """Convert the state of a case to user inputs; return None unless the state is plain tensors with separate memory.

    Every call gets the initial state; writes to it become writes to those inputs.

    Args:
        case: a case of a flat program with its state as inputs.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),)))
    >>> found = lifted(Case(program, calls=[(torch.ones(1, 2),)]))
    >>> [leaf.shape for leaf in found.calls[0]], len(found.program.state)
    ([torch.Size([1, 2]), torch.Size([1]), torch.Size([1, 2])], 0)
    """
    program, slots = case.program, dict(case.program.state.pairs)
    if not slots:
        return case
    specs = program.signature.inputs
    places = {spec.slot: number for number, spec in enumerate(specs) if type(spec) is StateInput}
    wrote = [spec.slot for spec in program.signature.outputs if type(spec) is StateMutation]
    all_tensors = all(isinstance(slot.value, torch.Tensor) for slot in slots.values())
    if not all_tensors or _shares_state(program) or not places.keys() >= set(wrote):
        return None
    values = {name: slot.value.detach() for name, slot in slots.items()}
    inputs = [
        UserInput(tensor_type(values[spec.slot]), spec.slot) if type(spec) is StateInput else spec
        for spec in specs
    ]
    outputs = [
        InputMutation(places[spec.slot]) if type(spec) is StateMutation else spec
        for spec in program.signature.outputs
    ]
    signature = evolve(
        program.signature,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        in_spec=None,
        out_spec=None,
        arg_names=(),
    )
    calls = []
    for leaves in case.calls:
        rest = iter(leaves)
        calls.append(
            [values[spec.slot] if type(spec) is StateInput else next(rest) for spec in specs]
        )
    return evolve(case, program=program.evolve(signature=signature, state=State()), calls=calls)
