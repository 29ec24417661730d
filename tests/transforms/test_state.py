"""State as reads and as inputs, mutations in place and returned, effect tokens: all of them both ways."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir.meta import Meta
from purefx.ir.operators import GETITEM, op_of
from tests.models import COPY_, NEG, Shared, exported, flat, node, parent
from tests.transforms.small import lines, number, shown, told, tree

# Sinking state: each read stands in the innermost module that owns the tensor under one of its names.


def reads(program: px.Program) -> set[tuple[str, str]]:
    """Return (module call, slot) for every read of an outlined program."""
    return {
        (name, node.do.slot)
        for name in program.order
        for node in program.graphs[name].nodes
        if isinstance(node.do, px.Get)
    }


def hierarchical(module: nn.Module, *args: object) -> px.Program:
    """Return the outlined, not deduplicated program."""
    return px.transform(
        px.import_ep(exported(module, *args)), *px.DEFAULT[: px.DEFAULT.index(px.deduplicate)]
    )


def test_tied_weights_are_read_under_the_name_of_the_module_at_hand() -> None:
    """The exporter names a tied weight once; unused state is no input, and stays."""
    program = hierarchical(Shared(), torch.ones(3, 4))
    assert reads(program) >= {("a.linear", "weight"), ("tied", "weight"), ("a@1", "count")}
    assert [type(spec) for spec in program.signature.inputs] == [
        px.ir.UserInput
    ] and "unused.weight" in program.state


def test_state_of_others_is_read_below_a_module_that_has_it() -> None:
    """A parent reads that of its child by its dotted name, and hands it to the sibling that uses it."""

    class User(nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return x @ weight

    class Parent(parent(owner=lambda: nn.Linear(4, 4), user=User)):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.user(self.owner(x), self.owner.weight)

    program = hierarchical(model := Parent(), x := torch.randn(2, 4))
    assert reads(program) == {("", "owner.weight"), ("owner", "weight"), ("owner", "bias")}
    assert len(program.graphs["user"].inputs) == 2
    assert torch.equal(px.lower(program)(x), model(x))


# Reads that become inputs: which slot the input is, what it is called, and where it stands.


STATE = "state {\nbuffer a.n: f32[2]\nbuffer a.m: f32[2]\nbuffer b.n: f32[2] tied a.n\nbuffer k: f32[2]\n}"


def taken(program: px.Program) -> list[str]:
    """Return each input of the root with the slot that it is, if any."""
    pairs = zip(program.main.inputs, program.signature.inputs, strict=True)
    return [
        f"{formal.name} {spec.slot if isinstance(spec, px.ir.StateInput) else ''}".strip()
        for formal, spec in pairs
    ]


def test_a_tensor_is_one_input_under_the_name_that_was_read_first() -> None:
    nodes = "p = get b.n\nq = get a.n\ny = aten.add.Tensor(p, q)\nreturn (y,)"
    result = px.lift_state(tree('graph @""(x) {\n' + nodes + "\n}", STATE))
    assert px.verify(result) == ()
    assert taken(result) == ["p b.n", "x"]
    assert lines(result) == ["y = aten.add.Tensor(p, p)", "return (y,)"]


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
    back = px.lift_state(px.sink_state(px.parse(SUNK)))
    assert taken(back) == ["a_m a.m", "x", "pn a.n", "qn b.n"]
    assert lines(back)[:2] == ["y = aten.add.Tensor(x, qn) in b", "z = aten.add.Tensor(x, pn) in a"]


def test_reads_in_branches_stay_reads() -> None:
    text = 'graph @""(x) {\np = get k\ny = higher_order.cond(x, @"$t", @"$t", (p,))\nreturn (y,)\n}'
    result = px.lift_state(tree(text + '\ngraph @"$t"(v) {\nn = get a.n\nreturn (n,)\n}', STATE))
    assert taken(result) == ["p k", "x"]
    assert "n = get a.n" in shown(result, "$t")


# Mutations in place: a write never overtakes a read, and what is handed out keeps its contents.

TEXT = """program {{
  state {{
    buffer n: f32[2]
    buffer other: f32[2] tied n
    buffer m: f32[2]
  }}
  takes {{
    state n
    user x: f32[2]
    state m
  }}
  gives {{
    {gives}
  }}
  graph @""(bn, x, bm) {{
    {nodes}
  }}
  {body}
}}"""

BODY = 'graph @"$t"(v) {{\n{nodes}\nreturn (v,)\n}}'


def mutating(nodes: str, *gives: str, body: str = "") -> px.Program:
    """Return a program of these nodes, and of a body that an operator may be given."""
    text = TEXT.format(
        nodes=nodes, gives="\n".join(gives), body=BODY.format(nodes=body) if body else ""
    )
    program = px.parse(text)
    assert px.verify(program) == ()
    return program


@pytest.mark.parametrize(
    ("stack", "expected"), [("in a@1 / a.b", ""), ("in a / a.b", " in a"), ("", "")]
)
def test_a_write_stands_in_the_calls_that_its_value_and_the_last_read_share(
    stack: str, expected: str
) -> None:
    """The value is made in a call of ``a``, and the old contents are read in a call inside another one, or in itself."""
    program = mutating(
        f"v = aten.add.Tensor(x, 1)  in a\ny = aten.neg.default(bn)  {stack}\nreturn (v, y)",
        "state n",
        "user",
    )
    assert (
        lines(px.inplace_mutations(program.evolve(modules=())))[2]
        == f"copy_ = aten.copy_.default(bn, v){expected}"
    )


def test_returned_mutations_stand_before_what_the_user_gets_state_first() -> None:
    nodes = [node("c", NEG, "x"), node("w", COPY_, "x", "c"), node("d", NEG, "c"), node("v", COPY_, "bm", "d"),
             node("e", NEG, "d"), node("u", COPY_, "bn", "e")]  # fmt: skip
    base = mutating("return (bn,)", "user")
    result = px.functionalize(
        base.with_main(px.Graph(base.main.inputs, tuple(nodes), (px.Ref("c"),)))
    )
    specs = (
        px.ir.StateMutation("n"),
        px.ir.StateMutation("m"),
        px.ir.InputMutation(1),
        px.ir.UserOutput(),
    )
    assert result.signature.outputs == specs
    assert lines(result)[-1] == "return (e, d, c, c)"


@pytest.mark.parametrize(
    ("value", "stays"),
    [(number((2,)), False), (number((1,)), True), (number((2,), torch.float64), True)],
    ids=["same", "shape", "dtype"],
)
def test_only_a_copy_of_one_kind_becomes_a_returned_value(value: Meta, stays: bool) -> None:
    """copy_ broadcasts and converts; a returned mutation does not."""
    program = mutating(
        "c = aten.neg.default(x)\nw = aten.copy_.default(bn, c)\nreturn (c,)", "user"
    )
    typed = told(program, {"bn": number((2,)), "x": value, "c": value})
    assert (px.functionalize(typed) is typed) == stays


# Which writes are returned: those after which nothing looks at the memory, under any of its names or in any body.


COND = 'r = higher_order.cond(x, @"$t", @"$t", (x,))\nreturn (y,)'

WAYS = {
    "contents that are returned already": (
        "z = aten.abs.default(x)\nreturn (z, y)",
        ("state n", "user"),
        "",
    ),
    "contents of a tied buffer": (
        "z = aten.abs.default(x)\nreturn (z, y)",
        ("state other", "user"),
        "",
    ),
    "a branch that reads it": (COND, ("user",), "w = get n"),
    "a branch that reads a tied one": (COND, ("user",), "w = get other"),
    "a branch that writes it": (COND, ("user",), "w = get n\nz = aten.add_.Tensor(w, 1)"),
    "the value is written later": (
        "z = aten.abs.default(x)\nw = aten.add_.Tensor(y, 1)\nreturn (z,)",
        ("user",),
        "",
    ),
    "a keyword": ("return (y,)", ("user",), ""),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_write_that_something_sees_stays(way: str) -> None:
    nodes, gives, body = WAYS[way]
    option = ", non_blocking=True" if way == "a keyword" else ""
    program = mutating(
        f"y = aten.neg.default(x)\nc = aten.copy_.default(bn, y{option})\n{nodes}",
        *gives,
        body=body,
    )
    assert px.functionalize(program) is program


def test_a_value_that_a_branch_writes_later_is_not_returned() -> None:
    """What is copied is a buffer itself, and it is other contents at the end."""
    nodes = f"y = aten.neg.default(x)\nc = aten.copy_.default(bn, bm)\n{COND}"
    program = mutating(nodes, "user", body="w = get m\nz = aten.add_.Tensor(w, 1)")
    assert px.functionalize(program) is program
    reading = mutating(nodes, "user", body="w = get m")
    assert px.functionalize(reading) is not reading


def test_what_is_said_of_a_clone_is_how_it_lies_in_memory() -> None:
    """Of a slice it has strides of its own; the slice's were said of it."""

    class Sliced(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.neg(), x[:, 1:3]

    plain = px.capture(Sliced(), (torch.ones(3, 4),))
    signature = evolve(
        plain.signature, outputs=(px.ir.InputMutation(0), px.ir.UserOutput()), out_spec=None
    )
    written = px.inplace_mutations(plain.evolve(signature=signature))
    [clone] = [
        node
        for node in written.main.nodes
        if str(node.do) == str(px.op(torch.ops.aten.clone.default))
    ]
    assert clone.meta["val"].stride() == (2, 1)
    assert px.verify(written, infer=True) == ()


def test_state_that_nobody_writes_is_handed_out_itself() -> None:
    """A tuple of a written input and of a buffer made them one memory, so that the caller got a copy of the buffer."""
    pair = px.Op("toy.pair", px.Effects(aliases=(px.ir.ArgAt(0, "a"), px.ir.ArgAt(1, "b"))))
    base = mutating("y = aten.neg.default(bm)\nreturn (y, bn, x)", "input 1", "user", "user")
    program = base.with_main(
        evolve(base.main, nodes=(node("pair", pair, "x", "bn"), *base.main.nodes))
    )
    written = px.inplace_mutations(program)
    assert written.main.output == (px.Ref("bn"), px.Ref("clone"))
    assert px.functionalize(written) == program


class Kept(parent(total=lambda: torch.zeros(3))):
    def forward(self, c: torch.Tensor, x: torch.Tensor) -> Any:
        self.total.add_(x)
        d = x * 2
        return c.add_(1), self.total, c * 2, c.copy_(d), d


def test_the_caller_gets_the_written_tensor() -> None:
    """Without in-place operators, the new value is a mutation and a result."""
    for decomposed in (False, True):
        program = px.import_ep(
            exported(Kept(), torch.ones(3), torch.ones(3), decomposed=decomposed)
        )
        assert px.verify(written := px.inplace_mutations(program), infer=True) == ()
        assert px.functionalize(written) == program
        module, c = px.lower(px.transform(program)), torch.ones(3)
        for _ in range(2):
            first, total, _, second, d = module(c, torch.ones(3))
            assert first is c and second is c and total is module.total and d is not c


# Effect tokens become ordered effects: same operators, same order, no tokens.


class Speaker(nn.Module):
    def __init__(self, *, child: bool = True) -> None:
        super().__init__()
        self.child = Speaker(child=False) if child else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._print("before")
        y = self.child(x) if self.child is not None else x + 1
        torch.ops.aten._print("after")
        return y * 2


def test_tokens_go_and_order_stays(capfd: pytest.CaptureFixture[str]) -> None:
    """The decomposed program threads tokens; the result prints in eager's order, three calls in a row."""
    program = px.import_ep(exported(Speaker(), torch.ones(2), decomposed=True))
    assert any(isinstance(spec, px.ir.Token) for spec in program.signature.inputs)
    model, x = Speaker(), torch.ones(2)
    capfd.readouterr()
    expected = [(model(x), capfd.readouterr().out) for _ in range(3)]
    assert expected[0][1].count("before") == 2
    for to in ("graph_module", "interpreter"):
        module = px.lower(px.transform(program), to=to)  # type: ignore[arg-type]
        for value, out in expected:
            assert torch.equal(module(x), value)
            assert capfd.readouterr().out == out


@torch.compiler.nested_compile_region  # type: ignore[misc]
def loudly(x: torch.Tensor) -> torch.Tensor:
    """Print inside a region of its own."""
    torch.ops.aten._print("inside")
    return torch.add(x.sin(), 1)


class Regions(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._print("before")
        y: torch.Tensor = loudly(loudly(x))  # type: ignore[assignment]
        torch.ops.aten._print("after")
        return y


def test_tokens_go_out_of_the_bodies_of_operators(capfd: pytest.CaptureFixture[str]) -> None:
    """``invoke_subgraph`` hands the token in and gives it back."""
    ep = torch.export.export(Regions(), (torch.ones(2),), strict=True).run_decompositions({})
    program = px.import_ep(ep)
    body = next(name for name in program.order if name)
    assert "with_effects" in shown(program, body)
    result = px.remove_effect_tokens(program)
    assert px.verify(result) == ()
    assert len(result.graphs[body].inputs) == len(result.graphs[body].output) == 1  # type: ignore[arg-type]
    assert "higher_order.with_effects" not in result.text()
    module: Any = px.lower(px.transform(program))
    for _ in range(3):
        capfd.readouterr()
        torch.testing.assert_close(module(torch.ones(2)), torch.ones(2).sin().add(1).sin() + 1)
        assert capfd.readouterr().out.split() == ["before", "inside", "inside", "after"]


def test_an_operator_of_two_results_gives_both() -> None:
    """The token is the first of three; the others move up."""
    target = torch.ops.aten.max.dim
    nodes = [
        px.Node("w", op_of(torch.ops.higher_order.with_effects), (px.Ref("token"), target, px.Ref("x"), 0),
                meta=MappingProxyType({"val": ("token", "largest", "where")})),
        *[node(name, GETITEM, "w", at) for at, name in enumerate(("t", "v0", "v1"))],
    ]  # fmt: skip
    base = flat(nodes, (px.Ref("t"), px.Ref("v0"), px.Ref("v1")), "token", "x")
    ends = (px.ir.Token(), *base.signature.outputs[1:])
    program = base.evolve(
        signature=evolve(
            base.signature, inputs=(px.ir.Token(), base.signature.inputs[1]), outputs=ends
        )
    )
    result = px.remove_effect_tokens(program)
    assert lines(result) == [
        "w = aten.max.dim(x, 0) ! ordered", "v0 = operator.getitem(w, 0)", "v1 = operator.getitem(w, 1)", "return (v0, v1)",
    ]  # fmt: skip
    assert result.main.nodes[0].meta["val"] == ("largest", "where")


# Modules that a program calls as they are: they stay reads.

WITH_MODULES = {
    "guards of an export": lambda model, x: exported(model, x).module(),
    "guards of open sizes": lambda model, x: exported(
        model, x, dynamic_shapes=({0: torch.export.Dim("n", min=2, max=9)},)
    ).module(),
    "leaves of a symbolic trace": lambda model, _: torch.fx.symbolic_trace(model),
}

THERE_AND_BACK = {
    "lifted": px.lift_state,
    "inferred": lambda p: px.infer(px.lift_state(p)),
    "sunk again": lambda p: px.sink_state(px.lift_state(p)),
    "outlined": lambda p: px.transform(px.lift_state(p)),
    "of a tree": lambda p: px.transform(px.lift_state(px.inline(px.transform(p)))),
}


@pytest.mark.parametrize("way", THERE_AND_BACK)
@pytest.mark.parametrize("source", WITH_MODULES)
def test_a_module_that_the_program_calls_is_no_input(source: str, way: str) -> None:
    model, x = nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.ReLU()), torch.randn(3, 4)
    program = px.import_fx(WITH_MODULES[source](model, x), example_inputs=(x,))
    result = THERE_AND_BACK[way](program)
    assert px.verify(result) == ()
    slots = [spec.slot for spec in result.signature.inputs if isinstance(spec, px.ir.StateInput)]
    assert not {*slots} & {*program.state.modules}
    assert torch.equal(px.lower(result)(x), model(x))


def test_modules_are_all_that_the_root_reads_after_lifting() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
    lifted = px.lift_state(px.import_fx(exported(model, x).module()))
    assert [n.do.slot for n in lifted.main.nodes if isinstance(n.do, px.Get)] == ["_guards_fn"]
    assert "state as inputs" in lifted.facts and px.lift_state(lifted) is lifted
    assert px.alpha_equal(px.lift_state(px.sink_state(lifted)), lifted)
