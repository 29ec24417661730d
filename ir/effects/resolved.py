"""Effects of nodes and bodies, resolved to values and slots.

A call or a region has the effects in the summary of its body, on its own operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import dropwhile
from typing import Any

from attrs import evolve

from ..arguments import Body, refs_in
from ..graph import Call, Get, Graph, Node, Op
from ..names import FROM_ROOT, join, nested
from ..program import Program
from ..signature import StateInput, StateMutation
from .declared import NOTHING, ArgAt, Effects, NodeEffects, Shared, Unless, joined


class UnionFind:
    """A union-find over any keys; a new key is alone in its set.

    >>> unions = UnionFind()
    >>> unions.join("a", "b")
    >>> unions.find("a") == unions.find("b"), unions.find("c")
    (True, 'c')
    """

    def __init__(self) -> None:
        self._parent: dict[object, object] = {}

    def find(self, key: object) -> object:
        """Return the representative of the set that a key is in."""
        parent = self._parent
        while key in parent:  # each step halves the path
            above = parent[key]
            parent[key] = key = parent.get(above, above)
        return key

    def join(self, left: object, right: object) -> None:
        """Merge the sets of two keys."""
        a, b = self.find(left), self.find(right)
        if a != b:
            self._parent[a] = b


def join_aliases(
    found: UnionFind,
    graph: Graph,
    effects: Sequence[NodeEffects],
    slot_key: Callable[[str], object],
    *,
    sent: bool = True,
) -> None:
    """Join the values of a graph that may share memory with each other and with state.

    Args:
        found: the sets so far; values are keyed by name.
        graph: the graph.
        effects: the effects of its nodes.
        slot_key: the key of a slot that a node names.
        sent: whether a result in flight counts as an alias of the sent memory (``in_use``).
    """
    apart = unpacked_calls(graph, effects)
    for node, node_effect in zip(graph.nodes, effects, strict=True):
        if node.name in apart:
            for number, shared in enumerate(node_effect.results):
                found.join((node.name, number), (node.name, shared.first))
                for other in (*shared.values, *map(slot_key, shared.slots)):
                    found.join((node.name, number), other)
        elif apart and (item := item_of(node)) is not None and item[0] in apart:
            found.join(node.name, item)
        elif node_effect.aliases or node_effect.aliases_slots:
            shared = [name for name in node_effect.aliases if sent or name not in node_effect.sends]
            for other in (*shared, *map(slot_key, node_effect.aliases_slots)):
                found.join(node.name, other)


def unpacked_calls(graph: Graph, effects: Sequence[NodeEffects]) -> set[str]:
    """Return the names of the calls with several results whose users all select one."""
    apart = {
        node.name
        for node, node_effect in zip(graph.nodes, effects, strict=True)
        if node_effect.results
    }
    if apart:
        apart.difference_update(graph.output_refs())
        for node in graph.nodes:
            if item_of(node) is None:
                apart.difference_update(node.refs())
    return apart


def item_of(node: Node) -> tuple[str, int] | None:
    """Return the node and the result number that a node selects; None for any other node.

    >>> from purefx.ir import Op, Ref
    >>> item_of(Node("y", Op("operator.getitem"), (Ref("x"), 1)))
    ('x', 1)
    """
    item = node.projection
    return item if item is not None and item[1] >= 0 else None


def storages(
    program: Program, graph: Graph, effects: list[NodeEffects], *, sent: bool = True
) -> UnionFind:
    """Return the sets of values of a graph that may share memory.

    Args:
        program: its state has the storages, its signature the state inputs.
        graph: the graph.
        effects: its ``node_effects``.
        sent: see ``join_aliases``.
    """
    found = UnionFind()
    if graph is program.main:
        for formal, spec in zip(graph.inputs, program.signature.inputs, strict=False):
            if type(spec) is StateInput:
                found.join(formal.name, slot_storage(program, spec.slot))
    for module, other in program.state.entangled:
        found.join(("storage", module), ("storage", other))
    join_aliases(found, graph, effects, lambda slot: slot_storage(program, slot), sent=sent)
    return found


def views_of(program: Program, effects: Sequence[NodeEffects]) -> dict[str, set[object]]:
    """Return the possible bases of each value of the root: inputs, storages of state, and values that are not views.

    If a value may be a view of either of two inputs, ``storages`` joins them; here they stay separate.

    Args:
        program: its signature has the state inputs.
        effects: the ``node_effects`` of the root.

    >>> views_of(Program.of({"": Graph((), (), ())}), [])
    {}
    """
    known: dict[str, set[object]] = {
        formal.name: slot_views(program, spec.slot) if type(spec) is StateInput else {formal.name}
        for formal, spec in program.inputs
    }
    return _bases(program.main, effects, known, lambda slot: slot_views(program, slot))


def _bases(
    graph: Graph,
    effects: Sequence[NodeEffects],
    known: dict[str, set[object]],
    of_slot: Callable[[str], set[object]],
) -> dict[str, set[object]]:
    # The possible bases of each value: the bases of inputs and slots are known; the result of any operator but a view is new.
    results = {
        node.name: effect.results
        for node, effect in zip(graph.nodes, effects, strict=True)
        if effect.results
    }
    for node, effect in zip(graph.nodes, effects, strict=True):
        values, slots, own = effect.aliases, effect.aliases_slots, object()
        item = item_of(node)
        if item is not None and item[0] in results:
            shared = results[item[0]][item[1]]
            values, slots, own = shared.values, shared.slots, ("result", item[0], shared.first)
        known[node.name] = set[object]().union(
            *[known.get(name, ()) for name in values], *map(of_slot, slots)
        ) or {own}
    return known


def slot_views(program: Program, slot: str) -> set[object]:
    """Return the storage of a slot, and the storages entangled with it through modules.

    >>> import torch
    >>> from purefx.ir import Slot, SlotKind, State
    >>> linear = torch.nn.Linear(2, 2)
    >>> values = {"lin": (SlotKind.MODULE, linear), "w": (SlotKind.PARAMETER, linear.weight)}
    >>> slots = {name: Slot(kind, value, at, at) for at, (name, (kind, value)) in enumerate(values.items())}
    >>> sorted(slot_views(Program.of({}, state=State.of(slots)), "w"))
    [('storage', 0), ('storage', 1)]
    """
    _, storage = slot_storage(program, slot)
    pairs = [pair for pair in program.state.entangled if storage in pair]
    return {("storage", one) for one in {storage, *(each for pair in pairs for each in pair)}}


def in_use(
    memory: UnionFind, graph: Graph, effects: Sequence[NodeEffects]
) -> dict[object, set[object]]:
    """Map the memory of each unfinished communication result to the memory that the communication still reads.

    Args:
        memory: the result of ``storages`` with ``sent=False``.
        graph: the graph.
        effects: the effects of its nodes.

    >>> in_use(UnionFind(), Graph((), (), ()), [])
    {}
    """
    found: dict[object, set[object]] = {}
    for node, node_effect in zip(graph.nodes, effects, strict=True):
        if node_effect.sends:
            found.setdefault(memory.find(node.name), set()).update(
                map(memory.find, node_effect.sends)
            )
    return found


def slot_storage(program: Program, slot: str) -> tuple[str, object]:
    """Return the key of the memory of a slot in ``UnionFind``."""
    found = program.state.slots.get(slot)
    return ("storage", found.storage if found is not None else slot)


def summary(graph: Graph, inner: Sequence[NodeEffects]) -> NodeEffects:
    """Return the effect summary of a body.

    Args:
        graph: the body.
        inner: the effects of its nodes.
    """
    bases = _bases(
        graph,
        inner,
        {formal.name: {formal.name} for formal in graph.inputs},
        lambda slot: {("slot", slot)},
    )

    def shared(names: Iterable[str], first: int = 0) -> Shared:
        found: set[Any] = {base for name in names for base in bases.get(name, ())}
        slots = [base[1] for base in found if type(base) is tuple and base[0] == "slot"]
        return Shared(
            tuple(sorted([base for base in found if type(base) is str])),
            tuple(sorted(slots)),
            first,
        )

    whole = joined(inner)
    written, returned = shared(whole.writes), shared(graph.output_refs())
    return evolve(
        whole,
        writes=written.values,
        writes_slots=tuple(dict.fromkeys((*written.slots, *whole.writes_slots))),
        reads_slots=tuple(dict.fromkeys((*whole.reads_slots, *whole.aliases_slots))),
        aliases=returned.values,
        aliases_slots=returned.slots,
        results=tuple([shared(names, first) for names, first in _results(graph, inner)]),
        completes=shared(whole.completes).values,
        sends=(),
    )


def _results(graph: Graph, inner: Sequence[NodeEffects]) -> list[tuple[list[str], int]]:
    # The values in each of several results, and the number of the first result that overlaps with it.
    if type(graph.output) is not tuple:
        return []
    memory = UnionFind()
    join_aliases(memory, graph, inner, lambda slot: ("slot", slot))
    first: dict[object, int] = {}
    found: list[tuple[list[str], int]] = []
    for number, item in enumerate(graph.output):
        names = refs_in((item,))
        for name in names[1:]:
            memory.join(names[0], name)
        found.append((names, first.setdefault(memory.find(names[0]), number) if names else number))
    return found


def node_effects(program: Program, graph: Graph) -> list[NodeEffects]:
    """Return the resolved effects of each node of a graph.

    Args:
        program: the program with the called bodies.
        graph: any graph.

    >>> from purefx.ir import Get, Graph, Node, Program
    >>> graph = Graph((), (Node("w", Get("weight")),))
    >>> node_effects(Program.of({"": graph}), graph)[0].aliases_slots
    ('weight',)
    """
    return list(map(resolver(program, graph), graph.nodes))


def written_slots(program: Program, *, or_returned: bool = False) -> set[str]:
    """Return the names of the state that a call may write.

    Args:
        program: at any stage.
        or_returned: whether state that results may share memory with counts, because the caller may write it.

    >>> from purefx.ir import Get, Graph, Node, Program, Ref
    >>> program = Program.of({"": Graph((), (Node("w", Get("weight")),), (Ref("w"),))})
    >>> written_slots(program), written_slots(program, or_returned=True)
    (set(), {'weight'})
    """
    effects = summary(program.main, node_effects(program, program.main))
    inputs = program.state_inputs
    values = (*effects.writes, *(effects.aliases if or_returned else ()))
    slots = (*effects.writes_slots, *(effects.aliases_slots if or_returned else ()))
    mutated = [spec.slot for spec in program.signature.outputs if type(spec) is StateMutation]
    return {*slots, *[inputs[name] for name in values if name in inputs], *mutated}


def program_effects(program: Program) -> dict[str, list[NodeEffects]]:
    """Return the resolved effects of each node of every graph, by graph id; slots have the names that the graphs use.

    Args:
        program: a program at any stage.

    >>> from purefx.ir import Graph, Program
    >>> program_effects(Program.of({"": Graph((), (), ())}))
    {'': []}
    """
    summaries: dict[str, NodeEffects] = {}
    found: dict[str, list[NodeEffects]] = {}
    for name in program.bottom_up:
        graph = program.graphs[name]
        found[name] = [_effects_of(node, program, summaries) for node in graph.nodes]
        if name != program.root:
            summaries[name] = summary(graph, found[name])
    found[program.root] = [_from_root(effects, "") for effects in found[program.root]]
    return found


def resolver(program: Program, graph: Graph, *, path: str = "") -> Callable[[Node], NodeEffects]:
    """Return a function that resolves the effects of a node of a graph; the arguments are those of ``node_effects``.

    >>> from purefx.ir import Graph, Node, Op, Program, Ref
    >>> graph = Graph((), (Node("y", Op("toy.neg"), (Ref("x"),)),))
    >>> resolver(Program.of({"": graph}), graph)(graph.nodes[0]).writes
    ()
    """
    summaries: dict[str, NodeEffects] = {}
    whole = program if graph is program.main else program.with_main(graph)
    for name in whole.bottom_up[:-1]:
        body = program.graphs[name]
        summaries[name] = summary(
            body, [_effects_of(node, program, summaries) for node in body.nodes]
        )
    return lambda node: _from_root(_effects_of(node, program, summaries), path)


def _effects_of(node: Node, program: Program, summaries: dict[str, NodeEffects]) -> NodeEffects:
    do = node.do
    if type(do) is Get:
        return NodeEffects(aliases_slots=(do.slot,))
    if type(do) is Call:
        return _through(
            summaries.get(do.graph, NOTHING),
            program.graphs.get(do.graph),
            node.args,
            do.instance.path,
        )
    if do.effects.through_bodies:
        return _of_bodies(node, do, program, summaries)
    return _of_op(node, do.effects)


def _of_op(node: Node, effects: Effects) -> NodeEffects:
    if not (effects.acts or effects.aliases):
        return NOTHING
    everything = tuple(dict.fromkeys(node.refs())) if effects.unknown else ()
    group = effects.group.find(node.args, node.kwargs) if effects.group is not None else None
    domain = (effects.domain, group) if type(group) is str else (effects.domain,)
    return NodeEffects(
        writes=everything
        or (() if _spared(node, effects.writes_unless) else _named(node, effects.writes)),
        aliases=everything or _named(node, effects.aliases),
        random=effects.random and not _spared(node, effects.random_unless),
        ordered=effects.ordered,
        domains=((),)
        if effects.unknown and effects.ordered
        else (domain,)
        if effects.domain
        else (),
        completes=_named(node, effects.completes),
        sends=_named(node, effects.sends),
        waits=effects.unknown or bool(effects.completes),
        message=effects.unknown or effects.message,
        scope=(int(effects.scope < 0), int(effects.scope > 0)),
    )


def _named(node: Node, places: tuple[ArgAt, ...]) -> tuple[str, ...]:
    return (
        tuple([name for at in places for name in refs_in((at.find(node.args, node.kwargs),))])
        if places
        else ()
    )


def _spared(node: Node, flags: tuple[Unless, ...]) -> bool:
    return bool(flags) and any(flag.spares(node.args, node.kwargs) for flag in flags)


PASSING = frozenset({
    "higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast", "higher_order.tag_activation_checkpoint",
})  # fmt: skip
"""The region operators that call their body with the arguments after it and return its results, as a call does."""


def _of_bodies(
    node: Node, do: Op, program: Program, summaries: dict[str, NodeEffects]
) -> NodeEffects:
    bodies, refs = node.bodies, tuple(dict.fromkeys(node.refs()))
    if (
        do.name in PASSING
        and do.effects == Effects(through_bodies=True)
        and len(bodies) == 1
        and not refs_in((), node.kwargs)
    ):
        operands = list(dropwhile(lambda arg: type(arg) is not Body, node.args))[1:]
        return _through(
            summaries.get(bodies[0], NOTHING), program.graphs.get(bodies[0]), operands, ""
        )
    # Other operators map operands to inputs of bodies differently: an effect of a body on one input may be one on any
    # operand, and results may alias any of them.  The declared effects of the operator still hold.
    inside = [summaries.get(name, NOTHING).renamed(lambda _: refs, str) for name in bodies]
    scope = max([body.scope for body in inside], default=(0, 0))
    return evolve(joined([_of_op(node, do.effects), *inside]), aliases=refs, scope=scope)


def _through(
    called: NodeEffects, body: Graph | None, operands: Sequence[Any], path: str
) -> NodeEffects:
    formal = (
        {formal.name: arg for formal, arg in zip(body.inputs, operands, strict=False)}
        if body is not None
        else {}
    )
    # The caller's names of the arguments and of this module's slots.
    return called.renamed(
        lambda name: refs_in((formal.get(name),)), lambda slot: nested(path, slot)
    )


def _from_root(node_effect: NodeEffects, path: str) -> NodeEffects:
    slots = (*node_effect.writes_slots, *node_effect.reads_slots, *node_effect.aliases_slots)
    if not slots or not (path or any(slot.startswith(FROM_ROOT) for slot in slots)):
        return node_effect
    return node_effect.renamed(lambda name: (name,), lambda slot: join(path, slot))
