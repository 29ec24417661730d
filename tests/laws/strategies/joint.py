"""``joint_programs``: joint forward and backward programs of toy operators, made of flat ones.

Some operands become tangents, and what depends on them are gradients.  Nothing is differentiated, so writes, views, draws, ties
and regions stand where no autograd would put them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import hypothesis.strategies as st
import torch
from attrs import evolve

from purefx.ir.arguments import Arg, Ref, refs_in
from purefx.ir.graph import Graph, Input, Node
from purefx.ir.program import Program
from purefx.ir.signature import (
    InputGradient,
    OutputSpec,
    StateGradient,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from purefx.ir.state import SlotKind
from purefx.laws import toy
from purefx.laws.strategies.programs import Stage, programs
from purefx.transforms.training.phases import Contents, is_joint

LATE = frozenset(
    {toy.NEG, toy.ADD, toy.MUL, toy.VIEW, toy.RAND, toy.EMIT, toy.COPY_, toy.PAIR, toy.COUNT}
)
"""Operators that may be given a tangent."""

CELLS = frozenset({toy.NEG, toy.ADD, toy.MUL, toy.VIEW, toy.RAND, toy.COPY_, toy.ADD_, toy.CLONE})
"""Operators that give a cell."""


def joint_programs(stage: Stage = "flat") -> st.SearchStrategy[Program]:
    """Return a strategy of joint programs."""
    made = st.builds(
        lambda program, seed: jointly(program, seed=seed), programs(stage), st.integers(0, 1 << 16)
    )
    return made.filter(is_joint)


def jointly(program: Program, *, seed: int = 0) -> Program:
    """Return a joint program of toy operators made of another program."""
    return _Jointly(program, seed).program()


class _Jointly:
    def __init__(self, program: Program, seed: int) -> None:
        self.source = program
        self.seed = seed
        self.graph: Graph = program.main
        names = program.main.names()
        self.tangents = [names.fresh("tangent") for _ in range(1 + self.draw("tangents") % 2)]
        self.total = self.tangents[0]

    def draw(self, *what: object) -> int:
        return zlib.crc32(repr((self.seed, what)).encode())

    def program(self) -> Program:
        """Return the joint program."""
        source = self.source
        inputs = (*self.graph.inputs, *map(Input, self.tangents))
        users = [spec for spec in source.signature.inputs if type(spec) is UserInput]
        marked = [
            UserInput(SCALAR, name, tangent_of=number) for number, name in enumerate(self.tangents)
        ]
        main = Graph(inputs, tuple(self._nodes()), self.graph.output)
        signature = evolve(source.signature, inputs=(*source.signature.inputs, *marked))
        made = source.with_main(main, signature=signature)
        pairs = self._outputs(made, len(users))
        return made.with_main(
            evolve(main, output=tuple([arg for arg, _ in pairs])),
            signature=evolve(signature, outputs=tuple([spec for _, spec in pairs])),
        )

    def _nodes(self) -> Iterable[Node]:
        # The later a node stands, the more often it is given a tangent.  Some nodes later tangents are added to what is there, or
        # to what is computed of it, and all of that is added up.
        count, names = len(self.graph.nodes), self.source.main.names()
        waiting = list[tuple[int, str]]()
        cells = [formal.name for formal, spec in self.source.inputs if type(spec) is not Token]
        for number, node in enumerate(self.graph.nodes):
            refs = node.refs()
            if node.do in LATE and refs and self.draw(number, "late") % (4 * count) < number:
                node = node.using({refs[0]: Ref(self._tangent(number))})
            yield node
            cells += [node.name] if node.do in CELLS else []
            if cells and self.draw(number, "more") % 2:
                value = cells[-1 - self.draw(number, "cell") % min(len(cells), 6)]
                for step in range(self.draw(number, "steps") % 3):
                    made = Node(names.fresh(f"early{number}"), toy.MUL, (Ref(value), 3 + step))
                    yield made
                    value = made.name
                waiting.append((number + self.draw(number, "wait") % 6, value))
            due = [value for at, value in waiting if at <= number or number == count - 1]
            waiting = [(at, value) for at, value in waiting if value not in due]
            for value in due:
                late = Node(names.fresh(f"late{number}"), toy.ADD, (Ref(value), Ref(self.total)))
                self.total = late.name
                yield late

    def _tangent(self, number: int) -> str:
        return self.tangents[self.draw(number, "which") % len(self.tangents)]

    def _outputs(self, made: Program, users: int) -> list[tuple[Arg, OutputSpec]]:
        late = {*[made.main.nodes[number].name for number in Contents(made).late], *self.tangents}
        pairs = list(zip(made.main.output, made.signature.outputs, strict=True))
        kept = [pair for pair in pairs if type(pair[1]) is not UserOutput]
        early = [
            arg
            for arg, spec in pairs
            if type(spec) is UserOutput and late.isdisjoint(refs_in((arg,)))
        ]
        given: list[tuple[Arg, OutputSpec]] = [(arg, UserOutput()) for arg in early]
        given += [(number, UserOutput()) for number in range(len(given), len(self.tangents))]
        return [*kept, *given, *self._gradients(made, late, users)]

    def _gradients(self, made: Program, late: set[str], users: int) -> list[tuple[Arg, OutputSpec]]:
        cells = [node.name for node in made.main.nodes if node.do in CELLS and node.name in late]
        values = cells[-2:] + [
            node.name
            for node in made.main.nodes
            if node.do in CELLS and self.draw(node.name, "given") % 5 == 0
        ]
        names = [name for name, slot in made.state.pairs if slot.kind is SlotKind.PARAMETER]
        receivers: list[OutputSpec] = [
            *map(InputGradient, range(users)),
            *map(StateGradient, names),
        ]
        args: list[Arg] = [*map(Ref, dict.fromkeys([self.total, *values, *self.tangents])), None]
        return list(zip(args, receivers, strict=False))


SCALAR = TensorType(torch.int64, ())
