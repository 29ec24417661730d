"""``add_runtime_assertions``: the graph itself checks the sizes that the signature states.

Conditions that a graph already checks are not added again.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any

import torch

from ...ir.arguments import Arg, Ref
from ...ir.calls.parts import part_names
from ...ir.errors import PartitionError
from ...ir.expression import Apply, Expr, InputDim, InputValue, Sym, inputs_in, symbols_in, write
from ...ir.graph import Node, Op
from ...ir.inference import FakeValues, running
from ...ir.operators import op_of
from ...ir.origins import made_of
from ...ir.program import Program
from ...ir.signature import NumberType, Range, TensorType, UserInput
from ...ir.torch_private import ASSERT_SCALAR, OpOverload
from ..transformation import UNLIMITED, Fuel, transformation

__all__ = ["add_runtime_assertions"]

ASSERT = op_of(ASSERT_SCALAR)

READS: Mapping[str, Op] = MappingProxyType(
    {"size": op_of(torch.ops.aten.sym_size.int), "stride": op_of(torch.ops.aten.sym_stride.int)}
)
"""What reads a size or a stride of a tensor."""

FUNCTIONS: Mapping[str, Op] = MappingProxyType(
    {
        op: op_of(function)
        for op, function in {
            "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "/": operator.truediv,
            "%": operator.mod, "**": operator.pow, "max": torch.sym_max, "min": torch.sym_min, "abs": operator.abs,
            "neg": operator.neg, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
            "<": operator.lt, "<=": operator.le, "and": operator.and_, "or": operator.or_, "not": torch.sym_not,
            "if": torch.sym_ite,
        }.items()
    }
)  # fmt: skip
"""What computes an operator of an expression from numbers, symbolic ones included."""

CHAINED = frozenset({"+", "*", "max", "min", "and", "or"})
TURNED = {"<": ">", "<=": ">="}
BACK = {">": "<", ">=": "<="}


def normal(expr: Expr) -> Expr:
    """Return an expression in the form in which checks are compared.

    >>> normal(Apply("<=", (Apply("+", (1, 2, 3)), InputValue(0)))).op
    '>='
    """
    if not isinstance(expr, Apply):
        return expr
    args = tuple([normal(arg) for arg in expr.args])
    if expr.op in CHAINED and len(args) != 2:
        return reduce(lambda left, right: Apply(expr.op, (left, right)), args)
    if expr.op == "ceildiv":
        return Apply("neg", (Apply("//", (Apply("neg", args[:1]), args[1])),))
    if expr.op in ("==", "!="):
        return Apply(expr.op, tuple(sorted(args, key=repr, reverse=True)))  # a number is on the right
    return Apply(TURNED[expr.op], args[::-1]) if expr.op in TURNED else Apply(expr.op, args)


def spoken(check: Expr) -> Expr:
    """Return a check as a person would say it: a number is on the right of a comparison.

    >>> spoken(Apply(">=", (9, InputValue(0)))).op
    '<='
    """
    if type(check) is Apply and check.op in BACK and not isinstance(check.args[0], Apply | InputDim | InputValue):
        return Apply(BACK[check.op], check.args[::-1])
    return check


def stated(program: Program) -> list[Expr]:
    """Return what a program says that must hold of the sizes of its inputs: ties, ranges and guards, each once.

    A lower bound of 2 is the exporter's assumption that a size is not 0 or 1, with which programs run, and no check.  Symbols
    that no input determines are those of data-dependent sizes; the exporter has put checks of them into the graph.
    """
    told: dict[str, Expr] = {}
    sizes = list(_sizes(program))
    for leaf, size in sizes:
        if type(size) is Sym:
            told.setdefault(size.name, leaf)
    found = [
        Apply("==", (leaf, size)) for leaf, size in sizes if type(size) is Apply or told.get(getattr(size, "name", "")) != leaf
    ]
    found += [check for bounds in program.constraints.ranges for check in _bounds(bounds)]
    for guard in program.constraints.guards:
        found += _parts(guard)
    known = [_told(check, told) for check in found if set(symbols_in(check)) <= told.keys()]
    return list(dict.fromkeys([normal(check) for check in known]))


def _sizes(program: Program) -> Iterator[tuple[Expr, Expr]]:
    users = [spec.type for spec in program.signature.inputs if type(spec) is UserInput]
    for index, kind in enumerate(users):
        if type(kind) is TensorType:
            yield from ((InputDim(index, dim), size) for dim, size in enumerate(kind.shape) if type(size) is not int)
        elif type(kind) is NumberType and kind.expr is not None and type(kind.expr) is not int:
            yield InputValue(index), kind.expr


def _bounds(bounds: Range) -> Iterator[Expr]:
    if bounds.low is not None and bounds.low > 2:
        yield Apply(">=", (bounds.expr, bounds.low))
    if bounds.high is not None:
        yield Apply("<=", (bounds.expr, bounds.high))


def _parts(guard: Expr) -> list[Expr]:
    if type(guard) is Apply and guard.op == "and":
        return [part for arg in guard.args for part in _parts(arg)]
    return [] if guard is True else [guard]


def _told(expr: Expr, told: Mapping[str, Expr]) -> Expr:
    match expr:
        case Sym(name=name):
            return told[name]
        case Apply(op=op, args=args):
            return Apply(op, tuple([_told(arg, told) for arg in args]))
        case _:
            return expr


def leaf_names(program: Program) -> list[str]:
    """Return the names of the user inputs of the root, by their number."""
    return [formal.name for formal, spec in program.inputs if type(spec) is UserInput]


def asserted(program: Program) -> set[Expr]:
    """Return what the root of a program checks already, as far as it is over sizes of user inputs."""
    known: dict[str, Expr] = {name: InputValue(index) for index, name in enumerate(leaf_names(program))}
    found: set[Expr] = set()
    for node in program.main.nodes:
        if type(node.do) is not Op:
            continue
        target: Any = node.do.target
        if isinstance(target, OpOverload) and torch.Tag.inplace_view in target.tags:
            break  # from here on an input may have other sizes than it was given with
        parts = _read(node.args, known)
        if node.do == ASSERT and parts:
            found.update(map(normal, _parts(parts[0])))
        elif parts is not None and not node.kwargs:
            made = _made(node.do, parts)
            if made is not None:
                known[node.name] = made
    return found


def _read(args: tuple[Arg, ...], known: Mapping[str, Expr]) -> list[Any] | None:
    parts = [known.get(arg.name) if type(arg) is Ref else arg for arg in args]
    return None if any(part is None for part in parts) else parts


NAMES = {op.name: word for word, op in FUNCTIONS.items()}
READ_NAMES = {op.name: word for word, op in READS.items()}


def _made(op: Op, parts: list[Any]) -> Expr | None:
    if op.name in READ_NAMES and len(parts) == 2 and type(parts[0]) is InputValue and type(parts[1]) is int:
        return InputDim(parts[0].index, parts[1], READ_NAMES[op.name])
    if op.name in NAMES and all(isinstance(part, bool | int | float | Apply | InputDim | InputValue) for part in parts):
        return Apply(NAMES[op.name], tuple(parts))
    return None


@transformation(
    proven=True,
    laws=["wrong sizes are refused, and only those", "checks come first, and nothing else changes"],
)
def add_runtime_assertions(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Add nodes that check the sizes of the inputs as the signature states them.

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

    A symbol that several sizes share must have one value; the ends of ranges, and guards, must hold.  Conditions that the root
    already checks, in any order, are not added again.  Fixed sizes, dtypes and baked-in values are not checked; a lower bound
    of up to 2 is ignored, as in lowered modules.  The signature stays, so a lowered module names the argument before a check
    can.

    Args:
        program: a program at any stage that is not split.
        fuel: a rewrite is one check.

    Returns:
        The program with its checks; the same object if none is to add.

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
    return program.with_main(graph.with_nodes((*making.finished(), *graph.nodes)))


class _Making:
    """Makes the nodes of checks; what several of them compute is computed once."""

    def __init__(self, program: Program) -> None:
        graph = program.main
        self.program = program
        self.names = graph.names()
        self.leaves = leaf_names(program)
        self.paths = [spec.argument for spec in program.signature.inputs if type(spec) is UserInput]
        self.known: dict[Expr, Arg] = {}
        self.nodes: list[Node] = []
        self.metas = dict(graph.metas)

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
                raise AssertionError(f"{expr} is not a size of an input")

    def _add(self, word: str, do: Op, args: tuple[Arg, ...]) -> Ref:
        name = self.names.fresh(word)
        refs = [arg.name for arg in args if type(arg) is Ref] or self.leaves
        self.nodes.append(Node(name, do, args, meta=made_of([self.metas[ref] for ref in refs])))
        self.metas[name] = self.nodes[-1].meta
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
                    node = node.evolve(meta=MappingProxyType({**node.meta, "val": known[node.name]}))
                made.append(node)
        return made
