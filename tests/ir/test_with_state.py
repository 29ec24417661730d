"""``Program.with_state``: new state is where its module would have registered it, tied where it is one tensor."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purefx as px
from purefx.laws.evaluate import meaning_differences
from purefx.laws.strategies import Stage
from purefx.laws.tiers import Tier, drawn_cases

X = torch.randn(2, 2)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.b.bias = self.a.bias
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        return self.b(self.a(x)) + self.seen


def programs() -> dict[str, px.Program]:
    ep = torch.export.export(Two(), (X,))
    flat = px.import_ep(ep)
    return {
        "flat": flat,
        "sunk": px.sink_state(flat),
        "tree": px.transform(flat),
        "decomposed": px.import_ep(ep.run_decompositions()),
    }


PROGRAMS = programs()

each_stage = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@each_stage
def test_new_state_stands_where_its_module_would_have_it(
    program: px.Program, tmp_path: Path
) -> None:
    new = {"a.lora": nn.Parameter(torch.ones(3)), "c.d.scale": torch.ones(1), "own": torch.zeros(2)}
    made = program.with_state(add=new)
    assert px.verify(made) == ()
    eager = Two()
    eager.a.register_parameter("lora", nn.Parameter(torch.ones(3)))
    assert [name for name in made.state if name.startswith("a.")] == [
        f"a.{name}" for name in eager.a.state_dict()
    ]
    assert {name: made.state[name].kind.name for name in new} == {
        "a.lora": "PARAMETER",
        "c.d.scale": "BUFFER",
        "own": "BUFFER",
    }
    lowered = px.lower(made)
    assert set(new) < set(lowered.state_dict())
    assert torch.equal(lowered.get_parameter("a.lora"), torch.ones(3))
    assert {"c", "c.d"} <= {module.path for module in made.modules}
    assert [node for _, node in made.nodes()] == [node for _, node in program.nodes()]
    path = tmp_path / "program.purefx"
    px.save(made, path)
    assert px.load(path) == made


@each_stage
def test_what_was_added_goes_again(program: px.Program) -> None:
    added = program.with_state(
        add={"a.lora": nn.Parameter(torch.ones(3)), "a.tied": program.state["b.weight"].value}
    )
    assert added != program
    assert added.with_state(remove=["a.tied", "a.lora"]) == program
    assert program.with_state() is program


@each_stage
def test_one_tensor_is_tied_and_one_memory_is_shared(program: px.Program) -> None:
    weight = program.state["a.weight"].value
    made = program.with_state(
        add={
            "b.again": weight,
            "b.view": weight.detach()[0],
            "new": (new := torch.ones(1)),
            "same": new,
        }
    )
    state = made.state
    assert state["b.again"].cell == state["a.weight"].cell
    assert state["b.view"].cell != state["a.weight"].cell
    assert state["b.view"].storage == state["a.weight"].storage
    assert state["new"].cell == state["same"].cell
    assert px.verify(made) == ()
    lowered = px.lower(made)
    assert lowered.get_parameter("b.again") is lowered.get_parameter("a.weight")
    # One of several names of a tensor goes alone.
    assert "a.weight" in made.with_state(remove=["b.again"]).state


@each_stage
def test_new_state_is_read(program: px.Program) -> None:
    made = program.with_state(add={"b.shift": torch.full((2,), 3.0)})
    given = [formal.name for formal, spec in made.inputs if spec == px.ir.StateInput("b.shift")]
    assert len(given) == ("state as inputs" in program.facts)
    read = [] if given else [px.Node("shift", px.Get("b.shift"))]
    last = next(ref.name for ref in reversed(made.main.output) if type(ref) is px.Ref)  # type: ignore[union-attr]
    shift = px.Ref(given[0] if given else "shift")
    shifted = px.Node("shifted", px.op(torch.ops.aten.add.Tensor), (px.Ref(last), shift))
    output = tuple([px.Ref("shifted") if ref == px.Ref(last) else ref for ref in made.main.output])  # type: ignore[union-attr]
    edited = px.infer(
        made.with_main(px.Graph(made.main.inputs, (*made.main.nodes, *read, shifted), output))
    )
    assert px.verify(edited, infer=True) == ()
    eager = Two()
    eager.load_state_dict(px.lower(program).state_dict())
    for module in (px.lower(edited), px.lower(px.transform(edited)) if given else px.lower(edited)):
        twin = copy.deepcopy(eager)
        for _ in range(3):
            torch.testing.assert_close(module(X), twin(X) + 3)


@each_stage
def test_state_that_is_used_stays(program: px.Program) -> None:
    with pytest.raises(
        px.errors.NamingError,
        match=r"the state 'a.weight' is used by node .*, so it cannot be removed",
    ):
        program.with_state(remove=["a.weight"])
    with pytest.raises(px.errors.NamingError, match=r"the state 'seen' is used by "):
        program.with_state(remove=["seen"])


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "unknown": ({"remove": ["a.weigth"]}, px.errors.NamingError, "no state is called 'a.weigth'; did you mean 'a.weight'"),
    "one text": ({"remove": "a.weight"}, TypeError, r"remove is a list of paths, not 'a.weight': write \['a.weight'\]"),
    "there": ({"add": {"a.weight": X}}, px.errors.NamingError, "the state 'a.weight' exists already"),
    "a module": ({"add": {"a": X}}, px.errors.NamingError, "'a' is a module"),
    "in a tensor": ({"add": {"a.weight.x": X}}, px.errors.NamingError, "inside 'a.weight', which is a tensor"),
    "in a new tensor": ({"add": {"n": X, "n.x": X}}, px.errors.NamingError, "inside 'n', which is a tensor"),
    "an empty name": ({"add": {"a..x": X}}, px.errors.NamingError, "'a..x' cannot be the path of state"),
    "no name": ({"add": {"": X}}, px.errors.NamingError, "'' cannot be the path of state"),
    "no tensor": ({"add": {"n": 3}}, TypeError, "the state 'n' is a int: pass a torch.nn.Parameter"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(options: dict[str, Any], kind: type[Exception], said: str) -> None:
    for program in PROGRAMS.values():
        with pytest.raises(kind, match=said):
            program.with_state(**options)


def test_two_new_names_of_one_tensor_are_of_one_kind() -> None:
    tensor = torch.nn.Parameter(X.clone())
    slots = {
        kind: px.ir.Slot(kind, tensor, 0, 0)
        for kind in (px.ir.SlotKind.PARAMETER, px.ir.SlotKind.BUFFER)
    }
    with pytest.raises(
        px.errors.NamingError,
        match=r"'n' would be a buffer and is the same tensor as 'm', a parameter",
    ):
        PROGRAMS["tree"].with_state(add=dict(zip("mn", slots.values(), strict=True)))


def test_a_slot_says_its_kind() -> None:
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(1), 7, 7, persistent=False)
    made = PROGRAMS["tree"].with_state(add={"a.cache": slot})
    assert "a.cache" not in px.lower(made).state_dict()
    assert px.lower(made).get_buffer("a.cache").shape == (1,)
    assert made.state["a.cache"].cell not in {slot.cell for _, slot in PROGRAMS["tree"].state.pairs}


def test_the_state_of_a_split_program_lies_in_its_parts() -> None:
    split = px.split_by_module(PROGRAMS["sunk"], {"a": "one", "b": "two", "": "two"})
    assert px.verify(split.with_state(add={f"{px.parts(split)[0].name}.n": X})) == ()
    with pytest.raises(
        px.errors.NamingError,
        match=r"the program is split: choose a path below one of its parts .*, not 'n'",
    ):
        split.with_state(add={"n": X})


@pytest.mark.parametrize("tier", ["toy", "aten"])
@pytest.mark.parametrize("stage", ["flat", "sunk", "tree"])
def test_drawn_programs_get_state_and_lose_it(tier: Tier, stage: Stage) -> None:
    tied = 0
    for case in drawn_cases(tier, stage, 12):
        program = case.program
        held = [name for name, slot in program.state.pairs if isinstance(slot.value, torch.Tensor)]
        more = {"new.here": torch.ones(1), "new.there": nn.Parameter(torch.zeros(1))}
        again_there = {"new.tied": program.state[held[0]]} if held else {}
        made = program.with_state(add={**more, **again_there})
        tied += len(again_there)
        assert px.verify(made) == ()
        assert (
            meaning_differences(
                case.meaning(made), case.meaning(program), what=("outputs", "inputs")
            )
            == []
        )
        again = made.with_state(remove=[name for name in made.state if name not in program.state])
        assert again.evolve(modules=program.modules) == program
    assert tied
