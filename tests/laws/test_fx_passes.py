"""``check_fx_pass``: passes that are right are found right, and a mistake of each kind is found and shown small."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch.fx.passes.dialect.common.cse_pass import CSEPass
from torch.fx.passes.tools_common import legalize_graph

import purefx as px
from purefx.errors import FxPassError
from purefx.laws.asking import LawBroken
from purefx.laws.checking import NothingChecked, WrongQuestion
from purefx.laws.fx_passes import (
    ANYTHING,
    FUNCTIONAL,
    INFERENCE,
    POINTWISE,
    Contract,
    PassReport,
    check_fx_pass,
    survey_pass,
)
from purefx.laws.tiers import share

aten: Any = torch.ops.aten
EXAMPLES = share(6)
MANY = share(30)
"""So many show every mistake."""


def rebuilt(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    return torch.fx.GraphModule(module, copy.deepcopy(module.graph))


def calls(module: torch.fx.GraphModule, *targets: Any) -> list[torch.fx.Node]:
    return [
        node
        for node in module.graph.nodes
        if node.op == "call_function" and (not targets or node.target in targets)
    ]


@pytest.mark.parametrize(
    "contract",
    [ANYTHING, FUNCTIONAL, INFERENCE, POINTWISE],
    ids=["any", "functional", "inference", "plain"],
)
def test_the_same_graph_made_anew_is_right(contract: Contract) -> None:
    """The programs are within the contract."""
    operators = set[str]()

    def looked_at(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        operators.update(
            node.do.name for _, node in px.import_fx(module).nodes() if isinstance(node.do, px.Op)
        )
        return rebuilt(module)

    report = survey_pass(looked_at, contract=contract, examples=EXAMPLES)
    assert report.wrong == 0
    assert report.right == report.drawn > EXAMPLES // 3
    if contract is not ANYTHING:
        writes = {
            name for name in operators if name.split(".")[-2].endswith("_") and "_print" not in name
        }
        assert writes <= ({"aten.copy_.default"} if contract is not POINTWISE else set())
    if not contract.random:
        assert operators.isdisjoint(
            {"aten.rand_like.default", "aten.bernoulli.p", "aten.native_dropout.default"}
        )
    if not contract.regions:
        assert not any(name.startswith("higher_order.") for name in operators)


def test_modules_of_the_exporter_made_anew_are_right() -> None:
    report = survey_pass(rebuilt, tier="modules", examples=share(3))
    assert (report.wrong, report.right) == (0, report.drawn)


def test_our_own_transformations_are_right_passes() -> None:
    for ours in (px.eliminate_common_subexpressions, px.eliminate_dead_code, px.remove_noops):

        def as_pass(module: torch.fx.GraphModule, ours: Any = ours) -> Any:
            return px.as_fx_pass(ours, over="graph")(module.graph)

        report = survey_pass(as_pass, contract=ANYTHING.without("aliasing"), examples=EXAMPLES // 2)
        assert report.wrong == 0, report.findings[0].error


def upside_down(module: torch.fx.GraphModule) -> None:
    for node in calls(module, aten.add.Tensor, aten.sub.Tensor):
        node.target = aten.sub.Tensor if node.target is aten.add.Tensor else aten.add.Tensor


def without_prints(module: torch.fx.GraphModule) -> None:
    for node in calls(module, aten._print.default):
        module.graph.erase_node(node)


def without_assertions(module: torch.fx.GraphModule) -> None:
    for node in calls(module, aten._assert_async.msg, aten._assert_tensor_metadata.default):
        module.graph.erase_node(node)


def clones_results(module: torch.fx.GraphModule) -> None:
    output = module.graph.output_node()
    for node in [
        node
        for node in output.all_input_nodes
        if node.target in (aten.expand.default, aten.select.int)
    ]:
        with module.graph.inserting_before(output):
            output.replace_input_with(node, module.graph.call_function(aten.clone.default, (node,)))


def other_values(module: torch.fx.GraphModule) -> None:
    for node in calls(module, aten.neg.default, aten.sin.default):
        node.meta["val"] = node.meta["val"].new_empty((9, 9))


def behind_the_output(module: torch.fx.GraphModule) -> None:
    for node in calls(module, aten.neg.default, aten.add.Tensor)[:1]:
        module.graph.output_node().append(node)


NUMBERS = itertools.count()


def by_turns(module: torch.fx.GraphModule) -> None:
    for node in calls(module, aten.neg.default):
        with module.graph.inserting_before(node):
            for _ in range(next(NUMBERS) % 2):
                module.graph.call_function(aten.neg.default, node.args)


def keeps_the_code(module: torch.fx.GraphModule) -> None:
    for node in calls(module, aten.neg.default):
        node.target = aten.negative.default


def breaks_its_own_result(module: torch.fx.GraphModule) -> None:
    if calls(module, aten.negative.default):
        for node in calls(module, aten.negative.default):
            node.target = aten.abs.default
    else:
        keeps_the_code(module)


MISTAKES: dict[str, tuple[Any, Contract]] = {
    "meaning": (upside_down, ANYTHING),
    "effects": (without_prints, ANYTHING),
    "aliasing": (clones_results, ANYTHING),
    "values": (other_values, ANYTHING),
    "graph": (behind_the_output, ANYTHING),
    "deterministic": (by_turns, ANYTHING),
    "again": (breaks_its_own_result, ANYTHING),
}


@pytest.mark.parametrize(
    "law",
    [
        "meaning",
        *[pytest.param(law, marks=pytest.mark.deep) for law in MISTAKES if law != "meaning"],
    ],
)
def test_a_mistake_of_each_kind_is_found(law: str) -> None:
    a_pass, contract = MISTAKES[law]
    report = survey_pass(a_pass, contract=contract, examples=MANY, seed=0, seconds=1)
    assert law in [found.law for found in report.findings], report
    found = next(found for found in report.findings if found.law == law)
    assert str(
        px.parse(
            found.program.text(),
            state={name: found.program.state[name].value for name in found.program.state},
        )
    )


def test_a_pass_that_drops_assertions_says_so_in_its_contract() -> None:
    class Checked(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            aten._assert_async.msg((x > 0).all(), "first")
            aten._assert_async.msg((y > 0).all(), "second")
            return x * y

    def turned_around(module: torch.fx.GraphModule) -> None:
        one, other = calls(module, aten._assert_async.msg)
        other.append(one)

    programs, functional = (
        [(Checked(), (torch.ones(2), torch.ones(2)))],
        Contract(writes="at the end", aliasing=False),
    )
    with pytest.raises(LawBroken, match="it no longer asserts 'first'"):
        check_fx_pass(without_assertions, programs=programs, examples=0)
    with pytest.raises(
        LawBroken, match="it asserts 'second', 'first', instead of 'first', 'second'"
    ):
        check_fx_pass(turned_around, programs=programs, examples=0)
    with pytest.raises(LawBroken, match="no longer asserts"):
        check_fx_pass(without_assertions, contract=functional, examples=share(10), seed=0)
    report = check_fx_pass(
        without_assertions, contract=functional.without("assertions"), examples=share(10), seed=0
    )
    assert 0 < report.changed <= report.right == report.drawn
    with pytest.raises(LawBroken, match="breaks the law 'effects'"):
        check_fx_pass(
            without_prints, contract=functional.without("assertions"), examples=MANY, seed=0
        )


def test_what_holds_in_any_call_need_not_be_asserted_and_more_may_be() -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        aten._assert_scalar.default(True, "so")
        aten._assert_async.msg((x == x).all(), "equal")
        return x + 1

    def otherwise(module: torch.fx.GraphModule) -> None:
        for node in calls(module, aten._assert_scalar.default):
            module.graph.erase_node(node)
        for node in calls(module, aten._assert_async.msg)[:1]:
            with module.graph.inserting_before(node):
                module.graph.call_function(aten._assert_async.msg, (node.args[0], "more"))
                module.graph.call_function(aten._assert_async.msg, node.args)

    contract = ANYTHING.without("aliasing")
    report = survey_pass(
        otherwise, around=[(checked, (torch.ones(2),))], examples=EXAMPLES, contract=contract
    )
    assert report.wrong == 0 < report.changed, report


def test_merged_draws_are_found_and_draws_that_change_places_are_not() -> None:
    contract = Contract(writes="at the end", aliasing=False, effects=False)
    with pytest.raises(LawBroken, match="random numbers"):
        check_fx_pass(
            CSEPass(),
            contract=contract,
            around=[(lambda x: torch.rand_like(x) - torch.rand_like(x), (torch.ones(2),))],
            examples=share(30),
        )

    def reordered(module: torch.fx.GraphModule) -> None:
        draws = [
            node
            for node in calls(module, aten.rand_like.default)
            if node.all_input_nodes[0].op == "placeholder"
        ]
        for node in draws[1:]:
            draws[0].prepend(node)

    report = survey_pass(reordered, contract=FUNCTIONAL, examples=EXAMPLES)
    assert "meaning" not in [found.law for found in report.findings]


def test_numbers_in_another_layout_are_no_mistake() -> None:
    def contiguous(module: torch.fx.GraphModule) -> None:
        for node in calls(module, aten.rand_like.default):
            with module.graph.inserting_before(node):
                node.replace_input_with(
                    node.all_input_nodes[0],
                    module.graph.call_function(
                        aten.clone.default,
                        (node.all_input_nodes[0],),
                        {"memory_format": torch.contiguous_format},
                    ),
                )

    class Drawn(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.rand_like(x.t())

    report = survey_pass(
        contiguous,
        programs=[(Drawn(), (torch.ones(2, 3),))],
        examples=0,
        contract=ANYTHING.without("values"),
    )
    assert report.wrong == 0, report.findings[0].error


def test_a_pass_of_torch_is_right_within_its_contract_and_wrong_outside() -> None:
    assert survey_pass(CSEPass(), contract=INFERENCE, examples=EXAMPLES).wrong == 0
    with pytest.raises(LawBroken) as error:
        check_fx_pass(
            legalize_graph, around=[(lambda x: x.sin() * 2, (torch.ones(2),))], examples=40, seed=1
        )
    assert "legalize_graph breaks the law" in str(error.value)
    case: Any = error.value.case
    assert len(case.program.main.nodes) < 7
    assert error.value.__notes__ == [
        "The programs: around the examples, within the contract, examples=40, seed=1."
    ]


def test_a_branch_that_is_given_by_name_means_the_same() -> None:
    class Branches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))

    def by_name(module: torch.fx.GraphModule) -> None:
        (node,) = calls(module, torch.ops.higher_order.cond)
        node.kwargs = dict(zip(("pred", "true_fn", "false_fn", "operands"), node.args, strict=True))
        node.args = ()

    report = survey_pass(
        by_name,
        programs=[(Branches(), (torch.ones(2),)), (Branches(), (-torch.ones(2),))],
        examples=0,
    )
    assert (report.right, report.raised, report.refused) == (2, {}, {}), report


def test_your_own_programs_are_asked_first() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

    def no_relu(module: torch.fx.GraphModule) -> None:
        for node in calls(module, aten.relu.default):
            node.replace_all_uses_with(node.args[0])  # pyright: ignore[reportArgumentType]

    with pytest.raises(LawBroken, match="no_relu breaks the law 'meaning'"):
        check_fx_pass(no_relu, programs=[(model, (-torch.ones(1, 2),))], examples=0)


def test_what_was_not_checked_is_said() -> None:
    def raises(module: torch.fx.GraphModule) -> None:
        raise KeyError(module)

    with pytest.raises(NothingChecked, match="changed none"):
        check_fx_pass(lambda module: None, examples=5)
    with pytest.raises(NothingChecked, match="KeyError 5") as error:
        check_fx_pass(raises, examples=5)
    assert "raise KeyError(module)" in str(error.value) and "on the program\nprogram {" in str(
        error.value
    )
    assert "laws/fx_passes" not in str(error.value)  # no frame of ours
    with pytest.raises(FxPassError, match="is a class"):
        check_fx_pass(CSEPass, examples=5)
    with pytest.raises(WrongQuestion, match="tier='toy'"):
        check_fx_pass(rebuilt, tier="toy")
    with pytest.raises(WrongQuestion, match="examples"):
        check_fx_pass(rebuilt, examples=0)
    with pytest.raises(WrongQuestion, match="contract must be a"):
        check_fx_pass(rebuilt, contract="functional")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="writes"):
        Contract(writes="never")  # pyright: ignore[reportArgumentType]


def test_exported_programs() -> None:
    def decomposed(ep: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        return ep.run_decompositions({})

    contract = Contract(
        writes="at the end",
        aliasing=False,
        regions=False,
        effects=False,
        dynamic=False,
        values=False,
    )
    report = survey_pass(decomposed, over="exported_program", contract=contract, examples=share(5))
    assert isinstance(report, PassReport)
    assert report.wrong == 0, report.findings[0].error
    assert report.right > 1
