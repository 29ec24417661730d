"""Bodies of operators in exported programs, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.operators import op_of
from tests.models import NEG, Block, flat, imported

# What torch cannot express, or what a caller gets wrong, is told before anything is made; names of a program run nothing.

X = torch.ones(1, 4)


def block() -> px.Program:
    return imported(Block(), X)


def plain(x: torch.Tensor) -> torch.Tensor:
    """Do what a user's function does."""
    return x


class Hostile:
    """An object whose text is code."""

    def __repr__(self) -> str:
        return "__import__('os').abort()"

    def __call__(self) -> None:
        """Be callable, so that a program may hold it."""


def buffer(name: str) -> px.ir.State:
    """Return a state of one buffer."""
    return px.ir.State(
        (name,), px.ir.pmap({name: px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)})
    )


def one(do: px.Op, *args: Any) -> px.Program:
    """Return a program of one operator."""
    return flat(
        [px.Node("y", do, args, meta={"val": torch.empty(2, device="meta")})], px.Ref("y"), "x"
    )


def branch() -> px.Program:
    """Return a program whose branches read state."""
    then = px.Graph(
        (px.Input("a"),),
        (px.Node("b", px.Get("n")), px.Node("c", NEG, (px.Ref("b"),))),
        (px.Ref("c"),),
    )
    cond = px.Node(
        "y",
        op_of(torch.ops.higher_order.cond),
        (True, px.ir.Body("then"), px.ir.Body("then"), (px.Ref("x"),)),
    )
    program = flat([cond], px.Ref("y"), "x", state=buffer("n"))
    return program.evolve(graphs=program.graphs.set("then", then))


CODE = 'a"); __import__("os").abort(); ("'
SPLIT = px.Node("y", op_of(torch.ops.aten.split.Tensor), (px.Ref("x"), 1))

REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: px.to_ep(block(), state="none"), ValueError, '"copy" or "share"'),  # type: ignore[arg-type]
    (lambda: px.to_ep(block(), dialect="EDGE"), ValueError, 'None, "TRAINING" or "ATEN"'),  # type: ignore[arg-type]
    (lambda: px.to_ep(block(), example_inputs=(X,)), px.errors.InputError, "example_inputs"),  # type: ignore[arg-type]
    (
        lambda: px.to_ep(block(), example_inputs=((), {"x": 1, "z": 2})),
        px.errors.InputError,
        "example_inputs",
    ),
    (
        lambda: px.to_ep(block(), example_inputs=((X, X), {})),
        px.errors.InputError,
        "example_inputs",
    ),
    (
        lambda: px.to_ep(one(px.Op("toy.neg"), px.Ref("x"))),
        px.errors.UnsupportedProgram,
        "toy.neg has no callable, so",
    ),
    (
        lambda: px.to_ep(one(op_of(plain), px.Ref("x"))),
        px.errors.UnsupportedProgram,
        "is not an operator of torch.*custom_op",
    ),
    (
        lambda: px.to_ep(one(NEG, Hostile())),
        px.errors.UnsupportedProgram,
        "an argument of type .*Hostile is not allowed",
    ),
    (
        lambda: px.to_ep(one(op_of(torch.relu), px.Ref("x"))),
        px.errors.UnsupportedProgram,
        "torch rejects the .*relu",
    ),
    (
        lambda: px.to_ep(branch()),
        px.errors.UnsupportedProgram,
        r"reads the state 'n' inside the body of an operator.*operand",
    ),
    (
        lambda: px.to_ep(flat([SPLIT], px.Ref("y"), "x")),
        px.errors.UnsupportedProgram,
        r"'y' is a list.*operator\.getitem",
    ),
    (
        lambda: px.to_ep(flat([], px.Ref("x"), "x", state=buffer(CODE))),
        px.errors.UnsupportedProgram,
        "would break the code",
    ),
]


@pytest.mark.parametrize(("call", "kind", "said"), REFUSED)
def test_refusals(call: Callable[[], Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        call()


@pytest.mark.parametrize(
    "name",
    ["x=__import__('os').abort()", "a\nimport os", "\u202ex", "def", "self", "torch", "1", "x.y"],
)
def test_names_of_values_run_nothing(name: str) -> None:
    nodes = [px.Node(name + "_", NEG, (px.Ref(name),)), px.Node("y", NEG, (px.Ref(name + "_"),))]
    program = flat(nodes, px.Ref("y"), name)
    assert px.to_ep(program).module()(torch.ones(2))[0].tolist() == [1, 1]
    assert px.alpha_equal(
        px.import_ep(px.to_ep(program)).evolve(modules=()), _with_specs_of(program)
    )


def _with_specs_of(program: px.Program) -> px.Program:
    return program.evolve(signature=px.import_ep(px.to_ep(program)).signature)


def test_a_program_with_the_guards_of_a_module_names_the_way() -> None:
    """The read of the guards is in the root; the message said that it is in the body of an operator."""
    x = torch.randn(4, 4)
    ep = torch.export.export(
        Halves(), (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False
    )
    message = r"reads the module '_guards_fn', and exported programs call no modules.*px\.import_ep"
    with pytest.raises(px.errors.UnsupportedProgram, match=message):
        px.to_ep(px.import_fx(ep.module()))
    again = px.to_ep(px.import_ep(ep))
    assert torch.equal(again.module()(x), Halves()(x))


def test_a_swapped_module_is_exported_by_capture() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.randn(2, 4)
    program = px.transform(px.capture(model, (x,), preserve_module_call_signature=("1",)))
    swapped = px.swap_modules(program, {"1": torch.nn.Softplus()})
    message = r"reads the module '1', and exported programs call no modules.*px\.capture\(px\.lower"
    with pytest.raises(px.errors.UnsupportedProgram, match=message):
        px.to_ep(swapped)
    ep = px.to_ep(px.capture(px.lower(swapped), (x,)))
    assert torch.equal(ep.module()(x), px.lower(swapped)(x))


class Halves(torch.nn.Module):
    """Exports a guard on its size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] // 2, -1)


def test_a_held_module_is_exported_by_capture() -> None:
    """What the message advises is a way through: the trace of a model with leaf modules becomes an ExportedProgram."""
    x = torch.ones(1, 4)
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    program = px.import_fx(traced, example_inputs=(x,))
    with pytest.raises(
        px.errors.UnsupportedProgram, match=r"px\.capture\(px\.lower\(program\), args\)"
    ):
        px.to_ep(program)
    with pytest.raises(px.errors.UnsupportedProgram, match="import_fx does with example_inputs"):
        px.to_ep(px.import_fx(traced))
    ep = px.to_ep(px.capture(px.lower(program), (x,)))
    assert torch.equal(ep.module()(x), traced(x)) and list(ep.state_dict) == list(
        traced.state_dict()
    )
