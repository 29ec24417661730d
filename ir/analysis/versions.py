"""Versions of a program: where what has an origin stood after each step, from the import on.

They come from the programs of the trail, and from a file what was there before it was saved.  What became of what is told from
them elsewhere (``history.py``).  Nothing is kept: a version is worked out when somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TypeVar

from attrs import evolve

from ..arguments import Ref
from ..graph import Call, Get, Graph, Input, Node, Op, Stack
from ..meta import ORIGIN, Meta
from ..origins import INPUT, Imported, Origin, Place, Version, made_of, origin_of
from ..program import Program

T = TypeVar("T", Node, Input)


def tracked(program: Program) -> Program:
    """Return a program in which each operator and each input of the root has an origin; the same object if they have.

    A call, and what takes one of its results, lead to what the body computes.
    Imported programs have theirs; this begins the history of one that was read from text or made by hand.

    Args:
        program: any program.

    >>> from purefx.ir.origins import origin_of
    >>> program = Program.of({"": Graph((), (Node("y", Op("toy.one")),), Ref("y"))})
    >>> str(origin_of(tracked(program).main.nodes[0].meta))
    'y (toy.one)'
    """
    graphs = {name: _tracked(name, program.graphs[name]) for name in program.order}
    main = graphs[program.root]
    inputs = tuple([_begun(one, program.root, INPUT, ()) for one in main.inputs])
    return program.with_graphs({**graphs, program.root: main.with_nodes(main.nodes, inputs=inputs)})


def _tracked(name: str, graph: Graph) -> Graph:
    if all(ORIGIN in node.meta or type(node.do) is not Op for node in graph.nodes):
        return graph
    calls = {node.name for node in graph.nodes if type(node.do) is Call}
    parts = {node.name for node in graph.nodes if node.projection is not None and node.projection[0] in calls}
    return graph.with_nodes(
        [
            _begun(node, name, node.do.name, node.stack) if type(node.do) is Op and node.name not in parts else node
            for node in graph.nodes
        ]
    )


def _begun(item: T, graph: str, op: str, stack: Stack) -> T:
    if ORIGIN in item.meta:
        return item
    origin = Imported(item.name, op, graph, stack, item.meta.get("stack_trace"))
    return evolve(item, meta=MappingProxyType({**item.meta, ORIGIN: origin}))


def op_name(node: Node) -> str:
    """Return what a node does, in a word or two.

    >>> from purefx.ir import Frame
    >>> op_name(Node("y", Op("toy.neg"))), op_name(Node("y", Call(Frame("act"), "act"))), op_name(Node("w", Get("w")))
    ('toy.neg', 'call act', 'get w')
    """
    match node.do:
        case Op(name=name):
            return name
        case Call(instance=frame):
            return f"call {frame}"
        case Get(slot=slot):
            return f"get {slot}"


def version_of(program: Program, step: str = "") -> Version:
    """Return where what has an origin stands in a program.

    Args:
        program: any program.
        step: what gave it.

    >>> program = tracked(Program.of({"": Graph((), (Node("y", Op("toy.one")),), Ref("y"))}))
    >>> [str(place) for places in version_of(program).places.values() for place in places]
    ['y in the root (toy.one)']
    """
    found: dict[Origin, list[Place]] = {}
    for name in program.order:
        for node in program.graphs[name].nodes:
            origin = origin_of(node.meta)
            if origin is not None:
                found.setdefault(origin, []).append(Place(name, node.name, op_name(node)))
    given: dict[Origin, list[Place]] = {}
    for name in program.order:
        for formal in program.graphs[name].inputs:
            origin = origin_of(formal.meta)
            if origin is not None and origin not in found:  # an input of a body is handed on what stands elsewhere
                given.setdefault(origin, []).append(Place(name, formal.name, INPUT))
    return Version(step, {origin: tuple(places) for origin, places in (*found.items(), *given.items())})


def versions(program: Program) -> Sequence[Version]:
    """Return all versions of a program, the first one first, itself last.

    Args:
        program: any program.

    >>> import purefx as px
    >>> node = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("a"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))})
    >>> [version.step for version in versions(px.outline(program))]
    ['', 'outline']
    """
    trail = program.trail
    steps = [program.past[-1].step if program.past else "", *[step.name for step in trail]]
    programs = [*[step.before for step in trail], program]
    return (*program.past[:-1], *[version_of(*pair) for pair in zip(programs, steps, strict=True)])


def origins_at(program: Program, graph: str, name: str) -> tuple[list[Origin], list[tuple[str, str]]]:
    """Return the origins behind a node, and the reads of state that have none: its own, or for a call those of its body.

    Args:
        program: has the node.
        graph: the id of the graph.
        name: of the node.

    Returns:
        The origins, and graph and name of the reads.

    >>> import purefx as px
    >>> node = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("a"),))
    >>> program = tracked(px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))}))
    >>> [str(origin) for origin in origins_at(px.outline(program), "", "y")[0]]
    ['y (toy.neg)']
    """
    found: dict[Origin, None] = {}
    todo = [(graph, name)]
    seen = set(todo)
    while todo:
        graph, name = todo.pop()
        for place in _behind(program, graph, name, found):
            if place not in seen:
                seen.add(place)
                todo.append(place)
    reads = [(graph, name) for graph, name in seen if _reads(program, graph, name)]
    return list(found), sorted(reads)


def made_of_value(program: Program, graph: str, name: str) -> Meta:
    """Return what the meta of a new node says that is made of a value, whatever computes that: a call leads to its body.

    Args:
        program: has the value.
        graph: the id of its graph.
        name: of the value.

    >>> program = tracked(Program.of({"": Graph((), (Node("y", Op("toy.one")),), Ref("y"))}))
    >>> [str(origin) for origin in origin_of(made_of_value(program, "", "y")).of]
    ['y (toy.one)']
    """
    return made_of([{ORIGIN: origin} for origin in origins_at(program, graph, name)[0]])


def _reads(program: Program, graph: str, name: str) -> bool:
    node = program.graphs[graph].by_name.get(name)
    return node is not None and type(node.do) is Get


def _behind(program: Program, graph: str, name: str, found: dict[Origin, None]) -> list[tuple[str, str]]:
    # Notes the origin of a value, and returns the values that it is made of where it has none; of a call it is that of others,
    # which the call stands for as well.
    metas, node = program.graphs[graph].metas, program.graphs[graph].by_name.get(name)
    if name not in metas:
        return []
    origin = origin_of(metas[name])
    if origin is not None:
        found[origin] = None
    whole, index = ("", 0) if node is None else node.projection or ("", 0)
    maker = program.graphs[graph].by_name.get(whole)
    is_called = node is not None and Call in (type(node.do), None if maker is None else type(maker.do))
    if origin is not None and not is_called:
        return []
    if node is None:  # an input of a body is what the callers give
        place = next((number for number, formal in enumerate(program.graphs[graph].inputs) if formal.name == name), 0)
        calls = [(where, caller) for where in program.order for caller in program.graphs[where].callers]
        given = [(where, caller.args[place]) for where, caller in calls
                 if type(caller.do) is Call and caller.do.graph == graph]  # fmt: skip
        return [(where, arg.name) for where, arg in given if type(arg) is Ref]
    if type(node.do) is Call:
        body = program.graphs[node.do.graph]
        return [(node.do.graph, inner) for inner in (*[inner.name for inner in body.nodes], *body.output_refs())]
    if maker is None or type(maker.do) is not Call:
        return [(graph, whole)] if whole else []
    output = program.graphs[maker.do.graph].output
    result = output[index] if type(output) is tuple and index < len(output) else None
    return [(maker.do.graph, result.name)] if type(result) is Ref else [(graph, whole)]
