"""``partition_joint``: split a joint program into a forward and a backward program, and choose the values to save.

``phases`` assigns nodes to the halves, ``candidates`` lists the values that may be recomputed, a policy chooses among them, and
``live_across`` computes the values that are saved.  Both programs are flat, and all nodes, including recomputed ones, keep their
names, module calls and metadata, so each can be outlined.  Law: running the forward, then the backward, means the joint program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from attrs import field, frozen

from ...ir.arguments import Arg, Ref
from ...ir.errors import ArgumentError, NamingError, PartitionError
from ...ir.expression import inputs_in
from ...ir.forks import collector_paused
from ...ir.graph import Frame, Get, Graph, Input, Node
from ...ir.importing.constraints import read_size
from ...ir.names import did_you_mean
from ...ir.own_operators import is_boundary
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.signature import (
    ArgumentType,
    Constraints,
    InputMutation,
    InputSpec,
    NumberType,
    ObjectType,
    OutputSpec,
    StateInput,
    UserInput,
    UserOutput,
)
from ...ir.torch_private import pytree
from ...ir.validation import a_function, a_program, kind_of
from ...ir.verify import check
from ..cleanup import infer
from ..effect_tokens import remove_effect_tokens
from ..inline import inline
from ..minimize.cutting import claiming_less, type_of, with_interface
from .candidates import Candidate, Table, example_bytes
from .phases import Shape, clone_of, is_joint, tangents, with_saved_copies
from .policies import LiveAcross, Policy, live_across, save_all


@frozen
class Saved:
    """A value that the forward saves for the backward.

    >>> Saved("relu", "intermediate", 16).counted
    16
    """

    name: str
    """Its name in the joint program, and among the inputs of the backward."""
    kind: str
    """``"input"``: an argument; ``"state"``; ``"intermediate"``: a computed tensor; ``"size"``: a number; ``"object"``: anything
    else."""
    bytes: int
    """Its size in bytes, at the sizes of the example."""
    call: Frame | None = None
    """The innermost module call around it."""
    copied: bool = False
    """Whether it is state or an argument that the forward changes, so that a copy is saved."""

    @property
    def counted(self) -> int:
        """The memory that saving it costs, at the sizes of the example: 0 if its owner keeps it in any case."""
        return 0 if self.kind in ("input", "state") and not self.copied else self.bytes


@frozen
class Partition:
    """The forward and the backward program of a joint program.

    >>> from purefx.ir import Graph
    >>> empty = Program.of({"": Graph((), (), ())})
    >>> Partition(empty, empty).saved_bytes
    0
    """

    forward: Program = field(repr=False)
    """Takes the inputs of the joint program except tangents; returns its user outputs or its loss, then the saved values."""
    backward: Program = field(repr=False)
    """Takes the saved values, then the tangents; returns the gradients.  It reads state directly."""
    saved: tuple[Saved, ...] = ()
    """The saved values, in the order of the last outputs of the forward and of the inputs of the backward."""
    recomputed: tuple[str, ...] = ()
    """The nodes in both programs, in order."""

    @property
    def saved_bytes(self) -> int:
        """The memory that saved values take between the two, at the sizes of the example."""
        return sum(one.counted for one in self.saved)


def partition_joint(program: Program, *, policy: Policy | None = None) -> Partition:
    """Split a joint program into a forward and a backward program.

    Laws: running the forward, then the backward, means the joint program (outputs, gradients, state, mutated inputs, to the last
    bit); no policy changes a number; the result is deterministic.  Random operators and effects run once; a value is
    recomputed only if the memory of its operands is unchanged, and is saved otherwise.

    Args:
        program: a joint program: it returns gradients, and has a loss or takes tangents.  Module calls are inlined first.
        policy: a function from the candidates, in order, to the names of those to save; ``px.training`` has some.  By default,
            all values that the forward computes and the backward needs are saved.

    Returns:
        Both programs, flat, and the saved values.

    Raises:
        PartitionError: a user output depends on a tangent, or a region is in both halves.
        InvalidProgram: the program is not valid.
        ArgumentError: the program returns no gradients; the policy is not a function, or does not return names.
        NamingError: the policy returns a name that is not a candidate.

    >>> import torch
    >>> from purefx import training
    >>> joint = training.capture_joint(torch.nn.Tanh(), (torch.ones(2, requires_grad=True),))
    >>> [(one.name, one.kind, one.bytes) for one in partition_joint(joint).saved]
    [('tanh', 'intermediate', 8)]
    """
    rule: Policy = save_all() if policy is None else a_function(policy, "policy", *A_POLICY)
    check(a_program(program, "partition_joint"))
    if not is_joint(program):
        raise ArgumentError(
            "partition_joint takes a joint program, but this one returns no gradients; make one with "
            "px.training.capture_joint(module, args)"
        )
    with collector_paused():
        flat = infer(with_saved_copies(_without_boundaries(inline(remove_effect_tokens(program)))))
        table = Table(Shape(flat))
        found = live_across(table.candidates, _kept(table, rule), also=table.needed)
        halves = _Cut(flat, table, found)
        saved = tuple([_described(halves, table, name) for name in halves.saved])
        twice = table.after(halves.kept)
        again = tuple(
            [
                name
                for name in table.graph.metas
                if name in found.again and table.shape.position[name] in twice
            ]
        )
        return Partition(check(halves.forward()), check(halves.backward()), saved, again)


def _without_boundaries(program: Program) -> Program:
    # A call signature describes a whole call, and each half has a part of it.
    if not len(program.call_signatures):
        return program
    graph = program.main
    kept = graph.with_nodes([node for node in graph.nodes if not is_boundary(node)])
    return program.with_main(kept, call_signatures=pmap())


A_POLICY = (
    "a function from candidates to the names of those to save",
    "px.training.save_all() is one",
)


def _kept(table: Table, policy: Policy) -> Collection[str]:
    candidates: Sequence[Candidate] = tuple(table.candidates.values())
    kept: object = policy(candidates)
    if isinstance(kept, str) or not isinstance(kept, Collection):
        raise ArgumentError(
            f"a policy returns the names of the values to save, as a set; this one returned {kind_of(kept)}"
        )
    for name in kept:
        if name not in table.candidates:
            raise NamingError(
                f"the policy saves {name!r}, which is not a candidate{did_you_mean(str(name), table.candidates)}"
            )
    return frozenset(kept)


def _described(halves: _Cut, table: Table, name: str) -> Saved:
    value = table.graph.metas[name].get("val")
    node, spec = table.graph.by_name.get(name), halves.specs.get(name)
    state = type(spec) is StateInput or (node is not None and type(node.do) is Get)
    kind = "state" if state else "input" if type(spec) is UserInput else table.kind_of(name)
    call = node.stack[-1] if node is not None and node.stack else None
    return Saved(name, kind, example_bytes(value), call, table.changes_outside(name))


class _Cut:
    """Builds both programs.

    Args:
        program: the joint program.
        table: its candidates.
        live: the values that are live across the cut.
    """

    def __init__(self, program: Program, table: Table, live: LiveAcross) -> None:
        self.program = program
        self.table = table
        self.live = live
        self.graph: Graph = program.main
        self.specs: Mapping[str, InputSpec] = {formal.name: spec for formal, spec in program.inputs}
        self.arguments = self._arguments()
        """The arguments that are passed to the backward, in order."""
        self.kept = tuple([name for name in self.graph.metas if name in live.saved])
        """The saved candidates, in order."""

    def _arguments(self) -> tuple[str, ...]:
        mutated = [
            spec.index for _, spec in self._outputs(late=True) if type(spec) is InputMutation
        ]
        wanted = {*self.live.direct, *[self.graph.inputs[index].name for index in mutated]}
        return tuple(
            [
                name
                for name, spec in self.specs.items()
                if name in wanted and type(spec) is UserInput and spec.tangent_of is None
            ]
        )

    @property
    def saved(self) -> tuple[str, ...]:
        """The names of the saved values, in order."""
        return (*self.arguments, *self.kept)

    def _outputs(self, *, late: bool) -> list[tuple[Arg, OutputSpec]]:
        # The outputs of the joint program that one of the halves returns.
        pairs = enumerate(self.program.outputs)
        return [pair for number, pair in pairs if (number in self.table.late_outputs) is late]

    # -- forward ----------------------------------------------------------------------------------------------------------------

    def forward(self) -> Program:
        """Return the forward program: it returns the user outputs and the saved values."""
        nodes = [self.graph.nodes[number] for number in sorted(self.table.after(self.kept))]
        copies = self._copies()
        kept = self._outputs(late=False)
        results = [Ref(copies[name].name if name in copies else name) for name in self.saved]
        late = set(tangents(self.program))
        formals = tuple([formal for formal in self.graph.inputs if formal.name not in late])
        main = Graph(formals, (*nodes, *copies.values()), (*[arg for arg, _ in kept], *results))
        outputs = (*[spec for _, spec in kept], *[UserOutput()] * len(results))
        in_spec = (
            without_tangents(self.program.signature.in_spec)
            if late
            else self.program.signature.in_spec
        )
        specs = [self.specs[formal.name] for formal in formals]
        made = self.program.with_boundary(main, specs, outputs, in_spec=in_spec, out_spec=None)
        count, known = len(made.signature.users), self.program.constraints
        guards = tuple(
            [guard for guard in known.guards if all(number < count for number in inputs_in(guard))]
        )
        return claiming_less(made.evolve(constraints=Constraints(known.ranges, guards)).pruned())

    def _copies(self) -> dict[str, Node]:
        # State and arguments that are written in place: the next call would overwrite saved values.
        names, found, shape = self.graph.names(), dict[str, Node](), self.table.shape
        written = shape.written_in(self.table.forward)
        for name in self.kept:
            if self.table.changes_outside(name) and shape.memory.find(name) in written:
                if name in self.table.candidates and not self.table.candidates[name].storable:
                    raise PartitionError(
                        f"the backward needs {name!r}, several values whose memory the forward changes: "
                        "read the needed ones before that change"
                    )
                found[name] = clone_of(self.graph, name, names.fresh(f"{name}_kept"))
        return found

    # -- backward ---------------------------------------------------------------------------------------------------------------

    def backward(self) -> Program:
        """Return the backward program: it returns the gradients."""
        formals, specs = self._interface()
        kept = self._outputs(late=True)
        main = Graph(formals, tuple(self._nodes(formals)), tuple([arg for arg, _ in kept]))
        return with_interface(self.program, main, specs, [spec for _, spec in kept]).pruned()

    def _interface(self) -> tuple[tuple[Input, ...], list[InputSpec]]:
        metas = self.graph.metas
        state = [
            name
            for name, spec in self.specs.items()
            if type(spec) is StateInput and name in self.live.direct
        ]
        late = tangents(self.program)
        formals = [Input(name, metas[name]) for name in (*state, *self.saved, *late)]
        specs = [
            *[self.specs[name] for name in state],
            *[UserInput(type_of_value(metas[name].get("val")), name) for name in self.saved],
            *[self.specs[name] for name in late],
        ]
        return tuple(formals), specs

    def _nodes(self, formals: Iterable[Input]) -> list[Node]:
        # In the order of the joint program; values are recomputed right before their first use, but never inside a region.
        there, made = {formal.name for formal in formals}, list[Node]()
        there.update([self.graph.nodes[number].name for number in self.table.running])
        for group in self._groups():
            made += self._again([name for node in group for name in node.refs()], there)
            made += group
        return made + self._again(self.table.gradients, there)

    def _groups(self) -> Iterable[list[Node]]:
        # The nodes that the backward always runs, one by one; a region is one group.
        group, depth = list[Node](), 0
        for number in self.table.running:
            group.append(self.graph.nodes[number])
            closes, opens = self.table.shape.effects[number].scope
            depth += opens - closes
            if depth <= 0:
                yield group
                group = []
        if group:
            yield group

    def _again(self, names: Iterable[str], there: set[str]) -> list[Node]:
        # The missing values with their missing operands, in the order of the joint program.
        found, todo = dict[int, Node](), list(names)
        while todo:
            name = todo.pop()
            if name not in there:
                there.add(name)
                number = self.table.shape.position[name]
                node = found[number] = self.graph.nodes[number]
                todo += node.refs()
        return [found[number] for number in sorted(found)]


def without_tangents(in_spec: Any) -> Any:
    """Return the pytree of the arguments of a joint program without its tangents; None for None.

    Args:
        in_spec: the pytree of ``(args, kwargs)``.

    >>> from purefx.ir.torch_private import pytree
    >>> found = without_tangents(pytree.tree_structure(((1,), {"k": 2, "tangents": (3, 4)})))
    >>> found == pytree.tree_structure(((1,), {"k": 2}))
    True
    """
    if in_spec is None:
        return None
    args, kwargs = in_spec.children()
    specs = {
        key: spec
        for key, spec in zip(kwargs.context or (), kwargs.children(), strict=True)
        if key != TANGENTS
    }
    return pytree.TreeSpec(
        tuple, None, [args, pytree.TreeSpec(dict, list(specs), list(specs.values()))]
    )


TANGENTS = "tangents"
"""The keyword argument of a joint program for its tangents."""


def type_of_value(value: Any) -> ArgumentType:
    """Return the type of an input that takes a saved value.

    Args:
        value: a tensor, a size or another object, fake or not.

    >>> type_of_value(torch.ones(2)), type_of_value(True)
    (TensorType(dtype=torch.float32, shape=(2,), device='cpu'), NumberType(kind='bool', expr=None))
    """
    kind = type_of(value)
    if kind is not None:
        return kind
    if isinstance(value, torch.SymInt):
        return NumberType("int", read_size(value))
    for python, symbolic, name in NUMBERS:
        if type(value) in (python, symbolic):
            return NumberType(name)
    return ObjectType(type(value).__name__)


NUMBERS = (
    (int, torch.SymInt, "int"),
    (float, torch.SymFloat, "float"),
    (bool, torch.SymBool, "bool"),
)
