"""Rules and edits at their edges: how terms are written, what a match says of itself, what is computed once, what is known."""

from __future__ import annotations

from functools import cache

import attrs
import torch
from torch import nn

import purefx as px
from tests.programs import exported, parent

X = torch.ones(2, 4)


class Model(parent(lin=lambda: nn.Linear(4, 4), act=nn.ReLU, n=lambda: torch.ones(4))):
    """A layer, an activation, and a buffer that is read."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.lin(x)).exp() * self.n


@cache
def program() -> px.Program:
    """Return it flat."""
    return px.sink_state(px.import_ep(exported(Model(), X)))


@cache
def tree() -> px.Program:
    """Return it as a tree of bodies."""
    return px.transform(program())


def operators(made: px.Program) -> list[str]:
    """Return the names of its operators, without overloads."""
    return [node.do.name.split(".")[1] for _, node in made.nodes() if isinstance(node.do, px.Op)]


class Written(parent(n=lambda: torch.ones(4), k=lambda: torch.ones(4))):
    """Works on a copy of one buffer, and reads copies of two."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mine, other = self.n.clone(), self.k.clone()
        mine.add_(1)
        return (x * mine) * other


def test_a_copy_that_is_written_is_no_constant() -> None:
    found: list[tuple[str, bool]] = []

    def look(m: px.Match) -> bool:
        found.append((m.root.name, m.constant("w") is not None))
        return False

    sunk = px.sink_state(px.inplace_mutations(px.import_ep(exported(Written(), X))))
    slots = {name: attrs.evolve(slot, persistent=False) for name, slot in sunk.state.pairs}  # what is not loaded stays
    given = sunk.evolve(state=px.ir.State(sunk.state.order, px.ir.pmap(slots)))
    assert px.rule(lambda x, w: x * w, where=look).becomes(lambda m, x, w: x)(given) is given
    assert {name for name, _ in found} == {"mul", "mul_1"} and {name for name, is_known in found if is_known} == {"mul_1"}
