"""Programs whose modules are not listed stay so when they are split, renumbered and joined; inputs follow the names of state.

The smallest programs: a stack in a split program that lists nothing but its part, and a split program that was inlined and
takes its state as an input.
"""

from __future__ import annotations

import torch
from attrs import evolve

import purefx as px
from tests.programs import NEG


def test_renumbering_lists_nothing_beside_parts() -> None:
    node = px.Node("y", NEG, (px.Ref("x"),), stack=(px.Frame("a", 3),))
    signature = px.Signature((px.UserInput(px.TensorType(torch.float32, (2,)), "x"),), (px.UserOutput(),))
    program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))}, signature=signature)
    split = px.inline(px.split_by_tags(program, ("part",), tag_of={"y": "part"}))
    numbered = px.normalize_stacks(split)
    assert numbered.main.nodes[0].stack[-1] == px.Frame("part.a")
    joined = px.join(numbered)
    assert px.verify(numbered) == px.verify(joined) == ()
    assert joined.modules == ()


def test_state_inputs_get_their_names_back() -> None:
    nodes = (px.Node("w", px.Get("m.w")), px.Node("y", NEG, (px.Ref("w"),)))
    slot = px.Slot(px.SlotKind.BUFFER, torch.ones(2), 0, 0)
    state = px.State(("m.w",), px.pmap({"m.w": slot}))
    signature = px.Signature((), (px.UserOutput(),))
    program = px.Program.of({"": px.Graph((), nodes, (px.Ref("y"),))}, state=state, signature=signature)
    split = px.split_by_tags(program, ("part",), tag_of={"y": "part"})
    lifted = px.lift_state(px.inline(split))
    assert lifted.signature.inputs == (px.StateInput("part.m.w"),)
    joined = px.join(lifted)
    assert joined.signature.inputs == (px.StateInput("m.w"),)
    assert px.verify(joined) == ()


def test_constants_of_a_split_program_that_was_inlined() -> None:
    """The part is then in the stacks of nodes, and in no graph."""
    node = px.Node("y", NEG, (px.Ref("x"),))
    signature = px.Signature((px.UserInput(px.TensorType(torch.float32, (2,)), "x"),), (px.UserOutput(),))
    program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))}, signature=signature)
    flat = px.inline(px.split_by_tags(program, ("part",), tag_of={"y": "part"}))
    constant = evolve(flat.main.nodes[0], args=(torch.ones(2),))
    lifted = px.lift_constants(flat.with_main(evolve(flat.main, nodes=(constant,))))
    assert lifted.state.order == ("part._constant0",)
    assert px.verify(lifted) == ()
    assert px.join(lifted).state.order == ("_constant0",)
