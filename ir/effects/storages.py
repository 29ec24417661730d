"""Which values of a graph may share memory.

One idea: aliases are followed from state, inputs and fresh results, and what may overlap is one storage.
"""

from __future__ import annotations

from ..graph import Graph
from ..program import Program
from ..signature import StateInput
from .aliasing import join_aliases
from .resolved import Happening
from .unions import Unions

__all__ = ["slot_storage", "storages"]


def storages(program: Program, graph: Graph, done: list[Happening]) -> Unions:
    """Return which values of a graph may share memory.

    Args:
        program: its state says which slots are one storage; its signature which root inputs are state.
        graph: the graph.
        done: what ``happenings`` says of it.
    """
    found = Unions()
    if graph is program.main:
        for formal, spec in zip(graph.inputs, program.signature.inputs, strict=False):
            if type(spec) is StateInput:
                found.join(formal.name, slot_storage(program, spec.slot))
    for module, other in program.state.entangled:
        found.join(("storage", module), ("storage", other))
    join_aliases(found, graph, done, lambda slot: slot_storage(program, slot))
    return found


def slot_storage(program: Program, slot: str) -> tuple[str, object]:
    """Return the key under which ``Unions`` knows the memory of a slot."""
    found = program.state.slots.get(slot)
    return ("storage", found.storage if found is not None else slot)
