"""The forward and the backward program of a joint one, when it is known what crosses.

Both are flat, and every node keeps its name, its module calls and its meta, those that are computed again too; so each can be
outlined by itself.  What crosses is decided in ``crossing``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ...ir.arguments import Arg, Ref
from ...ir.errors import PartitionError
from ...ir.expression import inputs_in, symbols_in
from ...ir.graph import Graph, Input, Node
from ...ir.importing.constraints import read_size
from ...ir.inference import clone_value
from ...ir.operators import op_of
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
    TensorType,
    UserInput,
    UserOutput,
)
from ...ir.torch_private import pytree
from ..minimize.cutting import claiming_less, type_of
from .candidates import Table
from .crossing import Crossing
from .phases import is_tangent, tangents

__all__ = ["Halves", "symbols_of", "type_of_value", "without_tangents"]

CLONE = op_of(torch.ops.aten.clone.default)


class Halves:
    """Both programs.

    Args:
        program: the joint program.
        table: its candidates.
        crossing: what crosses.
    """

    def __init__(self, program: Program, table: Table, crossing: Crossing) -> None:
        self.program = program
        self.table = table
        self.crossing = crossing
        self.graph: Graph = program.main
        self.specs: Mapping[str, InputSpec] = {formal.name: spec for formal, spec in program.inputs}
        self.taken = self._taken()
        """The arguments of the caller that the backward gets, in order."""
        self.kept = tuple([name for name in table.order if name in crossing.saved])
        """The candidates that are handed over, in order."""

    def _taken(self) -> tuple[str, ...]:
        mutated = [spec.index for _, spec in self._outputs(late=True) if type(spec) is InputMutation]
        wanted = {*self.crossing.direct, *[self.graph.inputs[index].name for index in mutated]}
        return tuple(
            [name for name, spec in self.specs.items() if name in wanted and type(spec) is UserInput and not is_tangent(spec)]
        )

    @property
    def saved(self) -> tuple[str, ...]:
        """The names of what the forward hands over, in order."""
        return (*self.taken, *self.kept)

    def _outputs(self, *, late: bool) -> list[tuple[Arg, OutputSpec]]:
        # What one of the halves gives of what the joint program gives.
        pairs = enumerate(zip(self.graph.output, self.program.signature.outputs, strict=True))
        return [pair for number, pair in pairs if (number in self.table.late_outputs) is late]

    # -- forward ----------------------------------------------------------------------------------------------------------------

    def forward(self) -> Program:
        """Return the program that gives what the caller gets, and what is handed over."""
        numbers = sorted(self.table.after(self.kept))
        nodes = [self.graph.nodes[number] for number in numbers]
        copies = self._copies()
        kept = self._outputs(late=False)
        handed = [Ref(copies[name].name if name in copies else name) for name in self.saved]
        late = set(tangents(self.program))
        formals = tuple([formal for formal in self.graph.inputs if formal.name not in late])
        main = Graph(formals, (*nodes, *copies.values()), (*[arg for arg, _ in kept], *handed))
        outputs = (*[spec for _, spec in kept], *[UserOutput()] * len(handed))
        in_spec = without_tangents(self.program.signature.in_spec) if late else self.program.signature.in_spec
        specs = [self.specs[formal.name] for formal in formals]
        made = self.program.with_boundary(main, specs, outputs, in_spec=in_spec, out_spec=None)
        made = made.evolve(constraints=self._constraints(sum(type(spec) is UserInput for spec in specs)))
        return claiming_less(made.pruned())

    def _copies(self) -> dict[str, Node]:
        # State and arguments that are written in place: the next call would write what this one kept.
        names, found = self.graph.names(), dict[str, Node]()
        for name in self.kept:
            if self.table.changes_outside(name) and self.table.is_written_in_place(name):
                meta = self.graph.metas[name]
                if name in self.table.candidates and not self.table.candidates[name].storable:
                    raise PartitionError(
                        f"the backward needs {name!r}, which is several values, and the forward changes memory that they are in: "
                        "take out those that it needs before that"
                    )
                known = {"val": clone_value(meta["val"])} if "val" in meta else {}
                found[name] = Node(names.fresh(f"{name}_kept"), CLONE, (Ref(name),), meta=known)
        return found

    def _constraints(self, count: int) -> Constraints:
        known = self.program.constraints
        guards = tuple([guard for guard in known.guards if all(number < count for number in inputs_in(guard))])
        return Constraints(known.ranges, guards)

    # -- backward ---------------------------------------------------------------------------------------------------------------

    def backward(self) -> Program:
        """Return the program that gives the gradients."""
        formals, specs = self._interface()
        kept = self._outputs(late=True)
        main = Graph(formals, tuple(self._nodes(formals)), tuple([arg for arg, _ in kept]))
        made = self.program.with_boundary(
            main, specs, [spec for _, spec in kept], in_spec=None, out_spec=None, arg_names=(), lifted=()
        )
        kinds = [spec.type for spec in specs if type(spec) is UserInput]
        ranges = tuple([span for span in self.program.constraints.ranges if symbols_of(kinds).issuperset(symbols_in(span.expr))])
        return claiming_less(made.evolve(constraints=Constraints(ranges)).pruned())

    def _interface(self) -> tuple[tuple[Input, ...], list[InputSpec]]:
        metas = self.graph.metas
        state = [name for name, spec in self.specs.items() if type(spec) is StateInput and name in self.crossing.direct]
        late = tangents(self.program)
        formals = [Input(name, metas[name]) for name in (*state, *self.saved, *late)]
        specs = [
            *[self.specs[name] for name in state],
            *[UserInput(type_of_value(metas[name].get("val")), name) for name in self.saved],
            *[self.specs[name] for name in late],
        ]
        return tuple(formals), specs

    def _nodes(self, formals: Iterable[Input]) -> list[Node]:
        # In the order of the joint program; what is computed again comes right before it is used, but never inside a region.
        there, made = {formal.name for formal in formals}, list[Node]()
        there.update([self.graph.nodes[number].name for number in self.table.running])
        for group in self._groups():
            made += self._again([name for node in group for name in node.refs()], there)
            made += group
        return made + self._again(self.table.gradients, there)

    def _groups(self) -> Iterable[list[Node]]:
        # What the backward runs itself, node by node; a region is one group.
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
        # What is needed and not there yet, in the order of the joint program.
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
    specs = {key: spec for key, spec in zip(kwargs.context or (), kwargs.children(), strict=True) if key != TANGENTS}
    return pytree.TreeSpec(tuple, None, [args, pytree.TreeSpec(dict, list(specs), list(specs.values()))])


TANGENTS = "tangents"
"""The keyword argument that a joint program takes tangents in."""


def type_of_value(value: Any) -> ArgumentType:
    """Return the type of an input that takes a value that crosses.

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


NUMBERS = ((int, torch.SymInt, "int"), (float, torch.SymFloat, "float"), (bool, torch.SymBool, "bool"))


def symbols_of(kinds: Sequence[ArgumentType]) -> set[str]:
    """Return the symbols of the sizes in types.

    >>> symbols_of([TensorType(torch.float32, (2,))])
    set()
    """
    sizes = [size for kind in kinds if type(kind) is TensorType for size in kind.shape]
    sizes += [kind.expr for kind in kinds if type(kind) is NumberType and kind.expr is not None]
    return {name for size in sizes for name in symbols_in(size)}
