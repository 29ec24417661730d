"""``import_fx(ep.module())``: the module that checks the inputs writes nothing, and nothing acts before it.

One idea: a written buffer tells whether the check came first.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir.operators import op_of
from purefx.ir.own_operators import CALL_GUARDS, call_guards


class Counts(nn.Module):
    """Counts its calls, and computes before and after that."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        self.calls.add_(1)
        return self.second(y.relu()) + self.calls


X = torch.randn(2, 4)


@pytest.fixture(scope="module")
def given() -> Any:
    ep = torch.export.export(Counts(), (X,), dynamic_shapes=({0: torch.export.Dim("n", max=8)},))
    module = ep.module()
    assert any(node.op == "call_module" and node.target == "_guards_fn" for node in module.graph.nodes)
    return module


def same(made: nn.Module, given: nn.Module) -> None:
    eager = copy.deepcopy(given)
    for rows in (2, 5, 3):
        x = torch.randn(rows, 4)
        assert torch.equal(made(x), eager(x))
    assert torch.equal(next(made.buffers()), next(eager.buffers()))


def refused(made: nn.Module) -> None:
    before = next(made.buffers()).clone()
    with pytest.raises(AssertionError, match="Guard failed: x"):
        made(torch.randn(9, 4))
    assert torch.equal(next(made.buffers()), before)


def test_it_is_known_and_stays_first(given: Any) -> None:
    program = px.import_fx(given)
    assert sum(node.do == CALL_GUARDS for _, node in program.nodes()) == 1
    assert "purefx.call_guards(" in str(program)
    again = px.import_fx(cast(Any, px.lower(program)))  # and through fx a second time
    whole = px.transform(program, px.inplace_mutations, px.sink_state, px.outline)
    for one in (program, again, whole):
        same(px.lower(one), given)
        refused(px.lower(one))


def test_parts_that_do_not_depend_on_it_may_come_before(given: Any) -> None:
    program = px.import_fx(given)
    parts = px.split_by_tags(program, ("a", "b"), tag_of=lambda node: "a" if node.name == "linear" else "b")
    same(px.lower(parts), given)
    refused(px.lower(parts))


def test_nothing_is_written_before_it(given: Any) -> None:
    program = px.import_fx(given)
    with pytest.raises(px.PurefxError, match="depends on node '_guards_fn'"):
        px.split_by_tags(program, ("a", "b"), tag_of=lambda node: "b" if node.do == CALL_GUARDS else "a")


class Writes(nn.Module):
    """Looks like nothing, and writes."""

    def forward(self, *args: torch.Tensor) -> None:
        args[0].zero_()


def test_no_other_module_is_taken_for_it(given: Any) -> None:
    program = px.import_fx(given)
    state = program.state
    for other in (Writes(), nn.Identity()):
        slots = state.slots.set("_guards_fn", evolve(state["_guards_fn"], value=other))
        found = px.verify(program.evolve(state=evolve(state, slots=slots)))
        assert [violation.rule for violation in found] == ["opaque-modules"]
        assert "another module" in str(found[0])
    hooked = copy.deepcopy(given)
    hooked._guards_fn.register_forward_hook(lambda *_: None)
    assert not any(node.do == CALL_GUARDS for _, node in px.import_fx(hooked).nodes())


def test_its_effects_are_those_of_its_function() -> None:
    assert op_of(call_guards) == CALL_GUARDS and op_of(call_guards).effects == CALL_GUARDS.effects
