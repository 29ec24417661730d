"""``join``: a split program becomes one again, the opposite of ``split_by_tags``.

One idea: the parts are calls like others, so they are inlined like others; then their names are stripped, and what was
outlined inside the parts is outlined again.  State that is read twice at one place, as two parts did, is read once.
"""

from __future__ import annotations

from attrs import evolve

from ...ir.arguments import Arg, Ref, replace_refs
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Graph
from ...ir.node import Call, Do, Frame, Get, Node, Stack
from ...ir.parts import original, part_names
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.verify import verify
from ..inline import inline
from ..outline import outline
from ..transformation import transformation
from .inside import with_bodies_of
from .tables import without_parts

__all__ = ["join", "joined_flat", "one_read_each"]

OF_CALLS = frozenset({"stacks", "scopes", "call-labels", "borders"})
"""Rules that a program breaks in which two calls have one number."""


@transformation(
    proven=True,
    forgets={"split", "deduplicated"},
    inverse="split_by_tags",
    laws=["it gives back the program that was split, nodes in an order that is legal", "no name has a part in it afterwards"],
)
def join(program: Program) -> Program:
    """Put the parts of a split program together again.

    Before::

        graph ""           up = call a(x);  down = call b(up)
        graph "a"          w = get up.weight;  up = aten.linear.default(x, w)       in up
        graph "b"          w = get down.weight;  down = aten.linear.default(up, w)  in down

    After::

        w = get up.weight;  up = aten.linear.default(x, w)            in up
        w_1 = get down.weight;  down = aten.linear.default(up, w_1)   in down

    Args:
        program: a program at any stage.

    Returns:
        The program with its original names of state and modules, outlined if the parts were outlined inside, flat
        otherwise; the program itself where it has no parts.

    Raises:
        UnsupportedProgram: state that was one tensor in several parts is another one in some of them now; or calls of a
            module that several parts call were numbered anew, as ``deduplicate`` does, and are not told apart any more.

    >>> import purefx as px
    >>> node = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))})
    >>> px.join(px.split_by_tags(program, ("a",), tag_of={"y": "a"})) == program
    True
    """
    if not part_names(program):
        return program
    flat, outlined = joined_flat(program)
    return with_bodies_of(program, outline(flat) if outlined else flat)


def joined_flat(program: Program) -> tuple[Program, bool]:
    """Return a program without parts, calls and second reads, and whether it was outlined before, parts apart.

    Args:
        program: split or not.
    """
    names = frozenset(part_names(program))
    outlined = any(type(node.do) is Call and node.do.instance.path not in names for _, node in program.nodes())
    flat = inline(program)
    return one_read_each(_with_own_calls(_Stripped(flat, names).program()) if names else flat), outlined


def _with_own_calls(flat: Program) -> Program:
    # Calls that parts share have the numbers that they had before splitting, unless `deduplicate` numbered them anew.
    clash = next((found for found in verify(flat) if found.rule in OF_CALLS), None)
    if clash is not None:
        raise UnsupportedProgram(
            "the parts of this program can not be joined: calls of a module that several of them call were numbered anew since "
            f"the split, and two have one number now ({clash.message}); deduplicate does that, so join first, or take the "
            "program before it from program.trail"
        )
    return flat


def one_read_each(flat: Program) -> Program:
    """Return a flat program in which no slot is read twice in one module call: the first read serves all.

    Args:
        flat: a flat program.

    >>> from purefx.ir import Graph, Ref
    >>> graph = Graph((), (Node("v", Get("w")), Node("v_1", Get("w"))), (Ref("v_1"),))
    >>> one_read_each(Program.of({"": graph})).main.output
    (Ref(name='v'),)
    """
    first: dict[tuple[str, Stack], str] = {}
    gone: dict[str, Arg] = {}
    for node in flat.main.nodes:
        if type(node.do) is Get:
            name = first.setdefault((node.do.slot, node.stack), node.name)
            if name != node.name:
                gone[node.name] = Ref(name)
    if not gone:
        return flat
    nodes = tuple([node.using(gone) for node in flat.main.nodes if node.name not in gone])
    return flat.with_main(Graph(flat.main.inputs, nodes, replace_refs(flat.main.output, gone)))


class _Stripped:
    """Takes the names of parts out of one flat program."""

    def __init__(self, program: Program, names: frozenset[str]) -> None:
        self.source = program
        self.names = names
        self.stacks: dict[Stack, Stack] = {}
        self.frames: dict[Frame, Frame] = {}

    def program(self) -> Program:
        """Return the program with the original names."""
        source = self.source
        return without_parts(source.evolve(graphs=pmap({name: self._body(source.graphs[name]) for name in source.order})))

    def _body(self, graph: Graph) -> Graph:
        nodes = tuple([self._node(node) for node in graph.nodes])
        same = all(new is old for new, old in zip(nodes, graph.nodes, strict=True))
        return graph if same else evolve(graph, nodes=nodes)

    def _node(self, node: Node) -> Node:
        stack = self.stacks.get(node.stack)
        if stack is None:
            frames = node.stack
            if frames and frames[0].path in self.names:
                frames = frames[1:]
            stripped = tuple([self._frame(frame) for frame in frames])
            self.stacks[node.stack] = stack = node.stack if stripped == node.stack else stripped
        do = self._do(node.do)
        return node if stack is node.stack and do is node.do else Node(node.name, do, node.args, node.kwargs, stack, node.meta)

    def _frame(self, frame: Frame) -> Frame:
        known = self.frames.get(frame)
        if known is None:
            path = original(frame.path, self.names)
            known = self.frames[frame] = frame if path == frame.path else evolve(frame, path=path)
        return known

    def _do(self, do: Do) -> Do:
        if type(do) is Get:
            slot = original(do.slot, self.names)
            return do if slot == do.slot else Get(slot)
        return do
