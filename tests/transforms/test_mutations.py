"""Mutations in place and returned, both ways, and buffers that are not persistent."""

from __future__ import annotations

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir.operators import op_of
from tests.programs import ADD, NEG

# Mutations in place: a write never overtakes a read, and what is handed out keeps its contents.


N, M = px.ir.StateInput("n"), px.ir.StateInput("m")


def mutating(
    nodes: list[px.Node], outputs: list[tuple[str, px.ir.UserOutput | px.ir.StateMutation | px.ir.InputMutation]]
) -> px.Program:
    """Return a flat program of two buffers ``n`` and ``m`` and an input ``x``, all of two ones."""
    inputs = (px.Input("bn"), px.Input("bm"), px.Input("x"))
    specs = (N, M, px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), "x"))
    slots = {name: px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), index, index) for index, name in enumerate("nm")}
    graph = px.Graph(inputs, tuple(nodes), tuple(px.Ref(name) for name, _ in outputs))
    signature = px.ir.Signature(specs, tuple(spec for _, spec in outputs))
    modules = (px.ir.Module(""),)
    return px.Program.of(
        {"": graph},
        state=px.ir.State(("n", "m"), px.ir.pmap(slots)),
        signature=signature,
        modules=modules,
        facts=frozenset({"flat"}),
    )


def test_a_write_stands_in_the_calls_that_its_value_and_the_last_read_share() -> None:
    """The value is made in a call of ``a``, and the old contents are read in a call inside another one, or in itself."""
    made, frame = px.Frame("a"), px.Frame("a", 1)
    for stack, expected in (((frame, px.Frame("a.b")), ()), ((made, px.Frame("a.b")), (made,)), ((), ())):
        program = mutating(
            [px.Node("v", ADD, (px.Ref("x"), 1), stack=(made,)), px.Node("y", NEG, (px.Ref("bn"),), stack=stack)],
            [("v", px.ir.StateMutation("n")), ("y", px.ir.UserOutput())],
        )
        copy = px.inplace_mutations(program.evolve(modules=())).main.nodes[2]
        assert (copy.name, copy.stack) == ("copy_", expected)


# Which writes are returned: those after which nothing looks at the memory, under any of its names or in any body.


TEXT = """program {{
  state {{
    buffer n: f32[2]
    buffer other: f32[2] tied n
    buffer m: f32[2]
  }}
  takes {{
    {takes}
    state n
    user x: f32[2]
    state m
  }}
  gives {{
    {gives}
  }}
  graph @""({inputs}bn, x, bm) {{
    y = aten.neg.default(x)
    {nodes}
  }}
  {body}
}}"""

BODY = 'graph @"$t"(v) {{\n{nodes}\nreturn (v,)\n}}'


def parsed(nodes: str, *gives: str, body: str = "", token: bool = False) -> px.Program:
    """Return a program of these nodes, and of a body that an operator may be given."""
    text = TEXT.format(
        nodes=nodes, gives="\n".join(gives), body=BODY.format(nodes=body) if body else "",
        takes="token" if token else "", inputs="t, " if token else "",
    )  # fmt: skip
    program = px.parse(text)
    assert px.verify(program) == ()
    return program


WAYS = {
    "contents that are returned already": ("z = aten.abs.default(x)\nreturn (z, y)", ("state n", "user"), ""),
    "contents of a tied buffer": ("z = aten.abs.default(x)\nreturn (z, y)", ("state other", "user"), ""),
    "a branch that reads it": ('r = higher_order.cond(x, @"$t", @"$t", (x,))\nreturn (y,)', ("user",), "w = get n"),
    "a branch that reads a tied one": ('r = higher_order.cond(x, @"$t", @"$t", (x,))\nreturn (y,)', ("user",), "w = get other"),
    "a branch that writes it": ('r = higher_order.cond(x, @"$t", @"$t", (x,))\nreturn (y,)', ("user",),
     "w = get n\nz = aten.add_.Tensor(w, 1)"),
    "the value is written later": ("z = aten.abs.default(x)\nw = aten.add_.Tensor(y, 1)\nreturn (z,)", ("user",), ""),
    "a keyword": ("return (y,)", ("user",), ""),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_write_that_something_sees_stays(way: str) -> None:
    nodes, gives, body = WAYS[way]
    copy = "c = aten.copy_.default(bn, y, non_blocking=True)" if way == "a keyword" else "c = aten.copy_.default(bn, y)"
    program = parsed(f"{copy}\n{nodes}", *gives, body=body)
    assert px.functionalize(program) is program


def test_a_value_that_a_branch_writes_later_is_not_returned() -> None:
    """What is copied is a buffer itself, and it is other contents at the end."""
    nodes = 'c = aten.copy_.default(bn, bm)\nr = higher_order.cond(x, @"$t", @"$t", (x,))\nreturn (y,)'
    program = parsed(nodes, "user", body="w = get m\nz = aten.add_.Tensor(w, 1)")
    assert px.functionalize(program) is program
    reads = parsed(nodes, "user", body="w = get m")
    assert px.functionalize(reads) is not reads


# Buffers that are not saved: by name and by module, tied ones, and what is refused.


def test_what_is_said_of_a_clone_is_how_it_lies_in_memory() -> None:
    """Of a slice it has strides of its own; the slice's were said of it."""

    class Sliced(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.neg(), x[:, 1:3]

    plain = px.capture(Sliced(), (torch.ones(3, 4),))
    signature = evolve(plain.signature, outputs=(px.ir.InputMutation(0), px.ir.UserOutput()), out_spec=None)
    written = px.inplace_mutations(plain.evolve(signature=signature))
    [clone] = [node for node in written.main.nodes if str(node.do) == str(px.op(torch.ops.aten.clone.default))]
    assert clone.meta["val"].stride() == torch.ones(3, 4)[:, 1:3].clone().stride() == (2, 1)
    assert px.verify(written, infer=True) == ()


def test_state_that_nobody_writes_is_handed_out_itself() -> None:
    """A tuple of a written input and of a buffer made them one memory, so that the caller got a copy of the buffer."""
    pair = px.Op("toy.pair", px.Effects(aliases=(px.ir.ArgAt(0, "a"), px.ir.ArgAt(1, "b"))))
    nodes = [px.Node("pair", pair, (px.Ref("x"), px.Ref("bn"))), px.Node("y", op_of(NEG), (px.Ref("bm"),))]
    outputs = [("y", px.ir.InputMutation(2)), ("bn", px.ir.UserOutput()), ("x", px.ir.UserOutput())]
    written = px.inplace_mutations(mutating(nodes, outputs))
    assert written.main.output == (px.Ref("bn"), px.Ref("clone"))
    assert px.functionalize(written) == mutating(nodes, outputs)
