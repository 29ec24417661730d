"""``import_ep``: an ``ExportedProgram`` becomes a ``Program``.

One idea: the pieces (graphs, state, signature, constraints, modules) are read one by one and checked together at the
end.  The exported program stays as it was; its tensors are shared.
"""

from __future__ import annotations

from torch.export import ExportedProgram

from ..collector import collector_paused
from ..node import Frame
from ..persistent import pmap
from ..program import CallSignature, Module, Program
from ..verify import check
from .constraints import read_constraints
from .nodes import GraphReader
from .signature import read_signature
from .state import read_state

__all__ = ["import_ep"]


def import_ep(ep: ExportedProgram) -> Program:
    """Import an exported program as an immutable value.

    Args:
        ep: what ``torch.export.export`` returned, before or after ``run_decompositions``; it is not changed, and its
            tensors are shared, not copied.

    Returns:
        A flat program: one root graph that takes state and user inputs, plus the bodies of higher-order operators.

    Raises:
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
        return check(_read(ep))


def _read(ep: ExportedProgram) -> Program:
    reader = GraphReader()
    reader.read(ep.graph_module)
    root = reader.graphs[""]
    types = reader.stacks.types
    paths = dict.fromkeys(entry.fqn.partition("@")[0] for entry in ep.module_call_graph)
    paths.update(dict.fromkeys(types))
    paths.setdefault("")
    return Program(
        graphs=pmap(reader.graphs),
        state=read_state(ep),
        signature=read_signature(ep, root),
        modules=tuple(Module(path, types.get(path)) for path in paths),
        call_signatures=pmap(_call_signatures(ep)),
        constraints=read_constraints(ep),
        facts=frozenset({"flat", "state as inputs"}),
    )


def _call_signatures(ep: ExportedProgram) -> dict[Frame, CallSignature]:
    found: dict[Frame, CallSignature] = {}
    for entry in ep.module_call_graph[1:]:
        signature = entry.signature
        if signature is not None:
            path, _, call = entry.fqn.partition("@")
            found[Frame(path, int(call or 0))] = CallSignature(
                tuple(signature.inputs),
                tuple(signature.outputs),
                signature.in_spec,
                signature.out_spec,
                tuple(signature.forward_arg_names or ()),
            )
    return found
