"""``minimize``: what is left is valid, still wrong, never larger, and cannot be reduced again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.laws import example_args
from purefx.laws.toy import tensor_meaning
from purefx.transforms.minimize.search import cost
from tests.models import Block, Tower, imported, names

Rewrite = Callable[[px.Program], px.Program]


def is_wrong(rewrite: Rewrite) -> Callable[[px.Program], bool]:
    """Return the question that a user asks: does the program mean something else after a rewrite, in two calls."""

    def asked(program: px.Program) -> bool:
        calls = [example_args(program, seed=seed) for seed in range(2)]
        return tensor_meaning(rewrite(program), calls) != tensor_meaning(program, calls)

    return asked


def with_nodes(change: Callable[[px.Node], px.Node]) -> Rewrite:
    """Return a rewrite of every node of every graph."""

    def rewrite(program: px.Program) -> px.Program:
        graphs = {name: program.graphs[name] for name in program.order}
        return program.with_graphs(
            {
                name: graph.with_nodes([change(node) for node in graph.nodes])
                for name, graph in graphs.items()
            }
        )

    return rewrite


def swapped(one: Any, other: Any, *, name: str | None = None) -> Rewrite:
    """Return a rewrite that puts one operator in the place of another, everywhere or at one node."""
    was, now = px.op(one), px.op(other)
    return with_nodes(
        lambda node: node.evolve(do=now) if node.do == was and name in (None, node.name) else node
    )


aten: Any = torch.ops.aten
RELU_IS_TANH = swapped(aten.relu.default, aten.tanh.default)


def check(program: px.Program, wrong: Callable[[px.Program], bool]) -> px.ir.Program:
    """Return what is left of a program, after the laws of the reducer were asked."""
    found = px.minimize(program, wrong)
    left = found.program
    assert px.verify(left, infer=True) == ()
    assert wrong(left)
    assert cost(left) <= cost(program)
    assert px.minimize(program, wrong) == found, "it is deterministic"
    again = px.minimize(left, wrong)
    assert again.steps == () and str(again) == str(found) == left.text()
    state = {name: slot.value for name, slot in left.state.pairs}
    assert px.parse(str(found), state=state, allow=left.foreign_operators) == left
    return left


class Chain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x.sin() + 1).relu() * 2).cos() + x


@pytest.mark.parametrize("stage", ["chain", "flat", "tree", "split"])
def test_one_operator_is_left_with_one_input(stage: str) -> None:
    """Of trees with shared bodies and of split programs, too; sizes that do not matter become one."""
    stages: dict[str, Rewrite] = {
        "chain": lambda _: imported(Chain(), torch.randn(64, 48)),
        "flat": lambda program: program,
        "tree": px.transform,
        "split": lambda program: px.split_balanced(px.transform(program), 3),
    }
    left = check(stages[stage](imported(Tower(6), torch.randn(2, 4))), is_wrong(RELU_IS_TANH))
    assert names(left) == ["aten.relu.default"] and shapes(left) == [(1, 1)]
    assert len(left.main.inputs) == len(left.main.output) == 1
    assert not len(left.state) and not left.modules


def test_a_write_stays() -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            z = x.sin()
            seen = z.view(-1)
            z.add_(y.exp())
            return (seen.cos() + z).tanh() * y

    program = imported(Writes(), torch.randn(3), torch.randn(3))
    left = check(
        program, is_wrong(swapped(aten.add_.Tensor, aten.add.Tensor))
    )  # does not write any more
    assert names(left) == ["aten.add_.Tensor"]


class Branched(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (
            torch.cond(
                x.sum() > 0, lambda x: (x.sin() * 2).relu() + 1, lambda x: x.cos(), (x.exp(),)
            )
            * 2
        )


def test_a_branch_takes_the_place_of_its_operator() -> None:
    left = check(imported(Branched(), torch.randn(3)), is_wrong(RELU_IS_TANH))
    assert names(left) == ["aten.relu.default"]
    assert list(left.graphs) == [""]


def test_an_operator_with_branches_stays_where_it_is_the_fault() -> None:
    def other(program: px.Program) -> px.Program:  # takes the wrong branch
        return with_nodes(
            lambda node: (
                node.evolve(args=(node.args[0], node.args[2], node.args[1], *node.args[3:]))
                if isinstance(node.do, px.Op) and node.do.name == "higher_order.cond"
                else node
            )
        )(program)

    left = check(imported(Branched(), torch.ones(3)), is_wrong(other))
    assert names(left)[0] == "higher_order.cond"
    assert len(names(left)) <= 3


def test_a_graph_that_was_traced_without_examples() -> None:
    program = px.import_fx(torch.fx.symbolic_trace(Tower(3)))

    def wrong(program: px.Program) -> bool:
        runs = px.lower(program)
        runs(*[torch.ones(2, 4)] * len(program.main.inputs))
        return names(program).count("method.relu") > 0

    left = px.minimize(program, wrong).program
    assert names(left) == ["method.relu"] and not len(left.state)


def test_time_is_kept() -> None:
    asked: list[float] = []

    def slowly(program: px.Program) -> bool:
        time.sleep(0.02)
        asked.append(time.monotonic())
        return "aten.relu.default" in names(program)

    program = imported(Tower(8), torch.randn(2, 4))
    found = px.minimize(program, slowly, seconds=0.1)
    assert found.seconds < 1 and found.tried == len(asked) <= 6
    assert found.steps[-1] == "the time was up"
    assert px.verify(found.program) == () and cost(found.program) <= cost(program)


def test_what_is_not_wrong_is_refused() -> None:
    program = imported(Block(), torch.randn(2, 4))
    with pytest.raises(
        px.errors.MinimizeError,
        match=r"there is nothing to reduce: is_wrong.program. has to return True",
    ):
        px.minimize(program, lambda program: False)
    with pytest.raises(
        px.errors.MinimizeError,
        match=r"is_wrong raised KeyError for the given program: 'x'; .* catch it",
    ):
        px.minimize(program, lambda program: {}["x"])
    with pytest.raises(px.errors.InvalidProgram):
        px.minimize(
            program.with_main(evolve(program.main, output=(px.Ref("nothing"),))),
            lambda program: True,
        )


def tensors(program: px.Program) -> list[px.ir.TensorType]:
    """Return the types of the tensors that the caller passes."""
    kinds = [spec.type for spec in program.signature.inputs if isinstance(spec, px.ir.UserInput)]
    return [kind for kind in kinds if isinstance(kind, px.ir.TensorType)]


def shapes(program: px.Program) -> list[tuple[Any, ...]]:
    """Return their shapes."""
    return [kind.shape for kind in tensors(program)]


def test_a_size_that_matters_stays_and_others_go() -> None:
    def over_twenty(program: px.Program) -> bool:
        nodes = [node for node in program.main.nodes if node.do == px.op(aten.relu.default)]
        return any(node.meta["val"].shape[-1] > 20 for node in nodes)

    assert shapes(check(imported(Chain(), torch.randn(64, 48)), over_twenty)) == [(1, 24)]


def test_dtypes_become_the_usual_ones() -> None:
    class Half(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            return x.relu().to(torch.float64)[at]

    program = imported(
        Half(), torch.randn(3, dtype=torch.bfloat16), torch.ones(2, dtype=torch.int32)
    )
    left = check(
        program, lambda program: names(program)[-2:] == ["aten.to.dtype", "aten.index.Tensor"]
    )
    assert {kind.dtype for kind in tensors(left)} == {torch.float32, torch.int64}
