"""Laws of partitions of joint programs, asked of any function that makes one.

Forwards and backwards run in turns on one machine, and are compared with calls of the joint program.  A law says what is wrong on
one joint program; partitions are made elsewhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from attrs import evolve, frozen

from purefx.ir.arguments import Ref
from purefx.ir.effects.resolved import node_effects
from purefx.ir.errors import PartitionError
from purefx.ir.program import Program
from purefx.ir.signature import GIVEN, InputMutation, StateMutation, UserInput, UserOutput
from purefx.ir.state import State
from purefx.ir.verify import verify
from purefx.laws.evaluate import Meaning, evaluate, meaning_differences
from purefx.laws.toy import ToyMachine
from purefx.lowering.to_ep.make import with_saved_values
from purefx.transforms.memory import computes
from purefx.transforms.training import Candidate, Partition, Policy

Partitioner = Callable[[Program], Partition]


@frozen
class JointLaw:
    """A sentence about partitions of joint programs, and how to find out whether it holds."""

    name: str
    statement: str
    check: Callable[[Partitioner, Program], list[str]]
    """Says what is wrong on a joint program of toy operators; nothing where the partitioner refuses it."""


class _OneMachine(ToyMachine):
    """Keeps the state between evaluations; arguments may be values of earlier ones."""

    def load(self, state: State) -> None:
        if not self.slots:
            super().load(state)

    def given(self, leaf: Any) -> Any:
        return leaf if isinstance(leaf, torch.Tensor) else super().given(leaf)


def _cut(partitioner: Partitioner, joint: Program) -> Partition | None:
    try:
        return partitioner(joint)
    except PartitionError:
        return None  # a region or an output in both halves


def _valid(partitioner: Partitioner, joint: Program) -> list[str]:
    cut = _cut(partitioner, joint)
    halves = () if cut is None else (cut.forward, cut.backward)
    return [str(violation) for half in halves for violation in verify(half)]


def _leaves(joint: Program, call: int) -> tuple[list[Any], list[Any]]:
    # Numbers for the arguments, and for the tangents.
    users = [spec for spec in joint.signature.inputs if type(spec) is UserInput]
    count = sum(spec.tangent_of is None for spec in users)
    numbers = [3 + 10 * call + index for index in range(len(users))]
    return numbers[:count], numbers[count:]


def _expected(joint: Program, calls: int) -> tuple[list[Any], Meaning]:
    # What each call gives, by what it is: as one list, the outputs of the forward before the gradients.
    meaning = evaluate(
        joint,
        [[*first, *late] for first, late in (_leaves(joint, call) for call in range(calls))],
        ToyMachine(),
    )
    return list(meaning.outputs), meaning


def _ordered(joint: Program) -> list[int]:
    # The outputs that the caller gets, those of the forward before gradients.
    given = [spec for spec in joint.signature.outputs if type(spec) in GIVEN]
    return sorted(range(len(given)), key=lambda number: type(given[number]) is not UserOutput)


def _compared(cut: Partition, joint: Program, turns: str) -> list[str]:
    # Run forwards and backwards in turns; the saved values are passed as they are, so they may share memory with state.
    expected, meaning = _expected(joint, turns.count("F"))
    order, early = (
        _ordered(joint),
        sum(type(spec) is UserOutput for spec in joint.signature.outputs),
    )
    forward, backward = with_saved_values(cut.forward), with_saved_values(cut.backward)
    late_users = [
        spec.tangent_of is not None for spec in backward.signature.inputs if type(spec) is UserInput
    ]
    machine, saved, counts = _OneMachine(), list[list[Any]](), {"F": 0, "B": 0}
    given, after, wanted, wanted_after = list[Any](), list[Any](), list[Any](), list[Any]()
    made = meaning
    for turn in turns:
        number = counts[turn]
        counts[turn] += 1
        first, late = (
            [machine.given(leaf) for leaf in leaves] for leaves in _leaves(joint, number)
        )
        after += first if turn == "F" else late
        if turn == "F":
            values = dict[str, Any]()
            made = evaluate(
                forward,
                [first],
                machine,
                seen=lambda _, part, value, values=values: values.update({part.name: value}),
            )
            count = len(forward.main.output) - len(cut.saved)
            kept = [
                values[arg.name] if type(arg) is Ref else arg for arg in forward.main.output[count:]
            ]
            if any(isinstance(value, tuple) for value in kept):
                return [f"it saves several results as one value\n{cut.forward.main}"]
            saved.append(kept)
            given += made.outputs[0][: len(made.outputs[0]) - len(cut.saved)]
        else:
            kept, tangents = iter(saved[number]), iter(late)
            made = evaluate(
                backward, [[next(tangents if is_late else kept) for is_late in late_users]], machine
            )
            given += made.outputs[0]
        wanted += [
            expected[number][place] for place in (order[:early] if turn == "F" else order[early:])
        ]
        inputs = meaning.inputs[number]
        wanted_after += inputs[: len(first)] if turn == "F" else inputs[len(first) :]
    # The meaning of the joint program leaves out constants that it does not write.
    state = {name: machine.shown(slot.value) for name, slot in joint.state.pairs} | dict(
        meaning.state
    )
    contents = {name: machine.shown(cell) for name, cell in machine.slots.items()}
    found = Meaning(
        (tuple(given),), (tuple(map(machine.shown, after)),), tuple(contents.items()), made.effects
    )
    wrong = meaning_differences(
        found,
        evolve(
            meaning,
            outputs=(tuple(wanted),),
            inputs=(tuple(wanted_after),),
            state=tuple(state.items()),
        ),
    )
    return [f"{line}\n(turns {turns})\n{cut.forward.main}\n{cut.backward.main}" for line in wrong]


def _means(partitioner: Partitioner, joint: Program) -> list[str]:
    cut = _cut(partitioner, joint)
    return [] if cut is None else _compared(cut, joint, "FBFB")


def _acts(cut: Partition) -> bool:
    # Whether the backward does what anybody else can tell.
    back = cut.backward
    stores = any(type(spec) in (StateMutation, InputMutation) for spec in back.signature.outputs)
    return stores or not all(map(computes, node_effects(back, back.main)))


def _waits(partitioner: Partitioner, joint: Program) -> list[str]:
    cut = _cut(partitioner, joint)
    return [] if cut is None or _acts(cut) else _compared(cut, joint, "FFBB")


def _once(partitioner: Partitioner, joint: Program) -> list[str]:
    cut = _cut(partitioner, joint)
    if cut is None:
        return []
    does = node_effects(cut.forward, cut.forward.main)
    acting = {
        node.name
        for node, done in zip(cut.forward.main.nodes, does, strict=True)
        if not computes(done)
    }
    return [
        f"{node.name} acts, and both halves run it"
        for node in cut.backward.main.nodes
        if node.name in acting
    ]


def _same(partitioner: Partitioner, joint: Program) -> list[str]:
    first, second = _cut(partitioner, joint), _cut(partitioner, joint)
    if first is None or second is None:
        return [] if first is second else ["it refuses the program the second time only"]
    same = (first.saved, first.forward.text(), first.backward.text()) == (
        second.saved,
        second.forward.text(),
        second.backward.text(),
    )
    return [] if same else ["two runs give other cuts"]


def _unused(partitioner: Partitioner, joint: Program) -> list[str]:
    cut = _cut(partitioner, joint)
    if cut is None:
        return []
    back = cut.backward
    stored = {
        back.main.inputs[spec.index].name
        for spec in back.signature.outputs
        if type(spec) is InputMutation
    }
    used = {*back.main.users, *back.main.output_refs(), *stored}
    return [
        f"{one.name} is saved, and the backward does not use it"
        for one in cut.saved
        if one.name not in used
    ]


JOINT_LAWS: tuple[JointLaw, ...] = (
    JointLaw("valid halves", "both halves are valid programs", _valid),
    JointLaw(
        "one after the other",
        "the forward followed by the backward means the joint program",
        _means,
    ),
    JointLaw(
        "later", "what the backward gives does not depend on forwards that run in between", _waits
    ),
    JointLaw("once", "what draws, writes or acts runs in one half only", _once),
    JointLaw("one cut", "one program and one policy give one cut", _same),
    JointLaw("nothing for nothing", "everything that is saved is used", _unused),
)
"""What holds of ``partition_joint`` under every policy."""


def _draw(seed: int, *what: object) -> int:
    return zlib.crc32(repr((seed, what)).encode())


def some(seed: int) -> Policy:
    """Return a policy that keeps what the seed says, whatever that costs; a lower share of it keeps less."""

    def kept(candidates: Sequence[Candidate]) -> Collection[str]:
        return {one.name for number, one in enumerate(candidates) if _draw(seed, number) % 3}

    return kept
