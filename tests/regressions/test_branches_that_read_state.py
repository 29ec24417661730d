"""A program whose branches read state and call modules was valid, and lowered to a module that did not find them.

One idea: the smallest branch that does both, in a module that is called twice.
"""

from __future__ import annotations

import operator

import pytest
import torch

import purefx as px
from purefx.ir.operators import op_of
from tests.programs import ADD, MUL


def program() -> px.Program:
    """Return a program with a cond in a module that is called under two paths."""
    cond, item = op_of(torch.ops.higher_order.cond), op_of(operator.getitem)
    child = px.Graph((px.Input("x"),), (px.Node("w", px.Get("w")), px.Node("y", MUL, (px.Ref("x"), px.Ref("w")))), px.Ref("y"))
    yes = px.Graph(
        (px.Input("x"),),
        (
            px.Node("b", px.Get("b")),
            px.Node("c", px.Call(px.Frame("child"), "child"), (px.Ref("x"),)),
            px.Node("y", ADD, (px.Ref("c"), px.Ref("b"))),
        ),
        (px.Ref("y"),),
    )
    no = px.Graph((px.Input("x"),), (px.Node("y", MUL, (px.Ref("x"), 2)),), (px.Ref("y"),))
    body = px.Graph(
        (px.Input("p"), px.Input("x")),
        (
            px.Node("all", cond, (px.Ref("p"), px.Body("yes"), px.Body("no"), (px.Ref("x"),))),
            px.Node("one", item, (px.Ref("all"), 0)),
        ),
        px.Ref("one"),
    )
    main = px.Graph(
        (px.Input("p"), px.Input("x")),
        (
            px.Node("first", px.Call(px.Frame("a"), "m"), (px.Ref("p"), px.Ref("x"))),
            px.Node("second", px.Call(px.Frame("b"), "m"), (px.Ref("p"), px.Ref("first"))),
        ),
        (px.Ref("second"),),
    )
    values = {"a.b": 1.0, "a.child.w": 2.0, "b.b": 10.0, "b.child.w": 3.0}
    slots = {
        name: px.Slot(px.SlotKind.BUFFER, torch.full((2,), value), number, number)
        for number, (name, value) in enumerate(values.items())
    }
    types = (px.UserInput(px.TensorType(torch.bool, ()), "p"), px.UserInput(px.TensorType(torch.float32, (2,)), "x"))
    return px.Program.of(
        {"": main, "m": body, "yes": yes, "no": no, "child": child},
        state=px.State(tuple(slots), px.pmap(slots)),
        signature=px.Signature(types, (px.UserOutput(),)),
    )


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_branches_find_what_the_module_around_them_has(to: str) -> None:
    """Each of the two modules its own buffer and its own child."""
    module = px.lower(program(), to=to)  # type: ignore[arg-type]
    x = torch.ones(2)
    assert module(torch.tensor(True), x)[0].tolist() == [(1 * 2 + 1) * 3 + 10.0] * 2
    assert module(torch.tensor(False), x)[0].tolist() == [4.0, 4.0]
    module.get_buffer("b.b").add_(1)
    assert module(torch.tensor(True), x)[0].tolist() == [(1 * 2 + 1) * 3 + 11.0] * 2
