"""What a module keeps of a parameter without its gradient (``self.k = self.v.detach()``) is another tensor on the same memory.

One idea: the same window on the same memory was one tensor, so the constant became the parameter, and gradients went through it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

import purefx as px
from purefx.ir.tensors import TensorIds

X = torch.full((4,), 3.0)


class Detached(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.v = torch.nn.Parameter(torch.ones(4))
        self.k = self.v.detach()
        self.register_buffer("b", self.v.data)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.k * x + self.v + self.get_buffer("b") * 2


WAYS: dict[str, Callable[[px.Program], torch.nn.Module]] = {
    "lower": lambda program: px.lower(px.transform(program)),
    "flat": px.lower,
    "interpreter": lambda program: px.lower(px.transform(program), to="interpreter"),
    "deepcopy": lambda program: copy.deepcopy(px.lower(program)),
    "to_ep": lambda program: px.to_ep(program).module(),
    "to_ep and back": lambda program: px.lower(px.import_ep(px.to_ep(px.transform(program)))),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strict", [False, True])
def test_gradients_do_not_go_through_them(way: str, *, strict: bool) -> None:
    eager = copy.deepcopy(Detached()) if way == "deepcopy" else Detached()  # a copy of a parameter has memory of its own
    module = WAYS[way](px.import_ep(torch.export.export(Detached(), (X,), strict=strict)))
    for _ in range(2):
        found: list[torch.Tensor] = []
        for each in (eager, module):
            each.zero_grad()
            result = each(X)
            result.sum().backward()
            gradient = each.get_parameter("v").grad
            assert gradient is not None
            found += [gradient, result.detach()]
            with torch.no_grad():
                each.get_parameter("v").add_(1)  # which the others see: it is their memory
        assert torch.equal(found[0], found[2])
        assert torch.equal(found[1], found[3])


def test_they_share_memory_and_are_two() -> None:
    parameter, numbers = torch.nn.Parameter(torch.ones(4)), TensorIds()
    values = (parameter, parameter.detach(), parameter.data, parameter)
    slots = [numbers.slot(value, px.SlotKind.CONSTANT, persistent=False) for value in values]
    assert [slot.cell for slot in slots] == [0, 1, 1, 0]
    assert {slot.storage for slot in slots} == {0}


class Held(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.v = torch.nn.Parameter(torch.ones(4))
        self.held = [self.v]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.v * x + self.held[0]


def test_what_the_exporter_detaches_is_the_parameter() -> None:
    """It has no name for what a list holds, and lifts a detached tensor: that is the parameter again."""
    program = px.import_ep(torch.export.export(Held(), (X,), strict=False))
    for module in (px.lower(program), px.lower(px.import_ep(px.to_ep(program)))):
        module(X).sum().backward()
        assert torch.equal(module.get_parameter("v").grad, X + 1)  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(px.to_ep(program).module()(X), Held()(X))
