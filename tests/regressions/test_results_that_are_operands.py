"""Results that are their operand at the size 0 or 1 only, such as the contiguous transpose of one row."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import Dim

import purefx as px
from purefx.ir.inference import borders_of, returned_operand, values_of
from tests.tables import in_turns, table

Function = Callable[[Any], Any]

LAST = torch.channels_last

RESULTS: dict[str, Function] = {
    "contiguous": lambda x: x.contiguous(),
    "a contiguous transpose": lambda x: x.transpose(0, 1).contiguous(),
    "channels last": lambda x: x.contiguous(memory_format=LAST),
    "channels last and back": lambda x: x.contiguous(memory_format=LAST).contiguous(),
    "contiguous rows": lambda x: x[:, :2].contiguous(),
    "a contiguous item": lambda x: x.select(-1, 0).contiguous(),
    "a contiguous diagonal": lambda x: x.diagonal(0, -2, -1).contiguous(),
    "a contiguous expansion": lambda x: x[:1].expand(x.shape).contiguous(),
    "a sum to one row": lambda x: x.sum_to_size(1, *x.shape[1:]),
    "a sum to its own size": lambda x: x.sum_to_size(*x.shape),
    "expand_as": lambda x: x.expand_as(x),
    "flatten of one dimension": lambda x: x.flatten(1, 1),
    "an equal type": lambda x: x.to(torch.float32),
    "dropout of an inference": lambda x: torch.dropout(x, 0.5, False),
}


OF_ROWS = {"contiguous rows", "a sum to one row", "a contiguous expansion"}
"""Those where the first dimension makes the difference."""


def rows(least: int = 0) -> Any:
    return Dim("rows", min=least)


class Applies(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Writes(nn.Module):
    """Writes through the result of a module, and reads the operand, or the other way around."""

    def __init__(self, function: Function, *, to_result: bool) -> None:
        super().__init__()
        self.inner, self.to_result = Applies(function), to_result

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        written = y if self.to_result else x
        written.add_(1)
        return x + 1, y * 2, self.inner(x + 1)


@in_turns(name=list(RESULTS), dim={"0": 0, "2": 2})
def test_an_operator_that_returns_its_operand_does_so_at_each_border(name: str, dim: int) -> None:
    # So a recorded operand is one for all sizes, and None says that some size has another object.
    def doubled(x: Any) -> Any:
        return RESULTS[name](x) * 2

    operand = torch.randn(4, 4, 4, 4)
    ep = torch.export.export(Applies(doubled), (operand,), dynamic_shapes=({dim: rows()},))
    program = px.import_ep(ep)
    recorded = values_of(program.main)
    borders = borders_of(program)
    assert len(borders) == 2
    for border in borders:
        values = {each: border.value(program.root, each) for each in recorded}
        for node in program.main.nodes:
            operand_of = returned_operand(program.main, node.name, recorded)
            there = returned_operand(program.main, node.name, values)
            assert operand_of in (None, there), (str(border), node.name)


PASSES: dict[str, Callable[[px.Program], px.Program]] = {
    "no pass": lambda program: program,
    "transform": px.transform,
    "remove_noops and transform": lambda program: px.transform(px.remove_noops(program)),
    "eliminate_common_subexpressions": px.eliminate_common_subexpressions,
}


@table(
    name=list(RESULTS),
    to_result={"operand": False, "result": True},
    is_preserved={"plain": False, "preserved": True},
)
def test_a_write_reaches_what_it_reaches_in_eager_mode(
    name: str, to_result: bool, is_preserved: bool
) -> None:
    model = Writes(RESULTS[name], to_result=to_result)
    dim = 0 if name in OF_ROWS else 1
    ep = torch.export.export(
        model,
        (torch.randn(4, 4, 4, 4),),
        dynamic_shapes=({dim: rows(1)},),
        preserve_module_call_signature=("inner",) if is_preserved else (),
    )
    program = px.import_ep(ep)
    lowered = {each: px.lower(function(program)) for each, function in PASSES.items()}
    if is_preserved:
        inner = Applies(RESULTS[name])
        swapped = px.swap_modules(px.transform(program), {"inner": inner}, through="result")
        lowered["swap_modules"] = px.lower(swapped)
    for size in (1, 2, 4):
        shape = [4, 4, 4, 4]
        shape[dim] = size
        x = torch.randn(shape)
        expected_operand = x.clone()
        expected = model(expected_operand)
        for each, module in lowered.items():
            operand = copy.deepcopy(x)
            results = module(operand)
            assert torch.equal(operand, expected_operand), (each, size)
            assert all(map(torch.equal, results, expected)), (each, size)
