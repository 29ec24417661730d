"""``specialised``: a body that several modules share is given several versions, one for each class of its instances.

Callers get versions where theirs differ, and so on up to the root; whoever calls one version only stays as it is.  Versions are
equal but for what they call: what makes them differ is up to whoever asked for them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ...ir.calls.call_graph import Instance, all_instances, called_at, inner_instances
from ...ir.graph import Graph, Node
from ...ir.names import Names
from ...ir.program import Program

__all__ = ["specialised"]


def specialised(program: Program, graph: str, classes: Mapping[str, Hashable]) -> tuple[Program, Mapping[str, str]]:
    """Return a program in which instances of a body share it only within their class.

    Args:
        program: any valid program.
        graph: the id of the body.
        classes: the class of each instance, by path.

    Returns:
        The program; and for each new id the body that it is a version of.

    >>> from purefx.ir import Call, Frame, Input, Ref
    >>> body = Graph((Input("a"),), (), Ref("a"))
    >>> calls = [Node(name, Call(Frame(name), "f"), (Ref("x"),)) for name in "yzw"]
    >>> program = Program.of({"": Graph((Input("x"),), tuple(calls), Ref("w")), "f": body})
    >>> made, versions = specialised(program, "f", {"y": 0, "z": 1, "w": 0})
    >>> [node.do.graph for node in made.main.nodes], dict(versions)
    (['f', 'z', 'f'], {'z': 'f'})
    """
    work = _Versions(program, graph, classes)
    graphs = {new: work.graph(new) for new in work.instances}
    return program.with_graphs(graphs), {new: old for new, old in work.source.items() if new != old}


class _Versions:
    """Which version of each body stands where."""

    def __init__(self, program: Program, graph: str, classes: Mapping[str, Hashable]) -> None:
        self.program = program
        self.names = Names(program.graphs)
        self.source: dict[str, str] = {}
        """The body that each version is one of."""
        self.instances: dict[str, list[str]] = {}
        """Where each version stands."""
        self.version: dict[Instance, str] = {}
        """The version at each instance of a body that has some."""
        paths = all_instances(program)
        for name in program.bottom_up:
            keys = {path: classes[path] if name == graph else self._calls((name, path)) for path in paths[name]}
            if name == graph or any(keys.values()):
                self._add(name, keys)

    def _calls(self, place: Instance) -> tuple[str, ...]:
        # The versions that a body calls at one instance; its own class.
        return tuple([self.version[each] for each in inner_instances(self.program, place) if each in self.version])

    def _add(self, name: str, keys: Mapping[str, Hashable]) -> None:
        by_class: dict[Hashable, list[str]] = {}
        for path, key in keys.items():
            by_class.setdefault(key, []).append(path)
        for number, paths in enumerate(by_class.values()):
            new = name if number == 0 else self.names.fresh(paths[0] if len(paths) == 1 and paths[0] else name)
            self.source[new], self.instances[new] = name, paths
            self.version.update({(name, path): new for path in paths})

    def graph(self, new: str) -> Graph:
        """Return a version: the body, calling the versions that stand below its first instance."""
        source, path = self.program.graphs[self.source[new]], self.instances[new][0]
        callers = {id(node) for node in source.callers}
        return source.with_nodes([self._retargeted(node, path) if id(node) in callers else node for node in source.nodes])

    def _retargeted(self, node: Node, path: str) -> Node:
        callees = dict(called_at(node, path))
        return node.calling(lambda graph: self.version.get((graph, callees[graph]), graph))
