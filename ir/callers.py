"""Which bodies are called with a preserved signature, and where bodies stand: one walk over the calls, from the root.

One idea: a signature belongs to a module call (path and number); after ``deduplicate`` all calls of one body agree, so it
can be asked of the body.  What a signature means for running is in ``lowering/``.
"""

from __future__ import annotations

from .arguments import bodies_in
from .node import Call, Frame
from .paths import join
from .program import CallSignature, Program

__all__ = ["all_places", "places_of_bodies", "signatures_of_bodies"]


def signatures_of_bodies(program: Program) -> dict[str, CallSignature]:
    """Return the preserved signature that a body is first called with, by graph id.

    >>> from purefx.ir import Graph, Program
    >>> signatures_of_bodies(Program.of({"": Graph((), (), ())}))
    {}
    """
    if not len(program.call_signatures):
        return {}
    found: dict[str, CallSignature] = {}
    todo, seen = [(program.root, "")], {(program.root, "")}
    while todo:
        name, path = todo.pop()
        for node in program.graphs[name].nodes:
            if type(node.do) is not Call:
                continue
            below = join(path, node.do.instance.path)
            signature = program.call_signatures.get(Frame(below, node.do.instance.call))
            if signature is not None:
                found.setdefault(node.do.graph, signature)
            if (node.do.graph, below) not in seen:
                seen.add((node.do.graph, below))
                todo.append((node.do.graph, below))
    return found


def places_of_bodies(program: Program) -> dict[str, str]:
    """Return the path of the module that each body first stands in, by graph id; bodies of operators stand where those do.

    >>> from purefx.ir import Graph, Program
    >>> places_of_bodies(Program.of({"": Graph((), (), ())}))
    {'': ''}
    """
    found = {program.root: ""}
    todo = [program.root]
    while todo:
        name = todo.pop()
        graph, path = program.graphs[name], found[name]
        for node in graph.callers:
            do = node.do
            inner = (do.graph,) if type(do) is Call else bodies_in(node.args, node.kwargs)
            for body in inner:
                if body not in found:
                    found[body] = join(path, do.instance.path) if type(do) is Call else path
                    todo.append(body)
    return found


def all_places(program: Program) -> dict[str, tuple[str, ...]]:
    """Return all paths of modules that each body stands in, by graph id; bodies of operators stand where those do.

    >>> from purefx.ir import Graph, Node
    >>> calls = tuple(Node(path, Call(Frame(path), "body")) for path in "ab")
    >>> all_places(Program.of({"": Graph((), calls, ()), "body": Graph((), ())}))["body"]
    ('a', 'b')
    """
    found: dict[str, dict[str, None]] = {program.root: {"": None}}
    todo = [(program.root, "")]
    while todo:
        name, path = todo.pop()
        inner: list[tuple[str, str]] = []
        for node in program.graphs[name].callers:
            do = node.do
            if type(do) is Call:
                inner.append((do.graph, join(path, do.instance.path)))
            else:
                inner += [(body, path) for body in bodies_in(node.args, node.kwargs)]
        for body, place in inner:
            places = found.setdefault(body, {})
            if place not in places and body in program.graphs:
                places[place] = None
                todo.append((body, place))
    return {name: tuple(places) for name, places in found.items()}
