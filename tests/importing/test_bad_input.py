"""Exported programs that were broken after export: one typed error that says everything, and the program is as it was.

One idea: each test does to ``ep`` what a pass with a mistake would do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx

import purefx as px
from tests.programs import Tower, exported

Ep = torch.export.ExportedProgram


def first_call(ep: Ep) -> torch.fx.Node:
    """Return the first operator of the graph."""
    return next(node for node in ep.graph.nodes if node.op == "call_function")


def drop_input_spec(ep: Ep) -> None:
    """Forget an input in the signature."""
    ep.graph_signature.input_specs.pop()


def drop_output_spec(ep: Ep) -> None:
    """Forget an output in the signature."""
    ep.graph_signature.output_specs.pop()


def drop_state(ep: Ep) -> None:
    """Lose a parameter."""
    del ep.state_dict["layers.0.up.weight"]


def reshape_state(ep: Ep) -> None:
    """Replace a parameter by one of another shape."""
    ep.state_dict["layers.0.up.weight"] = torch.nn.Parameter(torch.ones(2, 2))


def late_reference(ep: Ep) -> None:
    """Move a node behind its user."""
    nodes = [node for node in ep.graph.nodes if node.op == "call_function"]
    nodes[-1].append(nodes[0])


def nonsense_stack(ep: Ep) -> None:
    """Write a list where the module stack is."""
    first_call(ep).meta["nn_module_stack"] = ["layers.0"]


def nonsense_value(ep: Ep) -> None:
    """Write a function where the fake value is."""
    first_call(ep).meta["val"] = print


def nonsense_trace(ep: Ep) -> None:
    """Write a number where the stack trace is."""
    first_call(ep).meta["stack_trace"] = 12


BROKEN: list[tuple[Callable[[Ep], None], str]] = [
    (drop_input_spec, "signature-inputs"),
    (drop_output_spec, "signature-outputs"),
    (drop_state, "signature-slots"),
    (reshape_state, "state-geometry"),
    (late_reference, "earlier-values"),
    (nonsense_stack, "meta"),
    (nonsense_value, "meta"),
    (nonsense_trace, "meta"),
]


@pytest.mark.parametrize(("breaks", "rule"), BROKEN, ids=[breaks.__name__ for breaks, _ in BROKEN])
def test_broken_programs_are_refused_with_their_rule(breaks: Callable[[Ep], None], rule: str) -> None:
    """InvalidProgram, which is a ValueError, naming the rule; nothing is half imported."""
    ep = exported(Tower(1), torch.ones(1, 4))
    breaks(ep)
    with pytest.raises(ValueError, match=rule) as caught:
        px.import_ep(ep)
    assert isinstance(caught.value, px.InvalidProgram)
    assert rule in {violation.rule for violation in caught.value.violations}


def test_two_mistakes_are_told_at_once() -> None:
    """All violations come in one error."""
    ep = exported(Tower(1), torch.ones(1, 4))
    nonsense_value(ep)
    late_reference(ep)
    with pytest.raises(px.InvalidProgram) as caught:
        px.import_ep(ep)
    assert {"meta", "earlier-values"} <= {violation.rule for violation in caught.value.violations}


def test_what_is_not_supported_is_named() -> None:
    """A call_module in an exported graph, an argument of an unknown type: UnsupportedProgram with the node."""
    ep = exported(Tower(1), torch.ones(1, 4))
    node = first_call(ep)
    with ep.graph.inserting_before(node):
        ep.graph_module.add_module("extra", torch.nn.ReLU())
        ep.graph.call_module("extra", (node.args[0],))
    with pytest.raises(NotImplementedError, match="call_module"):
        px.import_ep(ep)
    other: Any = exported(Tower(1), torch.ones(1, 4))
    first_call(other).args = (*first_call(other).args[:2], torch.ones(8))  # type: ignore[assignment]
    with pytest.raises(px.UnsupportedProgram, match="Tensor"):
        px.import_ep(other)
