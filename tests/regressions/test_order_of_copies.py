"""Copies that may stand in any order stand in the exporter's, whatever the order of the outputs that they come from.

One idea: the smallest program that broke the law 'inplace_mutations undoes functionalize'.
"""

from __future__ import annotations

import torch
from attrs import evolve

import purefx as px
from purefx.laws import toy

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
