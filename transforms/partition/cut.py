"""Cut a flat program into parts; and ``join``, the inverse.

Nodes in module calls inside a part become calls of bodies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from attrs import Factory, define, evolve

from ...ir.arguments import Arg, Ref
from ...ir.calls.parts import PART, is_part, original, part_names, parts
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Call, Frame, Get, Graph, Input, Node, Stack
from ...ir.names import Names, parent_of
from ...ir.names import join as joined
from ...ir.origins import input_meta
from ...ir.persistent import closure, pmap
from ...ir.program import Module, Program
from ...ir.rewriter import Relocation, Rewriter
from ...ir.state import Slot, State
from ...ir.verify import verify
from ..dispatch import call_nodes
from ..inline import inline
from ..outline import outline
from ..transformation import transformation
from .placement import READ, Placing

PartSets = dict[str, dict[int, None]]
"""The parts of a module or a slot."""


def below_parts(
    flat: Program, split: Program, names: tuple[str, ...], bodies: tuple[str, ...]
) -> Program:
    """Return a split program whose state, modules and call signatures are below the parts.

    Args:
        flat: the program before the split, with the original state, modules and call signatures.
        split: the program with bodies for parts.
        names: the names of the parts.
        bodies: the id of the body of each part.
    """
    parts_of = _PartsOf(flat, [split.graphs[body] for body in bodies])
    slots: dict[str, Slot] = {}
    for name in flat.state.order:
        for part in sorted(parts_of.slots[name]):
            slots[f"{names[part]}.{name}"] = flat.state[name]
    modules = [
        *[module for module in flat.modules if not module.path],
        *[Module(name, PART) for name in names],
    ]
    for module in flat.modules:
        found = sorted(parts_of.modules.get(module.path, ()))
        modules += [
            Module(f"{names[part]}.{module.path}", module.type_name, module.cell) for part in found
        ]
    signatures = {
        Frame(f"{names[part]}.{frame.path}", frame.call): flat.call_signatures[frame]
        for frame in flat.call_signatures
        for part in sorted(parts_of.calls.get(frame, parts_of.modules.get(frame.path, {0: None})))
    }
    return split.evolve(
        state=State.of(slots),
        modules=tuple(modules),
        call_signatures=pmap(signatures),
        signature=flat.signature.with_slots(
            lambda slot: f"{names[min(parts_of.slots[slot])]}.{slot}"
        ),
    )


class _PartsOf:
    """Finds the parts of modules, module calls and slots; the dicts are ordered sets."""

    def __init__(self, flat: Program, bodies: list[Graph]) -> None:
        self.flat = flat
        self.modules: PartSets = defaultdict(dict)
        self.calls: dict[Frame, dict[int, None]] = defaultdict(dict)
        self.slots: PartSets = {name: {} for name in flat.state.order}
        for part, graph in enumerate(bodies):
            self._record(part, graph)
        self._place_unread()
        for module in flat.modules:
            if module.path and module.path not in self.modules:
                self._reach(module.path, self._around(module.path))

    def _record(self, part: int, graph: Graph) -> None:
        stacks = {id(node.stack): node.stack for node in graph.nodes}.values()
        for frame in {id(frame): frame for stack in stacks for frame in stack}.values():
            self._reach(frame.path, part)
            if self.flat.call_signatures:
                self.calls[frame][part] = None
        read = [do.slot for do in graph.distinct if type(do) is Get]
        for slot in read + [
            slot for node in graph.callers for slot in sorted(read_below(self.flat, node))
        ]:
            self.slots[slot][part] = None
            self._reach(parent_of(slot), part)

    def _reach(self, path: str, part: int) -> None:
        while path and part not in (known := self.modules[path]):
            known[part] = None
            path = parent_of(path)

    def _place_unread(self) -> None:
        # Another name of a tensor that a part reads belongs to that part; other unread state belongs to the part of its module.
        state = self.flat.state
        for name, slot in state.pairs:
            if not self.slots[name]:
                path = parent_of(name)
                readers = [part for other in state.by_cell[slot.cell] for part in self.slots[other]]
                part = min(readers) if readers else self._around(path)
                self.slots[name][part] = None
                self._reach(path, part)

    def _around(self, path: str) -> int:
        # The first part of a module, or of the nearest enclosing module that has one.
        while path and path not in self.modules:
            path = parent_of(path)
        return min(self.modules.get(path, {0: None}))


def read_below(flat: Program, node: Node) -> frozenset[str]:
    """Return the state that the bodies of an operator read, directly or through others.

    Args:
        flat: a flat program.
        node: a node of its root.

    >>> from purefx.ir import Graph, Op
    >>> read_below(Program.of({"": Graph((), ())}), Node("y", Op("toy.rand")))
    frozenset()
    """
    found: set[str] = set()
    for name in closure(node.bodies, lambda name: flat.graphs[name].callees):
        found.update([joined("", slot) for slot in flat.graphs[name].reads.values()])
    return frozenset(found)


def without_parts(program: Program) -> Program:
    """Return a program with the original names of state, modules and call signatures.

    Args:
        program: a split program; its graphs are not changed.

    Raises:
        UnsupportedProgram: state that was one tensor is another tensor in some part now.
    """
    names = part_names(program)
    slots: dict[str, Slot] = {}
    for name, slot in program.state.pairs:
        if slots.setdefault(original(name, names), slot) != slot:
            raise UnsupportedProgram(
                f"{original(name, names)!r} was one tensor in several parts, and {name!r} is another one now, so the parts "
                "cannot be joined; replace it in all of them, or in none"
            )
    modules: dict[str, Module] = {}
    for module in program.modules:
        if not is_part(module):
            path = original(module.path, names) if module.path else ""
            modules.setdefault(path, evolve(module, path=path))
    signatures = {
        evolve(frame, path=original(frame.path, names)): program.call_signatures[frame]
        for frame in program.call_signatures
    }
    return program.evolve(
        state=State.of(slots),
        modules=tuple(modules.values()),
        call_signatures=pmap(signatures),
        signature=program.signature.with_slots(lambda slot: original(slot, names)),
    )


def outlined_inside(program: Program) -> Program:
    """Return a split program with its parts outlined.

    Args:
        program: a split program with flat parts.
    """
    made = outline(inline(program))
    graphs = {name: made.graphs[name] for name in made.order}
    chunks = _chunks(made.main)
    rank = {name: number for number, name in enumerate(made.main.input_names)}
    ids, names = Names(made.graphs), Names([*rank, *(node.name for node in made.main.nodes)])
    nodes: list[Node] = []
    for part in parts(program):
        chunk = chunks.get(part.name)
        if chunk is None:  # the part had no nodes
            graph = ids.fresh(part.graph)
            graphs[graph] = program.graphs[part.graph]
            chunk = [
                evolve(
                    part.node, name=names.fresh(part.node.name), do=Call(Frame(part.name), graph)
                )
            ]
        else:
            chunk[0] = _in_order(chunk[0], graphs, rank)
        for node in chunk:
            rank[node.name] = len(rank)
        nodes += chunk
    graphs[made.root] = made.main.with_nodes(nodes)
    return made.evolve(graphs=pmap(graphs))


def with_bodies_of(before: Program, after: Program) -> Program:
    """Return a program in which unchanged bodies are the objects of an earlier program.

    Args:
        before: the earlier program.
        after: the program.

    >>> from purefx.ir import Graph
    >>> old, new = (Program.of({"": Graph((), ())}) for _ in range(2))
    >>> with_bodies_of(old, new).main is old.main
    True
    """
    return after.with_graphs(
        {
            name: before.graphs[name]
            for name in after.order
            if before.graphs.get(name) == after.graphs[name]
        }
    )


def _chunks(graph: Graph) -> dict[str, list[Node]]:
    # The call of each part, with the projections of its results.
    chunks: dict[str, list[Node]] = {}
    chunk: list[Node] = []
    for node in graph.nodes:
        if type(node.do) is Call:
            chunk = chunks[node.do.instance.path] = []
        chunk.append(node)
    return chunks


def _in_order(node: Node, graphs: dict[str, Graph], rank: dict[str, int]) -> Node:
    # Inputs in the order of the root: outlining orders them by first use, so that equal layers are equal bodies.
    assert type(node.do) is Call
    body = graphs[node.do.graph]
    order = sorted(range(len(node.args)), key=lambda index: rank[node.args[index].name])
    if order == list(range(len(order))):
        return node
    graphs[node.do.graph] = body.with_nodes(
        body.nodes, inputs=tuple([body.inputs[index] for index in order])
    )
    return node.evolve(args=tuple([node.args[index] for index in order]))


@define
class _Body:
    nodes: list[Node] = Factory(list)
    inputs: dict[str, None] = Factory(dict)
    outputs: dict[str, None] = Factory(dict)


def cut(program: Program, placing: Placing, *, reserved: Iterable[str] = ()) -> Program:
    """Return the program with a body for each part; state, modules and signature keep the original names.

    Args:
        program: a flat program.
        placing: the part of each node; no node is in an earlier part than its dependencies.
        reserved: names that no new value may get.
    """
    graph, users = program.main, program.main.users
    part_of = dict(zip([node.name for node in graph.nodes], placing.of, strict=True))
    # A read keeps its name in the first part that uses it, which also returns it for the root.
    first = {
        name: min([part_of[user] for user in users[name]])
        for name, part in part_of.items()
        if part == READ
    }
    part_of.update(first)
    bodies = [_Body() for _ in placing.names]
    for node, part in zip(graph.nodes, part_of.values(), strict=True):
        bodies[part].nodes.append(node)
    # The part that computes each value, -1 for the inputs of the root; parts in order, so that the order of nodes does not count.
    home = dict.fromkeys(graph.input_names, -1)
    home.update((node.name, part) for part, body in enumerate(bodies) for node in body.nodes)
    names, metas = Names([*reserved, *home]), graph.metas
    _record_crossings(graph, bodies, home, first)
    again = {user for name, part in first.items() for user in users[name] if home[user] != part}
    rank = {name: number for number, name in enumerate(home)}
    ids = Names(program.graphs)
    graphs = {name: program.graphs[name] for name in program.order[1:]}
    # Reads choose their names before calls do.
    made = [
        _with_reads(graph, body.nodes, part, first, again, names)
        for part, body in enumerate(bodies)
    ]
    nodes: list[Node] = []
    for tag, body, inside in zip(placing.names, bodies, made, strict=True):
        inputs = sorted(body.inputs, key=rank.__getitem__)
        outputs = sorted(body.outputs, key=rank.__getitem__)
        formals = tuple([Input(name, input_meta(metas[name])) for name in inputs])
        refs = tuple([Ref(name) for name in outputs])
        name = ids.fresh(tag)
        graphs[name] = Graph(formals, tuple(inside), refs[0] if len(refs) == 1 else refs)
        nodes += call_nodes(Call(Frame(tag), name), inputs, outputs, names, metas)
    return program.evolve(
        graphs=pmap({program.root: Graph(graph.inputs, tuple(nodes), graph.output), **graphs})
    )


def _record_crossings(
    graph: Graph, bodies: list[_Body], home: dict[str, int], first: dict[str, int]
) -> None:
    # The values that cross boundaries: reads do not.
    for name, uses in graph.users.items():
        for user in uses if name not in first else ():
            if home[user] != home[name]:
                bodies[home[user]].inputs[name] = None
                if home[name] >= 0:
                    bodies[home[name]].outputs[name] = None
    for name in graph.output_refs():
        if home[name] >= 0:
            bodies[home[name]].outputs[name] = None


def _with_reads(
    graph: Graph, nodes: list[Node], part: int, first: dict[str, int], again: set[str], names: Names
) -> list[Node]:
    # The nodes of a part, with its own reads of state that an earlier part reads, too.
    found, reads = list[Node](), dict[str, Arg]()
    for node in nodes:
        if node.name in again:
            for name in node.refs():
                if first.get(name, part) != part and name not in reads:
                    read = graph.by_name[name].evolve(name=names.fresh(name))
                    reads[name] = Ref(read.name)
                    found.append(read)
            node = node.using(reads)
        found.append(node)
    return found


OF_CALLS = frozenset({"stacks", "scopes", "call-labels", "boundaries"})
"""The invariants that a program with two calls of one number violates."""


@transformation(
    proven=True,
    forgets={"split", "deduplicated"},
    inverse="split_by_tags",
    laws=[
        "it restores the program before the split, with its nodes in a legal order",
        "no name contains a part",
    ],
)
def join(program: Program) -> Program:
    """Join the parts of a split program.

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
        The program with its original names of state and modules: outlined if the parts were outlined, flat otherwise; the
        program itself if it has no parts.

    Raises:
        UnsupportedProgram: state that was one tensor in several parts is another tensor in some of them now; or calls of a module
            that several parts call were renumbered, as by ``deduplicate``, and can no longer be distinguished.

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
    """Return a program without parts, calls and repeated reads, and whether it was outlined, apart from the parts.

    Args:
        program: split or not.
    """
    names = part_names(program)
    flat = inline(program)
    if names:
        flat = without_parts(without_part_names(flat, names))
        _check_calls(flat)
    return one_read_each(flat), is_outlined(program)


def is_outlined(program: Program) -> bool:
    """Return whether the program calls modules other than the parts."""
    names = part_names(program)
    callers = [node for name in program.order for node in program.graphs[name].callers]
    return any(type(node.do) is Call and node.do.instance.path not in names for node in callers)


def without_part_names(flat: Program, names: frozenset[str]) -> Program:
    """Return a flat program without parts in its stacks and paths; state, modules and call signatures are not changed.

    Args:
        flat: a split program after ``inline``.
        names: the names of its parts.
    """
    stripped = _Stripped(lambda path: original(path, names))
    return flat.with_graphs({name: stripped.graph(flat.graphs[name]) for name in flat.order})


def _check_calls(flat: Program) -> None:
    # Calls that parts share have their numbers from before the split, unless `deduplicate` renumbered them.
    clash = next((found for found in verify(flat) if found.rule in OF_CALLS), None)
    if clash is not None:
        raise UnsupportedProgram(
            "the parts of this program cannot be joined: calls of a module that several of them call were renumbered since the "
            f"split, and two have the same number now ({clash.message}); deduplicate does that, so join first, or use an earlier "
            "program from program.trail"
        )


def one_read_each(flat: Program) -> Program:
    """Return a flat program in which each module call reads a slot at most once.

    Args:
        flat: a flat program.

    >>> from purefx.ir import Graph, Ref
    >>> graph = Graph((), (Node("v", Get("w")), Node("v_1", Get("w"))), (Ref("v_1"),))
    >>> one_read_each(Program.of({"": graph})).main.output
    (Ref(name='v'),)
    """
    gone: dict[str, Arg] = {}
    first: dict[tuple[str, Stack], str] = {}
    for name, slot in flat.main.reads.items():
        other = first.setdefault((slot, flat.main.by_name[name].stack), name)
        if other != name:
            gone[name] = Ref(other)
    if not gone:
        return flat
    edit = Rewriter(flat.main)
    edit.erase(*gone)
    for name, read in gone.items():
        edit.replace(name, read)
    return flat.with_graphs({flat.root: edit.graph()})


@define(eq=False)
class _Stripped(Relocation):
    """Removes the names of parts from a flat program."""

    def frames(self, stack: Stack) -> Stack:
        """Return the calls around a node without the call of its part."""
        return super().frames(stack if self.way(stack[0].path) else stack[1:])
