"""Modules that nest deeply, as their users treat them: nothing fails at a depth at which modules of torch do not.

One idea: torch goes through modules by recursion, and so do copying and pickling, so each has a depth at which it ends; ours may
not be less than that of plain modules.  The limit of recursion is lowered here, so that small modules show it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import pickle
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch

import purefx as px
from tests.scale.test_scale import nested

DEPTHS = (10, 20, 40, 60, 90, 130, 160, 260)
FRAMES = 200
"""How deep calls may nest below the one that is tried; fewer than the greatest depth."""

ROOT = 4
"""Levels that ours may end earlier, however deep: our roots take a frame or two of their own."""


class Level(torch.nn.Module):
    """What ``nested`` is an export of, with a parameter on each level."""

    def __init__(self, inner: torch.nn.Module | None) -> None:
        super().__init__()
        if inner is not None:
            self.m = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.m(-x) if "m" in self._modules else -x


@functools.cache
def eager(depth: int) -> torch.nn.Module:
    made: torch.nn.Module | None = None
    for _ in range(depth):
        made = Level(made)
    return with_state(Level(made))


@functools.cache
def lowered(depth: int, to: Any) -> torch.nn.Module:
    return with_state(px.lower(px.transform(nested(depth)), to=to))


def with_state(module: torch.nn.Module) -> torch.nn.Module:
    level: Any = module
    while "m" in level._modules:
        level = level._modules["m"]
        level.register_parameter("w", torch.nn.Parameter(torch.ones(2)))
        level.register_buffer("b", torch.ones(2))
    return module


USES: dict[str, Callable[[Any], object]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": lambda module: torch.save(module, io.BytesIO()),
    "state_dict": lambda module: module.state_dict(),
    "load_state_dict": lambda module: module.load_state_dict({**module.state_dict()}),
    "named_modules": lambda module: list(module.named_modules()),
    "named_parameters": lambda module: list(module.named_parameters()),
    "train": lambda module: module.train(),
    "eval": lambda module: module.eval(),
    "to": lambda module: module.to(torch.float64),
    "requires_grad_": lambda module: module.requires_grad_(True),
    "zero_grad": lambda module: module.zero_grad(),
    "apply": lambda module: module.apply(lambda _: None),
    "repr": repr,
}


@contextlib.contextmanager
def few_frames() -> Generator[None]:
    before, here, frame = sys.getrecursionlimit(), 0, sys._getframe()
    while frame is not None:
        here, frame = here + 1, frame.f_back
    sys.setrecursionlimit(here + FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def works(use: Callable[[Any], object], module: torch.nn.Module) -> bool:
    try:
        with few_frames():
            use(module)
    except RuntimeError:  # also what load_state_dict makes of one
        return False
    return True


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
@pytest.mark.parametrize("name", USES)
def test_what_works_for_plain_modules_works_at_their_depth(name: str, to: str) -> None:
    eagers = [works(USES[name], eager(depth + ROOT)) for depth in DEPTHS]
    ours = [works(USES[name], lowered(depth, to)) for depth in DEPTHS]
    assert eagers[0]
    assert not eagers[-1]
    assert [mine or not theirs for mine, theirs in zip(ours, eagers, strict=True)] == [True] * len(DEPTHS)


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_modes_and_conversions_know_no_depth(to: Any) -> None:
    """At the default limit, where torch's modules end below 1,000."""
    module, x = with_state(px.lower(px.transform(nested(1_000)), to=to)), torch.ones(2)
    for use in ("train", "eval"):
        with pytest.raises(RecursionError):
            USES[use](eager(1_000))
        USES[use](module)
        level: Any = module
        while "m" in level._modules:
            level = level._modules["m"]
            assert level.training is (use == "train")
            assert level.w.dtype is torch.float32
    module.double()
    assert (level.w.dtype, level.b.dtype) == (torch.float64, torch.float64)
    assert torch.equal(module(x.double())[0], x.double())
