"""``import_ep``: an ``ExportedProgram`` becomes a ``Program``.

One idea: the pieces (graphs, state, signature, constraints, modules) are read one by one and checked together at the
end.  The exported program stays as it was; its tensors are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.export import ExportedProgram

from ..collector import collector_paused
from ..effects.declared import Effects
from ..identifiers import check_identifiers
from ..operators import Said, said_of
from ..paths import way_to
from ..persistent import pmap
from ..program import Module, Program
from ..verify import check
from .borders import check_paths, frame_of, read_call_signatures, with_borders
from .constraints import read_constraints
from .joint import read_provenance, with_backward_calls
from .nodes import GraphReader
from .signature import read_signature
from .state import read_state

__all__ = ["import_ep"]


def import_ep(
    ep: ExportedProgram,
    *,
    forward: ExportedProgram | None = None,
    effects: Mapping[Callable[..., Any], Effects] | None = None,
) -> Program:
    """Import an exported program as an immutable value.

    Args:
        ep: what ``torch.export.export`` returned, before or after ``run_decompositions``; it is not changed, and its
            tensors are shared, not copied.
        forward: where ``ep`` is a joint forward and backward program, the exported program that it was made from: torch
            drops the module stacks when it makes the joint graph, so without it everything stays in the root.
        effects: what operators of other libraries do, as ``declare`` takes it, for this import alone: ``{op: px.PURE}``.

    Returns:
        A flat program: one root graph that takes state and user inputs, plus the bodies of higher-order operators.  A joint
        one gives back what its graph gives, in a flat tuple: the results of ``forward`` with the loss among them, then the
        gradients to parameters and user inputs.  The gradient of a module call is a further call of that module.

    Raises:
        EffectsError: an operator is said to do less than its schema says.
        InvalidProgram: its graph and signature disagree, or something in it is nonsense; all of it is listed.
        UnsupportedProgram: it has something that can not be represented faithfully; the message names it.
        TypeError: ``ep`` is not an exported program.

    >>> import torch, purefx as px
    >>> class Twice(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x + x
    >>> program = px.import_ep(torch.export.export(Twice(), (torch.ones(2),)))
    >>> [node.do.name for node in program.main.nodes]
    ['aten.add.Tensor']
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"import_ep takes a torch.export.ExportedProgram, not a {type(ep).__name__}")
    with collector_paused():
        return check_identifiers(check(_read(ep, forward, said_of(effects))))


def _read(ep: ExportedProgram, forward: ExportedProgram | None, said: Said) -> Program:
    paths = dict.fromkeys(frame_of(entry.fqn).path for entry in ep.module_call_graph)
    known = ep.graph_signature
    reader = GraphReader(paths, {**known.inputs_to_parameters, **known.inputs_to_buffers})
    reader.said = said
    provenance = read_provenance(ep, forward)
    reader.placed = provenance.stacks
    reader.read(ep.graph_module)
    state = read_state(ep)
    signatures, records = read_call_signatures(ep.module_call_graph)
    flat = with_backward_calls(reader.graphs[""], provenance.backward)
    root = reader.graphs[""] = with_borders(flat, records, reader.renamed)
    types = reader.stacks.types
    for path in [path for path in types if path not in paths]:
        # A module that no module of the hierarchy holds: it stays a call, at the path that the exporter gives.
        paths.update(dict.fromkeys(way_to(path)))
    paths.setdefault("")
    check_paths([*paths, *(name.rpartition(".")[0] for name in state.order)])
    cells = reader.stacks.cells(paths)
    return Program(
        graphs=pmap(reader.graphs),
        state=state,
        signature=read_signature(ep, root),
        modules=tuple(Module(path, types.get(path), cells.get(path)) for path in paths),
        call_signatures=pmap(signatures),
        constraints=read_constraints(ep),
        facts=frozenset({"flat", "state as inputs"}),
    )
