"""``published``: how a published pass of torch is listed, with what it may assume, for ``make audit``.

A wrapper passes what a pass takes beside the graph, and nothing else.  What a contract says is what the documentation of the
pass, or the place where torch calls it, says; ``why`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from attrs import evolve, frozen

from purefx.laws import fx_passes
from purefx.laws.fx_passes import Contract
from purefx.lowering.fx import Over

__all__ = [
    "ANY", "ANYTHING", "AOT", "CHECKED", "FROZEN", "FUNCTIONAL", "GRAPH", "INFERENCE", "PASSES", "STATIC", "GraphModule",
    "Published", "fakes_of", "in_inductor", "mode_of", "published",
]  # fmt: skip

GraphModule = torch.fx.GraphModule

CLOSE = 1e-5
"""Zeros of two signs, and sums in another order, are no mistake here."""

ANYTHING, FUNCTIONAL, INFERENCE = (
    evolve(contract, rtol=CLOSE, atol=CLOSE) for contract in (fx_passes.ANYTHING, fx_passes.FUNCTIONAL, fx_passes.INFERENCE)
)

GRAPH = ANYTHING.without("aliasing")
"""Any graph, but callers do not write to what is returned."""

CHECKED = evolve(FUNCTIONAL, effects=True).without("assertions")
"""Functional graphs that assert and print, for a pass whose work is that nothing is asserted any more."""

STATIC = evolve(INFERENCE, dynamic=False)

FROZEN = evolve(STATIC, writes="nowhere", state="read")


@frozen
class Published:
    """A pass of torch."""

    run: Callable[[Any], Any]
    where: str
    """Module and name, as it is imported."""
    contract: Contract
    why: str
    """Where the contract comes from."""
    over: Over = "graph_module"
    looks_for: Sequence[Any] = ()
    """What programs are drawn around: pairs of a function and example arguments."""

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.where.rpartition(".")[2]


PASSES: list[Published] = []

ANY = "says nothing of what it needs"
AOT = "called on functional graphs of AOTAutograd"


def published(
    where: str, contract: Contract, why: str, over: Over = "graph_module", *, looks_for: Sequence[Any] = ()
) -> Callable[[Any], Any]:
    """Return a decorator that lists a pass."""

    def add(run: Any) -> Any:
        run.__name__ = run.__qualname__ = where.rpartition(".")[2]
        PASSES.append(Published(run, where, contract, why, over, looks_for))
        return run

    return add


def fakes_of(module: GraphModule) -> list[Any]:
    """Return the fake values of the placeholders."""
    return [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]


def mode_of(module: GraphModule) -> Any:
    """Return the fake mode of a module, a new one where nothing says it."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    values = [node.meta.get("val") for node in module.graph.nodes]
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), FakeTensorMode())


def in_inductor(run: Callable[[Any], Any]) -> Callable[[GraphModule], Any]:
    """Return a function that runs where passes of inductor run: with the fake mode of the graph."""

    def with_mode(module: GraphModule) -> Any:
        from torch._inductor.virtualized import V

        with V.set_fake_mode(mode_of(module)):
            return run(module)

    with_mode.inner = run  # type: ignore[attr-defined]  whose source a script shows
    return with_mode
