"""The law "steps done in one give what they give one after the other": on generated programs and on real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.graph import Graph
from purefx.ir.inference import agrees
from purefx.ir.meta import ORIGIN
from purefx.ir.origins import Made, Origin
from purefx.ir.program import Program
from purefx.ir.verify import check
from purefx.laws.strategies import Stage
from purefx.laws.tiers import TIERS, Tier, drawn_cases, share
from purefx.transforms import pipeline
from tests.transforms.small import tree
from tests.verify.test_corruptions import imported

Pass = Callable[[Program], Program]


def fused_faults(program: Program, steps: Sequence[Pass], together: Pass) -> list[str]:
    """Return how the result of steps done in one differs from that of the steps."""
    expected = program
    try:
        for step in steps:
            expected = step(expected)
    except px.errors.UnsupportedProgram:
        with pytest.raises(px.errors.UnsupportedProgram):
            together(program)
        return []
    return list(different_results(together(program), expected))


def different_results(given: Program, expected: Program) -> Iterator[str]:
    """Yield how two results of one program differ."""
    if (
        list(given.graphs) != list(expected.graphs)
        or given != expected
        or str(given) != str(expected)
    ):
        yield f"the program is\n{given}\nand not\n{expected}"
        return
    if given.checked != expected.checked:
        yield f"it is {'' if given.checked else 'not '}known to be valid"
    if given.trail != expected.trail:
        yield f"trail: {[*map(str, given.trail)]}, not {[*map(str, expected.trail)]}"
    for number, (mine, theirs) in enumerate(zip(given.trail, expected.trail, strict=False)):
        if mine.before is not theirs.before and mine.before != theirs.before:
            yield f"before step {number}, {mine}, the program is\n{mine.before}\nand not\n{theirs.before}"
    for name, graph in given.graphs.items():
        yield from _different_metas(name, graph, expected.graphs[name])


def _different_metas(name: str, given: Graph, expected: Graph) -> Iterator[str]:
    for mine, theirs in zip(
        (*given.inputs, *given.nodes), (*expected.inputs, *expected.nodes), strict=True
    ):
        if list(mine.meta) != list(theirs.meta):
            yield f"{name!r} / {mine.name}: meta has {list(mine.meta)}, not {list(theirs.meta)}"
            continue
        for key, value in mine.meta.items():
            if not (_same_origin if key == ORIGIN else _same)(value, theirs.meta[key]):
                yield f"{name!r} / {mine.name}: its {key} is {value!r}, not {theirs.meta[key]!r}"


def _same(mine: Any, theirs: Any) -> bool:
    if mine is theirs:
        return True
    if isinstance(mine, tuple | torch.Tensor):
        return agrees(mine, theirs)
    return type(mine) is type(theirs) and bool(mine == theirs)


def _same_origin(mine: Origin, theirs: Origin) -> bool:
    todo = [(mine, theirs)]
    while todo:
        one, other = todo.pop()
        if one is other:
            continue
        if type(one) is not Made or type(other) is not Made or len(one.of) != len(other.of):
            return False
        if (one.by, one.is_one, one.is_body) != (other.by, other.is_one, other.is_body):
            return False
        todo += zip(one.of, other.of, strict=True)
    return True


# -- fused -----------------------------------------------------------------------------------------------------------------------


MANY: dict[Tier, int] = {"toy": 20, "aten": 10, "modules": 3}
STAGES: tuple[Stage, ...] = ("flat", "sunk", "ivals")
STEPS, TOGETHER = (px.outline, px.deduplicate), pipeline.outlined_and_deduplicated


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("tier", TIERS)
def test_fused_is_stepwise(tier: Tier, stage: Stage) -> None:
    for case in drawn_cases(tier, stage, share(MANY[tier])):
        assert fused_faults(case.program, STEPS, TOGETHER) == []


def test_fused_is_stepwise_for_real_programs() -> None:
    for program in imported():
        assert fused_faults(program, STEPS, TOGETHER) == []


CIRCLES = "\n".join(
    f"p{m} = aten.neg.default({x})  in {m} / .{a}\nq{m} = aten.abs.default({x})  in {m} / .{b}\n"
    f"r{m} = aten.add.Tensor(p{m}, q{m})  in {m} / .{a}\ns{m} = aten.mul.Tensor(q{m}, r{m})  in {m} / .{b}"
    for m, x, a, b in ("mxab", ("n", "sm", "b", "a"))
)


@pytest.mark.filterwarnings("ignore::purefx.errors.FlatCallWarning")
def test_bodies_with_calls_that_stay_flat_are_equal_only_if_the_calls_are() -> None:
    assert (
        fused_faults(tree(f'graph @""(x) {{\n{CIRCLES}\nreturn (sn,)\n}}'), STEPS, TOGETHER) == []
    )


@pytest.mark.filterwarnings("ignore::purefx.errors.FlatCallWarning")
def test_a_program_whose_calls_all_stay_flat_is_not_outlined() -> None:
    program = tree("""
        graph @""(x) {
          p = aten.neg.default(x)  in a
          c = higher_order.cond(p, @$then, @$other, (p,))
          r = operator.getitem(c, 0)
          q = aten.mul.Tensor(p, r)  in a
          return (q,)
        }
        graph @$then(p) {
          n = aten.neg.default(p)
          return (n,)
        }
        graph @$other(p) {
          n = aten.neg.default(p)
          return (n,)
        }
    """)
    assert fused_faults(program, STEPS, TOGETHER) == []
    assert [step.name for step in TOGETHER(program).trail] == ["deduplicate"]


def test_the_default_pipeline_is_its_steps() -> None:
    for program in imported()[:: len(px.DEFAULT) + 1]:
        assert fused_faults(check(program), px.DEFAULT, px.transform) == []
