"""``normalize_stacks``: one spelling, one path for a module, numbers without gaps; strict and non-strict traces say the same."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.laws.oracles import behaviour_differences
from tests.models import NEG, Block, Shared, Tower, flat, parent

X = torch.arange(12.0).reshape(3, 4)


def stacks(program: px.Program, graph: str = "") -> dict[str, str]:
    """Return the stacks of nodes as text, by name."""
    return {node.name: " / ".join(map(str, node.stack)) for node in program.graphs[graph].nodes}


class Reaching(nn.Module):
    """Calls a module that is not its child."""

    def __init__(self, peer: nn.Module) -> None:
        super().__init__()
        self.__dict__["peer"] = peer
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.peer(self.lin(x))


class Aliases(nn.Module):
    """One block under three names, one activation under two, and a module that another one reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Block()
        self.b, self.act = self.a, nn.ReLU()
        self.act2 = self.act
        self.items = nn.ModuleList([self.a, nn.Linear(4, 4)])
        self.reaching = Reaching(self.items[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.items[0](self.act2(self.b(self.act(self.a(x))))) + self.reaching(
            self.items[1](x)
        )


class Regions(parent(lin=lambda: nn.Linear(4, 4))):
    """Branches, and calls a module without gradients."""

    def forward(self, x: torch.Tensor) -> Any:
        with torch.no_grad():
            y = self.lin(x)
        return torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (y,)), {
            "k": [x, self.lin(y)]
        }


MODELS: dict[str, tuple[nn.Module, int]] = {
    "tower": (Tower(2), 1),
    "shared": (Shared().eval(), 1),
    "aliases": (Aliases(), 1),
    "regions": (Regions(), 1),
    "attention": (nn.MultiheadAttention(4, 2), 3),
}


@pytest.mark.parametrize("name", MODELS)
def test_strict_and_non_strict_traces_say_the_same(name: str) -> None:
    """Up to names, with rows of any number, after the stacks are normal and the state is read where it is used."""
    module, count = MODELS[name]
    sizes = None if name in ("shared", "regions") else tuple([{0: torch.export.Dim.AUTO}] * count)
    traces = [
        px.import_ep(torch.export.export(module, (X,) * count, dynamic_shapes=sizes, strict=strict))
        for strict in (True, False)
    ]
    normal = [px.sink_state(px.normalize_stacks(trace, aliases=module)) for trace in traces]
    assert px.alpha_equal(*normal), str(px.diff(*normal))
    for trace, result in zip(traces, normal, strict=True):
        assert px.verify(result) == ()
        assert px.normalize_stacks(result, aliases=module) is result
        lowered = px.lower(px.transform(result))
        assert (
            behaviour_differences(
                lowered, module, [((X,) * count, {}), ((-X,) * count, {})], rtol=1e-6, atol=1e-6
            )
            == []
        )
        assert list(lowered.state_dict()) == list(px.lower(trace).state_dict())


def test_aliases_are_calls_of_one_module() -> None:
    program = px.import_ep(torch.export.export(Aliases(), (X,), strict=False))
    assert {"b", "act2", "items.0"} <= {
        frame.path for node in program.main.nodes for frame in node.stack
    }
    result = px.normalize_stacks(program, aliases=Aliases())
    assert [name for name, stack in stacks(result).items() if stack == "act@1"] == ["relu_3"]
    calls = [frame for node in result.main.nodes for frame in node.stack]
    assert {str(frame) for frame in calls if frame.path == "a"} == {"a", "a@1", "a@2"}
    assert not {"b", "act2", "items.0"} & {frame.path for frame in calls}
    sunk = px.normalize_stacks(px.sink_state(program), aliases=Aliases())
    assert "b.up.weight" not in [
        node.do.slot for node in sunk.main.nodes if type(node.do) is px.Get
    ]
    assert px.alpha_equal(sunk, px.sink_state(px.normalize_stacks(program, aliases=Aliases())))
    assert (
        behaviour_differences(px.lower(px.transform(sunk)), px.lower(program), [((X,), {})]) == []
    )


def node(name: str, of: str, stack: tuple[px.Frame, ...] = (), **meta: Any) -> px.Node:
    """Return a node that negates."""
    return px.Node(name, NEG, (px.Ref(of),), (), stack, MappingProxyType(meta))


def test_what_no_call_can_be_is_mended() -> None:
    """A tracer that counts no calls: one call in two places is two, and one inside itself is one."""
    inner = px.Frame("act")
    nodes = [
        node("a", "x", (px.Frame("m"), inner)),
        node("b", "a", (px.Frame("m", 1), inner)),
        node("c", "b", (px.Frame("m", 1), px.Frame("m", 1), inner)),
        node("d", "c", (px.Frame("m"), inner)),
    ]
    program = flat(nodes, px.Ref("d"), "x")
    assert px.verify(program) != ()
    result = px.normalize_stacks(program)
    assert stacks(result) == {
        "a": "m / act",
        "b": "m@1 / act@1",
        "c": "m@1 / act@1",
        "d": "m / act",
    }
    assert px.verify(result) == ()
