"""A body that calls of other sizes share said the fake values of its first call: counts, swaps and rewrites went by them.

Cause: ``deduplicate`` kept one body's meta for all.  Now it keeps what holds in every call, and who needs more asks each call.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import pytest
import torch
from attrs import evolve
from torch.utils.flop_counter import FlopCounterMode

import purefx as px
from purefx.ir.operators import op_of
from purefx.laws.values import false_values
from tests.models import parent


class Kinds(parent(act=torch.nn.ReLU)):
    """One activation for tensors of other dtypes and ranks, and one in a branch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.act(x.double()).sum(0)) + self.act(x).double()


class Rows(torch.nn.Module):
    """Found rows: of which call has how many only a run knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.nonzero().float()


class Found(parent(a=Rows, b=Rows)):
    """Two modules that find rows."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.a(x) * 2, self.b(x - 1).sin()


SIZES = ((4, 8), (8, 100), (100, 4))
LINEARS = torch.nn.Sequential(
    *[torch.nn.Sequential(OrderedDict(lin=torch.nn.Linear(*size, bias=False))) for size in SIZES]
)
"""Each linear has its own module around it: shared bodies call shared bodies."""

MODELS: dict[str, tuple[torch.nn.Module, torch.Tensor]] = {
    "sizes": (LINEARS, torch.randn(1, 4)),
    "dtypes": (Kinds(), torch.randn(3, 4)),
    "found": (Found(), torch.tensor([[0.0, 1.0], [2.0, 1.0]])),
}


def flat(which: str, *, dynamic: bool = False) -> px.Program:
    """Return a program as it was exported."""
    model, x = MODELS[which]
    shapes = ({0: torch.export.Dim.DYNAMIC},) if dynamic else None
    program = px.import_ep(torch.export.export(copy.deepcopy(model), (x,), dynamic_shapes=shapes))
    # What the exporter asserts of a size that only a run knows has its name as a text, so such bodies would differ.
    nodes = [
        node
        for node in program.main.nodes
        if not node.name.startswith(("_assert", "sym_size", "ge", "le"))
    ]
    return program.with_main(evolve(program.main, nodes=tuple(nodes)))


@pytest.mark.parametrize("which", MODELS)
def test_what_is_said_is_what_runs_after_each_step(which: str) -> None:
    program, calls = flat(which), [[MODELS[which][1]]]
    assert false_values(program, calls) == []
    tree = px.transform(program)
    assert len(tree.order) < len(px.transform(program, *px.DEFAULT[:5]).order)
    for result in (
        tree,
        px.expand(tree),
        px.inline(tree),
        px.infer(tree),
        px.import_ep(px.to_ep(tree)),
    ):
        assert false_values(result, calls) == []
        assert px.verify(result, infer=True) == ()
    assert px.infer(tree) is tree
    assert all(
        "val" in node.meta
        for result in (px.inline(tree), px.expand(tree))
        for _, node in result.nodes()
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_operations_are_counted_in_each_call(dynamic: bool) -> None:
    model, x = MODELS["sizes"]
    x = x.expand(3, 4)
    program = px.import_ep(
        torch.export.export(
            model, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},) if dynamic else None
        )
    )
    with FlopCounterMode(display=False) as counter:
        model(x)
    tree = px.transform(program)
    found = [
        px.stats(each) for each in (program, tree, px.expand(tree), px.inline(tree), px.infer(tree))
    ]
    assert [(one.flops, dict(one.uncounted)) for one in found] == [
        (counter.get_total_flops(), {})
    ] * 5
    assert [module.flops for module in px.stats(tree).modules if module.path.endswith("lin")] == [
        3 * 64,
        3 * 1600,
        3 * 800,
    ]


def test_a_lie_about_one_call_is_found_and_mended() -> None:
    tree = px.transform(flat("sizes"))
    node = tree.graphs["Linear"].nodes[-1]
    value = torch.empty(1, 8, device="meta")
    lie = evolve(node, meta={**node.meta, "val": value})
    body = evolve(tree.graphs["Linear"], nodes=(*tree.graphs["Linear"].nodes[:-1], lie))
    program = tree.evolve(graphs=tree.graphs.set("Linear", body))
    assert [(found.rule, found.graph, found.node) for found in px.verify(program, infer=True)] == [
        ("inferred-meta", "Linear", "linear")
    ]
    assert "val" not in px.infer(program).graphs["Linear"].nodes[-1].meta
    mm = px.Node("mm", op_of(torch.ops.aten.mm.default), (px.Ref("weight"),) * 2)
    with pytest.raises(px.errors.InvalidProgram, match=r"at [0-2]\.lin / mm"):
        px.infer(tree.with_graphs({"Linear": body.with_nodes([*body.nodes, mm])}))


def test_programs_are_swapped_by_the_sizes_of_the_call() -> None:
    model, x = MODELS["sizes"]
    program = flat("sizes")
    tree, lowered = px.transform(program), px.unflatten(torch.export.export(model, (x,)))
    right, wrong = (
        px.capture(torch.nn.Linear(size, 100), (torch.ones(1, size),)) for size in (8, 4)
    )
    result = px.swap_modules(tree, {"1.lin": right}, signature="flat")
    assert px.lower(result)(x).shape == (1, 4)
    for path in ("1.lin", "1"):
        with pytest.raises(
            px.errors.SwapError, match="exported for the size 4, and that is 8 here"
        ):
            px.swap_modules(tree, {path: wrong}, signature="flat")
    for module in (lowered, px.lower(tree.evolve(trail=()))):
        owner: Any = module.get_submodule("1")
        owner.lin = right
        assert module(x).shape == (1, 4)
