"""The oracles see what they are for: each kind of difference, made on purpose, is reported and nothing else is.

Start from two equal modules and spoil one of them in one way.
"""

from __future__ import annotations

import copy
import gc
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.laws import (
    assert_same_as_eager,
    behaviour_differences,
    changes_in_program,
    gradient_differences,
    structure_differences,
    value_differences,
)
from purefx.laws.law import GENERIC, GRADIENTS, Case, Law
from purefx.laws.oracles import tensor_gradients
from purefx.laws.purity import changes_in_process
from tests.models import changes_in_export, drawn, exported


class Model(nn.Module):
    """Has ties, a buffer that is saved and one that is not, changes its argument, and drops out."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.spoil: Callable[[Model, torch.Tensor], object] = lambda _model, _x: None

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen += x.sum()
        y = nn.functional.dropout(self.second(self.first(self.norm(x.clone()))))
        x.mul_(2)
        self.spoil(self, x)
        return {"y": y}


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((torch.ones(2, 3),), {}),
    ((), {"x": torch.full((2, 3), 0.5)}),
]


def other_order(model: Model) -> None:
    model._modules["norm"] = model._modules.pop("norm")


def same_memory(model: Model) -> None:
    model.second.weight = nn.Parameter(model.first.weight.detach())


def untie(model: Model) -> None:
    model.second.weight = nn.Parameter(model.first.weight.detach().clone())


STRUCTURE: dict[str, Callable[[Model], object]] = {
    "tied tensors": untie,
    "tied": same_memory,
    "persistent": lambda model: model._non_persistent_buffers_set.clear(),
    "the order differs": other_order,
    "requires_grad": lambda model: model.first.bias.requires_grad_(requires_grad=False),
    "modules: invented": lambda model: model.add_module("extra", nn.ReLU()),
    "modules: missing": lambda model: model.__delattr__("first"),
    "tensors: missing": lambda model: model.double(),
}


def spoiled(model: Model, spoil: Callable[[Model], object]) -> Model:
    """Return a copy of a module that is spoiled."""
    made = copy.deepcopy(model)
    spoil(made)
    return made


def test_equal_modules_have_no_differences() -> None:
    model = Model()
    assert_same_as_eager(copy.deepcopy(model), model, CALLS)
    assert float(model.seen) == 0.0, "the oracles run copies"
    assert torch.equal(CALLS[0][0][0], torch.ones(2, 3)), "of the arguments too"


@pytest.mark.parametrize("says", STRUCTURE)
def test_structure(says: str) -> None:
    model = Model()
    other = spoiled(model, STRUCTURE[says])
    assert any(says in difference for difference in structure_differences(other, model))
    with pytest.raises(AssertionError, match=says):
        assert_same_as_eager(other, model, CALLS, checks=["structure"])


def on_call(act: Callable[[Model, torch.Tensor], object]) -> Callable[[Model], object]:
    return lambda model: setattr(model, "spoil", act)


BEHAVIOUR: dict[str, Callable[[Model], object]] = {
    "after 2 calls, state seen: ... 1 of 1 numbers differ": on_call(
        lambda model, x: model.seen.add_(torch.ones_like(x[0, 0]))
    ),
    "call 0, arguments after it[0][0]: ... 6 of 6 numbers differ, by up to 0.25": on_call(
        lambda _, x: x.sub_(0.25)
    ),
    "call 1, arguments after it[1]['x']: ... 6 of 6 numbers differ, by up to 0.25": on_call(
        lambda _, x: x.sub_(0.25)
    ),
    "call 0, output['y']: ": lambda model: model.norm.register_forward_hook(
        lambda *_: [torch.rand(1)][1:] or None
    ),
}


@pytest.mark.parametrize("says", BEHAVIOUR)
def test_behaviour(says: str) -> None:
    model = Model()
    found = behaviour_differences(spoiled(model, BEHAVIOUR[says]), model, CALLS)
    assert any(all(part in line for part in says.split(" ... ")) for line in found), found


def test_gradients() -> None:
    model = Model()
    detached = spoiled(
        model,
        lambda model: model.first.register_forward_hook(
            lambda _module, _args, result: result.detach()
        ),
    )
    assert (
        "gradient of norm.weight: got None, expected"
        in gradient_differences(detached, model, CALLS)[-1]
    )


@pytest.mark.parametrize(
    ("given", "expected", "says"),
    [
        (torch.zeros(1), -torch.zeros(1), "but not their bits"),
        (torch.ones(1), torch.ones(1, dtype=torch.int64), "expected int64[1]"),
        (torch.ones(1), torch.ones(1, 1), "expected float32[1, 1]"),
        ((1, 2), [1, 2], "structure"),
        ({"a": 1}, {"b": 1}, "structure"),
        (1, True, "expected True"),
        (None, torch.ones(1), "got"),
        (torch.ones(1) * 1j, torch.ones(1), "complex"),
        (torch.ones(1) * 1j, torch.ones(1) * 2j, "up to 1"),
    ],
)
def test_values_that_differ(given: object, expected: object, says: str) -> None:
    (difference,) = value_differences(given, expected)
    assert says in difference


def test_values_that_do_not_differ() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    assert (
        value_differences([nan, torch.ones(0), "a", None], [nan.clone(), torch.ones(0), "a", None])
        == []
    )
    assert value_differences(torch.tensor(1.0), torch.tensor(1.0 + 1e-6), rtol=1e-5) == []
    assert value_differences(torch.tensor(1.0), torch.tensor(1.1), rtol=1e-5)[0].endswith(
        ": 1 of 1 numbers differ, by up to 0.1"
    )
    told = "value: got int64[] (1), expected int64[] (2): 1 of 1 numbers differ, by up to 1"
    assert value_differences(torch.tensor(1), torch.tensor(2), atol=10.0) == [told]


def test_changes_of_an_exported_program_are_seen() -> None:
    ep = exported(nn.BatchNorm1d(2).eval(), torch.ones(3, 2))
    node = next(iter(ep.graph.nodes))

    def act() -> None:
        node.meta["note"] = 1
        ep.state_dict["running_mean"].add_(1)
        ep.state_dict["weight"].requires_grad_(requires_grad=False)

    assert changes_in_export(ep, lambda: None) == []
    assert changes_in_export(ep, act) == [
        "meta changed",
        "tensor weight changed",
        "the contents of running_mean changed",
    ]


def test_changes_of_the_state_of_a_program_are_seen() -> None:
    program = px.import_ep(exported(nn.BatchNorm1d(2).eval(), torch.ones(3, 2)))
    assert (
        changes_in_program(program, lambda: px.lower(program, state="copy")(torch.ones(3, 2))) == []
    )
    changed = changes_in_program(program, lambda: program.state["running_mean"].value.add_(1))
    assert changed == ["the contents of running_mean changed"]


def test_what_is_assumed_of_the_sizes_of_a_program_is_seen() -> None:
    """A comparison of a symbolic size installs a guard, and the size is a number from then on."""
    sizes = ({0: torch.export.Dim("d", min=2)},)
    program = px.import_ep(
        torch.export.export(nn.ReLU(), (torch.ones(4, 2),), dynamic_shapes=sizes)
    )
    size = program.main.nodes[0].meta["val"].shape[0]
    assert changes_in_program(program, lambda: px.lower(program)(torch.ones(3, 2))) == []
    assert changes_in_program(program, lambda: bool(size > 3)) == [
        "the guards on its sizes changed"
    ]
    assert "the sizes of its values changed" in changes_in_program(program, lambda: bool(size == 4))


def test_changes_of_the_process_are_seen() -> None:
    def act() -> None:
        print("here")  # noqa: T201
        warnings.warn("look", stacklevel=1)
        torch.rand(1)
        random.random()
        sys.setrecursionlimit(sys.getrecursionlimit() + 1)
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        gc.disable()

    limit = sys.getrecursionlimit()
    try:
        found = changes_in_process(act)
    finally:
        sys.setrecursionlimit(limit)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        gc.enable()
    assert found == [
        "the default dtype changed",
        "grad mode changed",
        "the random state of torch changed",
        "the random state of Python changed",
        "the garbage collector changed",
        "the recursion limit changed",
        "printed 'here\\n'",
        "warned 'look'",
    ]
    assert changes_in_process(lambda: None) == []


LAWS = {law.name: law for law in (*GENERIC, GRADIENTS)}

SHARED: list[px.Node] = []


def keeps_its_work_outside(program: px.Program) -> px.Program:
    """Collect the nodes in a list that all calls share: right, as long as they come one after the other."""
    SHARED.clear()
    for node in program.main.nodes:
        SHARED.append(evolve(node))
    return program.with_main(evolve(program.main, nodes=tuple(SHARED)))


def prints(program: px.Program) -> px.Program:
    print("now")  # noqa: T201
    return program


def unties(program: px.Program) -> px.Program:
    slots = {
        name: evolve(slot, cell=cell, storage=cell)
        for cell, (name, slot) in enumerate(program.state.pairs)
    }
    return program.evolve(state=px.ir.State(program.state.order, px.ir.pmap(slots)))


def has_no_text(program: px.Program) -> px.Program:
    nodes = tuple(evolve(node, args=(*node.args, object())) for node in program.main.nodes)
    return program.with_main(evolve(program.main, nodes=nodes))


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("threads", keeps_its_work_outside),
        ("silent", prints),
        ("state", unties),
        ("text", has_no_text),
    ],
)
def test_each_law_finds_its_mistake(name: str, spoil: Callable[[px.Program], px.Program]) -> None:
    law = LAWS[name]
    cases = [Case(program, seed) for program, seed in drawn("flat", 60)]
    assert not any(law.check(lambda program: program, case) for case in cases[:10])
    assert any(broken(law, spoil, case) for case in cases)


def broken(law: Law, transform: Callable[[px.Program], px.Program], case: Case) -> bool:
    """Return whether a law finds something or the transformation raises."""
    try:
        return bool(law.check(transform, case))
    except px.PurefxError:
        return True


def test_gradients_of_programs() -> None:
    program = px.import_ep(exported(nn.Linear(3, 2), torch.ones(2, 3)))
    case = Case(program, calls=[(torch.ones(2, 3),)])
    assert LAWS["gradients"].check(px.transform, case) == []
    assert sorted(case.computed(tensor_gradients, program)) == [
        "call 0, bias",
        "call 0, input 0",
        "call 0, weight",
    ]
    detach = px.Op("aten.detach.default", target=torch.ops.aten.detach.default)

    def cut(program: px.Program) -> px.Program:
        weight, node = (
            program.main.inputs[0].name,
            px.Node("cut", detach, (px.Ref(program.main.inputs[0].name),)),
        )
        used = [
            evolve(n, args=tuple(px.Ref("cut") if a == px.Ref(weight) else a for a in n.args))
            for n in program.main.nodes
        ]
        return program.with_main(evolve(program.main, nodes=(node, *used)))

    assert "call 0, weight: got None, expected" in LAWS["gradients"].check(cut, case)[0]
    with pytest.raises(ValueError, match="needs programs of real operators"):
        LAWS["gradients"].check(px.transform, Case(program))
