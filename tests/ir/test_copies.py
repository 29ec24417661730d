"""Values are copied and not pickled: each of a table answers to ``copy``, ``deepcopy``, ``pickle`` and ``torch.save``."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch

import purefx as px
from purefx import rules


class Tied(torch.nn.Module):
    """Has a tensor under two names, and another that shares its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(2, 2)
        self.b = torch.nn.Linear(2, 2)
        self.b.weight = self.a.weight
        self.register_buffer("row", self.a.weight.detach()[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x)) + self.row


def program() -> px.Program:
    return px.transform(px.import_ep(torch.export.export(Tied(), (torch.ones(1, 2),))))


def values() -> dict[str, Any]:
    made = program()
    return {
        "Program": made, "Graph": made.main, "Node": made.main.nodes[0], "Input": made.main.inputs[0],
        "RuleSet": rules.algebra, "Rule": rules.algebra.rules[0],
    }  # fmt: skip


@pytest.mark.parametrize("kind", values())
def test_values_are_copied_and_not_pickled(kind: str) -> None:
    value = values()[kind]
    assert copy.copy(value) is value
    if kind != "Program":
        assert copy.deepcopy(value) is value
    does: list[Any] = [pickle.dumps, lambda value: torch.save(value, io.BytesIO())]
    for write in does:
        for each in (value, [value]):
            with pytest.raises(
                px.errors.ArgumentError,
                match=rf"a {kind} cannot be pickled; (px.save|rules are functions)",
            ):
                write(each)


def test_a_deep_copy_of_a_program_has_tensors_of_its_own() -> None:
    """Ties and shared memory stay within the copy, as in a deep copy of an exported program."""
    made = program()
    other = copy.deepcopy(made)
    assert other == made
    assert other.graphs is made.graphs
    state = {name: slot.value for name, slot in other.state.pairs}
    assert state["a.weight"] is state["b.weight"]
    with torch.no_grad():
        state["a.weight"].zero_()
    assert state["row"].tolist() == [0, 0]
    assert all(slot.value.count_nonzero() for _, slot in made.state.pairs)
    assert other != made
    assert torch.equal(
        px.lower(other)(torch.ones(1, 2)),
        px.lower(made.evolve(state=other.state))(torch.ones(1, 2)),
    )
    bare = px.Program.of({"": px.Graph((), ())})
    assert copy.deepcopy(bare) is bare
    assert copy.deepcopy([made, made])[0] is not made
    both = copy.deepcopy([made, made])
    assert both[0] is both[1]
