"""Importing leaves the exported program byte for byte as it was, and copies no tensor."""

from __future__ import annotations

from typing import Any

import torch

import purefx as px
from tests.programs import Shared, exported


def snapshot(ep: torch.export.ExportedProgram) -> tuple[object, ...]:
    """Return everything of an exported program that a reader could change."""
    nodes = [
        (
            node.op,
            node.name,
            str(node.target),
            str(node.args),
            str(node.kwargs),
            sorted(node.meta),
            str(node.meta.get("nn_module_stack")),
        )
        for module in ep.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    ]
    held: dict[str, Any] = {**ep.state_dict, **ep.constants}
    state = [(name, id(value), value.data_ptr(), value.tolist()) for name, value in held.items()]
    return nodes, state, str(ep.graph_signature), str(ep.module_call_graph), str(ep.range_constraints), ep.graph_module.code


def test_the_exported_program_is_not_changed() -> None:
    """Import, transform, lower and run: the exported program does not notice."""
    for decomposed in (False, True):
        ep = exported(Shared(), torch.ones(3, 4), decomposed=decomposed)
        before = snapshot(ep)
        px.lower(px.transform(px.import_ep(ep)))(torch.ones(3, 4))
        assert snapshot(ep) == before


def test_tensors_are_shared() -> None:
    """The program shows the very tensors of the exported program."""
    ep = exported(Shared(), torch.ones(3, 4))
    program = px.import_ep(ep)
    for name in program.state:
        assert program.state[name].value is {**ep.constants, **ep.state_dict}[name]


def test_importing_twice_gives_equal_programs() -> None:
    """Import is a function of its argument."""
    ep = exported(Shared(), torch.ones(3, 4))
    assert px.import_ep(ep) == px.import_ep(ep)
    assert px.digest(px.import_ep(ep)) == px.digest(px.import_ep(ep))
