"""What mutants showed that no other test asks: what every transformation carries along, and single cases beneath."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.ir.own_operators import is_boundary
from purefx.laws import toy
from purefx.laws.asking import assert_law, refuses
from purefx.laws.law import GENERIC, Case
from purefx.laws.strategies import Stage
from purefx.laws.tiers import drawn_cases, share
from tests.laws.registry import REGISTRY
from tests.programs import parent

PROGRAMS = 16

ASKED = [
    pytest.param(entry.transformation, stage, entry.exempt, id=f"{entry.transformation.name}-{stage}")
    for entry in REGISTRY
    for stage in entry.stages
]

REMADE = ("split_by_tags", "swap_modules", "canonicalize")
"""Those that make other calls than before, or give values other names."""


def cases(stage: Stage, transformation: px.Transformation) -> list[Case]:
    """Return generated programs that a transformation does not refuse."""
    return [case for case in drawn_cases("toy", stage, share(PROGRAMS), 3) if not refuses(transformation, case)]


def with_meta(program: px.Program) -> px.Program:
    """Return a program in which every value has meta of its own; all values are numbers, so the shapes of all agree."""

    def told(value: px.Input | px.Node) -> MappingProxyType[str, object]:
        return MappingProxyType({"val": torch.zeros((), dtype=torch.int64), "stack_trace": value.name})

    graphs = {
        name: evolve(
            graph,
            inputs=tuple([evolve(formal, meta=told(formal)) for formal in graph.inputs]),
            nodes=tuple([evolve(node, meta=told(node)) for node in graph.nodes]),
        )
        for name, graph in program.graphs.items()
    }
    return program.evolve(graphs=px.ir.pmap(graphs))


@pytest.mark.parametrize(("transformation", "stage", "exempt"), ASKED)
def test_nodes_say_where_they_are_from(transformation: px.Transformation, stage: Stage, exempt: object) -> None:
    """Every operator has the lines of some operator of the original; in the root one that keeps its name keeps its lines."""
    for case in cases(stage, transformation):
        program = with_meta(case.program)
        result = transformation(program)
        known = {value.name for graph in program.graphs.values() for value in (*graph.inputs, *graph.nodes)}
        before = program.main.by_name
        for name, node in result.nodes():
            if type(node.do) is not px.Op or is_boundary(node) or node.do == toy.GETITEM:
                continue
            assert node.meta["stack_trace"] in known, f"{node.name} of {name} in\n{result}"
            if name == result.root and transformation.name not in REMADE and getattr(before.get(node.name), "do", 0) == node.do:
                assert node.meta["stack_trace"] == node.name


KEYWORDS = {
    toy.NEG: ("a",), toy.ADD: ("a", "b"), toy.MUL: ("a", "b"), toy.VIEW: ("a",), toy.PAIR: ("a", "b"), toy.ADD_: ("a", "number"),
    toy.RAND: ("a", "tag", "train"), toy.COND: ("a", "yes", "no", "operands"),
}  # fmt: skip


def by_keyword(node: px.Node) -> px.Node:
    """Return a node that gives nothing by position, where the names are known."""
    keys = KEYWORDS.get(node.do, ()) if isinstance(node.do, px.Op) else ()
    return evolve(node, args=(), kwargs=tuple(zip(keys, node.args, strict=False))) if keys else node


@pytest.mark.parametrize(("transformation", "stage", "exempt"), ASKED)
def test_arguments_by_keyword_are_arguments(transformation: px.Transformation, stage: Stage, exempt: object) -> None:
    """What holds with arguments by position holds with keywords."""
    laws = [law for law in GENERIC if law.name in ("valid", "meaning", "order") and law.name not in exempt]
    for case in cases(stage, transformation)[::2]:
        graphs = {name: evolve(graph, nodes=tuple(map(by_keyword, graph.nodes))) for name, graph in case.program.graphs.items()}
        given = evolve(case, program=case.program.evolve(graphs=px.ir.pmap(graphs)), meaning=toy.toy_meaning)
        for law in laws if not refuses(transformation, given) else ():
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
    ep = torch.export.export(Constant(), (torch.ones(4, 2),), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    program = px.transform(px.import_ep(ep))
    assert any(getattr(node.do, "name", "") == "aten.detach_.default" for _, node in program.nodes())
    (call,) = [node for node in program.main.nodes if type(node.do) is px.Call]
    assert len(call.args) == 1, f"the size is an argument of the module:\n{program.text()}"


@pytest.mark.parametrize(("given", "said"), [("aten.neg", "the operator itself, .* not its name"), (3, "a function, .* not 3")])
def test_what_is_no_operator(given: Any, said: str) -> None:
    with pytest.raises(px.errors.NamingError, match=said):
        px.op(given)
