"""``CallNumbers``: the numbers of module calls while bodies are copied or inserted into others.

A shared body has the call numbers of the first call that ran it, also in the stacks of its nodes.  In one graph a module call is
inside one other call, so the second copy of such a body needs other numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir.calls.call_graph import called_at, path_around
from ..ir.calls.parts import original, part_names
from ..ir.graph import Call, Frame, Graph, Stack
from ..ir.names import join
from ..ir.program import Program

Number = tuple[str, int]
"""The path of a module, without the name of its part, and the number of a call."""


class CallNumbers:
    """Assigns call numbers; paths are from the root.

    Args:
        program: any program.
        taken: calls whose numbers no renumbered call may get.

    >>> numbers = CallNumbers(Program.of({"": Graph((), ())}))
    >>> first, second = (numbers.claimed(Frame("c.l"), inside=Frame("c", call)) for call in (0, 1))
    >>> str(first), str(second)
    ('c.l', 'c.l@1')
    """

    def __init__(self, program: Program, taken: Iterable[Frame] = ()) -> None:
        self.parts = part_names(program)
        self.signatures = dict(program.call_signatures)
        self.last: dict[str, int] = {}
        """For modules with preserved signatures: the largest number of a call that has a signature."""
        for frame in self.signatures:
            self.last[frame.path] = max(frame.call, self.last.get(frame.path, 0))
        self.next: dict[tuple[str, bool], int] = {}
        """For the calls of a module: the number below which all are taken."""
        self.taken = {self._number(frame) for frame in taken}
        self.around: dict[Number, Number] = {}
        """The innermost call around each call."""

    def claimed(self, frame: Frame, inside: Frame, *, is_another: bool = False) -> Frame:
        """Return a call with a number that no call inside another call has.

        Args:
            frame: the call, with its number in the body.
            inside: the innermost call around it; the path of the root is empty.
            is_another: whether it is not the same call as an earlier one with this number.
        """
        number, outer = self._number(frame), self._number(inside)
        if number in self.around and (is_another or self.around[number] != outer):
            frame = Frame(frame.path, self._free(frame))
        self.around[self._number(frame)] = outer
        return frame

    def numbered(
        self, graph: Graph, path: str, inside: Frame, *, is_another: bool = False
    ) -> Graph:
        """Return a body whose stacks have call numbers of their own; the same object if all numbers stay.

        Args:
            graph: the body.
            path: the path of its module.
            inside: the call that runs it.
            is_another: whether the body was claimed before, for the same call around it.
        """
        known: dict[Stack, Frame] = {}
        stacks = {id(node.stack): node.stack for node in graph.nodes}
        changed: dict[int, Stack] = {}
        for key, stack in stacks.items():
            outer, frames = inside, list[Frame]()
            for depth, frame in enumerate(stack, start=1):
                call = known.get(stack[:depth])
                if call is None:
                    call = self.claimed(
                        Frame(join(path, frame.path), frame.call), outer, is_another=is_another
                    )
                    known[stack[:depth]] = call
                frames.append(frame if call.call == frame.call else Frame(frame.path, call.call))
                outer = call
            if tuple(frames) != stack:
                changed[key] = tuple(frames)
        if not changed:
            return graph
        return graph.with_nodes(
            [node.evolve(stack=changed.get(id(node.stack), node.stack)) for node in graph.nodes]
        )

    def _number(self, frame: Frame) -> Number:
        path = original(frame.path, self.parts) if self.parts else frame.path
        return path, frame.call

    def _free(self, frame: Frame) -> int:
        # The smallest free number whose preserved signature, or lack of one, is the same.
        path, _ = self._number(frame)
        signature = self.signatures.get(frame)
        call = self.next.get((path, signature is None), 0)
        while (
            (path, call) in self.around
            or (path, call) in self.taken
            or (
                signature != self.signatures.get(Frame(frame.path, call))
                and (signature is None or call <= self.last[frame.path])
            )
        ):
            call += 1
        self.next[path, signature is None] = call + 1
        if signature is not None:
            self.signatures[Frame(frame.path, call)] = signature
        return call


def stacked_calls(program: Program, graph: str | None = None) -> Iterator[Frame]:
    """Yield the calls in the stacks of nodes of a body and of all bodies below it, with paths from the module of that body.

    The stack of a node in the body of an operator continues the stack of that operator.

    Args:
        program: any program.
        graph: the body, by default the root.

    >>> from purefx.ir import Node
    >>> node = Node("y", Call(Frame("b"), "b"), stack=(Frame("a", 1),))
    >>> [str(frame) for frame in stacked_calls(Program.of({"": Graph((), (node,))}))]
    ['a@1']
    """
    seen: set[tuple[str, str]] = set()
    todo = [(program.root if graph is None else graph, "")]
    while todo:
        name, path = place = todo.pop()
        if place in seen or name not in program.graphs:
            continue
        seen.add(place)
        for frame in {frame for node in program.graphs[name].nodes for frame in node.stack}:
            yield Frame(join(path, frame.path), frame.call)
        for node in program.graphs[name].callers:
            is_call = type(node.do) is Call
            todo += called_at(node, path if is_call else path_around(node, path))
