"""The inverse transformations: each gives back what its partner took, on real exported programs.

A chain of stages is run forwards and back, and at every stage the way back is compared by digest, verified, and
run for three calls against eager.  Hand-built programs show what exported ones do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import attrs
import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.signature import SunkInput
from purefx.laws.variants import reordered
from tests.programs import ADD, NEG, Branches, Counter, Shared, Tower, exported, flat, parent

# Dynamo asks a tensor inside a cond for its gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

A, B = px.Frame("a"), px.Frame("b")


class Conds(parent(one=lambda: Chooser(), two=lambda: Chooser())):
    """Chooses twice, in a child that counts in a buffer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(self.one(x)))


class Chooser(parent(linear=lambda: nn.Linear(4, 4), count=lambda: torch.zeros(()))):
    """A cond, and a buffer that counts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        x = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        return self.linear(x) * self.count


class Swapper(nn.Module):
    """Swaps two buffers, hands out an old one, ties a weight, and writes to what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("m", torch.zeros(4))
        self.register_buffer("n", torch.ones(4))
        self.linear = nn.Linear(4, 4)
        self.again = self.linear
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old = self.m.clone()
        self.m.copy_(self.n * 2)
        self.n.copy_(old + 1)
        y.add_(1)
        return self.again(self.linear(x)) + self.m, old


MODULES: dict[str, Callable[[], nn.Module]] = {
    "shared": Shared, "tower": Tower, "branches": Branches, "counter": Counter, "conds": Conds, "swapper": Swapper,
}  # fmt: skip

STEPS = (px.remove_effect_tokens, px.inplace_mutations, px.sink_state, px.outline, px.deduplicate)


def inputs(name: str) -> tuple[torch.Tensor, ...]:
    """Return what a module is called with."""
    return tuple(torch.randn(3, 4) for _ in range(2 if name == "swapper" else 1))


@cache
def imported(name: str, *, decomposed: bool) -> px.Program:
    """Return the program of a module, exported once: it is a value."""
    return px.import_ep(exported(MODULES[name](), *inputs(name), decomposed=decomposed))


def stages(name: str, *, decomposed: bool, seed: int | None = None) -> tuple[px.Program, ...]:
    """Return the program after each step of the default pipeline, the imported one first."""
    program = imported(name, decomposed=decomposed)
    found = [program if seed is None else reordered(program, seed=seed)]
    for step in STEPS:
        found.append(step(found[-1]))
    return tuple(found)


@pytest.fixture(params=[(name, decomposed) for name in MODULES for decomposed in (False, True)], ids=str)
def chain(request: pytest.FixtureRequest) -> tuple[str, tuple[px.Program, ...]]:
    """A module's name and its program at every stage."""
    return request.param[0], stages(request.param[0], decomposed=request.param[1])


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


def writing(nodes: list[px.Node], *outputs: str) -> px.Program:
    """Return a flat program of two buffers, ``bn`` and ``bm``, and an input ``x``."""
    slots = {name: px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2) + index, index, index) for index, name in enumerate("nm")}
    specs = (px.ir.StateInput("n"), px.ir.StateInput("m"), px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), "x"))
    graph = px.Graph(tuple(px.Input(name) for name in ("bn", "bm", "x")), tuple(nodes), tuple(px.Ref(name) for name in outputs))
    signature = px.ir.Signature(specs, tuple(px.ir.UserOutput() for _ in outputs))
    return px.Program.of(
        {"": graph}, state=px.ir.State(("n", "m"), px.ir.pmap(slots)), signature=signature, modules=(px.ir.Module(""),)
    )


def step(name: str, op: px.Op, *args: object) -> px.Node:
    """Return a node whose string arguments are references."""
    return px.Node(name, op, tuple(px.Ref(arg) if isinstance(arg, str) else arg for arg in args))
