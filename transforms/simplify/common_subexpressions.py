"""``eliminate_common_subexpressions``: what is computed twice from the same values is computed once.

Two nodes are one where they do the same with the same operands, nothing has been written to those in between, and nobody can tell
that their results share memory.  Each graph is walked in the order of its nodes, with a number for each state of each memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...ir.arguments import Ref
from ...ir.calls.parts import part_names
from ...ir.effects.declared import NodeEffects
from ...ir.effects.resolved import program_effects
from ...ir.graph import Call, Frame, Get, Graph, Node, Stack
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ..memory import Memory, computes, state_of_inputs
from ..shared_bodies import placed
from ..transformation import UNLIMITED, Fuel, transformation
from .liveness import with_boundaries

__all__ = ["eliminate_common_subexpressions"]


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "no operator is left that does what an earlier one did, with the same operands and without effects",
        "outputs share memory as they did",
        "no node is added, and none changes what it does",
    ],
)
def eliminate_common_subexpressions(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Compute once what is computed twice from the same values.

    Before::

        a = aten.exp.default(x)
        b = aten.exp.default(x)
        y = aten.add.Tensor(a, b)

    After::

        a = aten.exp.default(x)
        y = aten.add.Tensor(a, a)

    Nodes are one where operator and operands are the same, literals to the last bit, nothing between them writes what they read,
    and they do nothing but compute: what draws, is in order or communicates stays, and so do results that somebody writes.  Two
    results become one tensor, so they stay two where both are handed out: returned, or given back by a body.  Calls of bodies
    without effects are operators in this.  Nodes in a region (autocast, vmap) are compared with those of the same region, nodes
    in calls with a preserved signature with those of the same call, and bodies each by itself.  Reads of state stay; those of one
    tensor are one operand under any name.

    Args:
        program: a program at any stage.
        fuel: a rewrite is one node whose users use an earlier one; bodies before their callers, in order.

    Returns:
        The program without the later ones of equal nodes.

    >>> import purefx as px
    >>> nodes = tuple(px.Node(name, px.Op("toy.neg"), (px.Ref("x"),)) for name in "ab")
    >>> sum_of = px.Node("y", px.Op("toy.add"), (px.Ref("a"), px.Ref("b")))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (*nodes, sum_of), (px.Ref("y"),))})
    >>> px.eliminate_common_subexpressions(program).main.nodes[-1].args
    (Ref(name='a'), Ref(name='a'))
    """
    while True:
        effects, facts = program_effects(program), _Facts(program)
        graphs = {name: _Walk(program, name, effects[name], facts, fuel).run() for name in program.bottom_up}
        # What is one value now may let others be one: their memory is not that of something written any more.
        merged = program.with_graphs(graphs)
        if merged is program:
            return program.pruned()
        program = merged


class _Facts:
    """What all graphs of a program have in common for this."""

    def __init__(self, program: Program) -> None:
        self.placed = placed(program)
        self.preserved = with_boundaries(program)
        self.frames = frozenset(program.call_signatures)
        self.parts = frozenset(part_names(program))


class _Walk:
    """One walk over a graph."""

    def __init__(self, program: Program, name: str, effects: Sequence[NodeEffects], facts: _Facts, fuel: Fuel) -> None:
        self.program = program
        self.name = name
        self.graph = program.graphs[name]
        self.is_root = name == program.root
        self.facts = facts
        self.fuel = fuel
        self.memory = Memory(program, name, effects)
        self.edit = Rewriter(self.graph)
        self.first: dict[object, str] = {}
        """The first node that computes something, by what it computes."""
        self.known: dict[str, Ref] = {}
        """For a node that goes, the one that stays; for a read of state, a name of the tensor."""
        self.versions: Counter[object] = Counter()
        """How often each memory has been written so far."""

    def run(self) -> Graph:
        """Return the graph with each value computed once; the same object if that holds."""
        if self.is_root:
            self.known.update({name: Ref(f"cell {cell}") for name, cell in state_of_inputs(self.program).items()})
        for node in self.graph.nodes:
            does = self.memory.effects[node.name]
            if type(node.do) is Get:
                self.known[node.name] = Ref(f"cell {self._cell(node.do)}")
            elif computes(does) and self._is_free(node):
                self._compare(node, does)
            if does.scope != (0, 0):
                self.first.clear()
            self.versions.update(self.memory.touched(does))
        return self.edit.graph()

    def _cell(self, read: Get) -> object:
        # Which state a body reads under two names, the place of the body decides.
        slot = self.program.state.slots.get(read.slot) if self.is_root else None
        return read.slot if slot is None else slot.cell

    def _is_free(self, node: Node) -> bool:
        do = node.do
        if is_boundary(node) or node.meta.get("unbacked_bindings"):
            return False  # the sizes that such a node makes are in the types of other values
        return type(do) is not Call or not (do.graph in self.facts.preserved or do.instance.path in self.facts.parts)

    def _compare(self, node: Node, does: NodeEffects) -> None:
        key = self._key(node, does)
        first = self.first.setdefault(key, node.name)
        if first == node.name or not self._may_be_one(first, node.name):
            return
        if self.fuel.burn("use", first, "for", node.name, graph=self.name):
            self.edit.drop(node.name, Ref(first))
            self.known[node.name] = Ref(first)
            if node.name in self.memory.given:
                self.memory.given.add(first)

    def _may_be_one(self, first: str, later: str) -> bool:
        memory = self.memory
        return not (memory.is_written(first) or memory.is_written(later) or {first, later} <= memory.given)

    def _key(self, node: Node, does: NodeEffects) -> object:
        do = node.do
        if type(do) is Call:  # where a body stands matters if it reads state; which call it is does not
            do = Call(Frame(do.instance.path if do.graph in self.facts.placed else ""), do.graph)
        refs = node.refs()
        same = Node("", do, node.args, node.kwargs).using(self.known)
        read = [self.memory.find(name) for name in refs]
        read += sorted(self.memory.of_slots((*does.reads_slots, *does.aliases_slots)), key=str)
        return same, tuple([self.versions[memory] for memory in read]), self._calls(node.stack)

    def _calls(self, stack: Stack) -> object:
        frames = self.facts.frames
        if not frames:
            return ()
        return tuple([frame for frame in stack if frame in frames]) if self.is_root else stack
