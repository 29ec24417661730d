"""``import_fx``: any ``torch.fx.GraphModule`` becomes a ``Program``.

One idea: the graph is the program, whoever traced it.  What a node does is asked of its operator and taken to be anything
where nothing is known; what the module holds becomes state.  The module stays as it was; its tensors are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
from attrs import evolve

from ..collector import collector_paused
from ..constants import with_constants
from ..effects.declared import Effects
from ..node import Call
from ..operators import Said, said_of
from ..persistent import pmap
from ..program import Program
from ..verify import check
from .examples import example_values
from .replayed import unrolled, with_reads_in_place
from .traced import TracedReader
from .traced_signature import read_traced_signature

__all__ = ["import_fx"]


def import_fx(
    graph_module: torch.fx.GraphModule,
    *,
    example_inputs: tuple[Any, ...] | Mapping[str, Any] | None = None,
    effects: Mapping[Callable[..., Any], Effects] | None = None,
) -> Program:
    """Import any fx graph module as an immutable value.

    Args:
        graph_module: from ``torch.fx.symbolic_trace``, ``make_fx``, Dynamo, ``ep.module()``, or made by hand; it is not changed,
            and its tensors are shared, not copied.  The graph counts: one that was edited need not be recompiled.
        example_inputs: arguments of one call.  With them the nodes get fake values where the tracer left none, so that methods
            of tensors are known operators and not anything.  They restrict nothing: other inputs may be passed.
        effects: what functions and operators of other libraries do, as ``declare`` takes it, for this import alone.

    Returns:
        A program with the graph as its root.  Graph modules that are called become bodies, other modules stay as they are and
        are called; every attribute is state.

    Raises:
        EffectsError: an operator is said to do less than its schema says.
        InvalidProgram: a name that no graph can have, or the graph is nonsense; all of it is listed.
        UnsupportedProgram: something that can not be represented faithfully; the message names it.
        InputValueError: the graph does not run on the example.
        TypeError: it is no GraphModule.

    >>> import torch, purefx as px
    >>> class Twice(torch.nn.Module):
    ...     def forward(self, x, scale=2):
    ...         return {"y": torch.relu(x) * scale}
    >>> program = px.import_fx(torch.fx.symbolic_trace(Twice()))
    >>> [node.do.name for node in program.main.nodes], px.lower(program)(torch.ones(2))
    (['torch.relu', 'operator.mul'], {'y': tensor([2., 2.])})
    """
    if not isinstance(graph_module, torch.fx.GraphModule):
        said = "trace it first, with torch.fx.symbolic_trace or make_fx; import_ep takes exported programs"
        raise TypeError(f"import_fx takes a torch.fx.GraphModule, not a {type(graph_module).__name__}; {said}")
    with collector_paused():
        module, out_spec = unrolled(graph_module)
    values = {} if example_inputs is None else example_values(module, example_inputs)
    with collector_paused():
        program = _read(module, out_spec, values, said_of(effects))
        return check(program if module is graph_module else with_reads_in_place(program))


def _read(module: torch.fx.GraphModule, out_spec: Any, values: Mapping[Any, Any], said: Said) -> Program:
    reader = TracedReader(module, values, said)
    reader.read()
    root = reader.graphs[""]
    signature, leaves = read_traced_signature(module, root.output, out_spec)
    reader.graphs[""] = evolve(root, output=leaves)
    called = any(type(node.do) is Call for graph in reader.graphs.values() for node in graph.nodes)
    program = Program(
        graphs=pmap(reader.graphs),
        state=reader.attributes.state(),
        signature=signature,
        modules=reader.attributes.hierarchy(reader.stacks.types),
        facts=frozenset({"state sunk"} if called else {"flat", "state sunk"}),
    )
    return with_constants(program)
