"""The laws of partitions of joint programs: under every policy, on generated programs, and with the mistakes that they find.

Joint programs of toy operators have writes, views, draws, ties and regions where no autograd would put them; modules of torch
have those that autograd accepts, and are compared with eager bit by bit.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import purefx as px
from purefx import training
from purefx.ir.state import same_contents
from purefx.laws.tiers import examples_of, share
from tests.laws.joint import JOINT_LAWS, JointLaw, some
from tests.laws.strategies.joint import joint_programs
from tests.laws.strategies.joint_modules import JointModule, joint_modules


def nothing(_: Any) -> tuple[str, ...]:
    return ()


POLICIES = (training.save_all(), nothing, some(1), training.min_cut(recompute="all"))

STAGES = ("tokens", "flat", "in place", "sunk")


@pytest.fixture(scope="module")
def joints() -> list[px.Program]:
    return [
        program
        for number, stage in enumerate(STAGES)
        for program in examples_of(joint_programs(stage), share(10), number)
    ]


@pytest.mark.parametrize("law", JOINT_LAWS, ids=lambda law: law.name)
def test_law_of_partitions(law: JointLaw, joints: list[px.Program]) -> None:
    for number, program in enumerate(joints):
        policy = POLICIES[number % len(POLICIES)]
        assert not law.check(
            lambda joint, policy=policy: training.partition_joint(joint, policy=policy), program
        )


def test_partitions_save_recompute_and_copy(joints: list[px.Program]) -> None:
    cuts = [found for program in joints if (found := cut_or_none(program, nothing)) is not None]
    assert len(cuts) > len(joints) // 3
    assert sum(bool(found.recomputed) for found in cuts) >= 3
    assert sum(any(one.copied for one in found.saved) for found in cuts) >= 3
    assert sum(len(found.saved) > 2 for found in cuts) >= 3


def cut_or_none(program: px.Program, policy: training.Policy) -> training.Partition | None:
    try:
        return training.partition_joint(program, policy=policy)
    except px.errors.PartitionError:
        return None


def eager_steps(
    module: torch.nn.Module, x: torch.Tensor, tangents: list[list[torch.Tensor]]
) -> list[Any]:
    """Return what eager gives: for each call the results, the gradients by parameter, and that of the argument."""
    found: list[Any] = []
    for given in tangents:
        mine = x.detach().clone().requires_grad_(x.requires_grad)
        module.zero_grad()
        results = pytree.tree_leaves(module(mine))
        torch.autograd.backward([result for result in results if result.requires_grad], given)
        gradients = {
            name: parameter.grad
            for name, parameter in module.named_parameters(remove_duplicate=False)
        }
        found.append(([result.detach() for result in results], gradients, mine.grad))
    return found


def compare_with_eager(
    drawn: JointModule, policy: training.Policy, stage: Any
) -> training.Partition:
    """Compare three steps of both halves with eager, bit by bit: results, gradients and state."""
    module, x = drawn.build()
    joint = training.capture_joint(copy.deepcopy(module), (x,))
    users = [spec for spec in joint.signature.inputs if isinstance(spec, px.ir.UserInput)]
    kinds = [spec.type for spec in users if spec.tangent_of is not None]
    shapes = [
        [int(str(size)) for size in kind.shape]
        for kind in kinds
        if isinstance(kind, px.ir.TensorType)
    ]
    torch.manual_seed(7)
    tangents = [[torch.randn(shape) for shape in shapes] for _ in range(3)]
    torch.manual_seed(1)
    expected = eager_steps(module, x, tangents)
    cut = training.partition_joint(stage(joint), policy=policy)
    forward, backward = px.lower(cut.forward), px.lower(cut.backward)
    torch.manual_seed(1)
    with torch.no_grad():
        for given, (results, gradients, of_x) in zip(tangents, expected, strict=True):
            made = forward(x)
            backward.load_state_dict(forward.state_dict())
            count = len(made) - len(cut.saved)
            assert all(map(same_contents, made[:count], results))
            for mine, spec in zip(
                backward(*made[count:], *given), cut.backward.signature.outputs, strict=True
            ):
                other = gradients[spec.slot] if isinstance(spec, px.ir.StateGradient) else of_x
                assert (
                    same_contents(mine, other) if isinstance(mine, torch.Tensor) else mine is other
                )
    assert all(map(same_contents, forward.state_dict().values(), module.state_dict().values()))
    return cut


CHOICES = (training.save_all(), training.min_cut(), training.min_cut(recompute="all"), some(2))


@pytest.mark.parametrize("number", range(len(CHOICES)))
def test_every_policy_gives_what_eager_gives_bit_by_bit(number: int) -> None:
    for place, drawn in enumerate(examples_of(joint_modules(), share(2), number)):
        stage = (lambda joint: joint, px.inplace_mutations, px.transform)[place % 3]
        compare_with_eager(drawn, CHOICES[number], stage)


def test_less_memory_never_changes_a_number() -> None:
    drawn = JointModule((1, 0, 9, (5, 7, 3), 10, 11, (2, 8, 14)), form=1, grads=True)
    policies = (
        training.save_all(),
        training.min_cut(),
        training.budget(200),
        training.min_cut(recompute="all"),
    )
    sizes = [
        compare_with_eager(drawn, policy, lambda joint: joint).saved_bytes for policy in policies
    ]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0]


REGION_OF_THE_BACKWARD = """program {
  facts (flat)
  modules {
    "": toy.Module
  }
  takes {
    user x: i64[]
    user tangent: i64[] tangent of output 0
  }
  gives {
    user
    gradient of leaf 0
  }
  graph @""(x, tangent) {
    made = toy.neg(x) ! pure
    pair = toy.pair(made, x) ! aliases(0:a, 1:b)
    written = toy.add_(made, 1) ! writes(0:a) returns(0:a) aliases(0:a)
    late = toy.mul(x, tangent) ! pure
    enter = toy.enter() ! ordered opens
    first = operator.getitem(pair, 0)
    again = toy.add_(first, 3) ! writes(0:a) returns(0:a) aliases(0:a)
    leave = toy.leave() ! ordered closes
    gradient = toy.mul(again, late) ! pure
    return (0, gradient)
  }
}
"""


@pytest.mark.parametrize("policy", POLICIES, ids=("all", "nothing", "some", "cut"))
def test_a_result_that_a_region_of_the_backward_selects_is_saved_alone(
    policy: training.Policy,
) -> None:
    cut = training.partition_joint(px.parse(REGION_OF_THE_BACKWARD), policy=policy)
    assert "pair" not in {saved.name for saved in cut.saved}, cut.forward.text()
