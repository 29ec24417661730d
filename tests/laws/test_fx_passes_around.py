"""Programs around what a pass looks for: they hold it, on other operands as well, and stay within the contract."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.laws.checking import WrongQuestion
from purefx.laws.fx_passes import ANYTHING, INFERENCE, POINTWISE, Contract, survey_pass
from purefx.laws.fx_passes.around import cases_around, seeds_of
from purefx.laws.law import Case
from purefx.laws.tiers import examples_of, share
from tests.models import exported, names, parent

pytest_plugins = ["pytester"]
aten: Any = torch.ops.aten

ADDED = (lambda x, y: aten.mul.Tensor(aten.add.Tensor(x, y), 3), (torch.ones(2, 3), torch.ones(3)))


def drawn(contract: Contract, examples: int, around: list[Any]) -> list[Case]:
    """Return drawn cases within a contract."""
    found = examples_of(cases_around(seeds_of(around), contract.barred), examples, 0)
    return [case for each in found if (case := contract.admitted(each)) is not None]


def test_patterns_are_tried_on_other_types_and_sizes() -> None:
    seeds = seeds_of([ADDED])
    kinds = {
        tuple((one.value.dtype, tuple(one.value.shape)) for _, one in seed.leaves) for seed in seeds
    }
    assert ((torch.float32, (2, 3)), (torch.float32, (3,))) in kinds
    assert ((torch.float32, (2, 3)), (torch.float32, (1,))) in kinds, "broadcast"
    assert ((torch.float32, (2, 3)), (torch.float64, (3,))) in kinds, "promoted"
    assert ((torch.int64, (2, 3)), (torch.int64, (3,))) in kinds


def test_arguments_are_drawn_for_the_pattern_of_a_rule() -> None:
    seeds = seeds_of([px.rule(lambda x: aten.argmax.default(x, 0))])
    assert all("aten.argmax.default" in str(node.do) for seed in seeds for node in seed.nodes)
    assert (
        len({(one.value.dtype, tuple(one.value.shape)) for seed in seeds for _, one in seed.leaves})
        > 4
    )


def test_programs_hold_the_pattern_and_something_around_it() -> None:
    cases = drawn(ANYTHING, 40, [ADDED])
    held = [names(case.program) for case in cases]
    assert (
        sum({"aten.add.Tensor", "aten.mul.Tensor"} <= set(each) for each in held)
        > len(cases) // 2
        > 10
    )
    together = {name for each in held for name in each}
    assert {"aten.add_.Tensor", "aten.clone.default"} & together, "writes, copies"
    assert {"aten.transpose.int", "aten.slice.Tensor", "aten.expand.default"} & together, "views"
    assert any(case.program.state.order for case in cases), "state"
    assert any(case.program.constraints.ranges for case in cases), "sizes that are symbols"
    assert any(len(case.program.graphs) > 1 for case in cases), "branches"


@pytest.mark.parametrize(
    "contract",
    [INFERENCE, POINTWISE, Contract(writes="nowhere")],
    ids=["inference", "plain", "no writes"],
)
def test_programs_are_within_the_contract(contract: Contract) -> None:
    cases = drawn(contract, 20, [ADDED])
    assert len(cases) > 10
    assert not any(contract.broken_by(case.program) for case in cases)


class Block(parent(linear=lambda: nn.Linear(3, 3))):
    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.linear(x).relu() * scale


@pytest.mark.parametrize("kind", ["module", "exported", "program"])
def test_modules_and_programs_are_examples(kind: str) -> None:
    block, x = Block(), torch.ones(2, 3)
    ep = exported(block, x)
    source = {"module": block, "exported": ep, "program": px.transform(px.import_ep(ep))}[kind]
    cases = drawn(ANYTHING, 12, [(source, (x,))])
    assert any(
        "aten.linear.default" in names(case.program) and case.program.state.order for case in cases
    )
    assert seeds_of([(block, (x,), {"scale": 2.0})])[0].nodes[-1].args[1] == 2.0


def without_double_negation(module: torch.fx.GraphModule) -> None:
    for node in module.graph.find_nodes(op="call_function", target=aten.neg.default):
        inner = node.args[0]
        if inner.target is aten.neg.default:
            node.replace_all_uses_with(inner.args[0])


def test_a_mistake_that_hardly_any_drawn_program_shows_is_found_and_small() -> None:
    around = [(lambda x: torch.neg(torch.neg(x)), (torch.ones(2, 3),))]
    report = survey_pass(
        without_double_negation,
        contract=ANYTHING.without("aliasing"),
        around=around,
        examples=share(30),
        seconds=0.5,
    )
    assert report.changed > report.drawn // 3
    found = {each.law: each for each in report.findings}
    assert "meaning" in found, "a write between what is read and its use"
    assert len(names(found["meaning"].program)) <= 4
    assert "around the examples" in found["meaning"].error.__notes__[0]
    assert (
        survey_pass(
            without_double_negation, contract=INFERENCE, around=around, examples=share(12)
        ).wrong
        == 0
    )


@pytest.mark.parametrize(
    ("around", "said"),
    [
        ((torch.relu, (torch.ones(2),)), r"around\[0\] is a builtin"),
        (nn.ReLU(), "around must be a list, not a ReLU"),
        ([nn.ReLU()], r"around\[0\] is a ReLU; around takes rules, and pairs"),
        ([(nn.ReLU(), torch.ones(2))], r"the arguments of around\[0\] are a Tensor"),
        ([(3, (torch.ones(2),))], r"around\[0\] begins with a int"),
        ([(lambda x: x.item() + 1, (torch.ones(1),))], r"around\[0\], <lambda>, cannot be traced"),
    ],
)
def test_wrong_arguments(around: Any, said: str) -> None:
    with pytest.raises(WrongQuestion, match=said):
        seeds_of(around)


def test_the_fixture_of_the_plugin_lists_what_was_found(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def dead_code(module):
            module.graph.eliminate_dead_code()

        def test_right(check_fx_pass):
            assert check_fx_pass(dead_code, examples=8).wrong == 0
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:randomly")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["purefx: dead_code was right on 8 of 8 programs*"])
