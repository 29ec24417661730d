"""Flex attention whose ``score_mod`` or mask reads tensors: ALiBi, a learned bias, document masks."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import purefx as px
from tests.models import parent
from tests.tables import in_turns


class Alibi(parent(slopes=lambda: torch.tensor([0.5, 0.25]))):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + self.slopes[h] * (j - i))


class LearnedBias(parent(bias=lambda: torch.nn.Parameter(torch.arange(16.0).reshape(4, 4) / 7))):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        bias = self.bias * 2
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[i, j])


class Documents(parent(document=lambda: torch.tensor([0, 0, 1, 1]))):
    """Reads a buffer in the mask, which is made in forward."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = create_block_mask(
            lambda b, h, i, j: self.document[i] == self.document[j], None, None, 4, 4, device="cpu"
        )
        return flex_attention(q, k, v, block_mask=mask)


class Argument(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        bias, row = q[0, 0, :, :4], k[0, 0, :, 0]
        return flex_attention(
            q, k, v, score_mod=lambda s, b, h, i, j: s + bias[i, j] * row[j] + row[i]
        )


class Layers(parent(first=Alibi, second=LearnedBias)):
    """Two that are called as modules, one of them twice."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(self.first(q, k, v), k, v), k, v)


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "alibi": Alibi, "learned bias": LearnedBias, "documents": Documents, "argument": Argument, "layers": Layers,
}  # fmt: skip

DOORS: dict[str, Callable[[px.Program], torch.nn.Module]] = {
    "flat": px.lower,
    "tree": lambda program: px.lower(px.transform(program)),
    "interpreter": lambda program: px.lower(px.transform(program), to="interpreter"),
    "copied": lambda program: copy.deepcopy(px.lower(px.transform(program))),
    "exported": lambda program: px.to_ep(px.transform(program)).module(),
    "there and back": lambda program: px.lower(px.transform(px.import_ep(px.to_ep(program)))),
}


@functools.cache
def exported(name: str) -> tuple[torch.nn.Module, torch.export.ExportedProgram]:
    """Return a model and its export."""
    eager = MODELS[name]()
    return eager, torch.export.export(eager, tuple([torch.randn(1, 2, 4, 8) for _ in range(3)]))


@pytest.fixture(scope="module")
def calls() -> list[tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return [
        (torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8))
        for _ in range(2)
    ]


@in_turns(name=list(MODELS), form=("exported", "decomposed", "fx"))
def test_captured_tensors(name: str, form: str, calls: list[tuple[torch.Tensor, ...]]) -> None:
    eager, ep = exported(name)
    match form:
        case "exported":
            program = px.import_ep(ep)
        case "decomposed":
            program = px.import_ep(ep.run_decompositions({}))
        case _:
            program = px.import_fx(ep.module())
    assert px.verify(program) == ()
    assert px.verify(px.transform(program)) == ()
    doors = {
        key: door
        for key, door in DOORS.items()
        if form != "fx" or key not in ("exported", "there and back")
    }
    expected = [eager(*call) for call in calls]
    for key, door in doors.items():
        module = door(program)
        for call, result in zip(calls, expected, strict=True):
            assert torch.equal(module(*call), result), key


def test_gradients_of_a_learned_bias(calls: list[tuple[torch.Tensor, ...]]) -> None:
    eager, ep = exported("learned bias")
    program = px.transform(px.import_ep(ep))
    module = px.lower(program)
    for each in (eager, module):
        each(*calls[1]).sin().sum().backward()
    assert torch.equal(module.bias.grad, eager.bias.grad)
