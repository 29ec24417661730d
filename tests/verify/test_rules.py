"""Every rule can be broken and is named; valid programs break none; garbage is told, never raised."""

from __future__ import annotations

import math
import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from purefx import ir
from purefx.ir.operators import op_of
from purefx.ir.signature import LiteralType
from purefx.ir.verify import DEEP, RULES, Violation, check, verify
from tests.verify.corruptors import VARIANTS, Corruptor, with_graph, with_node
from tests.verify.programs import PROGRAMS, branch, flat, tree


@pytest.mark.parametrize("make", PROGRAMS.values(), ids=list(PROGRAMS))
def test_the_programs_that_corruptors_start_from_are_valid(make: Callable[[], ir.Program]) -> None:
    program = make()
    assert verify(program) == ()
    assert check(program) is program


@pytest.mark.parametrize("corruptor", VARIANTS, ids=str)
def test_a_corruption_is_named_by_its_rule(corruptor: Corruptor) -> None:
    found = verify(corruptor.apply(PROGRAMS[corruptor.start]()))
    assert corruptor.rule in {violation.rule for violation in found}, "\n".join(map(str, found))
    for violation in found:
        assert violation.message
        assert violation.advice
        assert max(map(len, str(violation).splitlines())) < 600


def test_all_violations_come_at_once_in_program_order() -> None:
    program = with_node("unused", args=(ir.Ref("nowhere"), [1]))(flat())
    program = with_node("new", kwargs=(("k", 1), ("k", 2)))(program)
    found = [(violation.rule, violation.node) for violation in verify(program)]
    assert found == [
        ("defined-values", "unused"),
        ("argument-kinds", "unused"),
        ("well-formed", "new"),
    ]


def test_calls_that_do_not_share_are_listed_by_name() -> None:
    """Signatures are in a map: without an order of their own, findings would have that of the hash seed."""
    program = PROGRAMS["kept"]()
    signature = next(iter(program.call_signatures.values()))
    calls = {ir.Frame("m", number): evolve(signature, shared=number == 0) for number in range(12)}
    found = verify(program.evolve(call_signatures=ir.pmap(calls)))
    blamed = [
        violation.message.split()[0] for violation in found if violation.rule == "shared-signatures"
    ]
    assert blamed == sorted(str(frame) for frame in calls if frame.call)


def test_the_page_has_the_rules() -> None:
    """``docs/invariants.md`` has the table of rules, row by row."""
    page = (Path(__file__).parents[2] / "docs" / "invariants.md").read_text(encoding="utf-8")
    rows = [f"| `{rule.name}` | {rule.statement} | {rule.advice} |" for rule in (*RULES, *DEEP)]
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows


def test_a_violation_shows_place_lines_source_and_advice() -> None:
    program = with_node("y", graph="lin", args=(ir.Ref("a"), ir.Ref("ww")))(tree())
    (violation,) = verify(program)
    text = str(violation)
    assert violation.where == "lin / y"
    assert text.startswith(
        "defined-values: it uses 'ww', which its graph does not define\n  at lin / y\n"
    )
    assert [line[0] for line in violation.context] == [" ", " ", ">", " "]
    assert "w = " in violation.context[1]
    assert "from model.py:12 in forward: return self.lin(x)" in text
    assert "to do: keep the node" in text
    assert pickle.loads(pickle.dumps(violation)) == violation


def test_a_node_of_a_flat_program_is_placed_by_its_stack() -> None:
    (violation,) = verify(with_node("deep", args=(ir.Ref("nowhere"),))(flat()))
    assert violation.where == "act.in / deep"


def test_check_raises_one_error_with_everything() -> None:
    with pytest.raises(ir.InvalidProgram, match="breaks 2 invariants") as caught:
        check(with_node("unused", args=(ir.Ref("nowhere"), [1]))(flat()))
    assert all(isinstance(violation, Violation) for violation in caught.value.violations)


class Hostile:
    """Refuses everything."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    def __repr__(self) -> str:
        raise RuntimeError("printed")


GARBAGE: list[Any] = [
    None, 3, "text", [1], {"a": 1}, {1}, torch.ones(2), print, Hostile(), (Hostile(),), object(), ir.pmap({}), ir.Ref("x"),
]  # fmt: skip


@pytest.mark.parametrize("value", GARBAGE, ids=lambda value: type(value).__name__)
def test_garbage_anywhere_is_told_and_never_raised(value: Any) -> None:
    for program in (flat(), tree(), branch()):
        for name in (
            "graphs",
            "root",
            "state",
            "signature",
            "modules",
            "call_signatures",
            "constraints",
            "facts",
            "trail",
        ):
            assert verify(program.evolve(**{name: value})) or name in (
                "graphs",
                "root",
                "call_signatures",
            )
        for field in ("inputs", "outputs", "in_spec", "out_spec", "arg_names"):
            verify(program.evolve(signature=evolve(program.signature, **{field: value})))
        for field in ("order", "slots"):
            verify(program.evolve(state=evolve(program.state, **{field: value})))
        for field in ("ranges", "guards"):
            verify(program.evolve(constraints=evolve(program.constraints, **{field: value})))
        for graph in ("", *program.order[1:2]):
            for field in ("inputs", "nodes", "output"):
                verify(with_graph(program, graph, **{field: value}))
                verify(with_graph(program, graph, **{field: (value,)}))
            for field in ("name", "do", "args", "kwargs", "stack", "meta"):
                node = program.graphs[graph].nodes[0]
                for changed in (value, (value,), ((value, value),)):
                    found = verify(with_node(node.name, graph=graph, **{field: changed})(program))
                    assert all(isinstance(str(violation), str) for violation in found)


def test_a_circle_of_graphs_is_told_once() -> None:
    graphs = {
        name: ir.Graph((), (ir.Node("a", ir.Call(ir.Frame("m"), other)),), ())
        for name, other in (("", "b"), ("b", "c"), ("c", "b"))
    }
    found = verify(ir.Program.of(graphs))
    assert [violation.rule for violation in found] == ["acyclic-calls"]
    assert "b -> c -> b" in found[0].message


@pytest.mark.parametrize("output", [3, ("x",), ir.Ref("b")])
def test_new_contents_that_a_call_returns_are_a_value(output: Any) -> None:
    """A number would fill the buffer."""
    slot = ir.Slot(ir.SlotKind.BUFFER, torch.zeros(2), 0, 0)
    given = ir.TensorType(torch.float32, (2,))
    signature = ir.Signature((ir.UserInput(given, "x"),), (ir.StateMutation("s"), ir.UserOutput()))
    call = ir.Node("c", ir.Call(ir.Frame("m"), "m"), (ir.Ref("x"), 4))
    graphs = {
        "": ir.Graph((ir.Input("x"),), (call,), (ir.Ref("c"), ir.Ref("x"))),
        "m": ir.Graph((ir.Input("a"), ir.Input("b")), (), output),
    }
    modules = (ir.Module(""), ir.Module("m"))
    state = ir.State(("s",), ir.pmap({"s": slot}))
    program = ir.Program.of(graphs, state=state, signature=signature, modules=modules)
    assert [violation.rule for violation in verify(program)] == ["mutations"]
    assert verify(program.with_graphs({"m": evolve(graphs["m"], output=ir.Ref("a"))})) == ()


RELU = op_of(torch.ops.aten.relu.default)


def with_bodies(**bodies: ir.Graph) -> ir.Program:
    """Return a program whose root calls ``body`` with a tensor, a slice and a pair, and runs ``relu`` of the result."""
    args = (ir.Ref("x"), slice(0, 2), (ir.Ref("x"), "text"))
    nodes = (
        ir.Node("c", ir.Call(ir.Frame("m"), "body"), args),
        ir.Node("r", RELU, (ir.Ref("c"),)),
    )
    given = ir.TensorType(torch.float32, (2,))
    signature = ir.Signature((ir.UserInput(given, "x"),), (ir.UserOutput(),))
    graphs = {
        "": ir.Graph((ir.Input("x"),), nodes, (ir.Ref("r"),)),
        **bodies,
    }
    modules = tuple(ir.Module(path) for path in ("", "m", "m.inner"))
    return ir.Program.of(graphs, signature=signature, modules=modules)


def body(*nodes: ir.Node, output: Any) -> ir.Graph:
    return ir.Graph((ir.Input("a"), ir.Input("part"), ir.Input("pair")), nodes, output)


INNER = ir.Node("i", ir.Call(ir.Frame("inner"), "inner"), (ir.Ref("part"), ir.Ref("pair")))


def inner(*nodes: ir.Node, output: Any) -> ir.Graph:
    return ir.Graph((ir.Input("part"), ir.Input("pair")), nodes, output)


def item(source: str, index: int) -> ir.Node:
    return ir.Node("g", op_of(operator.getitem), (ir.Ref(source), index))


MISUSED: dict[str, dict[str, ir.Graph]] = {
    "a body returns a slice": {"body": body(output=slice(0, 2))},
    "a body returns the slice that it gets": {"body": body(output=ir.Ref("part"))},
    "a body uses the pair as one value": {
        "body": body(ir.Node("y", RELU, (ir.Ref("pair"),)), output=ir.Ref("y"))
    },
    "a body uses the string of the pair": {
        "body": body(item("pair", 1), ir.Node("y", RELU, (ir.Ref("g"),)), output=ir.Ref("y"))
    },
    "a body selects an item of the slice": {"body": body(item("part", 0), output=ir.Ref("g"))},
    "a body selects an item that the pair has not": {
        "body": body(item("pair", 2), output=ir.Ref("g"))
    },
    "an inner body returns the slice that it gets": {
        "body": body(INNER, output=ir.Ref("i")),
        "inner": inner(output=ir.Ref("part")),
    },
    "an inner body uses the slice": {
        "body": body(INNER, output=ir.Ref("a")),
        "inner": inner(ir.Node("y", RELU, (ir.Ref("part"),)), output=ir.Ref("y")),
    },
    "an inner body selects an item of the slice": {
        "body": body(INNER, output=ir.Ref("a")),
        "inner": inner(item("part", 0), output=ir.Ref("g")),
    },
}
"""Literals and tuples that reach an operator through calls; after ``inline`` they would be its arguments."""


@pytest.mark.parametrize("bodies", MISUSED.values(), ids=list(MISUSED))
def test_a_literal_that_reaches_an_operator_through_calls_is_checked(
    bodies: dict[str, ir.Graph],
) -> None:
    found = verify(with_bodies(**bodies))
    assert {violation.rule for violation in found} == {"operands"}, found


def test_returned_literals_are_told_in_the_order_of_the_calls() -> None:
    """Their names in a set would have the order of the hash seed."""
    names = [f"c{number}" for number in range(5)]
    calls = [
        ir.Node(name, ir.Call(ir.Frame("m", number), name)) for number, name in enumerate(names)
    ]
    normalized = op_of(torch.ops.aten.batch_norm.default)
    node = ir.Node("y", normalized, (*map(ir.Ref, names), True, 0.1, 1e-5, False))
    bodies = {name: ir.Graph((), (), f"text of {name}") for name in names}
    found = verify(ir.Program.of({"": ir.Graph((), (*calls, node), ()), **bodies}))
    told = [violation.message for violation in found if violation.rule == "operands"]
    assert [message.rpartition("text of ")[2][:2] for message in told] == names


def test_literals_that_operators_accept_pass_through_calls() -> None:
    chosen = body(item("pair", 0), output=ir.Ref("g"))
    assert verify(with_bodies(body=chosen)) == ()
    passed = {
        "body": body(INNER, output=ir.Ref("i")),
        "inner": inner(item("pair", 0), output=ir.Ref("g")),
    }
    assert verify(with_bodies(**passed)) == ()


def test_pairs_that_calls_pass_on_in_pairs_do_not_multiply_the_work() -> None:
    levels = 60  # 2 ** 60 leaves
    graphs = {
        str(level): ir.Graph(
            (ir.Input("p"),),
            (
                ir.Node(
                    "a",
                    ir.Call(ir.Frame("m"), str(level + 1)),
                    ((ir.Ref("p"), ir.Ref("p")),),
                ),
            ),
            (ir.Ref("a"), ir.Ref("a")),
        )
        for level in range(1, levels)
    }
    graphs[str(levels)] = ir.Graph((ir.Input("p"),), (), (ir.Ref("p"), ir.Ref("p")))
    call = ir.Node("a", ir.Call(ir.Frame("m"), "1"), (1,))
    graphs["0"] = ir.Graph((), (call,), ())
    assert verify(ir.Program.of(graphs, root="0")) == ()


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (operator.mul, (2,)),
        (operator.neg, (2, 3)),
        (operator.getitem, ((1, 2), 0, 1)),
        (math.floor, ()),
    ],
    ids=["one operand of two", "two of one", "three of two", "none of one"],
)
def test_a_function_of_python_gets_the_arguments_that_it_takes(
    function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    """torch prints some of them as infix operators, and raises an IndexError."""
    node = ir.Node("y", op_of(function), args)
    found = verify(ir.Program.of({"": ir.Graph((), (node,), ())}))
    assert "operands" in {violation.rule for violation in found}


def test_shared_bodies_do_not_multiply_the_work() -> None:
    levels = 200  # 2 ** 200 instances
    twice = {
        str(level): ir.Graph(
            (),
            (
                ir.Node("a", ir.Call(ir.Frame("l"), str(level + 1)), ()),
                ir.Node("b", ir.Call(ir.Frame("r"), str(level + 1)), ()),
            ),
            (),
        )
        for level in range(levels)
    }
    last = ir.Graph((), (ir.Node("w", ir.Get("w")),), ())
    found = verify(ir.Program.of({**twice, str(levels): last}, root="0"))
    assert [(violation.rule, violation.graph) for violation in found] == [("reads", str(levels))]


def test_deep_nesting_and_long_chains_need_no_recursion() -> None:
    depth, length = 3000, 20_000
    nested = {
        str(level): ir.Graph((), (ir.Node("a", ir.Call(ir.Frame("m"), str(level + 1)), ()),), ())
        for level in range(depth)
    }
    assert verify(ir.Program.of({**nested, str(depth): ir.Graph((), (), ())}, root="0")) == ()
    neg = ir.Op("toy.neg")
    nodes = tuple(ir.Node(f"n{i + 1}", neg, (ir.Ref(f"n{i}"),)) for i in range(length))
    signature = ir.Signature((ir.UserInput(LiteralType(1)),), (ir.UserOutput(),))
    chain = ir.Program.of(
        {"": ir.Graph((ir.Input("n0"),), nodes, (ir.Ref(f"n{length}"),))}, signature=signature
    )
    assert verify(chain) == ()
    assert len(verify(with_graph(chain, "", nodes=nodes[1:]))) == 1


def test_many_violations_do_not_flood() -> None:
    nodes = tuple(
        ir.Node(f"n{i}", ir.Op("toy.neg"), (ir.Ref(f"nowhere{i}"), "long" * 1000))
        for i in range(500)
    )
    found = verify(ir.Program.of({"": ir.Graph((), nodes, ())}))
    assert len(found) == 500
    assert all(len(violation.context) <= 11 and len(str(violation)) < 2000 for violation in found)
    error = ir.InvalidProgram(found)
    assert error.violations == found == pickle.loads(pickle.dumps(error)).violations
    assert "breaks 500 invariants" in str(error) and str(error).endswith(
        "and 488 more; `violations` lists all"
    )
    assert len(str(error)) < 30_000
    assert len(str(ir.InvalidProgram([Violation("rule", "long " * 10_000)]))) < 5000


def test_one_cause_is_one_violation() -> None:
    nodes = tuple(ir.Node(f"n{i}", ir.Op("toy.neg"), (ir.Ref("nowhere"),)) for i in range(500))
    (violation,) = verify(ir.Program.of({"": ir.Graph((), nodes, ())}))
    assert (violation.count, violation.node) == (500, "n0")
    assert (
        "\n  and at the root graph / n1, the root graph / n2, the root graph / n3 and 496 more\n"
        in str(violation)
    )
    calls = tuple(ir.Node(f"c{i}", ir.Call(ir.Frame("m", i), "body"), ()) for i in range(3))
    claimed = ir.Program.of(
        {"": ir.Graph((), calls, ()), "body": ir.Graph((), (), ())}, facts=frozenset({"flat"})
    )
    (violation,) = verify(claimed)
    assert violation.count == 3 and str(violation).count("c1") == 2, (
        "the place, and the lines around the first"
    )
    # Two causes stay two, also where one node shows both.
    two = with_node("unused", args=(ir.Ref("nowhere"), ir.Ref("elsewhere")))(flat())
    assert [violation.count for violation in verify(two)] == [1, 1]
