"""The inverse transformations: each gives back what its partner took, on real exported programs.

A chain of stages is run forwards and back, and at every stage the way back is compared by digest, verified, and
run for three calls against eager.  Hand-built programs show what exported ones do not have.
"""

from __future__ import annotations

import attrs
import pytest
import torch

import purefx as px
from purefx.ir.signature import SunkInput
from tests.programs import ADD, NEG, flat

# Dynamo asks a tensor inside a cond for its gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

A, B = px.Frame("a"), px.Frame("b")


def inputs(name: str) -> tuple[torch.Tensor, ...]:
    """Return what a module is called with."""
    return tuple(torch.randn(3, 4) for _ in range(2 if name == "swapper" else 1))


def test_reads_in_bodies_of_operators_are_placed() -> None:
    """A shared branch that reads its module's state reads two tensors after inlining."""
    region = px.Op("toy.region", px.Effects(through_bodies=True))
    body = px.Graph((), (px.Node("w", px.Get("w")),), (px.Ref("w"),))
    inner = px.Graph((px.Input("x"),), (px.Node("y", region, (px.ir.Body("$t"), px.Ref("x"))),), px.Ref("y"))
    calls = [px.Node(name, px.Call(px.Frame(name), "a"), (px.Ref("x"),)) for name in "ab"]
    main = px.Graph((px.Input("x"),), tuple(calls), (px.Ref("b"),))
    slots = {f"{name}.w": px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), number, number) for number, name in enumerate("ab")}
    program = flat([], (px.Ref("x"),), "x", state=px.ir.State(tuple(slots), px.ir.pmap(slots)))
    program = program.evolve(graphs=px.ir.pmap({"": main, "a": inner, "$t": body}))
    back = px.inline(program)
    assert [node.do.slot for _, node in back.nodes() if isinstance(node.do, px.Get)] == ["a.w", "b.w"]
    assert px.verify(back) == ()


def test_inputs_come_back_where_they_stood() -> None:
    """Also between the user's, with mutations that count them; what was not an input comes first, in the order of state."""
    slots = {name: px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), number, number) for number, name in enumerate("abc")}
    specs = tuple(px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), name) for name in "xy")
    signature = px.ir.Signature(
        (specs[0], px.ir.StateInput("a"), specs[1], px.ir.StateInput("b")), (px.ir.InputMutation(2), px.ir.UserOutput())
    )
    graph = px.Graph(
        tuple(px.Input(name) for name in ("x", "pa", "y", "pb")),
        (px.Node("m", ADD, (px.Ref("y"), px.Ref("pa"))), px.Node("z", NEG, (px.Ref("m"),))),
        (px.Ref("m"), px.Ref("z")),
    )
    program = px.Program.of(
        {"": graph}, signature=signature, state=px.ir.State(tuple(slots), px.ir.pmap(slots)), modules=(px.ir.Module(""),)
    )
    sunk = px.sink_state(program)
    assert sunk.signature.lifted == (SunkInput("a", 1), SunkInput("b", 2, used=False))
    assert px.lift_state(sunk).signature == signature
    assert px.digest(px.lift_state(sunk)) == px.digest(program)
    parsed = px.parse(sunk.text(), state={name: slot.value for name, slot in slots.items()})
    assert parsed == sunk
    assert parsed.signature.lifted == sunk.signature.lifted
    more = sunk.with_main(attrs.evolve(sunk.main, nodes=(px.Node("c", px.Get("c")), *sunk.main.nodes)))
    assert [type(spec).__name__ for spec in px.lift_state(more).signature.inputs] == [
        "StateInput", "UserInput", "StateInput", "UserInput", "StateInput",
    ]  # fmt: skip
    assert px.verify(px.lift_state(more)) == ()
