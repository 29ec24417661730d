"""The reference evaluator, on programs whose meaning can be worked out by hand.

One idea: each program is the smallest that shows one thing that is easily got wrong.
"""

from __future__ import annotations

import pytest
import torch

import purefx as px
from purefx.laws import behaviour_differences, toy
from purefx.laws.evaluate import evaluate, meaning_differences
from purefx.laws.toy import tensor_meaning, toy_meaning
from tests.programs import Shared, exported

SCALAR = px.TensorType(torch.int64, ())
X = px.UserInput(SCALAR, "x")


def program(nodes: list[px.Node], output: tuple[object, ...], outputs: tuple[object, ...] | None = None) -> px.Program:
    """Return a program of two buffers, ``a`` = 1 and ``b`` = 3, as inputs ``p`` and ``q``, and a user input ``x``."""
    slots = {"a": px.Slot(px.SlotKind.BUFFER, torch.tensor(1), 0, 0), "b": px.Slot(px.SlotKind.BUFFER, torch.tensor(3), 1, 1)}
    specs = outputs or tuple(px.UserOutput() for _ in output)
    graph = px.Graph((px.Input("p"), px.Input("q"), px.Input("x")), tuple(nodes), output)
    signature = px.Signature((px.StateInput("a"), px.StateInput("b"), X), specs)
    return px.Program.of({"": graph}, state=px.State(("a", "b"), px.pmap(slots)), signature=signature)


def test_swapped_buffers_swap_and_old_values_are_old() -> None:
    outputs = (px.StateMutation("a"), px.StateMutation("b"), px.UserOutput())
    meaning = toy_meaning(program([], (px.Ref("q"), px.Ref("p"), px.Ref("p")), outputs), calls=3)
    assert meaning.outputs == ((1,), (3,), (1,))
    assert meaning.state == (("a", 3), ("b", 1))


def test_mutated_inputs_are_seen() -> None:
    meaning = toy_meaning(program([], (px.Ref("p"), px.Ref("x")), (px.InputMutation(2), px.UserOutput())), calls=2)
    assert (meaning.outputs, meaning.inputs) == (((3,), (13,)), ((1,), (1,)))


def test_writes_through_views_pairs_and_bodies() -> None:
    nodes = [
        px.Node("v", toy.VIEW, (px.Ref("p"),)),
        px.Node("t", toy.PAIR, (px.Ref("v"), px.Ref("q"))),
        px.Node("g", toy.GETITEM, (px.Ref("t"), 0)),
        px.Node("w", toy.ADD_, (px.Ref("g"), 4)),
    ]
    assert toy_meaning(program(nodes, (px.Ref("w"),)), calls=2).state == (("a", 9), ("b", 3))


def test_constants_are_told_from_cells_and_from_one_another() -> None:
    plain = program([], (1, True, px.Ref("p")))
    assert toy_meaning(plain, calls=1).outputs == (("1", "True", 1),)


def test_effects_come_in_order() -> None:
    nodes = [
        px.Node("r", toy.RAND, (px.Ref("x"), "first")),
        px.Node("s", toy.RAND, (px.Ref("x"), "off", False)),
        px.Node("e", toy.EMIT, (px.Ref("r"), "seen")),
        px.Node("o", toy.PRINT, ("printed",)),
    ]
    effects = dict(toy_meaning(program(nodes, ()), calls=1).effects)
    assert effects == {"drawn": ("first",), "emitted": (("seen", 3 + 7919), "printed")}


def test_the_state_of_a_body_is_below_the_module_that_it_stands_in() -> None:
    body = px.Graph((), (px.Node("w", px.Get("w")), px.Node("r", toy.ADD_, (px.Ref("w"), 1))), px.Ref("r"))
    nodes = (px.Node("y", px.Call(px.Frame("m"), "g")), px.Node("z", px.Call(px.Frame("n"), "g")))
    slots = {f"{name}.w": px.Slot(px.SlotKind.BUFFER, torch.tensor(cell), cell, cell) for cell, name in enumerate("mn")}
    signature = px.Signature((), (px.UserOutput(), px.UserOutput()))
    main = px.Graph((), nodes, (px.Ref("y"), px.Ref("z")))
    tree = px.Program.of({"": main, "g": body}, state=px.State(tuple(slots), px.pmap(slots)), signature=signature)
    assert toy_meaning(tree, calls=2).outputs == ((1, 2), (2, 3))


def test_differences_name_the_fact() -> None:
    left, right = toy_meaning(program([], (px.Ref("p"),)), calls=1), toy_meaning(program([], (px.Ref("q"),)), calls=1)
    assert meaning_differences(left, right) == ["outputs: got ((1,),), expected ((3,),)"]
    assert meaning_differences(left, right, what=("state",)) == []


def test_an_operator_that_nobody_knows_is_named() -> None:
    nodes = [px.Node("y", px.Op("toy.strange"), (px.Ref("x"),))]
    with pytest.raises(KeyError, match="strange"):
        evaluate(program(nodes, ()), [(1,)], toy.ToyMachine())


def test_real_programs_mean_the_same_at_every_stage_and_as_eager() -> None:
    model, x = Shared(), torch.randn(3, 4)
    flat = px.import_ep(exported(model, x))
    calls = [(x,), (x + 1,), (x * 2,)]
    expected = tensor_meaning(flat, calls)
    program = flat
    for step in px.DEFAULT:
        program = step(program)
        assert meaning_differences(tensor_meaning(program, calls), expected) == []
    assert behaviour_differences(px.lower(program), model, [(call, {}) for call in calls]) == []
