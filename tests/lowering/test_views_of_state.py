"""State reads the same wherever it goes, whatever views of one memory it is: copied, shared, exported, saved, pickled."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.state import lazy_bits
from tests.models import module_class

Draw = random.Random
Views = list[torch.Tensor]


def sliced(view: torch.Tensor, draw: Draw) -> torch.Tensor:
    return (
        view[draw.choice([0, 1]) :: draw.choice([1, 2])]
        if view.dim() and view.shape[0] > 2
        else view
    )


def overlapping(view: torch.Tensor, draw: Draw) -> torch.Tensor:
    size = min(2, *view.shape) if view.dim() else 0
    return (
        view.unfold(draw.randrange(view.dim()), size, 1) if size == 2 and view.dim() < 3 else view
    )


def expanded(view: torch.Tensor, draw: Draw) -> torch.Tensor:
    return view[None].expand(draw.choice([1, 2]), *view.shape) if view.dim() < 3 else view


def turned(view: torch.Tensor, _: Draw) -> torch.Tensor:
    return view.transpose(0, -1) if view.dim() > 1 else view


def conjugate(view: torch.Tensor, _: Draw) -> torch.Tensor:
    return view.conj()


def part(view: torch.Tensor, draw: Draw) -> torch.Tensor:
    return (view.imag if draw.random() < 0.7 else view.real) if view.is_complex() else view


STEPS: list[Callable[[torch.Tensor, Draw], torch.Tensor]] = [
    sliced,
    overlapping,
    expanded,
    turned,
    conjugate,
    conjugate,
    part,
]


def views(seed: int) -> tuple[Views, int]:
    """Return views of one memory, and which of them is written."""
    draw = Draw(seed)
    memory = torch.complex(torch.arange(1.0, 9.0), torch.arange(-4.0, 4.0))
    found: Views = []
    for _ in range(draw.choice([1, 2, 3])):
        view = memory if draw.random() < 0.7 else memory.clone()
        for _ in range(draw.randrange(5)):
            view = draw.choice(STEPS)(view, draw)
        found.append(view)
    return found, draw.randrange(len(found))


class Reads(torch.nn.Module):
    """Writes an element of one buffer, and reads all."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        found, self.written = views(seed)
        for number, view in enumerate(found):
            self.register_buffer(f"b{number}", view)
        self.count = len(found)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        written = self.get_buffer(f"b{self.written}")
        written[(0,) * written.dim()] += 7
        return tuple([self.get_buffer(f"b{number}") * x for number in range(self.count)])


def runs(module: Any) -> list[Any]:
    return [[value.tolist() for value in module(torch.ones(()))] for _ in range(2)]


WAYS: dict[str, Callable[[px.Program], Any]] = {
    "copied": px.lower,
    "flat": px.lower,
    "step by step": lambda program: px.lower(program, to="interpreter"),
    "exported": lambda program: px.to_ep(program).module(),
    "imported again": lambda program: px.lower(px.transform(px.import_ep(px.to_ep(program)))),
    "shared": lambda program: px.lower(
        program, state="share"
    ),  # the last: it writes into the program's own
}


@pytest.mark.parametrize("seed", range(16))
def test_state_reads_the_same_wherever_it_goes(seed: int, tmp_path: Path) -> None:
    expected = runs(Reads(seed))
    program = px.import_ep(torch.export.export(Reads(seed), (torch.ones(()),)))
    if any(lazy_bits(slot.value) for _, slot in program.state.pairs):
        with pytest.raises(px.errors.UnsupportedProgram, match="lazily conjugated"):
            px.save(program, tmp_path / "p")
    else:
        px.save(program, tmp_path / "p")
        assert runs(px.lower(px.load(tmp_path / "p"))) == expected
    pickled = pickle.loads(pickle.dumps(px.lower(program)))
    assert runs(pickled) == runs(
        pickle.loads(pickle.dumps(Reads(seed)))
    )  # which parts what shares memory
    for name, way in WAYS.items():
        assert runs(way(program if name == "flat" else px.transform(program))) == expected, name


def test_a_lone_window_keeps_what_is_around_it() -> None:
    around = module_class(
        "Around",
        lambda self, x: torch.as_strided(self.t, (4,), (2,), 0) * x,
        t=lambda: torch.arange(8.0)[2:4],
    )

    x = torch.ones(())
    assert px.unflatten(torch.export.export(around(), (x,)))(x).tolist() == [0, 2, 4, 6]
