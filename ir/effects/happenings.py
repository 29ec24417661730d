"""What one node does to the world, by name of value: resolved from its operator, or from the bodies that it calls.

One idea: a body is summed up once, in terms of its inputs and of the state that it reads; a call of it does what the
summary says to what it is given.  Nothing here says what that means for order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import evolve

from ..arguments import bodies_in, refs_in
from ..graph import Graph
from ..node import Call, Get, Node
from ..paths import FROM_ROOT, join, nested
from ..program import Program
from .declared import ArgAt, Effects, Unless
from .resolved import NOTHING, Happening
from .summaries import summary

__all__ = ["happenings", "resolver"]


def happenings(program: Program, graph: Graph, *, path: str = "") -> list[Happening]:
    """Return what each node of a graph does to the world.

    Args:
        program: where the bodies that the graph calls are.
        graph: the graph, one of the program or not.
        path: the module whose state the graph's ``Get`` nodes name, from the root.

    >>> from purefx.ir import Get, Graph, Node, Program
    >>> graph = Graph((), (Node("w", Get("weight")),))
    >>> happenings(Program.of({"": graph}), graph)[0].aliases_slots
    ('weight',)
    """
    does = resolver(program, graph, path=path)
    return [does(node) for node in graph.nodes]


def resolver(program: Program, graph: Graph, *, path: str = "") -> Callable[[Node], Happening]:
    """Return what tells of a node of a graph what it does to the world; the arguments are those of ``happenings``.

    >>> from purefx.ir import Graph, Node, Op, Program, Ref
    >>> graph = Graph((), (Node("y", Op("toy.neg"), (Ref("x"),)),))
    >>> resolver(Program.of({"": graph}), graph)(graph.nodes[0]).writes
    ()
    """
    summaries: dict[str, Happening] = {}
    for name in _bodies_first(program, graph):
        body = program.graphs[name]
        summaries[name] = summary(body, [_happening(node, program, summaries) for node in body.nodes])
    return lambda node: _from_root(_happening(node, program, summaries), path)


def _bodies_first(program: Program, graph: Graph) -> list[str]:
    order: dict[str, None] = {}
    todo = [(name, False) for name in dict.fromkeys(graph.callees)]
    while todo:
        name, done = todo.pop()
        if done:
            order.setdefault(name)
        elif name not in order and name in program.graphs:
            todo.append((name, True))
            todo.extend((inner, False) for inner in dict.fromkeys(program.graphs[name].callees) if inner not in order)
    return list(order)


def _happening(node: Node, program: Program, summaries: dict[str, Happening]) -> Happening:
    do = node.do
    if type(do) is Get:
        return Happening(aliases_slots=(do.slot,))
    if type(do) is Call:
        return _through(summaries.get(do.graph, NOTHING), node, do, program)
    effects = do.effects
    if effects.through_bodies:
        return _of_bodies(node, effects, summaries)
    if effects.unknown:
        refs = tuple(dict.fromkeys(node.refs()))
        domains = ((),) if effects.ordered else _domains(node, effects)
        return Happening(
            refs, aliases=refs, random=effects.random, ordered=effects.ordered, domains=domains, scope=_scope(effects)
        )
    return _of_op(node, effects)


def _of_op(node: Node, effects: Effects) -> Happening:
    if not (effects.acts or effects.aliases):
        return NOTHING
    return Happening(
        writes=() if _spared(node, effects.writes_unless) else _named(node, effects.writes),
        aliases=_named(node, effects.aliases),
        random=effects.random and not _spared(node, effects.random_unless),
        ordered=effects.ordered,
        domains=_domains(node, effects) if effects.domain else (),
        completes=_named(node, effects.completes),
        scope=_scope(effects),
    )


def _domains(node: Node, effects: Effects) -> tuple[tuple[str, ...], ...]:
    if not effects.domain:
        return ()
    group = effects.group.find(node.args, node.kwargs) if effects.group is not None else None
    return ((effects.domain, group),) if type(group) is str else ((effects.domain,),)


def _named(node: Node, places: tuple[ArgAt, ...]) -> tuple[str, ...]:
    return tuple([name for at in places for name in refs_in((at.find(node.args, node.kwargs),))]) if places else ()


def _spared(node: Node, flags: tuple[Unless, ...]) -> bool:
    return bool(flags) and any(flag.spares(node.args, node.kwargs) for flag in flags)


def _scope(effects: Effects) -> tuple[int, int]:
    return int(effects.scope < 0), int(effects.scope > 0)


def _of_bodies(node: Node, effects: Effects, summaries: dict[str, Happening]) -> Happening:
    # Which operand is which input of which body differs by operator: what a body does to one input, the node may do
    # to every operand, and what it gives back may be any of them.
    bodies = [summaries.get(name, NOTHING) for name in bodies_in(node.args, node.kwargs)]
    refs = tuple(dict.fromkeys(node.refs()))
    own = ((),) if effects.unknown and effects.ordered else _domains(node, effects)
    # What is said of its own stays true: it may write more, and completes what it is said to.
    written = refs if effects.unknown or any(body.writes for body in bodies) else _named(node, effects.writes)
    return Happening(
        writes=written,
        writes_slots=tuple(slot for body in bodies for slot in body.writes_slots),
        reads_slots=tuple(slot for body in bodies for slot in body.reads_slots),
        aliases=refs,
        aliases_slots=tuple(slot for body in bodies for slot in body.aliases_slots),
        random=effects.random or any(body.random for body in bodies),
        ordered=effects.ordered or any(body.ordered for body in bodies),
        domains=tuple(dict.fromkeys([*own, *(key for body in bodies for key in body.domains)])),
        completes=refs if any(body.completes for body in bodies) else _named(node, effects.completes),
        scope=max((body.scope for body in bodies), default=(0, 0)),
    )


def _through(called: Happening, node: Node, call: Call, program: Program) -> Happening:
    body = program.graphs.get(call.graph)
    formal = {formal.name: arg for formal, arg in zip(body.inputs, node.args, strict=False)} if body is not None else {}

    def given(names: Iterable[str]) -> tuple[str, ...]:
        return tuple([actual for name in names for actual in refs_in((formal.get(name),))])

    seen = _with_slots(called, lambda slot: nested(call.instance.path, slot))  # the caller's names of this module's slots
    return evolve(
        seen,
        writes=given(called.writes),
        aliases=given(called.aliases),
        completes=given(called.completes),
        results=tuple([evolve(shared, values=given(shared.values)) for shared in seen.results]),
    )


def _from_root(happening: Happening, path: str) -> Happening:
    if happening is NOTHING:
        return happening
    slots = (*happening.writes_slots, *happening.reads_slots, *happening.aliases_slots)
    if not slots or not (path or any(slot.startswith(FROM_ROOT) for slot in slots)):
        return happening
    return _with_slots(happening, lambda slot: join(path, slot))


def _with_slots(happening: Happening, place: Callable[[str], str]) -> Happening:
    return evolve(
        happening,
        writes_slots=tuple(map(place, happening.writes_slots)),
        reads_slots=tuple(map(place, happening.reads_slots)),
        aliases_slots=tuple(map(place, happening.aliases_slots)),
        results=tuple([evolve(shared, slots=tuple(map(place, shared.slots))) for shared in happening.results]),
    )
