"""``add_runtime_assertions``: what the signature says of sizes is checked by the graph itself.

One idea: ties, ranges and guards become operators that compute on sizes and assert, before anything else happens.  A program
that goes on to where nobody reads its signature refuses wrong sizes all the same.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from attrs import evolve

from ...ir.arguments import Arg, Ref
from ...ir.errors import PartitionError
from ...ir.expression import Apply, Expr, InputDim, InputValue, inputs_in, write
from ...ir.fakes import FakeValues, running
from ...ir.names import Names
from ...ir.node import Node, Op
from ...ir.parts import part_names
from ...ir.program import Program
from ...ir.signature import UserInput
from ..fuel import UNLIMITED, Fuel
from ..transformation import transformation
from .checks import ASSERT, FUNCTIONS, READS, asserted, leaf_names, spoken, stated

__all__ = ["add_runtime_assertions"]


@transformation(
    proven=True,
    laws=["wrong sizes are refused, and only those", "checks come first, and nothing else changes"],
)
def add_runtime_assertions(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Check in the graph what the signature says of the sizes of the inputs.

    Before::

        inputs x: f32[s0, 4]        ranges s0 in 3..9
        relu = aten.relu.default(x)

    After::

        inputs x: f32[s0, 4]        ranges s0 in 3..9
        size = aten.sym_size.int(x, 0)
        ge = operator.ge(size, 3)
        check = aten._assert_scalar.default(ge, "x: the program is for x.size(0) >= 3")
        ...
        relu = aten.relu.default(x)

    A symbol that several sizes share must have one value; the ends of ranges, and guards, must hold.  What the root checks
    already, in whatever order, is not added again.  Sizes that are fixed numbers, dtypes and baked-in values are what the
    signature says they are, and not looked at; a lower bound of up to 2 is none, as for lowered modules.  The signature
    stays, so a lowered module names the argument before a check can.

    Args:
        program: a program at any stage that is not split.
        fuel: a rewrite is one check.

    Returns:
        The program with its checks; the same object where none is to add.

    Raises:
        PartitionError: it is split; the root of a split program only calls its parts.

    >>> import torch, purefx as px
    >>> rows = {0: torch.export.Dim("rows", min=3, max=9)}
    >>> program = px.capture(torch.nn.ReLU(), (torch.ones(4, 2),), dynamic_shapes=(rows,))
    >>> [node.do.name for node in px.add_runtime_assertions(program).main.nodes][:3]
    ['aten.sym_size.int', 'operator.ge', 'aten._assert_scalar.default']
    """
    checks = stated(program)
    if not checks:
        return program
    there = asserted(program)
    lacking = [spoken(check) for check in checks if check not in there]
    if lacking and part_names(program):
        raise PartitionError(
            "the root of a split program only calls its parts; add_runtime_assertions comes before split_by_tags"
        )
    chosen = [check for check in lacking if fuel.burn("check", write(check))]
    if not chosen:
        return program
    making = _Making(program)
    for check in chosen:
        making.check(check)
    graph = program.main
    return program.with_main(evolve(graph, nodes=(*making.finished(), *graph.nodes)))


class _Making:
    """Makes the nodes of checks; what several of them compute is computed once."""

    def __init__(self, program: Program) -> None:
        graph = program.main
        self.program = program
        self.names = Names([*(formal.name for formal in graph.inputs), *(node.name for node in graph.nodes)])
        self.leaves = leaf_names(program)
        self.paths = [spec.argument for spec in program.signature.inputs if type(spec) is UserInput]
        self.known: dict[Expr, Arg] = {}
        self.nodes: list[Node] = []

    def check(self, check: Expr) -> None:
        """Add one check."""
        paths = [path or self.leaves[index] for index, path in enumerate(self.paths)]
        said = ", ".join(dict.fromkeys([paths[index] for index in inputs_in(check)])) or "the inputs"
        self._add("check", ASSERT, (self.value(check), f"{said}: the program is for {write(check, paths)}"))

    def value(self, expr: Expr) -> Arg:
        """Return what stands for an expression, in the form of checks."""
        if isinstance(expr, bool | int | float):
            return expr
        if expr not in self.known:
            self.known[expr] = self._made(expr)
        return self.known[expr]

    def _made(self, expr: Expr) -> Arg:
        match expr:
            case InputValue(index=index):
                return Ref(self.leaves[index])
            case InputDim(index=index, dim=dim, of=of):
                return self._add(of, READS[of], (Ref(self.leaves[index]), dim))
            case Apply(op=op, args=args):
                return self._add(FUNCTIONS[op].name.rpartition(".")[2], FUNCTIONS[op], tuple([self.value(arg) for arg in args]))
            case _:
                raise AssertionError(f"{expr} is no size of an input")

    def _add(self, word: str, do: Op, args: tuple[Arg, ...]) -> Ref:
        name = self.names.fresh(word)
        self.nodes.append(Node(name, do, args))
        return Ref(name)

    def finished(self) -> list[Node]:
        """Return the nodes, with fake values where the inputs have some."""
        values = FakeValues(self.program)
        known: dict[str, Any] = {formal.name: formal.meta["val"] for formal in self.program.main.inputs if "val" in formal.meta}
        if not all(
            name in known and values.is_ours(known[name]) for node in self.nodes for name in node.refs() if name in self.leaves
        ):
            return self.nodes
        made: list[Node] = []
        with running(values.mode):
            for node in self.nodes:
                if node.do != ASSERT:
                    args = [known[arg.name] if type(arg) is Ref else arg for arg in node.args]
                    known[node.name] = values.run(node, node.do.target, args, {}) if type(node.do) is Op else None
                    node = evolve(node, meta=MappingProxyType({"val": known[node.name]}))
                made.append(node)
        return made
