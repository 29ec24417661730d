"""Pipelines without ``inplace_mutations`` raised an untyped KeyError in ``lower``; calls with flags were never cut."""

from __future__ import annotations

import copy
import itertools
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.models import parent


class Norm(parent(bn=lambda: nn.BatchNorm1d(3), lin=lambda: nn.Linear(3, 3))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bn(self.lin(x)) + self.bn(x)


class Counter(parent(count=lambda: torch.zeros(()), total=lambda: torch.zeros(3))):
    """Writes buffers through views, and its argument."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        self.count.add_(1)
        self.total[0].add_(2)
        return x * self.count + self.total.mul_(1.5)


class Cache(
    parent(
        keys=lambda: torch.zeros(4, 3),
        place=lambda: torch.zeros((), dtype=torch.int64),
        lin=lambda: nn.Linear(3, 3),
    )
):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keys.copy_(torch.cat([self.keys[1:], self.lin(x)[:1]]))
        self.place += 1
        return (self.keys * self.place).sum(0) + x


X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.25, -0.5], [0.0, 1.0, 1.5], [-1.0, 0.5, 0.5]])
KINDS = {"norm": Norm, "counter": Counter, "cache": Cache}
STEPS = {
    "sink": px.sink_state, "outline": px.outline, "dedup": px.deduplicate, "in place": px.inplace_mutations,
    "lift": px.lift_state,
}  # fmt: skip
CUSTOM = [
    *(order for length in (1, 2) for order in itertools.permutations(STEPS, length) if "in place" not in order[:-1]),
    ("sink", "outline", "dedup"), ("sink", "outline", "lift"), ("sink", "dedup", "outline"),
]  # fmt: skip


@cache
def programs(name: str, *, decomposed: bool) -> tuple[nn.Module, px.Program]:
    torch.manual_seed(0)
    module = KINDS[name]()
    ep = torch.export.export(copy.deepcopy(module), (X.clone(),))
    return module, px.import_ep(ep.run_decompositions() if decomposed else ep)


def calls(module: nn.Module) -> tuple[Any, ...]:
    """Return outputs and written arguments of three calls, and the state behind them."""
    found: list[torch.Tensor] = []
    for number in range(3):
        x = X + number
        found += [module(x), x]
    return found, dict(module.state_dict())


@pytest.mark.parametrize(
    ("name", "decomposed"),
    [("norm", True), ("counter", True), ("counter", False), ("cache", False)],
)
def test_any_order_of_steps(name: str, decomposed: bool) -> None:
    """Without ``inplace_mutations``, and with it last: right, or refused by the step that cannot come there."""
    module, program = programs(name, decomposed=decomposed)
    expected, right = calls(copy.deepcopy(module)), 0
    for order in CUSTOM:
        try:
            made = px.transform(program, *[STEPS[step] for step in order])
        except px.PurefxError:
            continue
        torch.testing.assert_close(
            calls(px.lower(made, to="interpreter" if right % 2 else "graph_module")), expected
        )
        right += 1
    assert right > 5


class Flagged(parent(lin=lambda: nn.Linear(3, 3))):
    def forward(
        self,
        x: torch.Tensor,
        *,
        flag: bool = True,
        scale: Any = None,
        extra: Any = None,
        name: str = "a",
    ) -> torch.Tensor:
        y = self.lin(x) + 1 if flag else self.lin(x)
        y = y * 2 if name == "b" else y
        y = y if extra is None else y + extra["t"] * extra["n"]
        return y if scale is None else y * scale


class Caller(
    parent(
        a=Flagged, b=Flagged, c=Flagged, end=lambda: nn.Linear(3, 3), count=lambda: torch.zeros(())
    )
):
    """Calls children with flags, numbers, None, text, and tensors by keyword only."""

    def forward(self, x: torch.Tensor, *, on: bool = False, y: torch.Tensor | None = None) -> Any:
        self.count.add_(1)
        first = self.a(x, flag=on, scale=0.5)
        second = self.b(extra={"t": first, "n": 3}, flag=not on, x=y if y is not None else x)
        return self.end(self.c(second, name="b", scale=None)) + self.count, on, None


@pytest.mark.parametrize(
    ("preserved", "kwargs"),
    [((), {"on": True, "y": X + 1}), (("a", "b"), {"y": None}), (("b",), {})],
    ids=["all", "none", "defaults"],
)
def test_calls_with_flags_are_cut(preserved: tuple[str, ...], kwargs: dict[str, Any]) -> None:
    """Balanced and by tags, at every place that cuts no preserved call."""
    torch.manual_seed(0)
    module = Caller()
    ep = torch.export.export(
        copy.deepcopy(module), (X,), dict(kwargs), preserve_module_call_signature=preserved
    )
    flat = px.transform(
        px.import_ep(ep), px.remove_effect_tokens, px.inplace_mutations, px.sink_state
    )
    names = [node.name for node in flat.main.nodes]
    made = [px.split_balanced(flat, k) for k in (1, 2, 3)]
    for at in range(1, len(names), 2):
        tags = {name: "a" if index < at else "b" for index, name in enumerate(names)}
        try:
            made.append(px.split_by_tags(flat, ("a", "b"), tag_of=tags))
        except px.errors.PartitionError:
            assert preserved
    assert len(made) > 4
    for program in made:
        eager, lowered = copy.deepcopy(module), px.lower(program)
        for number in range(2):
            given, expected = lowered(X + number, **kwargs), eager(X + number, **kwargs)
            torch.testing.assert_close(given[0], expected[0])
            assert given[1:] == expected[1:]
