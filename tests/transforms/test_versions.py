"""Which values are contents of state, and which are carried over calls."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.ir.meta import Meta
from purefx.laws import toy
from purefx.laws.asking import assert_law, refuses
from purefx.laws.law import GENERIC, Law
from purefx.laws.strategies import Stage
from purefx.laws.tiers import drawn_cases, share
from tests.laws.registry import REGISTRY
from tests.transforms.small import calling, lines, number

# Which values are contents of state: told by the operator that the exporter decomposed, or else by their kind.


TWO = number((2,))


def made_from(*targets: str) -> Mapping[str, Any]:
    """Return the meta of a value of two numbers that was made from the first of these, and that from the next one."""
    history: list[Any] = []
    for target in reversed(targets):
        history = [*[SimpleNamespace(target="aten.neg_.default")] * 2, SimpleNamespace(target=target, from_node=history)]
    return {**TWO, "from_node": history}


STEP = """
    t = purefx.takes(x)  in c
    n = get c.n  in c
    m = aten.add.Tensor(n, 1)  in c
    k = OTHER  in c
    l = LAST  in c
    s = aten.copy_.default(n, l)  in c
    g = purefx.gives(x)  in c
    z = aten.mul.Tensor(x, l)
    return (z,)
"""


def is_known(last: str, other: str = "aten.add.Tensor(x, 2)", **metas: Mapping[str, Any]) -> bool:
    """Say whether the last contents of ``c.n`` are known to be made of its old ones."""
    values = {**dict.fromkeys(["x", "n", "m", "k", "l"], TWO), **metas}
    program = calling(STEP.replace("OTHER", other).replace("LAST", last), metas=values)
    return px.insert_ivals(program) is not program


def test_one_operand_of_the_same_kind_is_the_version_before() -> None:
    assert is_known("aten.add.Tensor(m, 1)")
    assert is_known("aten.mul.Tensor(m, 2)")
    assert is_known("aten.neg.default(n)")
    assert is_known("aten.add.Tensor(m, n)")
    assert not is_known("aten.neg.default(x)")
    assert not is_known("aten.neg.default(k)")


def test_of_several_the_one_that_the_same_operator_made_is_the_version_before() -> None:
    assert is_known("aten.add.Tensor(m, k)", "aten.mul.Tensor(x, 2)")
    assert not is_known("aten.add.Tensor(m, k)", "aten.add.Tensor(x, 2)")
    assert not is_known("aten.mul.Tensor(m, k)", "aten.add.Tensor(x, 2)")


def test_an_operator_that_wrote_one_operand_says_so() -> None:
    """What the exporter decomposed is in the history of a node, at any depth."""
    both = "aten.add.Tensor(m, k)"
    assert not is_known(both)
    assert is_known(both, l=made_from("aten.add_.Tensor"))
    assert is_known(both, l=made_from("aten.add.Tensor", "aten.add_.Tensor"))
    assert is_known(both, l=made_from("add", "aten.add_.Tensor", "aten.add.Tensor"))
    assert is_known(both, l=made_from("one.two", "no.such.operator", "aten.add_.Tensor.more", "aten.add_.Tensor"))
    assert not is_known(both, l=made_from("aten.add.Tensor"))
    assert not is_known(both, l=made_from("aten.add_.Tensor.more"))
    assert not is_known("aten.add.Tensor(k, m)", l=made_from("aten.add_.Tensor"))
    assert is_known("aten.add.Tensor(self=m, other=k)", l=made_from("aten.add_.Tensor"))
    assert not is_known("aten.neg.default(x)", l=made_from("aten.neg_.default"))


def test_of_an_operator_that_gives_several_values_the_same_part_is_taken() -> None:
    """Running mean and variance have one shape: the new mean is made of the old mean."""
    program = calling(
        """
        t = purefx.takes(x)  in c
        n = get c.n  in c
        m = get c.m  in c
        b = aten._native_batch_norm_legit_functional.default(x, None, None, n, m, True, 0.1, 1e-05)  in c
        p = operator.getitem(b, 3)  in c
        q = operator.getitem(b, 4)  in c
        d = aten._native_batch_norm_legit_functional.default(x, None, None, p, q, True, 0.1, 1e-05)  in c
        k = operator.getitem(d, 3)  in c
        l = operator.getitem(d, 4)  in c
        s = aten.copy_.default(n, k)  in c
        u = aten.copy_.default(m, l)  in c
        g = purefx.gives(x)  in c
        z = aten.mul.Tensor(k, l)
        return (z,)
        """,
        metas=dict.fromkeys(["x", "n", "m", "p", "q", "k", "l"], TWO),
    )
    result = lines(px.insert_ivals(program))
    assert sorted(result[12:14]) == ["m_1 = get c.m", "n_1 = get c.n"]
    assert result[14:] == ["z = aten.mul.Tensor(n_1, m_1)", "return (z,)"]


HALF_WAY = """
    t = purefx.takes(x)  in c
    n = get c.n  in c
    m = aten.add.Tensor(n, 1)  in c
    g = purefx.gives(x)  in c
    z = aten.mul.Tensor(x, m)
    l = aten.add.Tensor(m, 1)
    s = aten.copy_.default(n, l)
    return (z,)
"""


def test_a_value_that_was_never_the_contents_stays_a_value() -> None:
    """Where the history says that an operator wrote nothing, its result is half of a computation."""
    metas = dict.fromkeys(["x", "n", "m", "l", "z"], TWO)
    program = calling(HALF_WAY, metas={**metas, "m": made_from("aten.add.Tensor")})
    assert px.insert_ivals(program) is program
    for known in (TWO, made_from("aten.add_.Tensor")):
        result = px.insert_ivals(calling(HALF_WAY, metas={**metas, "m": known}))
        assert lines(result)[3:6] == ["copy_ = aten.copy_.default(n, m) in c", "g = purefx.gives(x) in c", "n_1 = get c.n"]


# What every transformation carries along: meta, and arguments that are given by keyword.


PROGRAMS = 24

ASKED = [(entry.transformation, stage) for entry in REGISTRY for stage in entry.stages]

NAMES = [f"{transformation.name}-{stage}" for transformation, stage in ASKED]

FLAT = [(transformation, stage) for transformation, stage in ASKED if stage in ("tokens", "flat", "in place", "sunk", "ivals")]


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
    return program.evolve(graphs=px.ir.pmap(graphs))


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
            if isinstance(spec, px.ir.StateInput)
        }
        for node in px.sink_state(program).main.nodes:
            if isinstance(node.do, px.Get):
                assert (program.state[node.do.slot].cell, node.meta["stack_trace"]) in cells
                found += 1
    assert found > 20


def with_keywords(program: px.Program) -> px.Program:
    """Return a program that gives the arguments of its integer operators by keyword."""
    graphs: dict[str, px.Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        graphs[name] = evolve(graph, nodes=tuple(map(by_keyword, graph.nodes)))
    return program.evolve(graphs=px.ir.pmap(graphs))


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
