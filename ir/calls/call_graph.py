"""The call graph: bodies, their instance paths, their callers, and call counts.

One walk from the root serves all queries; a body that is called twice has two instance paths.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from attrs import evolve

from ..graph import Call, Frame, Node
from ..names import join, way_to
from ..program import CallSignature, Program

Instance = tuple[str, str]
"""The id of a graph, and the path of the module that runs it."""

Label = int
"""The number of a call of a module."""


def called_at(node: Node, path: str) -> list[Instance]:
    """Return the bodies that a node calls or passes to an operator, each with its instance path.

    Args:
        node: of a body.
        path: the instance path of that body; bodies of operators have the path of the operator's body.

    >>> called_at(Node("y", Call(Frame("mlp"), "body")), "layers.0")
    [('body', 'layers.0.mlp')]
    """
    do = node.do
    if type(do) is Call:
        return [(do.graph, join(path, do.instance.path))]
    return [(body, path) for body in node.bodies]


def inner_instances(program: Program, place: Instance) -> list[Instance]:
    """Return the bodies that a body calls or passes to operators, each with its instance path, in order, repeats kept.

    >>> from purefx.ir import Graph
    >>> inner_instances(Program.of({"": Graph((), (Node("y", Call(Frame("mlp"), "body")),))}), ("", ""))
    [('body', 'mlp')]
    """
    return [
        inner for node in program.graphs[place[0]].callers for inner in called_at(node, place[1])
    ]


def instances(
    program: Program,
    graph: str | None = None,
    path: str = "",
    *,
    among: Collection[str] | None = None,
) -> Iterator[Instance]:
    """Yield a body and all bodies reachable from it, once per instance path, callers before callees.

    Args:
        program: at any stage; missing graphs are skipped.
        graph: the first body, by default the root.
        path: its instance path.
        among: the module paths that matter, with all paths above them.  Each body that is only instantiated elsewhere is visited
            once, because the number of instances can be exponential in the number of bodies.

    >>> from purefx.ir import Graph
    >>> calls = tuple(Node(path, Call(Frame(path), "body")) for path in "ab")
    >>> list(instances(Program.of({"": Graph((), calls, ()), "body": Graph((), ())})))
    [('', ''), ('body', 'a'), ('body', 'b')]
    """
    seen: set[Instance] = set()
    elsewhere: set[str] = set()
    todo = [(program.root if graph is None else graph, path)]
    while todo:
        place = todo.pop()
        if place in seen or place[0] not in program.graphs:
            continue
        seen.add(place)
        if among is not None and place[1] not in among:
            if place[0] in elsewhere:
                continue
            elsewhere.add(place[0])
        yield place
        todo.extend(reversed(inner_instances(program, place)))


def body_named(program: Program, name: Any) -> tuple[str, str | None] | None:
    """Return the id of a named body, and the path of its module if the name is a path; None if unknown.

    Args:
        program: at any stage.
        name: the id of a body, or the path of a module that runs it; a value that is not a string matches nothing.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (Node("y", Call(Frame("mlp"), "Mlp")),), ()), "Mlp": Graph((), ())})
    >>> body_named(program, "Mlp"), body_named(program, "mlp"), body_named(program, "nowhere")
    (('Mlp', None), ('Mlp', 'mlp'), None)
    """
    if type(name) is not str:
        return None
    if name in program.graphs:
        return name, None
    return next(
        (place for place in instances(program, among={"", *way_to(name)}) if place[1] == name), None
    )


def calls_from(
    program: Program, *, among: Collection[str] | None = None
) -> Iterator[tuple[Instance, Call, str]]:
    """Yield each module call: the caller, the call, and the path of the module from the root.

    Args:
        program: at any stage.
        among: as for ``instances``.

    >>> from purefx.ir import Graph
    >>> calls = tuple(Node(path, Call(Frame(path), "body")) for path in "ab")
    >>> program = Program.of({"": Graph((), calls, ()), "body": Graph((), ())})
    >>> [(caller, call.graph, below) for caller, call, below in calls_from(program)]
    [(('', ''), 'body', 'a'), (('', ''), 'body', 'b')]
    """
    for place in instances(program, among=among):
        for node in program.graphs[place[0]].callers:
            if type(do := node.do) is Call:
                yield place, do, join(place[1], do.instance.path)


def calls_by_label(program: Program) -> dict[str, dict[Label, str]]:
    """Return the bodies that each called module runs, by its path and the call.

    >>> from purefx.ir import Graph
    >>> calls_by_label(Program.of({"": Graph((), (Node("y", Call(Frame("a"), "body")),)), "body": Graph((), ())}))
    {'a': {0: 'body'}}
    """
    found: dict[str, dict[Label, str]] = {}
    for _, call, path in calls_from(program):
        found.setdefault(path, {}).setdefault(call.instance.call, call.graph)
    return found


def bodies_of_calls(program: Program) -> Iterator[tuple[Frame, str]]:
    """Yield every module call, with its path from the root, and the body that it runs: outer modules first, each once.

    The root counts as a call; bodies of operators belong to their owner.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (Node("y", Call(Frame("a", 1), "body")),)), "body": Graph((), ())})
    >>> [(str(frame), body) for frame, body in bodies_of_calls(program)]
    [('', ''), ('a@1', 'body')]
    """
    seen: set[tuple[Frame, str]] = set()
    todo = [(Frame(""), program.root)]
    while todo:
        place = frame, name = todo.pop()
        if place in seen or name not in program.graphs:
            continue
        seen.add(place)
        yield place
        for node in reversed(program.graphs[name].callers):
            called = (
                evolve(node.do.instance, path=join(frame.path, node.do.instance.path))
                if type(node.do) is Call
                else frame
            )
            todo += [(called, body) for body, _ in reversed(called_at(node, frame.path))]


def path_around(node: Node, path: str) -> str:
    """Return the path of the innermost module around a node; stacks in the body of an operator are relative to it.

    Args:
        node: the node.
        path: the path of the body that holds it.

    >>> path_around(Node("y", Call(Frame("b"), "b"), stack=(Frame("a"),)), "m")
    'm.a'
    """
    return join(path, node.stack[-1].path) if node.stack else path


def reaching(program: Program, names: Iterable[str]) -> frozenset[str]:
    """Return some bodies with all that call them or run them in operators, directly or through others.

    Args:
        program: any program.
        names: the ids of the bodies.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (Node("y", Call(Frame("a"), "body")),)), "body": Graph((), ())})
    >>> sorted(reaching(program, ["body"])), sorted(reaching(program, [""]))
    (['', 'body'], [''])
    """
    found = set(names)
    for name in program.bottom_up:
        if not found.isdisjoint(program.graphs[name].callees):
            found.add(name)
    return frozenset(found)


def heights(program: Program) -> dict[str, int]:
    """Return the length of the longest chain of bodies below each body, by graph id.

    >>> from purefx.ir import Graph
    >>> heights(Program.of({"": Graph((), (Node("y", Call(Frame("a"), "body")),)), "body": Graph((), ())}))
    {'body': 0, '': 1}
    """
    found: dict[str, int] = {}
    for name in program.bottom_up:
        found[name] = 1 + max(
            [found[inner] for inner in program.graphs[name].callees if inner in found], default=-1
        )
    return found


def times_called(program: Program) -> dict[str, int]:
    """Return the number of instances of each graph; 0 if the root does not reach it.

    >>> from purefx.ir import Graph
    >>> calls = tuple(Node(path, Call(Frame(path), "body")) for path in "ab")
    >>> times_called(Program.of({"": Graph((), calls, ()), "body": Graph((), ())}))
    {'': 1, 'body': 2}
    """
    counts = {**dict.fromkeys(program.graphs, 0), program.root: 1}
    for name in reversed(program.bottom_up):
        for callee in program.graphs[name].callees:
            counts[callee] = counts.get(callee, 0) + counts[name]
    return counts


def call_counts(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the number of calls of each module in the stacks of nodes.

    >>> from purefx.ir import Op
    >>> call_counts([Node("y", Op("toy.neg"), stack=(Frame("a", 1), Frame("a.b")))])
    {'a': 2, 'a.b': 1}
    """
    counts: dict[str, int] = {}
    for node in nodes:
        for frame in node.stack:
            counts[frame.path] = max(counts.get(frame.path, 0), frame.call + 1)
    return counts


def module_calls(program: Program) -> list[Frame]:
    """Return all module calls with paths from the root: of ``Call`` nodes and in the stacks of nodes.

    Args:
        program: a program at any stage; the parts of a cut call are one call.

    >>> from purefx.ir import Graph, Op
    >>> node = Node("y", Op("toy.rand"), stack=(Frame("a", 1), Frame("a.b")))
    >>> [str(frame) for frame in module_calls(Program.of({"": Graph((), (node,), ())}))]
    ['a@1', 'a.b']
    """
    found: dict[Frame, None] = {}
    for name, path in instances(program):
        for node in program.graphs[name].nodes:
            frames = (*node.stack, node.do.instance) if type(node.do) is Call else node.stack
            found.update(
                dict.fromkeys([Frame(join(path, frame.path), frame.call) for frame in frames])
            )
    return list(found)


def plain_calls(program: Program, paths: Collection[str]) -> dict[Frame, tuple[str, int]]:
    """Return the calls of some modules that have no preserved signature, each with its graph and node.

    Flat calls in the body of an operator are excluded.

    Args:
        program: a program at any stage.
        paths: the modules.

    >>> from purefx.ir import Graph, Op
    >>> node = Node("y", Op("toy.neg"), stack=(Frame("a", 1), Frame("a.b")))
    >>> plain_calls(Program.of({"": Graph((), (node,), ())}), {"a"})
    {Frame(path='a', call=1): ('', 0)}
    """
    found: dict[Frame, tuple[str, int]] = {}
    stacks: set[int] = set()
    for index, node in enumerate(program.main.nodes if paths else ()):
        if id(node.stack) not in stacks:
            stacks.add(id(node.stack))
            for frame in node.stack:
                found.setdefault(Frame(frame.path, frame.call), (program.root, index))
    known = {"", *(above for path in paths for above in way_to(path))}
    for (caller, _), call, path in calls_from(program, among=known) if paths else ():
        if path in paths and (frame := Frame(path, call.instance.call)) not in found:
            found[frame] = (
                caller,
                next(
                    index
                    for index, node in enumerate(program.graphs[caller].nodes)
                    if node.do is call
                ),
            )
    return {
        frame: place
        for frame, place in found.items()
        if frame.path in paths and frame not in program.call_signatures
    }


def signatures_of_bodies(program: Program) -> dict[str, CallSignature]:
    """Return the preserved signature that a body is first called with, by graph id.

    >>> from purefx.ir import Graph, Program
    >>> signatures_of_bodies(Program.of({"": Graph((), (), ())}))
    {}
    """
    if not len(program.call_signatures):
        return {}
    found: dict[str, CallSignature] = {}
    known = {"", *(above for frame in program.call_signatures for above in way_to(frame.path))}
    for _, call, path in calls_from(program, among=known):
        frame = Frame(path, call.instance.call)
        if frame in program.call_signatures:
            found.setdefault(call.graph, program.call_signatures[frame])
    return found


def instance_paths(program: Program) -> dict[str, str]:
    """Return the first instance path of each body, by graph id; bodies of operators have the path of the operator's body.

    >>> from purefx.ir import Graph, Program
    >>> instance_paths(Program.of({"": Graph((), (), ())}))
    {'': ''}
    """
    return dict(instances(program, among=()))


def all_instances(program: Program) -> dict[str, tuple[str, ...]]:
    """Return all instance paths of each body, by graph id; bodies of operators have the path of the operator's body.

    >>> from purefx.ir import Graph
    >>> calls = tuple(Node(path, Call(Frame(path), "body")) for path in "ab")
    >>> all_instances(Program.of({"": Graph((), calls, ()), "body": Graph((), ())}))["body"]
    ('a', 'b')
    """
    found: dict[str, dict[str, None]] = {}
    for name, path in instances(program):
        found.setdefault(name, {})[path] = None
    return {name: tuple(places) for name, places in found.items()}
