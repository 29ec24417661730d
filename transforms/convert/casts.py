"""``Casts``: which casts of a program give the new dtype when its state and its inputs are converted.

A trace does not tell ``x.float()`` from ``x.to(y.dtype)``: both name the dtype that was exported.  A cast stays, unless an
operator behind it refuses operands of several dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch

from ...ir.arguments import CONTAINERS, Arg, bodies_in, children_of, with_children
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Get, Node, Op
from ...ir.inference import Propagation
from ...ir.program import Program
from ..regions import is_check

__all__ = ["FLOATS", "Casts", "dtype_in", "said", "short_name"]

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

REINTERPRETS = frozenset({"aten.view.dtype"})
"""Operators to which a dtype says how to read memory, which is no cast."""

ONE_DTYPE = frozenset({
    "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "einsum", "bilinear", "addr",
    "conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "scaled_dot_product_attention", "index_put", "index_put_", "index_copy", "index_copy_", "lstm", "gru",
})  # fmt: skip
"""Operators of aten that refuse operands of several floating dtypes, though most of their fake kernels do not."""

NORMS = frozenset({"layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "batch_norm"})
"""Operators whose parameters may be wider than what they are given, and not narrower."""


class Casts:
    """Finds which casts give the new dtype: those that an operator behind them demands.

    Args:
        program: a flat program whose state and inputs have the new types; values behind them are worked out again.
        old: the dtype that it computed in.
        new: the dtype that state and inputs have now.
        follow: globs of modules or nodes whose casts give the new dtype.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> Casts(program, torch.float32, torch.float64, ()).run() is program
    True
    """

    def __init__(self, program: Program, old: torch.dtype, new: torch.dtype, follow: tuple[str, ...]) -> None:
        self.program = program
        self.old = old
        self.new = new
        self.follow = follow
        self.refusing: dict[tuple[str, str], list[str]] = {}
        """The operators that get both dtypes, with the operands that are of the old one."""
        self.owners: dict[str, list[tuple[str, Node]]] = {}
        """The nodes that run each body of an operator, with the graphs that they stand in."""
        for name, node in program.nodes():
            for body in bodies_in(node.args, node.kwargs):
                self.owners.setdefault(body, []).append((name, node))

    def run(self) -> Program:
        """Return the program with values, casts decided.

        Raises:
            UnsupportedProgram: an operator gets both dtypes, and no cast is before it.
        """
        changed = {(self.program.root, formal.name) for formal in self.program.main.inputs}
        changed |= {(name, node.name) for name, node in self.program.nodes() if type(node.do) is Get or is_check(node)}
        changed |= self._flip({(name, node.name) for name, node in self.program.nodes() if self._follows(node)})
        while True:
            self.program = Propagation(self.program, frozenset(changed), lenient=True).program()
            self.refusing = {
                (name, node.name): wide for name, node in self.program.nodes() if (wide := self._too_wide(name, node))
            }
            if not self.refusing:
                return self.program
            changed = {
                cast for (graph, _), wide in self.refusing.items() for ref in wide if (cast := self._cast_before(graph, ref))
            }
            if not changed:
                raise self._refused()
            self._flip(changed)

    def _follows(self, node: Node) -> bool:
        names = (node.name, *(frame.path for frame in node.stack))
        return self._is_cast(node) and any(fnmatchcase(name, glob) for name in names for glob in self.follow)

    def _flip(self, casts: set[tuple[str, str]]) -> set[tuple[str, str]]:
        for name in {name for name, _ in casts}:
            graph = self.program.graphs[name]
            nodes = [self._flipped(node) if (name, node.name) in casts else node for node in graph.nodes]
            self.program = self.program.with_graphs({name: graph.with_nodes(nodes)})
        return casts

    def _flipped(self, node: Node) -> Node:
        return node.evolve(args=said(node.args, self.old, self.new), kwargs=said(node.kwargs, self.old, self.new))

    def _refused(self) -> UnsupportedProgram:
        (graph, name), wide = next(iter(self.refusing.items()))
        return UnsupportedProgram(
            f"{graph or 'the root'} / {name} gets {self.old} and {self.new}, and would refuse them, as in eager after "
            f"module.to({self.new}): {wide[0]!r} is {self.old}, and no cast is before it; convert what it is "
            "made of (a constant of the forward, for example), or keep the module that uses it"
        )

    def _too_wide(self, name: str, node: Node) -> list[str]:
        short = short_name(node.do.name) if type(node.do) is Op else ""
        if short not in ONE_DTYPE and short not in NORMS:
            return []
        metas = self.program.graphs[name].metas
        given = {ref: dtype_in(metas[ref]) for ref in node.refs()}
        wide = [ref for ref, dtype in given.items() if dtype is self.old] if self.new in given.values() else []
        return wide if short in ONE_DTYPE else [ref for ref in wide if ref == node.refs()[0]]

    def _cast_before(self, graph: str, name: str) -> tuple[str, str] | None:
        # The nearest one on any way to a value, through values of the old dtype; what refuses its own operands is settled first.
        todo, seen = [(graph, name)], {(graph, name)}
        for place, value in todo:
            node = self.program.graphs[place].by_name.get(value)
            if node is not None and self._is_cast(node):
                return place, value
            if (place, value) not in self.refusing:
                found = [each for each in self._made_of(place, node) if each not in seen]
                seen.update(found)
                todo += found
        return None

    def _made_of(self, place: str, node: Node | None) -> list[tuple[str, str]]:
        # The values of the old dtype that a value is made of, through bodies of operators.
        if node is None:
            found = [(outer, ref) for outer, owner in self.owners.get(place, ()) for ref in owner.refs()]
        else:
            found = [(place, ref) for ref in node.refs()]
            for inner in bodies_in(node.args, node.kwargs):
                found += [(inner, ref) for ref in self.program.graphs[inner].output_refs()]
        return [each for each in dict.fromkeys(found) if self._may_be_old(*each)]

    def _may_be_old(self, place: str, name: str) -> bool:
        val = self.program.graphs[place].metas[name].get("val")
        return not isinstance(val, torch.Tensor) or val.dtype is self.old

    def _is_cast(self, node: Node) -> bool:
        if type(node.do) is not Op or node.do.name in REINTERPRETS or is_check(node) or dtype_in(node.meta) is not self.old:
            return False
        return said((node.args, node.kwargs), self.old, self.new) != (node.args, node.kwargs)


def dtype_in(meta: Mapping[str, Any]) -> torch.dtype | None:
    """Return the floating dtype that meta says, or None.

    >>> dtype_in({"val": torch.ones(1)}), dtype_in({"val": torch.ones(1).int()})
    (torch.float32, None)
    """
    val = meta.get("val")
    return val.dtype if isinstance(val, torch.Tensor) and val.dtype in FLOATS else None


def short_name(name: str) -> str:
    """Return the name of an operator of aten without library and overload; "" for others.

    >>> short_name("aten.to.dtype"), short_name("toy.neg")
    ('to', '')
    """
    library, _, rest = name.partition(".")
    return rest.partition(".")[0] if library == "aten" else ""


def said(arg: Arg, old: torch.dtype, new: torch.dtype) -> Arg:
    """Return what is said of the old dtype, said of the new one.

    >>> said((1, torch.float32), torch.float32, torch.float64)
    (1, torch.float64)
    """
    if arg is old:
        return new
    return with_children(arg, [said(part, old, new) for part in children_of(arg)]) if type(arg) in CONTAINERS else arg
