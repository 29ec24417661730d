"""``add_runtime_assertions``: the graph itself refuses wrong sizes, where nobody reads the signature."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

import purefx as px
from tests.programs import exported

A = Dim("a", min=4, max=20)


class Pair(torch.nn.Module):
    """Two tensors of as many rows."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, y.sum()


class Halves(torch.nn.Module):
    """Takes an even number of rows, in a dict."""

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        x = batch["ids"]
        return (x[: x.shape[0] // 2] if x.shape[0] % 2 == 0 else x).sin()


class Repeated(torch.nn.Module):
    """Takes a number."""

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return x.sum() * n if n % 4 == 0 else x.sum() * 3


def pair() -> px.Program:
    """Return a program with a tie and a range."""
    return px.import_ep(exported(Pair(), torch.ones(6, 4), torch.ones(6, 3), dynamic_shapes=({0: A}, {0: A})))


def asserts(program: px.Program) -> list[str]:
    """Return what is checked, as the messages say it."""
    return [node.args[1] for node in program.main.nodes if type(node.do) is px.Op and "_assert_scalar" in node.do.name]


def unchecked(program: px.Program) -> Any:
    """Return a function of the flat inputs that runs a program's graph elsewhere, where nobody reads the signature."""
    return px.to_ep(program).graph_module


def test_sizes_are_refused_by_the_graph_alone() -> None:
    program = pair()
    result = px.add_runtime_assertions(program)
    assert asserts(result) == [
        "y, x: the program is for y.size(0) == x.size(0)",
        "x: the program is for x.size(0) >= 4",
        "x: the program is for x.size(0) <= 20",
    ]
    bare, run = unchecked(program), unchecked(result)
    for rows in (4, 9, 20):
        x, y = torch.randn(rows, 4), torch.randn(rows, 3)
        for given, expected in zip(run(x, y), Pair()(x, y), strict=True):
            assert torch.equal(given, expected)
        assert torch.equal(px.lower(result)(x, y)[0], x + 1)
    for rows, other, told in ((3, 3, ">= 4"), (21, 21, "<= 20"), (5, 6, "y.size\\(0\\) == x.size\\(0\\)")):
        bare(torch.ones(rows, 4), torch.ones(other, 3))
        with pytest.raises(RuntimeError, match=told):
            run(torch.ones(rows, 4), torch.ones(other, 3))
        with pytest.raises(px.InputValueError, match="argument"):
            px.lower(result)(torch.ones(rows, 4), torch.ones(other, 3))


def test_what_is_checked_already_is_not_added_again() -> None:
    result = px.add_runtime_assertions(pair())
    assert px.add_runtime_assertions(result) is result
    exported_again = px.import_ep(px.to_ep(result))
    assert px.add_runtime_assertions(exported_again) is exported_again
    traced = px.import_fx(px.to_ep(result).module())
    assert len(asserts(traced)) == 3
    part = px.add_runtime_assertions(pair(), fuel=1)
    assert len(asserts(part)) == 1
    assert sorted(asserts(px.add_runtime_assertions(part))) == sorted(asserts(result))


def test_values_of_what_is_added() -> None:
    result = px.add_runtime_assertions(pair())
    assert px.infer(result) is result
    assert px.verify(result, infer=True) == ()
    assert px.alpha_equal(px.import_ep(px.to_ep(result)), result)
    without = px.parse(str(pair()))
    assert asserts(px.add_runtime_assertions(without)) == asserts(result)


def test_guards_and_paths_of_arguments() -> None:
    program = px.import_ep(exported(Halves(), {"ids": torch.ones(6, 4)}, dynamic_shapes={"batch": {"ids": {0: Dim.DYNAMIC}}}))
    assert program.constraints.guards
    result = px.add_runtime_assertions(program)
    assert asserts(result)[0] == "batch['ids']: the program is for batch['ids'].size(0) % 2 == 0"
    assert unchecked(result)(torch.ones(8, 4))[0].shape == (4, 4)
    with pytest.raises(RuntimeError, match="% 2 == 0"):
        unchecked(result)(torch.ones(7, 4))


def test_numbers() -> None:
    program = px.import_ep(exported(Repeated(), torch.ones(2), 8, dynamic_shapes=(None, Dim.DYNAMIC)))
    result = px.add_runtime_assertions(program)
    assert "n: the program is for n % 4 == 0" in asserts(result)
    assert unchecked(result)(torch.ones(2), 12)[0] == 24
    with pytest.raises(RuntimeError, match="n % 4 == 0"):
        unchecked(result)(torch.ones(2), 13)


def test_sizes_that_are_fixed_need_nothing() -> None:
    program = px.import_ep(exported(Pair(), torch.ones(6, 4), torch.ones(6, 3)))
    assert px.add_runtime_assertions(program) is program


def test_outlined_programs_get_checks_in_the_root_and_split_ones_are_refused() -> None:
    result = px.add_runtime_assertions(px.transform(pair()))
    assert asserts(result) == asserts(px.add_runtime_assertions(pair()))
    assert torch.equal(px.lower(result)(torch.ones(5, 4), torch.ones(5, 3))[0], torch.full((5, 4), 2.0))
    split = px.split_by_tags(px.sink_state(pair()), ("a",), tag_of=lambda _: "a")
    with pytest.raises(px.PartitionError, match="before split_by_tags"):
        px.add_runtime_assertions(split)
