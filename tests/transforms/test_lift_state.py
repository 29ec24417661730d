"""Reads that become inputs: which slot the input is, what it is called, and where it stands.

One idea: a program that was sunk, or that reads more than it ever took, as the text of its inputs afterwards.
"""

from __future__ import annotations

import pytest

import purefx as px
from tests.transforms.small import lines, number, shown, told, tree

STATE = "state {\nbuffer a.n: f32[2]\nbuffer a.m: f32[2]\nbuffer b.n: f32[2] tied a.n\nbuffer k: f32[2]\n}"


def lifted(nodes: str, *, fuel: int | None = None) -> px.Program:
    """Return the program of these nodes after ``lift_state``, which is valid."""
    result = px.lift_state(tree('graph @""(x) {\n' + nodes + "\n}", STATE), fuel=fuel)
    assert px.verify(result) == ()
    return result


def taken(program: px.Program) -> list[str]:
    """Return each input of the root with the slot that it is, if any."""
    pairs = zip(program.main.inputs, program.signature.inputs, strict=True)
    return [f"{formal.name} {spec.slot if isinstance(spec, px.StateInput) else ''}".strip() for formal, spec in pairs]


READS = """
    p = get k
    q = get a.m  in a
    y = aten.add.Tensor(p, q)
    r = get k  in b
    z = aten.mul.Tensor(y, r)
    u = aten.mul.Tensor(x, other=z)
    return (u,)
"""


def test_new_inputs_stand_first_in_the_order_of_the_state() -> None:
    """Named after their first reads."""
    result = lifted(READS)
    assert taken(result) == ["q a.m", "p k", "x"]
    assert lines(result) == [
        "y = aten.add.Tensor(p, q)",
        "z = aten.mul.Tensor(y, p)",
        "u = aten.mul.Tensor(x, other=z)",
        "return (u,)",
    ]


def test_the_order_of_the_state_is_not_that_of_names() -> None:
    assert taken(lifted("p = get a.m\nq = get a.n\ny = aten.add.Tensor(p, q)\nreturn (y,)")) == ["q a.n", "p a.m", "x"]


def test_a_tensor_is_one_input_under_the_name_that_was_read_first() -> None:
    result = lifted("p = get b.n\nq = get a.n\ny = aten.add.Tensor(p, q)\nreturn (y,)")
    assert taken(result) == ["p b.n", "x"]
    assert lines(result) == ["y = aten.add.Tensor(p, p)", "return (y,)"]


def test_what_the_root_gives_back_is_the_input() -> None:
    result = lifted("p = get k\nreturn (p,)")
    assert (taken(result), lines(result)) == (["p k", "x"], ["return (p,)"])


def test_inputs_that_are_read_keep_what_their_reads_say() -> None:
    program = told(tree('graph @""(x) {' + READS + "}", STATE), {"p": number((2,)), "r": {"stack_trace": "r"}})
    assert px.lift_state(program).main.inputs[1] == px.Input("p", program.main.nodes[0].meta)
    assert "val" in px.lift_state(program).main.inputs[1].meta


SUNK = """program {
  state {
    buffer a.n: f32[2]
    buffer a.m: f32[2]
    buffer b.n: f32[2] tied a.n
  }
  takes {
    state a.m
    user x: f32[2]
    state a.n
    state b.n
  }
  gives {
    user
  }
  graph @""(pm, x, pn, qn) {
    y = aten.add.Tensor(x, qn)  in b
    z = aten.add.Tensor(x, pn)  in a
    w = aten.add.Tensor(y, z)
    return (w,)
  }
}"""


def test_two_inputs_of_one_tensor_come_back_as_two() -> None:
    program = px.parse(SUNK)
    back = px.lift_state(px.sink_state(program))
    assert taken(back) == ["a_m a.m", "x", "pn a.n", "qn b.n"]
    assert lines(back)[:2] == ["y = aten.add.Tensor(x, qn) in b", "z = aten.add.Tensor(x, pn) in a"]


@pytest.mark.parametrize("fuel", range(4))
def test_what_is_not_lifted_yet_is_remembered(fuel: int) -> None:
    """The inputs of the exporter come back in their order, and the rest when there is fuel again."""
    sunk = px.sink_state(px.parse(SUNK))
    spent = px.Fuel(fuel)
    part = px.lift_state.spend(sunk, spent)
    assert px.verify(part) == ()
    assert spent.labels == ("lift a.m", "lift a.n", "lift b.n")[:fuel]
    assert [place.slot for place in part.signature.lifted] == (["a.m", "a.n", "b.n"][fuel:] if fuel < 3 else [])
    assert taken(part) == [["x"], ["a_m a.m", "x"], ["a_m a.m", "x", "pn a.n"], ["a_m a.m", "x", "pn a.n", "qn b.n"]][fuel]
    assert taken(px.lift_state(part)) == taken(px.lift_state(sunk))


@pytest.mark.parametrize("where", ["here", "in the body"])
def test_a_program_that_calls_modules_is_refused(where: str) -> None:
    """Also where only the bodies read."""
    root = 'graph @""(x) {\np = get k\ny = call @a(p) as a\nreturn (y,)\n}\ngraph @a(x) {\nreturn x\n}'
    inner = 'graph @""(x) {\ny = call @a(x) as a\nreturn (y,)\n}\ngraph @a(x) {\nn = get n\nreturn n\n}'
    with pytest.raises(px.PipelineError, match=r"requires a program that is 'flat', .* outline.* inline"):
        px.lift_state(tree(root if where == "here" else inner, STATE))


def test_reads_in_branches_stay_reads() -> None:
    text = 'graph @""(x) {\np = get k\ny = higher_order.cond(x, @"$t", @"$t", (p,))\nreturn (y,)\n}'
    result = px.lift_state(tree(text + '\ngraph @"$t"(v) {\nn = get a.n\nreturn (n,)\n}', STATE))
    assert taken(result) == ["p k", "x"]
    assert "n = get a.n" in shown(result, "$t")
