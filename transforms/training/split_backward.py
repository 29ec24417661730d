"""``split_backward``: the gradients of arguments and those of parameters as two programs, for schedules without bubbles.

A pipeline of processes waits for gradients of arguments alone.  What they do not need, and no effect does, goes to the second
program, which may run at any later time.  The law: one after the other, both together are what was split, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from ...ir.arguments import Arg, Ref, refs_in
from ...ir.errors import ArgumentError
from ...ir.expression import symbols_in
from ...ir.graph import Get, Graph, Input, Node
from ...ir.persistent import collector_paused
from ...ir.program import Program
from ...ir.signature import (
    GIVEN,
    Constraints,
    InputSpec,
    OutputSpec,
    StateGradient,
    StateInput,
    UserInput,
    UserOutput,
)
from ...ir.taking import a_program
from ...ir.verify import check
from ..cleanup import infer
from ..effect_tokens import remove_effect_tokens
from ..inline import inline
from ..minimize.cutting import claiming_less
from .halves import symbols_of, type_of_value
from .phases import Shape, is_joint

__all__ = ["SplitBackward", "split_backward"]


@frozen
class SplitBackward:
    """A backward in two programs.

    >>> from purefx.ir import Graph
    >>> empty = Program.of({"": Graph((), (), ())})
    >>> SplitBackward(empty, empty).kept
    ()
    """

    inputs: Program
    """Takes what was split takes; gives all that that gives but gradients of state, then what the other needs.  It has all
    effects."""
    weights: Program
    """Takes what the former hands over; gives the gradients of state.  State it reads itself."""
    kept: tuple[str, ...] = ()
    """What is handed over, by name in the program that was split: the last outputs of the one, the arguments of the other."""


def split_backward(program: Program) -> SplitBackward:
    """Split a backward program, or a joint one, into one for the gradients of arguments and one for those of parameters.

    Laws: the first followed by the second means the program (outputs, gradients, state, mutated inputs, to the last bit); writes,
    draws and all other effects are in the first, in their order; a node of the second is needed by no output of the first.

    Args:
        program: the backward that ``partition_joint`` gives, or a joint program.  Module calls are inlined first.

    Returns:
        Both programs, flat, and what crosses.

    Raises:
        ArgumentError: it gives no gradients.
        InvalidProgram: it is not valid.

    >>> import torch, purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    >>> joint = px.training.capture_joint(model, (torch.ones(4, 2, requires_grad=True),))
    >>> found = split_backward(px.training.partition_joint(joint).backward)
    >>> [type(spec).__name__ for spec in found.weights.signature.outputs]
    ['StateGradient', 'StateGradient', 'StateGradient', 'StateGradient']
    """
    check(a_program(program, "split_backward"))
    if not is_joint(program):
        raise ArgumentError(
            "split_backward takes a program that gives gradients, and this one gives none; px.training.capture_joint(module, "
            "args) makes a joint one, and px.training.partition_joint(joint).backward is its backward"
        )
    with collector_paused():
        split = _Split(infer(inline(remove_effect_tokens(program))))
        return SplitBackward(check(split.inputs()), check(split.weights()), split.kept)


class _Split:
    """Both programs of a flat one."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.graph: Graph = program.main
        self.shape = Shape(program)
        self.outputs: list[tuple[Arg, OutputSpec]] = list(zip(self.graph.output, program.signature.outputs, strict=True))
        self.first = self._first()
        """The numbers of the nodes of the first."""
        self.second: tuple[Node, ...] = tuple(self._second())
        self.kept: tuple[str, ...] = self._kept()

    def _first(self) -> set[int]:
        shape = self.shape
        early = [name for arg, spec in self.outputs if type(spec) is not StateGradient for name in refs_in((arg,))]
        seen = {shape.memory.find(name) for name in early}
        acting = [
            number
            for number, does in enumerate(shape.effects)
            if shape.acts(number) or (does.writes and not seen.isdisjoint(shape.memory.touched(does)))
        ]
        found = shape.before([*shape.numbers(early), *acting])
        for number, node in enumerate(self.graph.nodes):
            if node.projection is not None and all(before in found for before in shape.edges[number]):
                found.add(number)  # one of several results stands with the node that gives them
        return found

    def _second(self) -> list[Node]:
        # What gradients of state need besides, and reads of state that nothing writes, which cost nothing.
        late = [name for arg, spec in self.outputs if type(spec) is StateGradient for name in refs_in((arg,))]
        needed = self._with_writers(late)
        used = {name for number in needed for name in self.graph.nodes[number].refs()} | set(late)
        again = {
            number
            for number in self.shape.numbers(used)
            if type(self.graph.nodes[number].do) is Get and not self.shape.memory.is_written(self.graph.nodes[number].name)
        }
        return [self.graph.nodes[number] for number in sorted(needed | again)]

    def _with_writers(self, late: Sequence[str]) -> set[int]:
        # The nodes that values need, and those that write what these look at, also after they were computed.
        shape = self.shape
        writers = {number for number, does in enumerate(shape.effects) if does.writes and number not in self.first}
        found = shape.before(shape.numbers(late)) - self.first
        while True:
            seen = {shape.memory.find(name) for name in (*late, *[self.graph.nodes[number].name for number in found])}
            more = {number for number in writers - found if not seen.isdisjoint(shape.memory.touched(shape.effects[number]))}
            if not more:
                return found
            found |= shape.before(more) - self.first

    def _kept(self) -> tuple[str, ...]:
        there = {node.name for node in self.second} | set(self._state())
        late = [name for arg, spec in self.outputs if type(spec) is StateGradient for name in refs_in((arg,))]
        used = {name for node in self.second for name in node.refs()} | set(late)
        return tuple([name for name in self.graph.metas if name in used and name not in there])

    def _state(self) -> list[str]:
        return [
            formal.name
            for formal, spec in self.program.inputs
            if type(spec) is StateInput and not self.shape.memory.is_written(formal.name)
        ]

    def inputs(self) -> Program:
        """Return the program that gives all but the gradients of state."""
        nodes = tuple([node for number, node in enumerate(self.graph.nodes) if number in self.first])
        early = [(arg, spec) for arg, spec in self.outputs if type(spec) is not StateGradient]
        given = (*[spec for _, spec in early], *[UserOutput()] * len(self.kept))
        main = Graph(self.graph.inputs, nodes, (*[arg for arg, _ in early], *[Ref(name) for name in self.kept]))
        specs: Sequence[InputSpec] = self.program.signature.inputs
        if not any(type(spec) in GIVEN for _, spec in early):  # no gradient is left that a tangent would be for
            specs = [evolve(spec, tangent_of=None) if type(spec) is UserInput else spec for spec in specs]
        return claiming_less(self.program.with_boundary(main, specs, given, out_spec=None).pruned())

    def weights(self) -> Program:
        """Return the program that gives the gradients of state."""
        used = {name for node in self.second for name in node.refs()}
        late = [(arg, spec) for arg, spec in self.outputs if type(spec) is StateGradient]
        used.update(name for arg, _ in late for name in refs_in((arg,)))
        own = set(self._state())
        state = [(formal, spec) for formal, spec in self.program.inputs if formal.name in own and formal.name in used]
        metas = self.graph.metas
        taken = [(Input(name, metas[name]), UserInput(type_of_value(metas[name].get("val")), name)) for name in self.kept]
        pairs: list[tuple[Input, InputSpec]] = [*state, *taken]
        main = Graph(tuple([formal for formal, _ in pairs]), self.second, tuple([arg for arg, _ in late]))
        made = self.program.with_boundary(
            main, [spec for _, spec in pairs], [spec for _, spec in late], in_spec=None, out_spec=None, arg_names=(), lifted=()
        )
        symbols = symbols_of([spec.type for _, spec in pairs if type(spec) is UserInput])
        ranges = [span for span in self.program.constraints.ranges if symbols.issuperset(symbols_in(span.expr))]
        return claiming_less(made.evolve(constraints=Constraints(tuple(ranges))).pruned())
