"""Bodies of operators in exported programs, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.ir.operators import op_of
from tests.programs import NEG, Block, flat
from tests.to_ep.support import imported

# What torch cannot express, or what a caller gets wrong, is told before anything is made; names of a program run nothing.


def plain(x: torch.Tensor) -> torch.Tensor:
    """Do what a user's function does."""
    return x


class Hostile:
    """An object whose text is code."""

    def __repr__(self) -> str:
        return "__import__('os').abort()"

    def __call__(self) -> None:
        """Be callable, so that a program may hold it."""


def test_options() -> None:
    program = imported(Block(), torch.ones(1, 4))
    with pytest.raises(TypeError, match="takes a purefx Program, not an ExportedProgram"):
        px.to_ep(torch.export.export(Block(), (torch.ones(1, 4),)))
    with pytest.raises(ValueError, match='"copy" or "share"'):
        px.to_ep(program, state="none")
    with pytest.raises(ValueError, match='None, "TRAINING" or "ATEN"'):
        px.to_ep(program, dialect="EDGE")


@pytest.mark.parametrize(
    "examples", [(torch.ones(1, 4),), ((), {"x": 1, "z": 2}), [(), {}], ((torch.ones(1), torch.ones(1)), {})]
)
def test_example_inputs_of_another_structure(examples: Any) -> None:
    with pytest.raises(px.errors.InputError, match="example_inputs"):
        px.to_ep(imported(Block(), torch.ones(1, 4)), example_inputs=examples)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (px.Node("y", px.Op("toy.neg"), (px.Ref("x"),)), "toy.neg has no callable behind it"),
        (px.Node("y", op_of(plain), (px.Ref("x"),)), "is not an operator of torch.*custom_op"),
        (px.Node("y", NEG, (Hostile(),)), "an argument of type .*Hostile cannot stand"),
        (px.Node("y", op_of(torch.nn.functional.relu), (px.Ref("x"),)), "torch does not take it.*relu"),
    ],
)
def test_nodes(node: px.Node, said: str) -> None:
    if node.do == op_of(torch.nn.functional.relu):
        node = evolve(node, meta={"val": torch.empty(2, device="meta")})
    with pytest.raises(px.errors.UnsupportedProgram, match=said):
        px.to_ep(flat([node], px.Ref("y"), "x"))


def test_state_that_a_branch_reads() -> None:
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)
    branch = px.Graph((px.Input("a"),), (px.Node("b", px.Get("n")), px.Node("c", NEG, (px.Ref("b"),))), (px.Ref("c"),))
    cond = op_of(torch.ops.higher_order.cond)
    nodes = [px.Node("cond", cond, (True, px.ir.Body("then"), px.ir.Body("then"), (px.Ref("x"),)))]
    program = flat(nodes, px.Ref("cond"), "x", state=px.ir.State(("n",), px.ir.pmap({"n": slot})))
    with pytest.raises(
        px.errors.UnsupportedProgram, match=r"node b reads the state 'n' inside the body of an operator.*as an operand"
    ):
        px.to_ep(program.evolve(graphs=program.graphs.set("then", branch)))


def test_an_output_that_is_a_list() -> None:
    nodes = [px.Node("y", op_of(torch.ops.aten.split.Tensor), (px.Ref("x"), 1))]
    with pytest.raises(px.errors.UnsupportedProgram, match=r"the value 'y' is a list.*operator\.getitem"):
        px.to_ep(flat(nodes, px.Ref("y"), "x"))


def test_a_name_of_state_that_is_code() -> None:
    name = 'a"); __import__("os").abort(); ("'
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)
    program = flat([], px.Ref("x"), "x", state=px.ir.State((name,), px.ir.pmap({name: slot})))
    with pytest.raises(px.errors.UnsupportedProgram, match="has a name that torch would write into code"):
        px.to_ep(program)


@pytest.mark.parametrize("name", ["x=__import__('os').abort()", "a\nimport os", "\u202ex", "def", "self", "torch", "1", "x.y"])
def test_names_of_values_run_nothing(name: str) -> None:
    nodes = [px.Node(name + "_", NEG, (px.Ref(name),)), px.Node("y", NEG, (px.Ref(name + "_"),))]
    program = flat(nodes, px.Ref("y"), name)
    module = px.to_ep(program).module()
    assert module(torch.ones(2))[0].tolist() == [1, 1]
    assert px.alpha_equal(px.import_ep(px.to_ep(program)).evolve(modules=()), _with_specs_of(program))


def _with_specs_of(program: px.Program) -> px.Program:
    return program.evolve(signature=px.import_ep(px.to_ep(program)).signature)


def test_a_held_module_is_exported_by_capture() -> None:
    """What the message advises is a way through: the trace of a model with leaf modules becomes an ExportedProgram."""
    x = torch.ones(1, 4)
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    program = px.import_fx(traced, example_inputs=(x,))
    with pytest.raises(px.errors.UnsupportedProgram, match=r"px\.capture\(px\.lower\(program\), args\)"):
        px.to_ep(program)
    with pytest.raises(px.errors.UnsupportedProgram, match="import_fx does with example_inputs"):
        px.to_ep(px.import_fx(traced))
    ep = px.to_ep(px.capture(px.lower(program), (x,)))
    assert torch.equal(ep.module()(x), traced(x)) and list(ep.state_dict) == list(traced.state_dict())
