"""``infer`` of an edited program gives what it gives for a copy of which nothing is known, and looks at what was edited."""

from __future__ import annotations

import random
from typing import Any

import torch
from attrs import evolve

import purefx as px
from bench.edits import Variants, tree
from purefx.ir.inference import Propagation
from purefx.ir.inference.near import inferred_near
from purefx.ir.inference.results import agrees
from purefx.laws.edits import EDITS, anew
from tests.programs import Branches, Counter, Shared, Tower, exported


def programs() -> list[px.Program]:
    """Return real trees, with values."""
    eps = [exported(module, torch.ones(3, 4)) for module in (Counter(), Shared(), Tower(), Branches())]
    return [px.transform(px.import_ep(ep)) for ep in eps]


def answer(program: px.Program, **options: Any) -> px.Program | str:
    """Return what ``infer`` gives, or the error."""
    try:
        return px.infer(program, **options)
    except px.errors.InvalidProgram as error:
        return str(error)


def assert_same(mine: px.Program | str, theirs: px.Program | str) -> None:
    """Compare two answers, values included."""
    assert mine == theirs
    if isinstance(mine, str) or isinstance(theirs, str):
        return
    for name in theirs.order:
        ours, others = mine.graphs[name].metas, theirs.graphs[name].metas
        for value, meta in others.items():
            assert ("val" in ours[value]) == ("val" in meta), (name, value)
            assert "val" not in meta or agrees(ours[value]["val"], meta["val"]), (name, value)


def unsaid(program: px.Program, rand: random.Random) -> px.Program:
    """Return a program that lost some values in one graph, and calls other operators there."""
    name = rand.choice(program.order)
    graph = program.graphs[name]
    ops = [node.do for node in graph.nodes if isinstance(node.do, px.Op) and len(node.args) == 1]
    nodes = []
    for node in graph.nodes:
        if rand.random() < 0.4:
            node = evolve(node, meta={key: value for key, value in node.meta.items() if key != "val"})
        if ops and isinstance(node.do, px.Op) and len(node.args) == 1 and rand.random() < 0.5:
            node = node.evolve(do=rand.choice(ops))
        nodes.append(node)
    return program.evolve(graphs=program.graphs.set(name, evolve(graph, nodes=tuple(nodes))))


def test_values_of_edits_are_those_from_nothing() -> None:
    near = 0
    for program in programs():
        for seed in range(12):
            rand = random.Random(seed)
            before = program
            for _ in range(3):
                edit = rand.choice([*EDITS, unsaid, unsaid, unsaid])
                after = edit(before, rand)
                if after is None or px.verify(after):
                    continue
                near += inferred_near(after, ()) is not None
                mine = answer(after)
                assert_same(mine, answer(anew(after)))
                assert_same(answer(after, changed=before), answer(anew(after), changed=anew(before)))
                before = mine if isinstance(mine, px.Program) else before
    assert near >= 20


def silent(program: px.Program) -> px.Program:
    """Return a variant whose body does not say the value of one node."""
    variant = Variants(program).next()
    graph = variant.graphs["block 1"]
    nodes = [evolve(node, meta={}) if isinstance(node.do, px.Op) and "gelu" in node.do.name else node for node in graph.nodes]
    return variant.evolve(graphs=variant.graphs.set("block 1", evolve(graph, nodes=tuple(nodes))))


def test_one_body_is_walked(monkeypatch: Any) -> None:
    base = tree(16)
    assert px.infer(base) is base
    walked: list[str] = []
    run = Propagation.run

    def noted(self: Propagation, request: Any) -> Any:
        walked.append(request.graph)
        return run(self, request)

    monkeypatch.setattr(Propagation, "run", noted)
    result = px.infer(silent(base))
    assert walked == ["block 1"]
    assert all("val" in node.meta for node in result.graphs["block 1"].nodes)
    again = px.infer(silent(result))
    assert walked == ["block 1"] * 2 and again.graphs["block 2"] is base.graphs["block 2"]


def test_a_body_that_gives_something_else_is_followed() -> None:
    base = tree(4)
    px.infer(base)
    graph = base.graphs["block 1"]
    to = px.ir.operators.op_of(torch.ops.aten.to.dtype)
    last = px.Node("last", to, (graph.output, torch.float64))
    other = base.evolve(graphs=base.graphs.set("block 1", px.Graph(graph.inputs, (*graph.nodes, last), px.Ref("last"))))
    try:
        mine: Any = px.infer(other)
    except px.errors.InvalidProgram as error:
        mine = str(error)
    try:
        theirs: Any = px.infer(anew(other))
    except px.errors.InvalidProgram as error:
        theirs = str(error)
    assert_same(mine, theirs)
    assert isinstance(mine, str) or mine.main.nodes[1].meta["val"].dtype is torch.float64
