"""Laws of partitions of joint programs, asked of any function that makes one.

``in_turns`` puts forwards and backwards one after the other as one program, so that the oracles of programs compare them with
calls of the joint program.  A law says what is wrong on one joint program; partitions are made elsewhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve, frozen

from purefx.ir.arguments import Arg, Ref, replace_refs
from purefx.ir.effects.resolved import node_effects
from purefx.ir.errors import PartitionError
from purefx.ir.graph import Do, Get, Graph, Input, Node
from purefx.ir.names import Names
from purefx.ir.operators import op_of
from purefx.ir.program import Program
from purefx.ir.signature import GIVEN, InputMutation, Signature, StateInput, StateMutation, UserInput, UserOutput
from purefx.ir.verify import verify
from purefx.laws.evaluate import Meaning, evaluate, meaning_differences
from purefx.laws.toy import ToyMachine
from purefx.lowering.to_ep.make import with_saved_values
from purefx.transforms.memory import computes
from purefx.transforms.minimize.cutting import claiming_less
from purefx.transforms.training import Candidate, Partition, Policy

__all__ = ["JOINT_LAWS", "JointLaw", "Partitioner", "in_turns", "some"]

Partitioner = Callable[[Program], Partition]


@frozen
class JointLaw:
    """A sentence about partitions of joint programs, and how to find out whether it holds."""

    name: str
    statement: str
    check: Callable[[Partitioner, Program], list[str]]
    """Says what is wrong on a joint program of toy operators; nothing where the partitioner refuses it."""


def in_turns(cut: Partition, turns: str = "FB") -> Program:
    """Return forwards and backwards one after the other as one program, without pytrees.

    It takes the arguments of the joint program for each call, the tangents last, and gives all that each half gives but what is
    saved, in the order of the turns.  What a forward writes is written before the next turn.
    """
    work = _Turns(cut)
    for number, turn in enumerate(turns):
        if turn == "F":
            work.forward()
        else:
            work.backward(turns[:number].count("B"))
    return work.program()


class _Turns:
    def __init__(self, cut: Partition) -> None:
        self.cut = evolve(cut, forward=with_saved_values(cut.forward), backward=with_saved_values(cut.backward))
        self.names = Names(())
        self.inputs: list[tuple[Input, Any]] = []
        self.state: dict[str, Ref] = {}
        """What holds each slot that was asked for."""
        self.nodes: list[Node] = []
        self.given: list[Arg] = []
        self.saved: list[tuple[Arg, ...]] = []
        """What each forward handed over."""

    def forward(self) -> None:
        """Call the forward once more, with arguments of its own."""
        output, known = self._body(self.cut.forward, ())
        count = len(output) - len(self.cut.saved)
        self.saved.append(tuple(output[count:]))
        self._end(self.cut.forward, output[:count], known)

    def backward(self, number: int) -> None:
        """Call the backward of one of the forwards."""
        output, known = self._body(self.cut.backward, self.saved[number])
        self._end(self.cut.backward, output, known)

    def _body(self, program: Program, saved: Iterable[Arg]) -> tuple[tuple[Arg, ...], dict[str, Any]]:
        known = self._inputs(program, iter(saved))
        for node in program.main.nodes:
            used = node.using(known)
            known[node.name] = Ref(self.names.fresh(node.name))
            self.nodes.append(used.evolve(name=known[node.name].name))
        return replace_refs(program.main.output, known), known

    def _inputs(self, program: Program, saved: Iterator[Arg]) -> dict[str, Any]:
        known: dict[str, Any] = {}
        for formal, spec in program.inputs:
            if type(spec) is StateInput:
                known[formal.name] = self._slot(spec.slot)
            elif program is self.cut.backward and type(spec) is UserInput and spec.tangent_of is None:
                known[formal.name] = next(saved)
            else:
                name = self.names.fresh(formal.name)
                self.inputs.append((Input(name, formal.meta), evolve(spec, argument=name, tangent_of=None)))
                known[formal.name] = Ref(name)
        return known

    def _slot(self, slot: str) -> Ref:
        if slot not in self.state:
            self.state[slot] = self._add(Get(slot))
        return self.state[slot]

    def _add(self, do: Do, *args: Arg) -> Ref:
        self.nodes.append(Node(self.names.fresh("turn"), do, args))
        return Ref(self.nodes[-1].name)

    def _end(self, program: Program, output: Sequence[Arg], known: Mapping[str, Any]) -> None:
        # All that a turn gives is kept before the first of it is stored.
        kept = [self._add(CLONE, arg) if type(arg) is Ref else arg for arg in output]
        for arg, spec in zip(kept, program.signature.outputs, strict=False):
            if type(spec) is StateMutation:
                self._add(COPY, self._slot(spec.slot), arg)
            elif type(spec) is InputMutation:
                self._add(COPY, known[program.main.inputs[spec.index].name], arg)
            else:
                self.given.append(arg)

    def program(self) -> Program:
        """Return it all."""
        main = Graph(tuple([formal for formal, _ in self.inputs]), tuple(self.nodes), tuple(self.given))
        signature = Signature(tuple([spec for _, spec in self.inputs]), (UserOutput(),) * len(self.given))
        forward = self.cut.forward
        graphs = self.cut.backward.graphs.update(dict(forward.graphs.items())).set(forward.root, main)
        return claiming_less(forward.evolve(graphs=graphs, signature=signature))


CLONE, COPY = op_of(torch.ops.aten.clone.default), op_of(torch.ops.aten.copy_.default)


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
    meaning = evaluate(joint, [[*first, *late] for first, late in (_leaves(joint, call) for call in range(calls))], ToyMachine())
    return list(meaning.outputs), meaning


def _ordered(joint: Program) -> list[int]:
    # The outputs that the caller gets, those of the forward before gradients.
    given = [spec for spec in joint.signature.outputs if type(spec) in GIVEN]
    return sorted(range(len(given)), key=lambda number: type(given[number]) is not UserOutput)


def _compared(cut: Partition, joint: Program, turns: str) -> list[str]:
    calls = turns.count("F")
    expected, meaning = _expected(joint, calls)
    leaves, seen, after = list[Any](), list[Any](), list[Any]()
    order = _ordered(joint)
    early = sum(type(spec) is UserOutput for spec in joint.signature.outputs)
    counts = {"F": 0, "B": 0}
    for turn in turns:
        first, late = _leaves(joint, counts[turn])
        leaves += first if turn == "F" else late
        numbers = order[:early] if turn == "F" else order[early:]
        seen += [expected[counts[turn]][number] for number in numbers]
        inputs = meaning.inputs[counts[turn]]
        after += inputs[: len(first)] if turn == "F" else inputs[len(first) :]
        counts[turn] += 1
    given = evaluate(in_turns(cut, turns), [leaves], ToyMachine())
    wanted = Meaning((tuple(seen),), (tuple(after),), meaning.state, meaning.effects)
    return [f"{line}\n(turns {turns})\n{cut.forward.main}\n{cut.backward.main}" for line in meaning_differences(given, wanted)]


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
    acting = {node.name for node, done in zip(cut.forward.main.nodes, does, strict=True) if not computes(done)}
    return [f"{node.name} acts, and both halves run it" for node in cut.backward.main.nodes if node.name in acting]


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
    stored = {back.main.inputs[spec.index].name for spec in back.signature.outputs if type(spec) is InputMutation}
    used = {*back.main.users, *back.main.output_refs(), *stored}
    return [f"{one.name} is saved, and the backward does not use it" for one in cut.saved if one.name not in used]


JOINT_LAWS: tuple[JointLaw, ...] = (
    JointLaw("valid halves", "both halves are valid programs", _valid),
    JointLaw("one after the other", "the forward followed by the backward means the joint program", _means),
    JointLaw("later", "what the backward gives does not depend on forwards that run in between", _waits),
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
