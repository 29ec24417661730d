"""Programs are equal up to how their tensors are numbered: by what is in each, and by which are one or share memory."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest
import torch
from attrs import evolve
from torch._subclasses.fake_tensor import FakeTensorMode

import purefx as px
from purefx.ir.state import same_contents
from purefx.laws.tiers import Tier, drawn_cases


def renumbered(program: px.Program, seed: int) -> px.Program:
    """Return the same program, in which cells and storages have other numbers."""
    draw = random.Random(seed)
    numbers = list(range(3, 3 + 2 * len(program.state)))
    draw.shuffle(numbers)
    cells: dict[int, int] = {}
    storages: dict[int, int] = {}
    slots: dict[str, px.ir.Slot] = {}
    for name, slot in program.state.pairs:
        cell = cells.setdefault(slot.cell, numbers[len(cells)])
        slots[name] = evolve(
            slot, cell=cell, storage=storages.setdefault(slot.storage, numbers[-1 - len(storages)])
        )
    return program.evolve(state=px.ir.State(program.state.order, px.ir.pmap(slots)))


def assert_equal(left: px.Program, right: px.Program) -> None:
    assert left == right and right == left
    assert left.state == right.state and hash(left.state) == hash(right.state)
    assert hash(left) == hash(right)
    assert left.text() == right.text()
    assert px.digest(left) == px.digest(right)
    assert not px.diff(left, right)


@pytest.mark.parametrize(("tier", "examples"), [("toy", 40), ("aten", 40)])
def test_however_tensors_are_numbered(tier: Tier, examples: int) -> None:
    several = 0
    for case in drawn_cases(tier, "sunk", examples):
        other = renumbered(case.program, case.seed)
        several += len(case.program.state) > 1 and other.state.slots != case.program.state.slots
        assert px.verify(other) == ()
        assert_equal(case.program, other)
        assert_equal(px.parse(case.program.text()), px.parse(case.program.text()))
        assert px.digest(px.parse(other.text())) == px.digest(px.parse(case.program.text()))
    assert several >= 5


def state(**values: torch.Tensor) -> px.ir.State:
    """Return a state with the buffers, tied and sharing memory as they are."""
    from purefx.ir.tensors import TensorIds

    numbers = TensorIds()
    slots = {
        name: numbers.slot(value, px.ir.SlotKind.BUFFER, persistent=True)
        for name, value in values.items()
    }
    return px.ir.State(tuple(slots), px.ir.pmap(slots))


def program(held: px.ir.State) -> px.Program:
    return px.Program.of({"": px.Graph((), (), ())}, state=held)


def test_other_ties_and_other_memory_are_another_program() -> None:
    base, one = torch.ones(6), torch.ones(2)
    held = [
        state(u=torch.ones(2), v=torch.ones(2)), state(u=one, v=one), state(u=base[0:2], v=base[1:3]),
        state(u=base[0:2], v=base[2:4]), state(u=base[2:4], v=base[1:3]),
    ]  # fmt: skip
    for number, left in enumerate(held):
        for other, right in enumerate(held):
            assert (left == right) is (number == other), (number, other)
            assert (px.digest(program(left)) == px.digest(program(right))) is (number == other)
            assert bool(px.diff(program(left), program(right))) is (number != other)
    # Where in the memory the whole of it lies is nobody's business.
    assert_equal(program(held[2]), program(state(u=base[3:5], v=base[4:6])))


def test_tensors_of_several_widths_lie_in_the_text_as_they_lie_together() -> None:
    memory = torch.zeros(8, dtype=torch.int32)

    def held(first: int) -> px.ir.State:
        return state(
            short=memory.view(torch.int16)[2 * first + 1 :][:1], wide=memory[first + 1 :][:2]
        )

    assert_equal(program(held(0)), program(held(3)))
    assert px.parse(program(held(3)).text()) == px.parse(program(held(0)).text())
    text = program(held(3)).text()
    assert (
        "buffer short: i16[1] offset 1\n" in text
        and "buffer wide: i32[2] offset 1 shares short\n" in text
    )


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "meta": lambda: torch.ones(2, device="meta"),
    "conjugate": lambda: torch.tensor([1 + 2j, 0.5j]).conj(),
    "negative": lambda: torch.tensor([1 + 2j]).conj().imag,
    "coo": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "csc": lambda: torch.eye(3).to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr(2),
    "bsc": lambda: torch.eye(4).to_sparse_bsc(2),
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "nan": lambda: torch.tensor([float("nan"), -0.0]),
    "strided": lambda: torch.arange(12.0).reshape(3, 4)[:, ::2],
    "overlapping": lambda: torch.ones(1).expand(4),
    "empty": lambda: torch.ones(0, 3),
    "zero-dimensional": lambda: torch.tensor(True),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_every_kind_are_compared(kind: str) -> None:
    with torch.no_grad():
        values = {name: make() for name, make in KINDS.items()}
        here, there = state(x=values[kind]), state(x=KINDS[kind]())
    assert here == there and hash(here) == hash(there)
    assert same_contents(here["x"].value, here["x"].value.clone()), (
        "a copy may lie in memory otherwise"
    )
    assert_equal(program(here), program(there))
    for name, value in values.items():
        assert name == kind or state(x=value) != here


def test_what_can_not_be_compared_is_another_unless_it_is_the_same_object() -> None:
    with FakeTensorMode():
        fake, other = torch.ones(2), torch.ones(2)
    assert state(x=fake) == state(x=fake) == state(x=other) != state(x=torch.ones(2))
    several = nested()
    assert state(x=several) == state(x=several) != state(x=nested())


def test_contents_still_count() -> None:
    for kind, make in KINDS.items():
        value = make()
        if (
            not value.is_meta
            and value.layout is torch.strided
            and value.numel()
            and kind != "zero-dimensional"
        ):
            other = copy.deepcopy(value).contiguous().resolve_conj().resolve_neg()
            changed = (other.float() if kind == "float8" else other) + 1
            assert not same_contents(value, changed.to(value.dtype)) or kind == "nan"


def test_equal_views_that_a_state_does_not_tie_keep_their_cells() -> None:
    from purefx.ir.tensors import TensorIds

    base = torch.ones(2)
    slots = {
        name: px.ir.Slot(px.ir.SlotKind.BUFFER, base.view(2), cell, 0)
        for cell, name in enumerate("uv")
    }
    numbers = TensorIds(px.ir.State(tuple(slots), px.ir.pmap(slots)))
    assert [numbers.renumbered(slot).cell for slot in slots.values()] == [0, 1]
