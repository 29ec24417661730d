"""New contents of state that are sent, and waited for later: they are copied when they are there.

Cause: waiting is no write, so the copy stood before it, and took what was in memory by then.
"""

from __future__ import annotations

import torch

import purefx as px
from purefx.laws import toy
from purefx.laws.toy import toy_meaning


def sent_into_state() -> px.Program:
    nodes = (
        px.Node("sent", toy.SEND, (px.Ref("x"), "g0")),
        px.Node("there", toy.WAIT, (px.Ref("sent"),)),
    )
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.tensor(1), 0, 0)
    inputs = (px.ir.StateInput("s"), px.ir.UserInput(px.ir.TensorType(torch.int64, ()), "x"))
    signature = px.ir.Signature(inputs, (px.ir.StateMutation("s"),))
    graph = px.Graph((px.Input("s"), px.Input("x")), nodes, (px.Ref("sent"),))
    return px.Program.of({"": graph}, state=px.ir.State(("s",), px.ir.pmap({"s": slot})), signature=signature)


def test_what_is_sent_is_copied_behind_the_wait() -> None:
    program = sent_into_state()
    inplace = px.inplace_mutations(program)
    assert [node.name for node in inplace.main.nodes] == ["sent", "there", "copy_"]
    assert toy_meaning(inplace) == toy_meaning(program)


def test_a_copy_before_the_wait_is_not_given_back() -> None:
    inplace = px.inplace_mutations(sent_into_state())
    sent, there, copy = inplace.main.nodes
    early = inplace.with_main(inplace.main.with_nodes([sent, copy, there]))
    assert toy_meaning(px.functionalize(early)) == toy_meaning(early)
