"""What every transformation carries along: meta, and arguments that are given by keyword.

One idea: generated programs have neither, so they are put on here, and each transformation is asked again.  Meta is never
compared by the laws, so nothing else would notice that it is lost.
"""

from __future__ import annotations

from types import MappingProxyType

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.ir.meta import Meta
from purefx.ir.own_operators import is_boundary
from purefx.laws import toy
from purefx.laws.asking import assert_law, refuses
from purefx.laws.law import GENERIC, Law
from purefx.laws.registry import REGISTRY
from purefx.laws.strategies import Stage
from purefx.laws.tiers import drawn_cases, share

PROGRAMS = 40

ASKED = [(entry.transformation, stage) for entry in REGISTRY for stage in entry.stages]

NAMES = [f"{transformation.name}-{stage}" for transformation, stage in ASKED]

FLAT = [(transformation, stage) for transformation, stage in ASKED if stage in ("tokens", "flat", "in place", "sunk", "ivals")]

BODIES = [(transformation, stage) for transformation, stage in ASKED if stage in ("outlined", "deduplicated", "tree")]


def programs(stage: Stage, transformation: px.Transformation) -> list[px.Program]:
    """Return generated programs that a transformation does not refuse."""
    return [case.program for case in drawn_cases("toy", stage, share(PROGRAMS), 3) if not refuses(transformation, case)]


def told(graph: str, name: str) -> Meta:
    """Return meta that says whose it is; all values are numbers, so the shapes of all agree."""
    return MappingProxyType({"val": torch.zeros((), dtype=torch.int64), "stack_trace": f"{graph}/{name}"})


def with_meta(program: px.Program) -> px.Program:
    """Return a program in which every value has meta of its own."""
    graphs: dict[str, px.Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        inputs = tuple(px.Input(formal.name, told(name, formal.name)) for formal in graph.inputs)
        nodes = tuple(evolve(node, meta=told(name, node.name)) for node in graph.nodes)
        graphs[name] = px.Graph(inputs, nodes, graph.output)
    return program.evolve(graphs=px.pmap(graphs))


@pytest.mark.parametrize(("transformation", "stage"), FLAT, ids=[f"{one.name}-{stage}" for one, stage in FLAT])
def test_values_keep_their_meta(transformation: px.Transformation, stage: Stage) -> None:
    """A value that keeps its name keeps its meta, wherever it went; a call is told the value that it gives back."""
    for program in map(with_meta, programs(stage, transformation)):
        result = transformation(program)
        known = {value.name: value.meta for value in (*program.main.inputs, *program.main.nodes)}
        for name in result.order:
            if name in program.graphs and name != program.root:
                assert result.graphs[name] is program.graphs[name]
                continue
            graph = result.graphs[name]
            calls = {node.name for node in graph.nodes if isinstance(node.do, px.Call)}
            for value in (*graph.inputs, *graph.nodes):
                if value.name not in known:
                    continue
                given_back = isinstance(value, px.Node) and (value.name in calls or not calls.isdisjoint(value.refs()[:1]))
                if given_back and (value.name in calls or getattr(value, "do", None) == toy.GETITEM):
                    assert value.meta["val"] is known[value.name]["val"]
                else:
                    assert value.meta == known[value.name], f"{value.name} of {name} in\n{program}"


def test_what_is_added_bears_the_meta_of_its_value() -> None:
    """A copy_ and a clone are told what is copied, a read the input that it was."""
    found = 0
    for program in map(with_meta, programs("flat", px.inplace_mutations)):
        known = {value.name: value.meta for value in (*program.main.inputs, *program.main.nodes)}
        result = px.inplace_mutations(program)
        for node in [node for node in result.main.nodes if node.name not in known]:
            saved = {other.name: other.args[0].name for other in result.main.nodes if other.do == toy.CLONE}
            value = node.args[1].name if node.do == toy.COPY_ else node.args[0].name
            assert node.meta["stack_trace"] in {known[name]["stack_trace"] for name in (value, saved.get(value)) if name in known}
            found += 1
        cells = {
            (program.state[spec.slot].cell, formal.meta["stack_trace"])
            for formal, spec in zip(program.main.inputs, program.signature.inputs, strict=True)
            if isinstance(spec, px.StateInput)
        }
        for node in px.sink_state(program).main.nodes:
            if isinstance(node.do, px.Get):
                assert (program.state[node.do.slot].cell, node.meta["stack_trace"]) in cells
                found += 1
    assert found > 20


REMADE = frozenset({"split_by_tags", "swap_modules"})
"""Those that call other bodies than before: such a call, and a boundary of its signature, is not an operator of the original."""


def is_of_a_call(graph: px.Graph, node: px.Node) -> bool:
    """Say whether a node is a call of a module, or takes the results of one apart."""
    whole = graph.by_name.get(node.args[0].name) if node.do == toy.GETITEM and isinstance(node.args[0], px.Ref) else node
    return whole is not None and isinstance(whole.do, px.Call)


@pytest.mark.parametrize(("transformation", "stage"), BODIES, ids=[f"{one.name}-{stage}" for one, stage in BODIES])
def test_bodies_keep_their_meta(transformation: px.Transformation, stage: Stage) -> None:
    """Every operator still says where it is from, and which value it gives."""
    for program in map(with_meta, programs(stage, transformation)):
        result = transformation(program)
        traces = {node.meta["stack_trace"] for _, node in program.nodes()}
        for name, node in result.nodes():
            if transformation.name in REMADE and (is_of_a_call(result.graphs[name], node) or is_boundary(node)):
                continue
            assert node.meta["stack_trace"] in traces
            # Which operand is which input of an operator's body is not known, so what it gives may be dropped there.
            assert "val" in node.meta or stage != "tree"


def with_keywords(program: px.Program) -> px.Program:
    """Return a program that gives the arguments of its integer operators by keyword."""
    graphs: dict[str, px.Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        graphs[name] = evolve(graph, nodes=tuple(map(by_keyword, graph.nodes)))
    return program.evolve(graphs=px.pmap(graphs))


KEYWORDS = {
    toy.NEG: ("a",), toy.ADD: ("a", "b"), toy.MUL: ("a", "b"), toy.VIEW: ("a",), toy.PAIR: ("a", "b"), toy.ADD_: ("a", "number"),
    toy.RAND: ("a", "tag", "train"), toy.COND: ("a", "yes", "no", "operands"),
}  # fmt: skip


def by_keyword(node: px.Node) -> px.Node:
    """Return a node that gives all but nothing by position."""
    keys = KEYWORDS.get(node.do) if isinstance(node.do, px.Op) else None
    if keys is None:
        return node
    return evolve(node, args=(), kwargs=tuple(zip(keys, node.args, strict=False)))


@pytest.mark.parametrize(
    "law", [law for law in GENERIC if law.name in ("valid", "meaning", "idempotent", "order")], ids=lambda law: law.name
)
@pytest.mark.parametrize(("transformation", "stage"), ASKED, ids=NAMES)
def test_arguments_by_keyword_are_arguments(transformation: px.Transformation, stage: Stage, law: Law) -> None:
    """What holds with arguments by position holds with keywords."""
    if any(law.name in entry.exempt for entry in REGISTRY if entry.transformation is transformation and stage in entry.stages):
        return
    for case in drawn_cases("toy", stage, share(PROGRAMS), 3)[::2]:
        given = evolve(case, program=with_keywords(case.program), meaning=toy.toy_meaning)
        if not refuses(transformation, given):
            assert_law(transformation, law, given)
