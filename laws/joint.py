"""What a partition of a joint program means, and joint programs made of any others.

``one_program`` puts the forward and the backward one after the other, so that the oracles of programs compare them with the joint
program; ``jointly`` makes joint programs with writes, views, draws and ties of generated ones, nastier than autograd writes any.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence

from attrs import evolve

from ..ir.arguments import Arg, Ref, replace_refs
from ..ir.graph import Graph, Input, Node
from ..ir.program import Program
from ..ir.signature import (
    GIVEN,
    InputMutation,
    InputSpec,
    OutputSpec,
    StateInput,
    UserInput,
)
from ..transforms import inplace_mutations
from ..transforms.minimize.cutting import claiming_less
from ..transforms.training import Candidate, Partition, Policy

__all__ = ["one_program", "some"]


def one_program(joint: Program, cut: Partition) -> Program:
    """Return the forward followed by the backward as a program that is called as the joint one is, and gives what it gives.

    What the forward writes is written before the backward begins.

    Args:
        joint: the joint program; any of its calls are inlined in both.
        cut: what ``partition_joint`` made of it.
    """
    return _Sequence(joint, cut).program()


class _Sequence:
    def __init__(self, joint: Program, cut: Partition) -> None:
        self.joint = joint
        self.cut = cut
        self.forward = inplace_mutations(cut.forward)
        self.names = self.forward.main.names()
        self.inputs: list[tuple[Input, InputSpec]] = list(self.forward.inputs)
        self.known: dict[str, Ref] = {}
        """What the values of the backward are called."""

    def program(self) -> Program:
        self._meet()
        first, second = self.forward.main, self.cut.backward.main
        later = [self._renamed(node) for node in second.nodes]
        given = list(zip(first.output, self.forward.signature.outputs, strict=True))
        given = given[: len(given) - len(self.cut.saved)]
        late = [(replace_refs(arg, self.known), spec) for arg, spec in zip(second.output, self._late_specs(), strict=True)]
        pairs = _in_order(self.joint, [*given, *late])
        formals = tuple([formal for formal, _ in self.inputs])
        main = Graph(formals, (*first.nodes, *later), tuple([arg for arg, _ in pairs]))
        return claiming_less(
            self.forward.evolve(
                graphs=self.cut.backward.graphs.update(dict(self.forward.graphs.items())).set(self.forward.root, main),
                signature=evolve(
                    self.joint.signature,
                    inputs=tuple([spec for _, spec in self.inputs]),
                    outputs=tuple([spec for _, spec in pairs]),
                ),
            )
        )

    def _meet(self) -> None:
        output = self.forward.main.output
        saved = output[len(output) - len(self.cut.saved) :]
        state = {spec.slot: formal.name for formal, spec in self.inputs if type(spec) is StateInput}
        values = iter(saved)
        for formal, spec in self.cut.backward.inputs:
            if type(spec) is StateInput:
                self.known[formal.name] = Ref(state[spec.slot])
            elif type(spec) is UserInput and spec.tangent_of is None:
                self.known[formal.name] = next(values)
            else:
                name = self.names.fresh(formal.name)
                self.inputs.append((Input(name, formal.meta), spec))
                self.known[formal.name] = Ref(name)

    def _renamed(self, node: Node) -> Node:
        used = node.using(self.known)
        self.known[node.name] = Ref(self.names.fresh(node.name))
        return used.evolve(name=self.known[node.name].name)

    def _late_specs(self) -> list[OutputSpec]:
        # Mutations of inputs count those of the backward.
        places = {formal.name: number for number, (formal, _) in enumerate(self.inputs)}
        backward = self.cut.backward
        return [
            InputMutation(places[self.known[backward.main.inputs[spec.index].name].name]) if type(spec) is InputMutation else spec
            for spec in backward.signature.outputs
        ]


def _in_order(joint: Program, pairs: Sequence[tuple[Arg, OutputSpec]]) -> list[tuple[Arg, OutputSpec]]:
    # Outputs that the caller gets, in the order of the joint program; new contents first.
    wanted = [spec for spec in joint.signature.outputs if type(spec) in GIVEN]
    stored = [pair for pair in pairs if type(pair[1]) not in GIVEN]
    left = [pair for pair in pairs if type(pair[1]) in GIVEN]
    found: list[tuple[Arg, OutputSpec]] = []
    for spec in wanted:
        pair = next(pair for pair in left if pair[1] == spec)
        left.remove(pair)
        found.append(pair)
    assert not left
    return stored + found


def _draw(seed: int, *what: object) -> int:
    return zlib.crc32(repr((seed, what)).encode())


def some(seed: int) -> Policy:
    """Return a policy that keeps what the seed says, whatever that costs.

    >>> len(some(0)([Candidate(name, "exp", 4) for name in "abcdefgh"])) in range(1, 8)
    True
    """

    def kept(candidates: Sequence[Candidate]) -> Collection[str]:
        return {one.name for number, one in enumerate(candidates) if _draw(seed, number) % 3}

    return kept
