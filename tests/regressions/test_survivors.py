"""What mutants showed that no other test asks: what every transformation carries along, and single cases beneath."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.laws import toy
from purefx.laws.asking import assert_law, is_changed
from purefx.laws.law import GENERIC
from purefx.laws.strategies import Stage
from purefx.laws.tiers import drawn_cases, share
from tests.laws.registry import REGISTRY
from tests.models import ADD, NEG, flat, node, parent

PROGRAMS = 10

ASKED = [
    pytest.param(
        entry.transformation, stage, entry.exempt, id=f"{entry.transformation.name}-{stage}"
    )
    for entry in REGISTRY
    for stage in entry.stages
]


KEYWORDS = {
    toy.NEG: ("a",), toy.ADD: ("a", "b"), toy.MUL: ("a", "b"), toy.VIEW: ("a",), toy.PAIR: ("a", "b"), toy.ADD_: ("a", "number"),
    toy.RAND: ("a", "tag", "train"), toy.COND: ("a", "yes", "no", "operands"),
}  # fmt: skip


def by_keyword(one: px.Node) -> px.Node:
    """Return a node that gives nothing by position, where the names are known."""
    keys = KEYWORDS.get(one.do, ()) if isinstance(one.do, px.Op) else ()
    return evolve(one, args=(), kwargs=tuple(zip(keys, one.args, strict=False))) if keys else one


@pytest.mark.parametrize(("transformation", "stage", "exempt"), ASKED)
def test_arguments_by_keyword_are_arguments(
    transformation: px.Transformation, stage: Stage, exempt: object
) -> None:
    """What holds with arguments by position holds with keywords."""
    laws = [
        law
        for law in GENERIC
        if law.name in ("valid", "meaning", "order") and law.name not in exempt
    ]
    for case in drawn_cases("toy", stage, share(PROGRAMS), 3)[::2]:
        graphs = {
            name: evolve(graph, nodes=tuple(map(by_keyword, graph.nodes)))
            for name, graph in case.program.graphs.items()
        }
        given = evolve(case, program=case.program.evolve(graphs=px.ir.pmap(graphs)))
        for law in laws if is_changed(transformation, given) is not None else ():
            assert_law(transformation, law, given)


class Shifted(torch.nn.Module):
    def forward(self, x: torch.Tensor, size: int) -> torch.Tensor:
        return torch.tanh(x) + size


class Constant(parent(shifted=Shifted)):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.size(0)
        return self.shifted(x * torch.tensor([2.0, 3.0]) * size, size)


def test_a_size_beside_a_constant_is_read_where_it_is_used() -> None:
    """The exporter detaches a constant in place, which leaves the size of every tensor as it is."""
    ep = torch.export.export(
        Constant(), (torch.ones(4, 2),), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},)
    )
    program = px.transform(px.import_ep(ep))
    assert any(
        getattr(each.do, "name", "") == "aten.detach_.default" for _, each in program.nodes()
    )
    (call,) = [each for each in program.main.nodes if type(each.do) is px.Call]
    assert len(call.args) == 1, f"the size is an argument of the module:\n{program.text()}"


@pytest.mark.parametrize("given", ["aten.neg", 3])
def test_what_is_no_operator(given: Any) -> None:
    with pytest.raises(px.errors.NamingError, match=f"an operator or a function, .* not {given!r}"):
        px.op(given)


def chained(*nodes: px.Node) -> px.Program:
    return flat(nodes, px.Ref(nodes[-1].name), "x")


def test_an_edge_backward_is_told_by_the_way_to_the_later_part() -> None:
    """Not by another operand, which comes later in the program and depends on nothing."""
    program = chained(
        node("t", NEG, "x"), node("p", NEG, "t"), node("q", NEG, "x"), node("n", ADD, "p", "q")
    )
    with pytest.raises(px.errors.PartitionError) as found:
        px.split_by_tags(program, ("a", "b"), tag_of={"t": "b", "n": "a"})
    assert [line.strip() for line in str(found.value).splitlines()[1:3]] == [
        "node 'p' uses 't'",
        "node 'n' uses 'p'",
    ]


def test_parts_have_names_that_no_module_has_and_costs_may_be_fractions() -> None:
    program = chained(node("t", NEG, "x"), node("u", NEG, "t"))
    with pytest.raises(px.errors.PartitionError, match="'training' cannot be the name of a part"):
        px.split_by_tags(program, ("training",))
    assert len(px.parts(px.split_balanced(program, 2, cost=lambda _: 0.5))) == 2


class Pair(nn.Module):
    def __init__(self, is_first: bool) -> None:
        super().__init__()
        self.v, self.w, self.is_first = (
            nn.Parameter(torch.ones(2)),
            nn.Parameter(torch.zeros(2)),
            is_first,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.v if self.is_first else self.w)


class Pairs(parent(a=lambda: Pair(True), b=lambda: Pair(False))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


def test_bodies_that_read_other_slots_are_two() -> None:
    program = px.transform(px.import_ep(torch.export.export(Pairs(), (torch.ones(2),))))
    assert program.order == ("", "a", "b")
    assert torch.equal(px.lower(program)(torch.ones(2)), torch.zeros(2))
