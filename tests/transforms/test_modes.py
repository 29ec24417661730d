"""Regions of a gradient mode and of autocast, between markers as Python code is traced, and as bodies, against eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.models import parent

SET_GRAD = "torch._C._set_grad_enabled"
X = torch.linspace(-2, 2, 16).reshape(4, 4)
TOKENS = {
    "off": f"{SET_GRAD}(False)",
    "on": f"{SET_GRAD}(True)",
    "half": 'torch.amp.autocast_mode._enter_autocast("cpu")',
}


def between(*steps: str, result: str = "a") -> px.Program:
    """Return a program of steps: ``off`` and ``on`` set the gradient mode, others are lines of its graph."""
    lines = [
        f"  m{number} = {TOKENS[step]}" if step in TOKENS else f"  {step}"
        for number, step in enumerate(steps)
    ]
    head = 'program {\n takes {\n user x: f32[4, 4]\n }\n gives {\n user\n }\n graph @""(x) {\n'
    return px.parse("\n".join([head, *lines, f"  return ({result},)", " }\n}"]))


def bodies(program: px.Program) -> dict[str, list[str]]:
    """Return the names of the nodes of each body of a result, which is valid and is given back when it is given again."""
    result = px.regions_to_bodies(program)
    assert px.verify(result) == ()
    assert px.regions_to_bodies(result) is result
    flat = px.bodies_to_regions(result)
    assert px.verify(flat) == ()
    assert px.alpha_equal(px.regions_to_bodies(flat), result)
    return {
        name: [node.name for node in graph.nodes] for name, graph in result.graphs.items() if name
    }


A, B, C = "a = aten.exp.default(x)", "b = aten.sin.default(a)", "c = aten.cos.default(b)"
EXIT = "e = torch.amp.autocast_mode._exit_autocast({})"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((A, "off", B, "on", C), {"$no_grad": ["b"]}),
        ((A, "off", "on"), {}),
        ((A, "on", B, "on"), {}),
        ((A, "off", B, "off", C, "off", "on"), {"$no_grad": ["b", "c"]}),
        (("off", A, "on", B, "off", C, "on"), {"$no_grad": ["a"], "$no_grad_1": ["c"]}),
        ((A, "half", B, EXIT.format("m1"), C), {"$autocast": ["b"]}),
    ],
)
def test_regions_of_one_graph(steps: tuple[str, ...], expected: dict[str, list[str]]) -> None:
    assert bodies(between(*steps, result="a" if "off" not in steps[:1] else "c")) == expected


@pytest.mark.parametrize(
    "steps",
    [
        (A, "off", B),
        (A, "half", B),
        (A, "half", "half", B, EXIT.format("m1"), "f = torch.amp.autocast_mode._exit_autocast(m2)"),
        (A, "half", "off", EXIT.format("m1"), B),
        (A, "off", B, "half", C, "on", "d = aten.neg.default(c)", EXIT.format("m3")),
        (A, "off", 'u = torch._functorch.predispatch._vmap_increment_nesting(2, "error")', "on", B,
         "v = torch._functorch.predispatch._vmap_decrement_nesting()"),
    ],
    ids=["not closed", "autocast not closed", "crosswise", "left inside", "overlapping", "a level of vmap"],
)  # fmt: skip
def test_what_is_no_region_stays(steps: tuple[str, ...]) -> None:
    program = between(*steps)
    assert px.regions_to_bodies(program) is program


class Modes(parent(a=lambda: nn.Linear(4, 4), b=lambda: nn.Linear(4, 4), n=lambda: torch.zeros(4))):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.a(x)
        with torch.no_grad():
            self.n.add_(y.mean(0))
            z = self.b(y)
            with torch.enable_grad():
                q = self.a(z) * 2
            v = z.clone()
            v[0].mul_(2)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            w = self.a(z + y)
            torch.set_grad_enabled(False)
            with torch.autocast("cpu", enabled=False):
                product = self.a((w @ w.t()).float())
            torch.set_grad_enabled(True)
        u = self.b(product)
        with torch.no_grad():
            dropped = torch.dropout(y, 0.5, True)
            top, where = torch.topk(y, 2)
        return w + 1, z, q, v, product, u, top * where, dropped, self.a(u)


def captured(module: nn.Module, *args: torch.Tensor) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Return the graph that ``torch.compile`` gives a backend, with its inputs."""
    found: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.append((graph, inputs))
        return graph.forward

    torch.compile(module, backend=backend, fullgraph=True)(*args)
    torch._dynamo.reset()
    return found[0]


def test_graphs_of_torch_compile_mean_the_same() -> None:
    graph, inputs = captured(Modes(), X)
    program = px.import_fx(graph)
    made = px.regions_to_bodies(program)
    assert not [node for _, node in made.nodes() if getattr(node.do, "name", "") == SET_GRAD]
    for result in (made, px.bodies_to_regions(made)):
        given, expected = (), ()
        mine, theirs = (
            [copy.deepcopy(one.detach()).requires_grad_(one.requires_grad) for one in inputs]
            for _ in range(2)
        )
        for call in range(3):
            torch.manual_seed(call)
            given = px.lower(result)(*mine)
            torch.manual_seed(call)
            expected = graph(*theirs)
            assert torch.is_grad_enabled()
            assert [one.requires_grad for one in given] == [one.requires_grad for one in expected]
            torch.testing.assert_close(given, expected, rtol=0, atol=0)
        for outputs in (given, expected):
            torch.stack(
                [one.float().sum() for one in outputs if one.requires_grad]
            ).sum().backward()
        torch.testing.assert_close(
            [one.grad for one in mine], [one.grad for one in theirs], rtol=0, atol=0
        )
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
