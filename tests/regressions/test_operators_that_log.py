"""Operators of a user that log: their log, outputs and state are those of eager, however the program is cut, swapped or lowered.

Those that torch registers as effectful pass a token in a decomposed program.  With preserved signatures, and a module of them
swapped, that token was missing (``KeyError: 'token'``) in a program that is kept no more; here every way to it is tried.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

import purefx as px
from tests.programs import parent

LOG: list[str] = []


@torch.library.custom_op("purefx_logs::loud", mutates_args=())
def loud(x: torch.Tensor, text: str) -> torch.Tensor:
    LOG.append(text)
    return x * 2


@torch.library.custom_op("purefx_logs::told", mutates_args=())
def told(x: torch.Tensor, text: str) -> None:
    LOG.append(text)


@torch.library.custom_op("purefx_logs::seen", mutates_args=())
def seen(x: torch.Tensor, text: str) -> torch.Tensor:
    LOG.append(f"{text} {x.sum():.3f}")
    return x.clone()


loud.register_fake(lambda x, text: torch.empty_like(x))
told.register_fake(lambda x, text: None)
seen.register_fake(lambda x, text: torch.empty_like(x))


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


def assert_same(made: nn.Module, eager: nn.Module, *, parts: bool = False) -> None:
    """Compare logs, outputs and state over several calls; what several parts hold is below each of them."""
    given, expected = run(made), run(eager)
    assert given[0] == expected[0]
    torch.testing.assert_close(given[1], expected[1], rtol=0, atol=1e-6)
    state, kept = eager.state_dict(), made.state_dict()
    assert {name.partition(".")[2] if parts else name for name in kept} == set(state)
    for name, value in kept.items():
        torch.testing.assert_close(value, state[name.partition(".")[2] if parts else name], rtol=0, atol=1e-6)


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
        ep = torch.export.export(EAGER, (X,), preserve_module_call_signature=preserved).run_decompositions({})
        return ep, px.import_ep(ep)


PIPELINES: dict[str, Callable[[px.Program], px.Program]] = {
    "default": px.transform,
    "one body": lambda program: px.deduplicate(px.transform(program)),
    "tokens removed first": lambda program: px.transform(px.remove_effect_tokens(program)),
    "tokens stay": lambda program: px.outline(px.sink_state(px.inplace_mutations(program))),
    "no bodies in common": lambda program: px.outline(px.sink_state(px.inplace_mutations(px.remove_effect_tokens(program)))),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("preserved", [(), ("a", "b"), EVERY], ids=["none", "pairs", "every"])
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


@pytest.mark.parametrize("path", EVERY)
@pytest.mark.parametrize("pipeline", ["default", "one body"])
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


class User(nn.Module):
    """A user's script: two operators that log, random numbers, writes to buffers through views, ``cond`` in ``cond``."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        a = loud(self.first(x), "first")
        noise = torch.rand_like(a)
        self.total[:2].add_(a.sum(0)[:2])

        def inner(t: torch.Tensor) -> torch.Tensor:
            return torch.cond(t.mean() > 0.2, lambda u: u.sin() + 1, lambda u: u * 2, (t,))

        b = seen(torch.cond(a.sum() > 0, inner, lambda t: t.cos(), (a + noise,)), "branch")
        self.total.mul_(0.5)
        c = loud(self.last(b) + self.total, "last")
        self.total[1:].sub_(torch.bernoulli(torch.full((2,), 0.5)))
        return seen(c, "end") + self.total + self.calls + torch.rand(())


@cache
def users() -> tuple[nn.Module, px.Program]:
    torch.manual_seed(3)
    module = User()
    return module, px.import_ep(torch.export.export(copy.deepcopy(module), (X,)))


def cut(program: px.Program, number: int) -> Iterator[px.Program]:
    """Split a program in several ways: balanced, and at a node."""
    flat = px.transform(program, px.remove_effect_tokens, px.inplace_mutations, px.sink_state)
    yield px.split_balanced(px.transform(program), 2 + number % 3)
    names = [node.name for node in flat.main.nodes]
    at = len(names) * (number + 1) // 6
    yield px.split_by_tags(flat, ("a", "b"), tag_of={name: "a" if index < at else "b" for index, name in enumerate(names)})


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_users_script_is_split(number: int) -> None:
    """Logs, random numbers, outputs and state are eager's, over several calls."""
    module, program = users()
    for made in cut(program, number):
        assert px.verify(made) == ()
        assert_same(px.lower(made), copy.deepcopy(module), parts=True)
