"""The generated exported programs are in the exporter's form, mean what their graphs say, and reach what is hard.

Hundreds of programs are drawn once, always the same, and compared with the interpreter of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, settings
from torch.export.graph_signature import InputKind, OutputKind

import purefx as px
from purefx.laws import changes_in_export
from purefx.laws.evaluate import Meaning, meaning_differences
from purefx.laws.strategies import Exported, exported_programs
from purefx.laws.strategies.flow import fake_mode
from purefx.laws.tiers import examples_of, share
from purefx.laws.toy import tensor_meaning
from tests.laws.direct import Direct, called_meaning

EXAMPLES = min(share(300), 1000)  # all of them are kept

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
    return tuple(tensor_meaning(program, case.calls) for program, case in zip(programs(), cases(), strict=True))


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
    found += [f"state: {name}" for name in mine.keys() & theirs.keys() if mine[name] != theirs[name]]
    if dict(meaning.effects)["emitted"] != dict(expected.effects)["emitted"]:
        found.append(f"effects: got {meaning.effects}, expected {expected.effects}")
    return found


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_lowered_modules_mean_what_their_programs_do(to: Literal["graph_module", "interpreter"]) -> None:
    for case, program, meaning in zip(cases(), programs(), meanings(), strict=True):
        module = px.lower(px.transform(program), to=to)
        wrong = differences(called_meaning(module, case.ep, case.calls), meaning)
        assert wrong == [], shown(case, wrong)


def test_they_shrink_to_a_page() -> None:
    options = settings(
        max_examples=500, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    found = find(exported_programs(), lambda case: "aten.add.out" in targets(case) and levels(case) > 0, settings=options)
    assert len([node for node in found.ep.graph.nodes if node.op == "call_function"]) <= 3, found.ep.graph


def targets(case: Exported) -> set[str]:
    """Return the operators of a program."""
    return {str(node.target) for node in case.ep.graph.nodes if node.op == "call_function"}


def stacks(case: Exported) -> list[list[str]]:
    """Return the module calls on the stack of each node, as the exporter spells them."""
    return [
        [f"{path}@{key.partition('@')[2] or 0}" for key, (path, _) in node.meta["nn_module_stack"].items() if path]
        for node in case.ep.graph.nodes
        if node.op == "call_function"
    ]


def levels(case: Exported) -> int:
    """Return how deep the deepest stack is."""
    return max(map(len, stacks(case)), default=0)


def inputs(case: Exported, kind: InputKind) -> list[str]:
    """Return the targets of the inputs of a kind."""
    return [str(spec.target) for spec in case.ep.graph_signature.input_specs if spec.kind is kind]


def outputs(case: Exported, kind: OutputKind) -> int:
    """Return how many outputs of a kind there are."""
    return sum(spec.kind is kind for spec in case.ep.graph_signature.output_specs)


def writes(case: Exported) -> list[str]:
    """Return the names of the values that in-place operators write to."""
    return [
        node.args[0].name
        for node in case.ep.graph.nodes
        if node.op == "call_function" and str(node.target).partition(".")[2].partition(".")[0].endswith("_")
    ]


def tensors(case: Exported) -> list[torch.Tensor]:
    """Return the state."""
    state: dict[str, Any] = {**case.ep.state_dict, **case.ep.constants}
    return list(state.values())


def trees(case: Exported) -> tuple[Any, Any]:
    """Return the pytrees of inputs and outputs."""
    return case.ep.call_spec.in_spec, case.ep.call_spec.out_spec


def memories(case: Exported) -> set[int]:
    """Return the memories that the state lies in."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors(case)}


def entered(case: Exported) -> set[str]:
    """Return the module calls."""
    return {frame for stack in stacks(case) for frame in stack}


REACHED: dict[str, Callable[[Exported], bool]] = {
    "parameters": lambda case: bool(inputs(case, InputKind.PARAMETER)),
    "buffers that are not saved": lambda case: any(spec.persistent is False for spec in case.ep.graph_signature.input_specs),
    "constants": lambda case: bool(inputs(case, InputKind.CONSTANT_TENSOR)),
    "new contents of buffers": lambda case: outputs(case, OutputKind.BUFFER_MUTATION) > 0,
    "new contents of two buffers": lambda case: outputs(case, OutputKind.BUFFER_MUTATION) > 1,
    "new contents of inputs": lambda case: outputs(case, OutputKind.USER_INPUT_MUTATION) > 0,
    "a buffer written in place": lambda case: any(name.startswith("b_") for name in writes(case)),
    "a value written twice": lambda case: len(set(writes(case))) < len(writes(case)),
    "a view written": lambda case: any(name.startswith(("select", "slice")) for name in writes(case)),
    "scattered parts": lambda case: bool({"aten.select_scatter.default", "aten.slice_scatter.default"} & targets(case)),
    "out=": lambda case: "aten.add.out" in targets(case),
    "silent writes": lambda case: "aten.batch_norm.default" in targets(case),
    "tied state": lambda case: len({id(tensor) for tensor in tensors(case)}) < len(tensors(case)),
    "overlapping state": lambda case: len(memories(case)) < len(set(map(id, tensors(case)))),
    "unused state": lambda case: any(node.op == "placeholder" and not node.users for node in case.ep.graph.nodes),
    "a module called twice": lambda case: len({frame.partition("@")[0] for frame in entered(case)}) < len(entered(case)),
    "three levels": lambda case: levels(case) > 2,
    "a skipped module": lambda case: any(stack[:1] and stack[0].startswith("a.c@") for stack in stacks(case)),
    "a call of what is not below": lambda case: any(
        not inner.startswith(outer.partition("@")[0] + ".") for s in stacks(case) for outer, inner in pairwise(s)
    ),
    "a constant given": lambda case: any(not isinstance(leaf, torch.Tensor) for leaf in case.calls[0]),
    "a constant returned": lambda case: any(
        spec.arg.__class__.__name__ == "ConstantArgument" for spec in case.ep.graph_signature.output_specs
    ),
    "an input returned": lambda case: bool(
        {spec.arg.name for spec in case.ep.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT}
        & {spec.arg.name for spec in case.ep.graph_signature.input_specs}
    ),
    "keywords": lambda case: bool(trees(case)[0].children()[1].num_leaves),
    "nested outputs": lambda case: any(not child.is_leaf() for child in trees(case)[1].children()),
    "cond": lambda case: "cond" in targets(case),
    "no_grad": lambda case: "wrap_with_set_grad_enabled" in targets(case),
    "random draws": lambda case: bool({"aten.rand_like.default", "aten.native_dropout.default"} & targets(case)),
    "random writes": lambda case: bool({"aten.normal_.default", "aten.uniform_.default"} & targets(case)),
    "prints": lambda case: "aten._print.default" in targets(case),
    "tokens": lambda case: "with_effects" in targets(case),
    "asserts": lambda case: "aten._assert_async.msg" in targets(case),
    "several results": lambda case: bool({"aten.split.Tensor", "aten.unbind.int", "aten.max.dim"} & targets(case)),
    "a dynamic size": lambda case: bool(case.ep.range_constraints),
    "a dynamic size used": lambda case: "aten.sym_size.int" in targets(case),
}  # fmt: skip


@pytest.mark.parametrize("what", REACHED)
def test_what_is_hard_is_reached(what: str) -> None:
    found = sum(REACHED[what](case) for case in cases())
    assert found >= 10, f"{what}: {found} in {EXAMPLES} programs"
