"""The generated exported programs are in the exporter's form, mean what their graphs say, and reach what is hard.

Hundreds of programs are drawn once, always the same, and compared with the interpreter of torch.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, settings

import purefx as px
from purefx.laws.evaluate import Meaning, meaning_differences
from purefx.laws.strategies import Exported, exported_programs
from purefx.laws.strategies.flow import fake_mode
from purefx.laws.tiers import examples_of, share
from purefx.laws.toy import tensor_meaning
from tests.laws.direct import Direct, called_meaning
from tests.models import changes_in_export

EXAMPLES = min(share(90), 1000)  # all of them are kept

HOP = torch.ops.higher_order


@cache
def cases() -> tuple[Exported, ...]:
    """Return the programs that all tests are asked of."""
    return tuple(examples_of(exported_programs(), EXAMPLES, 0))


@cache
def programs() -> tuple[px.Program, ...]:
    """Return the cases as they are imported."""
    return tuple(px.import_ep(case.ep) for case in cases())


@cache
def meanings() -> tuple[Meaning, ...]:
    """Return what the cases mean, as the evaluator has it."""
    return tuple(
        tensor_meaning(program, case.calls)
        for program, case in zip(programs(), cases(), strict=True)
    )


def shown(case: Exported, wrong: list[str]) -> str:
    """Return what is wrong with a case, above its graph."""
    return "\n".join([*wrong, str(case.recipe), str(case.ep.graph), str(case.ep.graph_signature)])


def test_programs_are_what_torch_and_we_call_valid() -> None:
    for case, program in zip(cases(), programs(), strict=True):
        case.ep.validate()
        case.ep.graph.lint()
        assert px.verify(program) == (), shown(case, [])


def test_importing_them_changes_nothing() -> None:
    for case in cases()[::10]:
        assert changes_in_export(case.ep, lambda case=case: px.import_ep(case.ep)) == []


def test_no_guard_was_installed_on_the_size_that_they_share() -> None:
    assert cases()
    for case in cases()[::10]:
        px.lower(px.transform(px.import_ep(case.ep)))
    assert fake_mode().shape_env.guards == []


def test_imported_programs_mean_what_their_graphs_do() -> None:
    for case, meaning in zip(cases(), meanings(), strict=True):
        wrong = differences(meaning, called_meaning(Direct(case.ep), case.ep, case.calls))
        assert wrong == [], shown(case, wrong)


def differences(meaning: Meaning, expected: Meaning) -> list[str]:
    """Return how two meanings differ; state is compared by name, but for unchanged constants."""
    found = meaning_differences(meaning, expected, what=("outputs", "inputs"))
    mine, theirs = dict(meaning.state), dict(expected.state)
    found += [
        f"state: {name}" for name in mine.keys() & theirs.keys() if mine[name] != theirs[name]
    ]
    if dict(meaning.effects)["emitted"] != dict(expected.effects)["emitted"]:
        found.append(f"effects: got {meaning.effects}, expected {expected.effects}")
    return found


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_lowered_modules_mean_what_their_programs_do(
    to: Literal["graph_module", "interpreter"],
) -> None:
    for case, program, meaning in zip(cases(), programs(), meanings(), strict=True):
        module = px.lower(px.transform(program), to=to)
        wrong = differences(called_meaning(module, case.ep, case.calls), meaning)
        assert wrong == [], shown(case, wrong)


def test_they_shrink_to_a_page() -> None:
    options = settings(
        max_examples=500, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip

    def is_met(case: Exported) -> bool:
        return any(
            node.target is torch.ops.aten.add.out and len(node.meta["nn_module_stack"]) > 1
            for node in case.ep.graph.nodes
        )

    found = find(exported_programs(), is_met, settings=options)
    assert len([node for node in found.ep.graph.nodes if node.op == "call_function"]) <= 3, (
        found.ep.graph
    )
