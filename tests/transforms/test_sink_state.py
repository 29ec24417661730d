"""Sinking state: each read stands in the innermost module that owns the tensor under one of its names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from tests.programs import Shared, Tower, exported


def reads(program: px.Program) -> list[tuple[str, str]]:
    """Return (module call, slot) for every read of an outlined program."""
    return [(name, node.do.slot) for name in program.order for node in program.graphs[name].nodes if isinstance(node.do, px.Get)]


def hierarchical(module: nn.Module, *args: object) -> px.Program:
    """Return the outlined, not deduplicated program."""
    return px.transform(px.import_ep(exported(module, *args)), *px.DEFAULT[: px.DEFAULT.index(px.deduplicate)])


def test_each_module_reads_its_own_state() -> None:
    """Every linear layer reads its weight and bias; nothing is handed down."""
    program = hierarchical(Tower(1), torch.ones(2, 4))
    assert sorted(reads(program)) == sorted(
        (f"layers.0.{layer}", slot) for layer in ("up", "down") for slot in ("weight", "bias")
    )
    assert [len(program.graphs[name].inputs) for name in program.order] == [1, 1, 1, 1]


def test_tied_weights_are_read_under_the_name_of_the_module_at_hand() -> None:
    """The exporter names a tied weight once; a.linear and tied both read their own name."""
    program = hierarchical(Shared(), torch.ones(3, 4))
    assert ("a.linear", "weight") in reads(program)
    assert ("tied", "weight") in reads(program)
    assert ("a@1", "count") in reads(program)


def test_a_parent_that_reads_a_childs_state() -> None:
    """State of a child used by its parent is read by its dotted name."""

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.child = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.child(x) @ self.child.weight

    program = hierarchical(Parent(), torch.ones(2, 4))
    assert ("", "child.weight") in reads(program)
    assert ("child", "weight") in reads(program)


def test_a_siblings_state_is_handed_down() -> None:
    """State that no enclosing module but the root owns is read there and passed as an argument."""

    class User(nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return x @ weight

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.owner, self.user = nn.Linear(4, 4), User()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.user(x, self.owner.weight)

    model = Parent()
    program = hierarchical(model, torch.ones(2, 4))
    assert reads(program) == [("", "owner.weight")]
    assert len(program.graphs["user"].inputs) == 2
    x = torch.randn(2, 4)
    assert torch.equal(px.lower(program)(x), model(x))


def test_unused_state_is_no_input_and_stays_in_the_state() -> None:
    """What is not read is dropped from the inputs and kept in the program."""
    program = px.sink_state(px.import_ep(exported(Shared(), torch.ones(3, 4))))
    assert [type(spec) for spec in program.signature.inputs] == [px.UserInput]
    assert "unused.weight" in program.state


def test_after_outline_is_a_mistake_of_order() -> None:
    """The pipeline is refused before anything runs, and says why."""
    program = px.import_ep(exported(Tower(1), torch.ones(2, 4)))
    with pytest.raises(px.PipelineError, match=r"step 2, sink_state, requires .*'flat'.* outline before it"):
        px.transform(program, px.outline, px.sink_state)
