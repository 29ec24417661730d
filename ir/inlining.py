"""Putting bodies in the place of their calls: the substitution behind ``inline`` and behind running deep nestings.

One idea: a call is its body with the formal inputs replaced by the actual ones; values keep their names where those are
free and get the next number elsewhere, state and stacks get the path of the call.  Which calls are replaced is the caller's
choice.  No recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define, evolve

from .arguments import Arg, Ref, replace_refs
from .graph import Graph
from .names import Names
from .node import Call, Do, Frame, Get, Node, Op, Stack
from .paths import join, nested
from .program import Program

__all__ = ["inlined"]


def inlined(program: Program, graph: Graph, *, into: Callable[[str], bool]) -> Graph:
    """Return a graph with the bodies of some calls in their places.

    Args:
        program: where the bodies are.
        graph: the graph to start from.
        into: says of a graph id whether calls of it are replaced; bodies may nest to any depth.

    >>> from purefx.ir import Call, Frame, Graph, Input, Node, Op, Program, Ref
    >>> body = Graph((Input("a"),), (Node("b", Op("toy.neg"), (Ref("a"),)),), Ref("b"))
    >>> main = Graph((Input("x"),), (Node("y", Call(Frame("m"), "m"), (Ref("x"),)),), (Ref("y"),))
    >>> inlined(Program.of({"": main, "m": body}), main, into=lambda name: True).nodes[0].args
    (Ref(name='x'),)
    """
    work = _Inlining(program, graph, into)
    nodes = work.run()
    return Graph(graph.inputs, tuple(nodes), work.use(graph.output, work.outermost))


@define
class _Level:
    """One body while its nodes are put in place."""

    rest: Iterator[Node]
    known: dict[str, Arg]
    path: str
    """The module that it is the body of, as the graph writes it that it is put into."""
    stack: Stack
    result: str
    output: Arg


class _Inlining:
    def __init__(self, program: Program, graph: Graph, into: Callable[[str], bool]) -> None:
        self.program = program
        self.into = into
        self.join = join if graph is program.main else nested
        self.names = Names(formal.name for formal in graph.inputs)
        self.outermost = _Level(iter(graph.nodes), {}, "", (), "", graph.output)
        self.levels = [self.outermost]

    def run(self) -> list[Node]:
        """Return the nodes in order of execution."""
        made: list[Node] = []
        while self.levels:
            level = self.levels[-1]
            node = next(level.rest, None)
            if node is None:
                self.levels.pop()
                if self.levels:
                    self.levels[-1].known[level.result] = self.use(level.output, level)
            elif type(node.do) is Call and self.into(node.do.graph):
                self.levels.append(self._enter(node, node.do, level))
            elif not self._projected(node, level):
                made.append(self._placed(node, level))
        return made

    def use(self, arg: Arg, level: _Level) -> Arg:
        """Return an argument of a body as it reads outside."""
        return replace_refs(arg, level.known)

    def _enter(self, node: Node, call: Call, level: _Level) -> _Level:
        body = self.program.graphs[call.graph]
        known = {formal.name: self.use(arg, level) for formal, arg in zip(body.inputs, node.args, strict=True)}
        frame = self._below(level.path, call.instance)
        stack = (*level.stack, *[self._below(level.path, part) for part in node.stack], frame)
        return _Level(iter(body.nodes), known, frame.path, stack, node.name, body.output)

    def _projected(self, node: Node, level: _Level) -> bool:
        # The parts of a tuple that a replaced call gave back are values already.
        if type(node.do) is not Op or node.do.name != "operator.getitem" or type(node.args[0]) is not Ref:
            return False
        whole = level.known.get(node.args[0].name)
        if type(whole) is not tuple or type(node.args[1]) is not int:
            return False
        level.known[node.name] = whole[node.args[1]]
        return True

    def _placed(self, node: Node, level: _Level) -> Node:
        name = self.names.renumbered(node.name)
        level.known[node.name] = Ref(name)
        stack = (*level.stack, *[self._below(level.path, frame) for frame in node.stack])
        args, kwargs = self.use(node.args, level), self.use(node.kwargs, level)
        return Node(name, self._do_below(level.path, node.do), args, kwargs, stack, node.meta)

    def _below(self, path: str, frame: Frame) -> Frame:
        return evolve(frame, path=self.join(path, frame.path)) if path else frame

    def _do_below(self, path: str, do: Do) -> Do:
        match do:
            case Get(slot=slot):
                return Get(self.join(path, slot))
            case Call(instance=instance, graph=graph):
                return Call(self._below(path, instance), graph)
            case _:
                return do
