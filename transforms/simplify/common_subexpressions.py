"""``eliminate_common_subexpressions``: merge nodes that compute equal values.

Two nodes are merged if operator and operands are equal, nothing writes the operands in between, and it is unobservable that their
results alias.  Each graph is visited in the order of its nodes, with a version number for each memory.
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
from .dead_code import bodies_with_boundaries


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "no pure operator repeats an earlier one with the same operands",
        "outputs share memory as they did",
        "no node is added, and the remaining nodes keep their operators",
    ],
)
def eliminate_common_subexpressions(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Merge nodes with equal operators and operands.

    Before::

        a = aten.exp.default(x)
        b = aten.exp.default(x)
        y = aten.add.Tensor(a, b)

    After::

        a = aten.exp.default(x)
        y = aten.add.Tensor(a, a)

    Nodes are merged if operator and operands are equal, literals to the last bit, if no node between them writes memory that they
    read, and if they are pure.  Random, ordered and communicating operators stay, and so do results that are written.  Two
    results that are both returned, from the program or a body, stay distinct tensors.  Calls of bodies without effects are
    merged, too.  Nodes in a region (autocast, vmap) are compared within the region, nodes in calls with a preserved signature
    within the call, and each body by itself.  Reads of state stay; those of one tensor are equal operands under any name.

    Args:
        program: a program at any stage.
        fuel: a rewrite is one node that is merged with an earlier one; bodies before their callers, in order.

    Returns:
        The program without duplicates.

    >>> import purefx as px
    >>> nodes = tuple(px.Node(name, px.Op("toy.neg"), (px.Ref("x"),)) for name in "ab")
    >>> sum_of = px.Node("y", px.Op("toy.add"), (px.Ref("a"), px.Ref("b")))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (*nodes, sum_of), (px.Ref("y"),))})
    >>> px.eliminate_common_subexpressions(program).main.nodes[-1].args
    (Ref(name='a'), Ref(name='a'))
    """
    while True:
        effects, facts = program_effects(program), _Facts(program)
        graphs = {
            name: _Walk(program, name, effects[name], facts, fuel).run()
            for name in program.bottom_up
        }
        # Merged values may allow other merges: their memory is no longer written.
        merged = program.with_graphs(graphs)
        if merged is program:
            return program.pruned()
        program = merged


class _Facts:
    """The facts common to all graphs of a program."""

    def __init__(self, program: Program) -> None:
        self.placed = placed(program)
        self.preserved = bodies_with_boundaries(program)
        self.frames = frozenset(program.call_signatures)
        self.parts = part_names(program)


class _Walk:
    """One walk over a graph."""

    def __init__(
        self, program: Program, name: str, effects: Sequence[NodeEffects], facts: _Facts, fuel: Fuel
    ) -> None:
        self.program = program
        self.name = name
        self.graph = program.graphs[name]
        self.is_root = name == program.root
        self.facts = facts
        self.fuel = fuel
        self.memory = Memory(program, name, effects)
        self.edit = Rewriter(self.graph)
        self.first: dict[object, str] = {}
        """The first node with each operator and operands."""
        self.known: dict[str, Ref] = {}
        """The substitute of each removed node; for a read of state, a name of the tensor."""
        self.versions: Counter[object] = Counter()
        """The number of writes to each memory so far."""

    def run(self) -> Graph:
        """Return the graph without duplicates; the same object if it has none."""
        if self.is_root:
            self.known.update(
                {name: Ref(f"cell {cell}") for name, cell in state_of_inputs(self.program).items()}
            )
        for node in self.graph.nodes:
            effect = self.memory.effects[node.name]
            if type(node.do) is Get:
                self.known[node.name] = Ref(f"cell {self._cell(node.do)}")
            elif computes(effect) and self._is_free(node):
                self._compare(node, effect)
            if effect.scope != (0, 0):
                self.first.clear()
            self.versions.update(self.memory.touched(effect))
        return self.edit.graph()

    def _cell(self, read: Get) -> object:
        # In a body, two names may be one tensor in some calls only.
        slot = self.program.state.slots.get(read.slot) if self.is_root else None
        return read.slot if slot is None else slot.cell

    def _is_free(self, node: Node) -> bool:
        do = node.do
        if is_boundary(node) or node.meta.get("unbacked_bindings"):
            return False  # its sizes are in the types of other values
        return type(do) is not Call or not (
            do.graph in self.facts.preserved or do.instance.path in self.facts.parts
        )

    def _compare(self, node: Node, effect: NodeEffects) -> None:
        first = self.first.setdefault(self._key(node, effect), node.name)
        memory = self.memory
        if (
            first == node.name
            or memory.is_written(first)
            or memory.is_written(node.name)
            or {first, node.name} <= memory.given
        ):
            return
        if self.fuel.burn("use", first, "for", node.name, graph=self.name):
            self.edit.drop(node.name, Ref(first))
            self.known[node.name] = Ref(first)
            if node.name in memory.given:
                memory.given.add(first)

    def _key(self, node: Node, effect: NodeEffects) -> object:
        do = node.do
        if (
            type(do) is Call
        ):  # the path matters if the body reads state; the number of the call does not
            do = Call(Frame(do.instance.path if do.graph in self.facts.placed else ""), do.graph)
        refs = node.refs()
        same = Node("", do, node.args, node.kwargs).using(self.known)
        read = [self.memory.find(name) for name in refs]
        read += sorted(self.memory.of_slots((*effect.reads_slots, *effect.aliases_slots)), key=str)
        return same, tuple([self.versions[memory] for memory in read]), self._calls(node.stack)

    def _calls(self, stack: Stack) -> object:
        frames = self.facts.frames
        if not frames:
            return ()
        return tuple([frame for frame in stack if frame in frames]) if self.is_root else stack
