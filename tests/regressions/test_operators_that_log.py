"""Operators of a user that log: log, outputs and state are those of eager, however the program is cut, swapped or lowered."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

import purefx as px
from tests.models import parent

LOG: list[str] = []


@torch.library.custom_op("purefx_logs::loud", mutates_args=())
def loud(x: torch.Tensor, text: str) -> torch.Tensor:
    LOG.append(text)
    return x * 2


@torch.library.custom_op("purefx_logs::told", mutates_args=())
def told(x: torch.Tensor, text: str) -> None:
    LOG.append(text)


loud.register_fake(lambda x, text: torch.empty_like(x))
told.register_fake(lambda x, text: None)


# As a library does: for the whole process.
for _op in ("loud", "told"):
    _register_effectful_op(getattr(torch.ops.purefx_logs, _op).default, _EffectType.ORDERED)


class Leaf(nn.Module):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.lin = text, nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return loud(self.lin(x) + self.count, self.text)


class Pair(nn.Module):
    """Calls one leaf twice and another once, and logs between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.u, self.v = text, Leaf(f"{text}u"), Leaf(f"{text}v")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.u(x)
        told(y, self.text)
        return self.v(y) + self.u(y)


class Root(parent(a=lambda: Pair("a"), b=lambda: Pair("b"))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x)) + loud(x, "root")


class Quiet(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.25, -0.5]])


def run(module: Callable[..., Any], *, calls: int = 3) -> tuple[list[str], list[Any]]:
    """Return the log and the outputs of several calls."""
    LOG.clear()
    torch.manual_seed(0)
    outputs = [module(X + call) for call in range(calls)]
    return list(LOG), outputs


def assert_same(made: nn.Module, eager: nn.Module) -> None:
    """Compare logs, outputs and state over several calls."""
    given, expected = run(made), run(eager)
    assert given[0] == expected[0]
    torch.testing.assert_close(given[1], expected[1], rtol=0, atol=1e-6)
    state, kept = eager.state_dict(), made.state_dict()
    torch.testing.assert_close(dict(kept), dict(state), rtol=0, atol=1e-6)


def put(module: nn.Module, path: str, child: nn.Module) -> nn.Module:
    """Assign a child, and return the module."""
    parent, _, name = path.rpartition(".")
    setattr(module.get_submodule(parent), name, child)
    return module


EAGER = Root()
EVERY = ("a", "a.u", "a.v", "b", "b.u", "b.v")


@cache
def programs(preserved: tuple[str, ...]) -> tuple[Any, px.Program]:
    """Return the decomposed program of the root, in which tokens are threaded, and ours of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ep = torch.export.export(
            EAGER, (X,), preserve_module_call_signature=preserved
        ).run_decompositions({})
        return ep, px.import_ep(ep)


PIPELINES: dict[str, Callable[[px.Program], px.Program]] = {
    "default": px.transform,
    "one body": lambda program: px.deduplicate(px.transform(program)),
    "tokens removed first": lambda program: px.transform(px.remove_effect_tokens(program)),
    "tokens stay": lambda program: px.outline(px.sink_state(px.inplace_mutations(program))),
    "no bodies in common": lambda program: px.outline(
        px.sink_state(px.inplace_mutations(px.remove_effect_tokens(program)))
    ),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("preserved", [(), EVERY], ids=["none", "every"])
def test_effectful_operators_keep_their_order(preserved: tuple[str, ...], pipeline: str) -> None:
    """Both ways of lowering give eager's log, outputs and state."""
    ep, program = programs(preserved)
    assert "with_effects" in program.text(), "otherwise nothing is tried"
    made = PIPELINES[pipeline](program)
    if pipeline == "tokens stay":
        with pytest.raises(px.errors.UnsupportedProgram, match="do this before outline"):
            px.lower(made)
        return
    for to in ("graph_module", "interpreter"):
        assert_same(px.lower(made, to=to), copy.deepcopy(EAGER))
    if pipeline == "default":
        assert_same(px.unflatten(ep), copy.deepcopy(EAGER))


@pytest.mark.parametrize(
    ("pipeline", "path"), [("default", "a.u"), *[("one body", path) for path in EVERY]]
)
def test_modules_of_effectful_operators_are_swapped(pipeline: str, path: str) -> None:
    """Each preserved module, by ``swap_modules`` and by assignment: its log is gone, and all others stay in order."""
    ep, program = programs(EVERY)
    expected = put(copy.deepcopy(EAGER), path, Quiet())
    made = PIPELINES[pipeline](program)
    swapped = px.swap_modules(made, {path: Quiet()})
    for to in ("graph_module", "interpreter"):
        assert_same(px.lower(swapped, to=to), copy.deepcopy(expected))
    assert_same(put(px.lower(made), path, Quiet()), copy.deepcopy(expected))
    assert_same(put(px.unflatten(ep), path, Quiet()), copy.deepcopy(expected))
