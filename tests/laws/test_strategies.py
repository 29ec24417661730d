"""Generated programs: what strategies reach, what the oracle computes, and random walks through transformations."""

from __future__ import annotations

import warnings

import pytest
import torch
from attrs import evolve
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy

import purefx as px
from purefx.laws import behaviour_differences, toy
from purefx.laws.evaluate import evaluate, meaning_differences
from purefx.laws.strategies import Stage, exported_programs, module_trees
from purefx.laws.strategies.recipes import recipes
from purefx.laws.tiers import share
from purefx.laws.toy import tensor_meaning, toy_meaning
from tests.laws.registry import REGISTRY
from tests.laws.walks import allowed, walk
from tests.models import Shared, drawn, exported

SCALAR = px.ir.TensorType(torch.int64, ())
X = px.ir.UserInput(SCALAR, "x")


def program(
    nodes: list[px.Node], output: tuple[object, ...], outputs: tuple[object, ...] | None = None
) -> px.Program:
    """Return a program of two buffers, ``a`` = 1 and ``b`` = 3, as inputs ``p`` and ``q``, and a user input ``x``."""
    slots = {
        "a": px.ir.Slot(px.ir.SlotKind.BUFFER, torch.tensor(1), 0, 0),
        "b": px.ir.Slot(px.ir.SlotKind.BUFFER, torch.tensor(3), 1, 1),
    }
    specs = outputs or tuple(px.ir.UserOutput() for _ in output)
    graph = px.Graph((px.Input("p"), px.Input("q"), px.Input("x")), tuple(nodes), output)
    signature = px.ir.Signature((px.ir.StateInput("a"), px.ir.StateInput("b"), X), specs)
    return px.Program.of(
        {"": graph}, state=px.ir.State(("a", "b"), px.ir.pmap(slots)), signature=signature
    )


def test_swapped_buffers_swap_and_old_values_are_old() -> None:
    outputs = (px.ir.StateMutation("a"), px.ir.StateMutation("b"), px.ir.UserOutput())
    meaning = toy_meaning(program([], (px.Ref("q"), px.Ref("p"), px.Ref("p")), outputs), calls=3)
    assert meaning.outputs == ((1,), (3,), (1,))
    assert meaning.state == (("a", 3), ("b", 1))


def test_mutated_inputs_are_seen() -> None:
    meaning = toy_meaning(
        program([], (px.Ref("p"), px.Ref("x")), (px.ir.InputMutation(2), px.ir.UserOutput())),
        calls=2,
    )
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
        px.Node("m", toy.SEND, (px.Ref("r"), "g1")),
        px.Node("n", toy.COUNT, (px.Ref("m"),)),
        px.Node("d", toy.WAIT, (px.Ref("m"),)),
        px.Node("c", toy.COUNT, (px.Ref("d"),)),
    ]
    effects = dict(toy_meaning(program(nodes, ()), calls=1).effects)
    assert effects == {
        "drawn": ("first",), "emitted": (("seen", 3 + 7919), "printed"), "sent to g0": (), "sent to g1": (3 + 7919,),
        "counted": (toy.UNSENT, 3 + 7919 + 149),
    }  # fmt: skip


def test_the_state_of_a_body_is_below_the_module_that_it_stands_in() -> None:
    body = px.Graph(
        (), (px.Node("w", px.Get("w")), px.Node("r", toy.ADD_, (px.Ref("w"), 1))), px.Ref("r")
    )
    nodes = (px.Node("y", px.Call(px.Frame("m"), "g")), px.Node("z", px.Call(px.Frame("n"), "g")))
    slots = {
        f"{name}.w": px.ir.Slot(px.ir.SlotKind.BUFFER, torch.tensor(cell), cell, cell)
        for cell, name in enumerate("mn")
    }
    signature = px.ir.Signature((), (px.ir.UserOutput(), px.ir.UserOutput()))
    main = px.Graph((), nodes, (px.Ref("y"), px.Ref("z")))
    tree = px.Program.of(
        {"": main, "g": body},
        state=px.ir.State(tuple(slots), px.ir.pmap(slots)),
        signature=signature,
    )
    assert toy_meaning(tree, calls=2).outputs == ((1, 2), (2, 3))


def test_differences_name_the_fact() -> None:
    left, right = (
        toy_meaning(program([], (px.Ref("p"),)), calls=1),
        toy_meaning(program([], (px.Ref("q"),)), calls=1),
    )
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


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("strategy", "size"),
    [(recipes(), 1500), (exported_programs(), 3000), (module_trees(), 3000)],
    ids=["toy", "aten", "modules"],
)
def test_what_fails_is_shown_at_once(strategy: SearchStrategy[object], size: int) -> None:
    """Hypothesis prints what a test was given when it fails: deep nesting must not take it hours."""

    @settings(
        max_examples=400, derandomize=True, database=None, deadline=None, phases=[Phase.generate]
    )
    @given(strategy)
    def fails_on_large_ones(value: object) -> None:
        assert len(repr(value)) < size

    with pytest.raises(AssertionError) as caught:
        fails_on_large_ones()
    assert "fails_on_large_ones(" in "".join(caught.value.__notes__)


ALL = tuple(entry.transformation for entry in REGISTRY)


@pytest.mark.parametrize(
    ("stage", "examples"), [("tokens", 8), ("flat", 8), ("sunk", 5), ("tree", 5)]
)
def test_all_transformations_in_any_order(stage: Stage, examples: int) -> None:
    for program, seed in drawn(stage, share(examples)):
        assert walk(program, ALL, seed) == []


def test_all_transformations_of_partly_outlined_programs() -> None:
    """Calls of bodies stand beside module stacks, as in what is imported from a part of a tree."""
    partly = 0
    for program, seed in drawn("sunk", share(12)):
        outlined = some_calls(program, 1 + seed % 4)
        partly += outlined is not program
        assert walk(outlined, (*ALL, px.transform), seed, count=6) == []
    assert partly > share(6)


def some_calls(program: px.Program, count: int) -> px.Program:
    """Return the program with bodies for some calls; itself if it cannot be outlined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", px.errors.FlatCallWarning)
        try:
            return px.outline(program, fuel=count)
        except px.errors.UnsupportedProgram:
            return program


def forgets_after_inline(program: px.Program) -> px.Program:
    """Give a constant back, in programs that went through inline."""
    if "inline" not in [step.name for step in program.trail] or program.main.output[:1] == (1,):
        return program
    return program.with_main(evolve(program.main, output=(1, *program.main.output[1:])))


def test_mistakes_that_need_several_steps_are_found() -> None:
    found = [
        walk(program, (px.inline, forgets_after_inline), seed)
        for program, seed in drawn("tree", 20)
    ]
    assert any("outputs: got" in "\n".join(wrong) for wrong in found)


def test_requirements_are_kept() -> None:
    program = px.parse('program {\n graph @""() {\n y = get w\n return (y,)\n }\n }')
    names = [getattr(step, "name", "") for step in allowed(program, ALL)]
    assert "functionalize" not in names
    assert "lift_state" in names
