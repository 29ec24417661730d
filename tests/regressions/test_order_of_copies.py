"""Copies that may stand in any order stand in the exporter's, whatever the order of the outputs that they come from.

One idea: the smallest program that broke the law 'inplace_mutations undoes functionalize'.
"""

from __future__ import annotations

import torch
from attrs import evolve

import purefx as px
from purefx.laws import toy
from purefx.laws.law import Case
from purefx.laws.pairs import PAIRS, copies_nothing, copies_stand_first
from purefx.transforms.mutations import COPY

INTEGER = px.TensorType(torch.int64, ())


def test_functionalize_gives_back_the_outputs() -> None:
    slots = {name: px.Slot(px.SlotKind.BUFFER, torch.tensor(n), n, n) for n, name in enumerate(("s0", "s1"))}
    inputs = (px.StateInput("s0"), px.StateInput("s1"), px.UserInput(INTEGER, "x"))
    graph = px.Graph((px.Input("s0"), px.Input("s1"), px.Input("x")), (), (px.Ref("x"), px.Ref("x")))
    backwards = px.Signature(inputs, (px.StateMutation("s1"), px.StateMutation("s0")))
    program = px.Program.of({"": graph}, state=px.State(("s0", "s1"), px.pmap(slots)), signature=backwards)
    written = px.inplace_mutations(program)
    assert [node.args for node in written.main.nodes] == [(px.Ref("s0"), px.Ref("x")), (px.Ref("s1"), px.Ref("x"))]
    assert px.inplace_mutations(px.functionalize(written)) == written
    forwards = evolve(backwards, outputs=(px.StateMutation("s0"), px.StateMutation("s1")))
    assert px.inplace_mutations(program.evolve(signature=forwards)) == written
    assert toy.toy_meaning(written) == toy.toy_meaning(program)


def test_a_copy_of_the_user_comes_back_where_copies_are_made() -> None:
    """Where it stood is not in what is returned: it comes back right behind the value, in the call of that, and then stays."""
    neg = px.Op("toy.neg")
    nodes = (
        px.Node("n", neg, (px.Ref("x"),)),
        px.Node("m", neg, (px.Ref("n"),), (), (px.Frame("a"),)),
        px.Node("c", COPY, (px.Ref("x"), px.Ref("n")), (), (px.Frame("a"),)),
    )
    graph = px.Graph((px.Input("x"),), nodes, ())
    program = px.Program.of({"": graph}, signature=px.Signature((px.UserInput(INTEGER, "x"),)), facts=frozenset({"flat"}))
    assert not copies_nothing(program)
    assert not copies_stand_first(program)
    again = px.inplace_mutations(px.functionalize(program))
    assert [node.name for node in again.main.nodes] == ["n", "copy_", "m"]
    assert toy.toy_meaning(again) == toy.toy_meaning(program)
    assert copies_stand_first(again)
    assert px.inplace_mutations(px.functionalize(again)) == again
    assert [law.check(Case(program)) for law in PAIRS if {"functionalize"} == {*law.transformations} - {"inplace_mutations"}] == [
        []
    ] * 4
