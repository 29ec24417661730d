"""The value of a name at a border is that of a run of the whole program, in whatever order the names are asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import purefx as px
from purefx.ir.inference import (
    UNKNOWN,
    Border,
    ExampleValues,
    Interpreter,
    all_agree,
    borders_of,
    described,
)
from tests.laws.test_small_sizes import drawn
from tests.tables import table


def of_whole_run(border: Border) -> dict[tuple[str, str], Any]:
    """Return the value of each name, after a walk over all nodes in a domain that trusts and keeps nothing."""
    program = border.domain.program
    domain = ExampleValues(program, border.domain.sizes)
    work = Interpreter(program, values=domain)
    work.walk()
    values: dict[tuple[str, str], Any] = {}
    for graph in program.order:
        for name, meta in program.graphs[graph].metas.items():
            recorded = meta.get("val")
            runs = [run.known for run in work.runs.get(graph, ()) if name in run.known]
            several = [known[name] for known in runs] or [domain.example(recorded)]
            is_known = recorded is not None and all(each is not UNKNOWN for each in several)
            same = is_known and all_agree(several[0], several[1:])
            values[graph, name] = described(several[0]) if same else described(None)
    return values


def assert_lazy_values_are_those_of_a_run(program: px.Program, seed: int = 0) -> int:
    """Ask each border for all names, in several orders, also after those of an earlier version."""
    count, earlier = 0, borders_of(program)
    for turn in range(3):
        borders = borders_of(program, earlier if turn == 2 else ())
        for border in borders:
            expected = of_whole_run(border)
            names = list(expected)
            random.Random(seed + turn).shuffle(names)
            for graph, name in names:
                value = described(border.value(graph, name))
                assert value == expected[graph, name], (str(border), graph, name, program.text())
            count += len(names)
        earlier = borders
    return count


STAGES: dict[str, Callable[[px.Program], px.Program]] = {
    "flat": lambda program: program,
    "tree": px.transform,
    "tree of shared bodies": lambda program: px.deduplicate(px.outline(program)),
}


CHOSEN = {
    "flat": slice(None),
    "tree": slice(0, None, 2),
    "tree of shared bodies": slice(1, None, 2),
}
"""The programs of each stage: those that are trees are alike."""


@pytest.mark.parametrize("stage", STAGES)
def test_values_of_generated_programs(stage: str) -> None:
    counts: list[int] = []
    chosen = drawn()[CHOSEN[stage]]
    for seed, (program, _) in enumerate(chosen):
        try:
            staged = STAGES[stage](program)
        except px.errors.UnsupportedProgram:
            continue
        counts.append(assert_lazy_values_are_those_of_a_run(staged, seed))
    assert sum(map(bool, counts)) > len(chosen) // 2


class Twice(nn.Module):
    """Calls one module on values whose sizes differ at a border only."""

    def __init__(self) -> None:
        super().__init__()
        self.child = Child()

    def forward(self, x: Any, y: Any) -> Any:
        return self.child(x.exp()).sum() + self.child((x + 1).squeeze(0).exp()).sum() + y


class Child(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.neg().cos()


class TwoRows(nn.Module):
    """Calls one module on values whose recorded sizes are fixed, but one has no row at a border."""

    def __init__(self) -> None:
        super().__init__()
        self.child = Child()

    def forward(self, x: Any, y: Any) -> Any:
        return self.child(x[:1]).sum() + self.child(y.reshape(1, 4)).neg()


class Contents(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.nonzero().squeeze(0).sum(0)


class SizesInside(nn.Module):
    """A size inside of a body depends on contents; operands and result have fixed sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.child = Contents()

    def forward(self, x: Any, y: Any) -> Any:
        return self.child(y).neg(), x.exp()


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any) -> Any:
        return self.function(x, y)


def turned(x: Any, y: Any) -> Any:
    z = x.exp()
    before = z.neg()
    z.unsqueeze_(0)
    fixed = y.exp()
    fixed.unsqueeze_(0)
    return before.sum() + z.squeeze(1).cos().sum() + fixed.neg()


def branches(x: Any, y: Any) -> Any:
    pair = torch.cond(y.sum() > 0, lambda x: x.cos(), lambda x: x.sin(), (x.exp(),))
    return pair.squeeze(0).neg().sum() + y.exp()


def mapped(x: Any, y: Any) -> Any:
    rows = torch.vmap(lambda row: row.exp().neg())(x).squeeze(0).cos().sum()
    return rows + torch.vmap(lambda column: column.squeeze(0).neg().sum(), in_dims=1)(x) + y


def looped(x: Any, y: Any) -> Any:
    from torch._higher_order_ops import scan

    carry, rows = scan(lambda c, r: (c + r, (c * r).exp()), y, x.squeeze(0).reshape(-1, 4))
    return carry + rows.sum()


def counted(x: Any, y: Any) -> Any:
    rows = x.flatten().nonzero().squeeze(0)
    return rows.reshape(-1, 1).float().sum() + y.exp().neg()


def several(x: Any, y: Any) -> Any:
    z = x.exp().unsqueeze(0)
    return torch.add(y.exp(), z.squeeze(0).squeeze(0)), z.squeeze(1).neg(), z.squeeze(0)


def first_row(x: Any, y: Any) -> Any:
    return x[:1].neg().reshape(1, 4).exp().sum() + y.reshape(1, 4).exp()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "a body of two calls": Twice,
    "a body of a fixed size": TwoRows,
    "a body with sizes of contents": SizesInside,
    "several operands": lambda: Function(several),
    "a write of sizes": lambda: Function(turned),
    "branches": lambda: Function(branches),
    "vmap": lambda: Function(mapped),
    "a scan": lambda: Function(looped),
    "sizes of contents": lambda: Function(counted),
    "fixed sizes that are others": lambda: Function(first_row),
}


@cache
def imported(case: str, low: int) -> px.Program:
    shapes = {"x": {0: Dim("rows", min=low, max=9)}, "y": {}}
    operands = torch.randn(5, 4), torch.randn(4)
    ep = torch.export.export(MODELS[case](), operands, dynamic_shapes=shapes, strict=False)
    return px.import_ep(ep)


@table(case=list(MODELS), low={"0": 0, "1": 1}, stage=list(STAGES))
def test_values_where_they_depend_on_more_than_operands(case: str, low: int, stage: str) -> None:
    program = STAGES[stage](imported(case, low))
    for seed in range(2):
        assert assert_lazy_values_are_those_of_a_run(program, seed)
