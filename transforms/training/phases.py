"""``phases``: assigns the nodes of a joint program to the forward and the backward.

The structure decides.  The forward contains the operands of the user outputs, and every effect that depends neither on a tangent
nor on the gradient of the loss; all other nodes are in the backward.  Marks of the tracer count only for effects that the
structure leaves open (a random draw of the backward alone).  Nothing is split here.  ``with_saved_copies`` copies memory that
the backward reads and the forward writes later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from attrs import frozen

from ...ir.arguments import Ref, refs_in
from ...ir.effects.declared import NodeEffects
from ...ir.effects.dependencies import dependencies
from ...ir.effects.resolved import node_effects
from ...ir.errors import PartitionError
from ...ir.forks import cached_property
from ...ir.graph import Get, Graph, Node, place_of
from ...ir.inference import clone_value
from ...ir.meta import is_backward
from ...ir.operators import CLONE
from ...ir.own_operators import is_boundary
from ...ir.persistent import closure
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.signature import (
    InputGradient,
    InputMutation,
    LossOutput,
    StateGradient,
    StateMutation,
    UserOutput,
)
from ...ir.validation import a_program
from ..memory import Memory, computes, is_view


@frozen
class Phases:
    """The names of the nodes of the two halves of a joint program, in the order of the graph.

    >>> Phases(("y",), ("gx",)).backward
    ('gx',)
    """

    forward: tuple[str, ...]
    backward: tuple[str, ...]


def is_joint(program: Program) -> bool:
    """Return whether a program returns gradients.

    >>> is_joint(Program.of({"": Graph((), (), ())}))
    False
    """
    return any(type(spec) in GRADIENTS for spec in program.signature.outputs)


GRADIENTS = (StateGradient, InputGradient)


def tangents(program: Program) -> tuple[str, ...]:
    """Return the names of the inputs that are gradients of outputs of the forward.

    >>> tangents(Program.of({"": Graph((), (), ())}))
    ()
    """
    users = program.user_inputs
    return tuple([formal.name for formal, spec in users if spec.tangent_of is not None])


def outputs_of(program: Program, *kinds: type) -> list[str]:
    """Return the names of the values of outputs of some kinds.

    >>> outputs_of(Program.of({"": Graph((), (), ())}), LossOutput)
    []
    """
    pairs = program.outputs
    return [name for arg, spec in pairs if type(spec) in kinds for name in refs_in((arg,))]


def phases(program: Program) -> Phases:
    """Assign the nodes of a joint program to the forward and the backward.

    Running the forward, then the backward, means the program: no node of the forward depends on one of the backward, through data
    or conflicting effects.  A node is in the forward

    - if a user output, or the loss, needs it;
    - if it has an effect (an observable write, a random draw, communication, a region), or computes new contents of state or of an
      input, and depends on no tangent and on no gradient of the loss; an effect that the tracer marks as backward is in the
      backward, unless the forward needs it;
    - if such a node needs it, or if it projects a result of such a node.

    Args:
        program: a flat program; inline module calls first.

    Raises:
        PartitionError: a user output depends on a tangent, a region is in both halves, or the program calls modules.
        TypeError: ``program`` is not a Program.

    >>> from purefx.ir import Input, Op, Ref, Signature, TensorType, UserInput
    >>> import torch
    >>> nodes = (Node("y", Op("toy.exp"), (Ref("x"),)), Node("one", Op("toy.one"), (Ref("y"),)), Node("g", Op("toy.mul"), (Ref("one"), Ref("y"))))
    >>> signature = Signature((UserInput(TensorType(torch.float32, ()), "x"),), (LossOutput(), InputGradient(0)))
    >>> phases(Program.of({"": Graph((Input("x"),), nodes, (Ref("y"), Ref("g")))}, signature=signature))
    Phases(forward=('y',), backward=('one', 'g'))
    """  # noqa: E501
    a_program(program, "phases")
    if program.main.called:
        raise PartitionError(
            "the program calls modules, which have a forward and a backward in one body: px.inline it first"
        )
    return Shape(program).phases()


class Shape:
    """The dependency relation of a flat program, and its two halves.

    Args:
        program: a flat program.

    >>> Shape(Program.of({"": Graph((), (), ())})).phases()
    Phases(forward=(), backward=())
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.graph: Graph = program.main
        self.effects: list[NodeEffects] = node_effects(program, self.graph)
        self.position = self.graph.position
        self.memory = Memory(program, program.root, self.effects)
        self.bound: set[int] = set()
        """The nodes that depend on a tangent, on a gradient of the loss, or on an effect of the backward."""

    @cached_property
    def inside(self) -> frozenset[int]:
        """The nodes that run in a region (autocast, a gradient mode, vmap), where operators may compute other results."""
        found, depth = list[int](), 0
        for number, effect in enumerate(self.effects):
            if depth > 0:
                found.append(number)
            depth += effect.scope[1] - effect.scope[0]
        return frozenset(found)

    @cached_property
    def edges(self) -> list[list[int]]:
        """For each node, the numbers of those that must come before it."""
        # Operators that always return views read no contents, so they do not depend on writes; a projection is the same in a
        # region as outside.
        edges = dependencies(self.program, self.graph)
        for number, node in enumerate(self.graph.nodes):
            more = len(edges[number]) > len(node.refs())
            anywhere = node.projection is not None or number not in self.inside
            if more and anywhere and is_view(node) and computes(self.effects[number]):
                edges[number] = self.numbers(node.refs())
        return edges

    def phases(self) -> Phases:
        """Return the nodes of the two halves."""
        forward = self.forward()
        early, late = (
            [name for name, at in self.position.items() if (at in forward) is half]
            for half in (True, False)
        )
        return Phases(tuple(early), tuple(late))

    def forward(self) -> set[int]:
        """Return the numbers of the nodes of the forward, and find those that must be in the backward."""
        outputs = outputs_of(self.program, UserOutput, LossOutput)
        required = self.before(
            [*self.numbers(outputs), *self._writers(outputs)]
        )  # all writers of its memory, before and after
        operands = [self.numbers(node.refs()) for node in self.graph.nodes]
        self.bound = self._after(self.gradients_of_loss(operands) - required, required)
        self._check_outputs(required)
        acting = [
            number
            for number in range(len(self.effects))
            if number not in self.bound and self.acts(number)
        ]
        found = required | self.before([*acting, *self._stored()])
        for number, node in enumerate(self.graph.nodes):
            if (
                number not in found
                and number not in self.bound
                and self._belongs(node, number, found)
            ):
                found.add(number)
        self._check_regions(found)
        return found

    def _belongs(self, node: Node, number: int, found: Collection[int]) -> bool:
        # A projection is in the half of its tuple; an unneeded node is in that of its operands.
        dead = node.name not in self.graph.users and node.name not in self.graph.output_refs()
        follows = dead or node.projection is not None or is_boundary(node)
        return follows and all(before in found for before in self.edges[number])

    def numbers(self, names: Iterable[str]) -> list[int]:
        """Return the numbers of nodes by name, without those of inputs."""
        return [self.position[name] for name in names if name in self.position]

    def gradients_of_loss(self, sources: Sequence[Sequence[int]]) -> set[int]:
        """Return the nodes between the loss and the gradients.

        Args:
            sources: the dependencies of each node.
        """
        loss, gradients = (
            set(self.numbers(outputs_of(self.program, *kinds)))
            for kinds in ((LossOutput,), GRADIENTS)
        )
        behind = set(loss)
        for number, before in enumerate(sources):
            if loss and not behind.isdisjoint(before):
                behind.add(number)
        return behind & _closure(sources, gradients)

    def _after(self, begin: Collection[int], required: Collection[int]) -> set[int]:
        # The nodes that depend on these, on a tangent, or on an effect that the tracer marks as backward.
        tangent_names = set(tangents(self.program))
        found = set(begin)
        for number, node in enumerate(self.graph.nodes):
            if number in found:
                continue
            follows = not tangent_names.isdisjoint(node.refs()) or not found.isdisjoint(
                self.edges[number]
            )
            if follows or (number not in required and self.acts(number) and is_backward(node.meta)):
                found.add(number)
        return found

    def acts(self, number: int) -> bool:
        """Return whether a node has an observable effect."""
        effect = self.effects[number]
        if (
            effect.random
            or effect.ordered
            or effect.domains
            or effect.completes
            or effect.writes_slots
            or effect.scope != (0, 0)
        ):
            return True
        return bool(effect.writes) and self.memory.reaches_outside(effect)

    def _stored(self) -> list[int]:
        # The nodes that compute new contents of state and inputs, or write their memory, unless one of these is in the backward.
        late = self.written_in(self.bound)
        names = [
            name
            for name in outputs_of(self.program, StateMutation, InputMutation)
            if self.memory.find(name) not in late
        ]
        made = [number for number in self.numbers(names) if number not in self.bound]
        return [*made, *self._writers(names)]

    def _writers(self, names: Iterable[str]) -> list[int]:
        memory = {self.memory.find(name) for name in names}
        return [
            number
            for number, effect in enumerate(self.effects)
            if not memory.isdisjoint(self._touched(effect))
        ]

    def _touched(self, effect: NodeEffects) -> set[object]:
        return (
            self.memory.touched(effect)
            if effect.writes or effect.writes_slots or effect.completes
            else set()
        )

    def written_in(self, numbers: Iterable[int]) -> frozenset[object]:
        """Return the memory that some nodes write."""
        return frozenset(
            [memory for number in numbers for memory in self._touched(self.effects[number])]
        )

    def before(self, numbers: Iterable[int]) -> set[int]:
        """Return some nodes with all of their dependencies."""
        return _closure(self.edges, numbers)

    def _check_outputs(self, required: Collection[int]) -> None:
        returned = set(tangents(self.program)).intersection(
            outputs_of(self.program, UserOutput, LossOutput)
        )
        if returned:
            raise PartitionError(
                f"the output {min(returned)!r} of the forward is a tangent: leave it out of the outputs"
            )
        early = sorted(self.bound.intersection(required))
        if early:
            what = place_of(self.graph.nodes[early[0]])
            raise PartitionError(
                f"an output of the forward depends on a tangent, through {what}, so it belongs to the backward; leave it out "
                "of the outputs, or run the whole program"
            )

    def _check_regions(self, forward: Collection[int]) -> None:
        for half in (forward, set(range(len(self.effects))).difference(forward)):
            depth = 0
            for number in sorted(half):
                closes, opens = self.effects[number].scope
                depth += opens - closes
                if depth < 0:
                    break
            if depth:
                first = next(
                    node
                    for node, effect in zip(self.graph.nodes, self.effects, strict=True)
                    if effect.scope != (0, 0)
                )
                raise PartitionError(
                    "a region (autocast, a gradient mode, vmap) begins in one half and ends in the other: "
                    f"{place_of(first)}; regions_to_bodies makes bodies of gradient modes"
                )


def _closure(sources: Sequence[Sequence[int]], numbers: Iterable[int]) -> set[int]:
    return set(closure(numbers, sources.__getitem__))


def with_saved_copies(program: Program) -> Program:
    """Return a joint program in which no write of the forward waits for the backward; the same object if no write waits.

    A reader of old contents has to come before the write.  If the reader depends on gradients and the write does not, the reader
    gets a copy instead, so that the write can be in the forward.

    Args:
        program: a flat program.

    >>> program = Program.of({"": Graph((), (), ())})
    >>> with_saved_copies(program) is program
    True
    """
    if not any(
        effect.writes or effect.writes_slots for effect in node_effects(program, program.main)
    ):
        return program
    found = Contents(program).late_readers()
    if not found:
        return program
    edit = Rewriter(program.main)
    copies: dict[tuple[str, int], Ref] = {}
    for number, name, version in found:
        if (name, version) not in copies:
            copy = clone_of(program.main, name, edit.names.fresh(f"{name}_before"))
            copies[name, version] = Ref(copy.name)
            edit.before(number, copy)
        edit.use(number, name, copies[name, version])
    return program.with_main(edit.graph())


def clone_of(graph: Graph, name: str, called: str) -> Node:
    """Return a node that clones a value of a graph."""
    return Node(called, CLONE, (Ref(name),), meta=clone_value(graph.metas[name]))


class Contents:
    """Tracks the contents of memory through a graph: writers, readers, and dependencies on gradients."""

    def __init__(self, program: Program) -> None:
        self.shape = shape = Shape(program)
        self.nodes = program.main.nodes
        self.writes: list[set[object]] = [shape.memory.touched(effect) for effect in shape.effects]
        """The memory that each node writes."""

    def _reads(self, number: int) -> set[object]:
        node, memory = self.nodes[number], self.shape.memory
        if type(node.do) is Get or is_boundary(node) or is_view(node):
            return set()
        return {memory.find(name) for name in node.refs()} | memory.of_slots(
            self.shape.effects[number].reads_slots
        )

    @cached_property
    def late(self) -> set[int]:
        """The nodes that depend on gradients, through their operands or the contents of these."""
        writer: dict[object, int] = {}
        sources: list[list[int]] = []
        for number, node in enumerate(self.nodes):
            memories = (*self._reads(number), *self.writes[number])
            sources.append(
                [
                    *self.shape.numbers(node.refs()),
                    *[writer[memory] for memory in memories if memory in writer],
                ]
            )
            writer.update(dict.fromkeys(self.writes[number], number))
        program = self.shape.program
        loss = _closure(sources, self.shape.numbers(outputs_of(program, LossOutput)))
        begin, tangent_names = self.shape.gradients_of_loss(sources) - loss, set(tangents(program))
        late = set[int]()
        for number, node in enumerate(self.nodes):
            if (
                number in begin
                or not tangent_names.isdisjoint(node.refs())
                or not late.isdisjoint(sources[number])
            ):
                late.add(number)
        return late

    def late_readers(self) -> list[tuple[int, str, int]]:
        """Return the reads of contents that are written later: the node, the value, and the version of its memory."""
        late, find = self.late, self.shape.memory.find
        written = {
            memory: number
            for number, memories in enumerate(self.writes)
            if number not in late
            for memory in memories
        }
        version: dict[object, int] = {}
        found: list[tuple[int, str, int]] = []
        for number, node in enumerate(self.nodes):
            if (
                number in late
                and not self.writes[number]
                and not self.shape.effects[number].aliases
            ):
                reads = self._reads(number)
                for name in dict.fromkeys(node.refs()):
                    early = self.shape.position.get(name, -1) not in late
                    if (
                        early
                        and (memory := find(name)) in reads
                        and written.get(memory, -1) > number
                    ):
                        found.append((number, name, version.get(memory, -1)))
            version.update(dict.fromkeys(self.writes[number], number))
        return found
