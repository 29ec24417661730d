"""``move_non_tensor_nodes``: sizes, shapes and other numbers are computed in the part that uses them.

One idea: a number that crosses is the end of a small tree of operators over tensors and state; the tree is written in front of
the part that uses the number, on the tensors, and goes where it came from if nobody needs it there any more.  Tensors are
computed where they were, and may cross instead.
"""

from __future__ import annotations

from collections.abc import Collection

from ...ir.arguments import Arg, Ref, refs_in, replace_refs
from ...ir.chain import Chain, chain_of
from ...ir.meta import Meta
from ...ir.names import Names
from ...ir.node import Node
from ...ir.program import Program
from ..fuel import UNLIMITED, Fuel
from ..metas import value_only
from ..transformation import transformation
from .inside import flat_inside, outlined_inside, with_bodies_of
from .movable import ROOT, Movable, Place, Tree
from .open_part import OpenPart
from .rebuilt import rebuilt

__all__ = ["move_non_tensor_nodes"]


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "no number crosses that can be computed where it is used",
        "tensors are computed in the part in which they were",
    ],
)
def move_non_tensor_nodes(
    program: Program, *, keep: Collection[str] = (), recompute: bool = True, fuel: Fuel = UNLIMITED
) -> Program:
    """Compute sizes, shapes and other numbers in the part that uses them, so that tensors cross and numbers do not.

    Before::

        graph ""        a, n = call @stage0(x);  b = call @stage1(a, n)
        graph "stage0"  (x) { n = aten.sym_size.int(x, 0);  a = aten.relu.default(x);  return (a, n) }

    After::

        graph ""        a = call @stage0(x);  b = call @stage1(a, x)
        graph "stage1"  (a, x) { n = aten.sym_size.int(x, 0);  ... }

    A number stays where it is when an operator of its tree has effects, or reads what is written in between. What a user
    passes as a number stays an input. Where one is made in a module call, the parts are outlined again afterwards.

    Args:
        program: a split program, see ``split_by_tags``.
        keep: parts, by path, that give no operator away.
        recompute: also compute numbers again that several parts need, or that their own part needs for tensors. Otherwise
            operators only move: those that one other part alone needs, with all that depends on them.
        fuel: a rewrite is one number that no longer crosses, those of the last part first.

    Returns:
        The program in which the rest crosses; the order of what has effects is the same.

    Raises:
        UnsupportedProgram: the root of the program does something itself, so it is not split.

    >>> import torch, purefx as px
    >>> from purefx.ir.operators import op_of
    >>> size = px.Node("n", op_of(torch.ops.aten.sym_size.int), (px.Ref("x"), 0))
    >>> use = px.Node("y", op_of(torch.ops.aten.mul.Scalar), (px.Ref("x"), px.Ref("n")))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (size, use), (px.Ref("y"),))})
    >>> split = px.split_by_tags(program, ("stage0", "stage1"), tag_of={"n": "stage0", "y": "stage1"})
    >>> moved = px.move_non_tensor_nodes(split)
    >>> [node.name for node in moved.graphs["stage1"].nodes], moved.graphs["stage0"].nodes
    (['n', 'y'], ())
    """
    chain = chain_of(program, asked_by="move_non_tensor_nodes")
    movable = Movable(program, chain, keep=keep, recompute=recompute)
    if not movable.is_inside_a_call():
        return _moved(program, chain, movable, fuel)
    flat = flat_inside(program)
    chain = chain_of(flat, asked_by="move_non_tensor_nodes")
    moved = _moved(flat, chain, Movable(flat, chain, keep=keep, recompute=recompute), fuel)
    return program if moved is flat else with_bodies_of(program, outlined_inside(moved))


def _moved(program: Program, chain: Chain, movable: Movable, fuel: Fuel) -> Program:
    work = _Moving(program, chain, movable, fuel)
    for number in range(len(chain.parts) - 1, -1, -1):
        work.clear(number)
        work.receive(number)
    if not any(part.changed for part in work.parts):
        return program
    return rebuilt(program, chain, work.parts, metas=work.metas, output={})


class _Moving:
    def __init__(self, program: Program, chain: Chain, movable: Movable, fuel: Fuel) -> None:
        main = program.main
        self.program = program
        self.chain = chain
        self.movable = movable
        self.fuel = fuel
        names = Names([*(formal.name for formal in main.inputs), *(node.name for node in main.nodes)])
        self.parts = [OpenPart(part, program.graphs[part.graph], names) for part in chain.parts]
        self.metas: dict[str, Meta] = {value.name: value.meta for value in (*main.inputs, *main.nodes)}
        self.moved: list[set[str]] = [set() for _ in chain.parts]
        """For each part the numbers that others compute now."""
        self.used = {chain.value(name) for name in main.output_refs()}
        """The values of the root that the caller and the parts that are done with use."""

    def receive(self, number: int) -> None:
        """Compute in a part the numbers that it is given, where that can be; later parts are done with."""
        part = self.parts[number]
        known: dict[Place, str] = {}
        """What the part calls values that come from elsewhere."""
        made: list[Node] = []
        instead: dict[str, Arg] = {}
        for formal, actual in list(zip(part.formals, part.actuals, strict=True)):
            tree = self.movable.tree(actual.name, number) if type(actual) is Ref else None
            if tree is None or not self.fuel.burn("compute", repr(formal.name), "in", part.part.path):
                continue
            part.take_no_more(formal)
            goal = tree.nodes[-1][0]
            if goal in known:
                instead[formal.name] = Ref(known[goal])
            self._write(part, tree, formal.name, known, made)
        part.nodes = [*made, *[node.using(instead) for node in part.nodes]]
        part.outputs = [replace_refs(output, instead) for output in part.outputs]
        self.used.update([self.chain.value(actual.name) for actual in part.actuals if type(actual) is Ref])

    def _write(self, part: OpenPart, tree: Tree, wanted: str, known: dict[Place, str], made: list[Node]) -> None:
        goal = tree.nodes[-1][0]
        for place, node in tree.nodes:
            if place in known:
                continue
            args: dict[str, Arg] = {}
            for name in node.refs():
                origin = tree.origins[place[0], name]
                if origin not in known:
                    known[origin] = self._brought(part, origin)
                args[name] = Ref(known[origin])
            known[place] = wanted if place == goal else part.inner.fresh(node.name)
            new = node.using(args)
            made.append(Node(known[place], new.do, new.args, new.kwargs, (), new.meta))  # its module does not run here
            self.moved[place[0]].add(place[1])

    def _brought(self, part: OpenPart, origin: Place) -> str:
        number, name = origin
        if number == ROOT:
            return part.take(name, name, value_only(self.metas[name]))
        meta = self.movable.graphs[number].by_name[name].meta
        value = self.parts[number].give(name, name)
        self.metas.setdefault(value, meta)
        return part.take(value, name, value_only(meta))

    def clear(self, number: int) -> None:
        """Take away what was in a part only for the numbers that others compute now: results, operators and inputs."""
        part, moved = self.parts[number], self.moved[number]
        if not moved:
            return
        pairs = list(zip(part.outputs, part.given, strict=True))
        kept = [(output, name) for output, name in pairs if name in self.used or not _is_one(output, moved)]
        part.outputs, part.given = [output for output, _ in kept], [name for _, name in kept]
        part.nodes, gone = _without(part, moved)
        left = {name for node in part.nodes for name in node.refs()} | set(refs_in(tuple(part.outputs)))
        idle = {name for node in gone for name in node.refs()} - left
        for formal in [formal for formal in part.formals if formal.name in idle]:
            part.take_no_more(formal)
        part.changed = part.changed or len(kept) < len(pairs) or bool(gone)


def _is_one(output: Arg, names: Collection[str]) -> bool:
    return type(output) is Ref and output.name in names


def _without(part: OpenPart, moved: Collection[str]) -> tuple[list[Node], list[Node]]:
    # Backwards: what was moved stays as long as something uses it.
    used = set(refs_in(tuple(part.outputs)))
    kept: list[Node] = []
    gone: list[Node] = []
    for node in reversed(part.nodes):
        if node.name in moved and node.name not in used:
            gone.append(node)
        else:
            used.update(node.refs())
            kept.append(node)
    return kept[::-1], gone
