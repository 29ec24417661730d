"""Calls of modules that are not below their caller: closures, modules that were handed over, lists and slices of modules."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.models import module_class, parent
from tests.tables import in_turns
from tests.unflatten.harness import LOWERED, WAYS, Case, Cases, export, same_as_eager

CLOSURES = Cases()
X = torch.arange(8.0).reshape(2, 4) / 8


def hand(owner: nn.Module, name: str, module: nn.Module) -> None:
    """Let a module have another one that is not its child."""
    object.__setattr__(owner, name, module)


class Counting(parent(lin=lambda: nn.Linear(4, 4), count=lambda: torch.zeros(()))):
    """A layer that counts its calls."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.lin(x) + self.count


class Caller(nn.Module):
    """Calls a module that it was handed, and one of its own."""

    def __init__(self, peer: nn.Module) -> None:
        super().__init__()
        hand(self, "peer", peer)
        self.own = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.peer(self.own(x)).relu()


class TwoNames(parent(b=nn.Tanh)):
    """Calls a child by its two names."""

    def __init__(self) -> None:
        super().__init__()
        self.a = self.b

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(self.b(x)).relu()


@CLOSURES.add((X,))
class ListOfOne(parent(a=TwoNames)):
    """Calls a child through a list: torch names the calls inside as if they were calls of the root's ``a``."""

    def __init__(self) -> None:
        super().__init__()
        self.items = [self.a]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(self.items[0](x))


@CLOSURES.add((X,))
class Sibling(parent(a=Counting)):
    """A module is called by the root, and by its sibling: one body."""

    def __init__(self) -> None:
        super().__init__()
        self.b = Caller(self.a)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) + self.b(x)


# A module is called by its sibling alone.
OnlyFromElsewhere = CLOSURES.add((X,))(
    module_class("OnlyFromElsewhere", lambda self, x: self.b(x) + 1, Sibling)
)


@CLOSURES.add((X,))
class TwoCallers(parent(deep=lambda: nn.Sequential(nn.Linear(4, 4), Counting()))):
    """Two modules call a third, which is deeper than they are; the two are one body."""

    def __init__(self) -> None:
        super().__init__()
        self.b, self.c = Caller(self.deep[1]), Caller(self.deep[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(self.deep(x)))


class Stage(nn.Module):
    """Calls the modules of a list that it was handed."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = blocks
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.norm(block(x))
        return x


@CLOSURES.add((X,))
class Slices(nn.Module):
    """Modules hold slices of a list of modules as Python lists."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])
        self.first, self.second = Stage(list(self.layers[:2])), Stage(list(self.layers[2:]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(x))
        for layer in self.layers[1:]:
            x = layer(x).relu()
        return x


class Parent(parent(helper=lambda: nn.Linear(4, 4))):
    """Holds a module that its other child calls."""

    def __init__(self) -> None:
        super().__init__()
        self.up = Caller(self.helper)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x)


# Callers and what they call are both below the root: each calls its own sibling.
Nested = CLOSURES.add((X,))(
    module_class("Nested", lambda self, x: self.q(self.p(x)), p=Parent, q=Parent)
)


class Turn(
    parent(
        weight=lambda: nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 3.0])),
        seen=lambda: torch.zeros(()),
    )
):
    """Calls the other one until nothing is left."""

    def forward(self, x: torch.Tensor, left: int) -> torch.Tensor:
        self.seen.add_(left)
        y = x * self.weight
        return self.peer(y, left - 1) + self.seen if left else y


@CLOSURES.add((X,))
class Recursion(parent(a=Turn, b=Turn)):
    """Two modules call one another, each twice."""

    def __init__(self) -> None:
        super().__init__()
        hand(self.a, "peer", self.b)
        hand(self.b, "peer", self.a)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x, 3)


@CLOSURES.each
def test_what_is_called_from_elsewhere_does_what_eager_does(case: Case, way: str) -> None:
    same_as_eager(case, way)


def unflattened(
    module: nn.Module,
    *,
    way: str = "plain",
    to: Any = "graph_module",
    preserve: tuple[str, ...] = (),
) -> Any:
    return px.lower(
        px.transform(px.import_ep(export(module, (X,), way=way, preserve=preserve))), to=to
    )


def calls(module: nn.Module, *, way: str = "plain") -> list[str]:
    program = px.transform(px.import_ep(export(module, (X,), way=way)))
    return [
        f"{name or 'root'}: {node.do.instance}"
        for name, node in program.nodes()
        if type(node.do) is px.Call
    ]


@pytest.mark.parametrize("way", WAYS)
def test_calls_stay_calls(way: str) -> None:
    # Decomposed, the counter is written once, behind all, so the two calls of ``a`` are two bodies.
    again = "b: /a@1" if "decomposed" in way else "b: /a"
    assert [call for call in calls(Sibling(), way=way) if "lin" not in call] == [
        "root: a",
        "root: b",
        "b: own",
        again,
    ]


REPLACED = (
    *[
        (kind, path, way)
        for kind, path in ((Slices, "layers.1"), (Nested, "q.helper"))
        for way in WAYS
    ],
    # Decomposed, their calls are several bodies: only a preserved signature says how another module is called.
    *[
        (kind, path, way)
        for kind, path in ((Sibling, "a"), (TwoCallers, "deep.1"))
        for way in ("plain", "strict")
    ],
)


@in_turns(
    replaced={f"{kind.__name__} {path} {way}": (kind, path, way) for kind, path, way in REPLACED},
    to=LOWERED,
)
def test_a_replaced_module_is_what_others_call(
    replaced: tuple[type[nn.Module], str, str], to: str
) -> None:
    kind, path, way = replaced
    eager = kind()
    lowered = unflattened(eager, way=way, to=to)
    other = copy.deepcopy(eager.get_submodule(path))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(3)
    lowered.set_submodule(path, other)
    eager.get_submodule(path).load_state_dict(other.state_dict())
    for _ in range(2):
        assert torch.equal(lowered(X), eager(X))


@pytest.mark.parametrize("way", ["plain", "decomposed"])
def test_a_preserved_signature_holds_for_calls_from_elsewhere(way: str) -> None:
    eager = Sibling()
    lowered = unflattened(eager, way=way, preserve=("a", "b"))
    lowered.a = copy.deepcopy(eager.a)
    assert torch.equal(lowered(X), eager(X))
    assert torch.equal(lowered.a.count, eager.a.count)
    again = unflattened(Sibling(), way=way, preserve=("a", "b"))
    again.b = Caller(again.a)
    assert again(X).shape == (2, 4)
    assert again.a.count == 2


@pytest.mark.parametrize("to", LOWERED)
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))]
)
def test_copies_call_their_own_modules(copied: Callable[[Any], Any], to: str) -> None:
    eager = Sibling()
    lowered = unflattened(eager, to=to)
    other = copied(lowered)
    with torch.no_grad():
        lowered.a.lin.weight.zero_()
    for _ in range(2):
        assert torch.equal(other(X), eager(X))
    assert list(other.state_dict()) == list(eager.state_dict())
    assert (other.a.count, lowered.a.count) == (4, 0)


@pytest.mark.parametrize("to", LOWERED)
def test_the_graph_runs(to: str) -> None:
    """A graph that somebody looked at calls the module through the root as well, the replaced one included."""
    eager = Sibling()
    lowered = unflattened(eager, to=to)
    targets = [node.target for node in lowered.b.graph.nodes if node.op == "call_module"]
    assert targets == ["own", "/.a"]
    lowered.b.graph.lint()
    lowered.b.finalize()
    assert "count" not in "".join(lowered.b.graph_module.state_dict())
    lowered.a = copy.deepcopy(eager.a)
    for _ in range(2):
        assert torch.equal(lowered(X), eager(X))


class Branching(Caller):
    """Calls a module that it was handed, without gradients and in a branch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = self.peer(x * 2)
        return torch.cond(x.sum() > 0, lambda x: self.peer(x).sin(), lambda x: x.cos(), (x,)) + y


class WithRegions(parent(a=lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()))):
    def __init__(self) -> None:
        super().__init__()
        self.b = Branching(self.a)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(x) + self.b(-x)


@pytest.mark.parametrize("way", ["plain", "strict", "decomposed"])
def test_in_regions_and_branches(way: str) -> None:
    eager = WithRegions()
    program = px.transform(px.import_ep(export(eager, (X,), way=way)))
    stacks = {
        frame.path for name, node in program.nodes() if name.startswith("$") for frame in node.stack
    }
    assert ("/a" in stacks) == (
        way == "plain"
    )  # decomposed, the region is gone; strict, the closure keeps its own path
    assert px.parse(program.text()).graphs == program.graphs
    for to in LOWERED:
        assert torch.equal(px.lower(program, to=to)(X), eager(X))
    assert torch.equal(px.lower(px.inline(program))(X), eager(X))
