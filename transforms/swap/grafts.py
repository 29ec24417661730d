"""Grafts: the bodies, modules and state of a program, as they read when it stands in the place of a module.

One idea: bodies name things relative to their module, so only what counts from the root changes.  The root becomes the module's
body, with borders that say what it takes and gives where that module's signature was preserved, so it can be swapped again.
"""

from __future__ import annotations

from attrs import evolve, frozen

from ...ir.arguments import Arg, Body, Ref
from ...ir.borders import GIVES, TAKES
from ...ir.errors import PurefxError, SwapError
from ...ir.graph import Graph, Input
from ...ir.names import Names, word_of
from ...ir.node import Call, Frame, Get, Node, Stack
from ...ir.paths import FROM_ROOT
from ...ir.program import CallSignature, Program
from ...ir.signature import UserInput, UserOutput
from ...ir.verify import check
from ..pipeline import transform

__all__ = ["Graft", "graft", "prepared"]


@frozen
class Graft:
    """A program that stands in the place of a module."""

    path: str
    program: Program
    """With inputs and outputs of the user only, its state read where it is used."""
    graphs: dict[str, Graph]
    """Its bodies, by the ids that they get."""
    root: str
    outputs: tuple[int, ...]
    """The leaves of the result that its body gives back; the others are constants."""

    def call_signatures(self) -> dict[Frame, CallSignature]:
        """Return the preserved call signatures inside of it, by their calls here."""
        inner = self.program.call_signatures
        return {evolve(frame, path=f"{self.path}.{frame.path}"): inner[frame] for frame in inner}


def prepared(path: str, program: Program) -> Program:
    """Return a program whose root takes and gives what the user does, in the form that bodies have.

    Raises:
        SwapError: it is not valid, or has other outputs than a module.
    """
    try:
        check(program)
        specs = (*program.signature.inputs, *program.signature.outputs)
        plain = all(type(spec) in (UserInput, UserOutput) for spec in specs)
        if not plain or any(node.stack for node in program.main.nodes):
            program = transform(program)
    except PurefxError as error:
        raise SwapError(f"module {path!r}: the program that shall stand in for it can not: {error}") from error
    others = [type(spec).__name__ for spec in (*program.signature.inputs, *program.signature.outputs)]
    others = [name for name in others if name not in (UserInput.__name__, UserOutput.__name__)]
    if others:
        raise SwapError(f"module {path!r}: the program has a {others[0]} in its signature, which no module has; give one without")
    return program


def graft(path: str, program: Program, names: Names, order: tuple[int, ...], count: int | None) -> Graft:
    """Return the bodies of a program as they read at a path.

    Args:
        path: the module whose place it takes.
        program: what ``prepared`` gave.
        names: the ids of graphs that are taken.
        order: for each input of the program, the leaf of the call's arguments that it is.
        count: how many leaves the call passes; None where its signature was not preserved, so no borders say which.
    """
    ids = {name: names.fresh(path if name == program.root else f"{path}.{name.lstrip('$')}") for name in program.order}
    work = _Renaming(path, ids)
    graphs = {ids[name]: work.graph(program.graphs[name]) for name in program.order}
    body = graphs[ids[program.root]]
    output = body.output if type(body.output) is tuple else (body.output,)
    given = tuple([number for number, leaf in enumerate(output) if type(leaf) is Ref])
    nodes = body.nodes if count is None else _bordered(path, body, order, count, output)
    left = tuple([output[number] for number in given])
    graphs[ids[program.root]] = Graph(body.inputs, nodes, left[0] if len(left) == 1 else left)
    return Graft(path, program, graphs, ids[program.root], given)


def _bordered(path: str, body: Graph, order: tuple[int, ...], count: int, output: tuple[Arg, ...]) -> tuple[Node, ...]:
    inputs = {leaf: Ref(formal.name) for leaf, formal in zip(order, body.inputs, strict=True)}
    taken = Names([*(formal.name for formal in body.inputs), *(node.name for node in body.nodes)])
    word = word_of(path)
    takes = Node(taken.fresh(f"{word}_takes"), TAKES, tuple([inputs.get(leaf) for leaf in range(count)]))
    gives = Node(taken.fresh(f"{word}_gives"), GIVES, output)
    return (takes, *body.nodes, gives)


class _Renaming:
    """Bodies with other ids, and paths that count from another root."""

    def __init__(self, path: str, ids: dict[str, str]) -> None:
        self.path = path
        self.ids = ids

    def graph(self, graph: Graph) -> Graph:
        inputs = tuple([Input(formal.name, formal.meta) for formal in graph.inputs])
        return Graph(inputs, tuple([self._node(node) for node in graph.nodes]), graph.output)

    def _node(self, node: Node) -> Node:
        do = node.do
        if type(do) is Call:
            do = Call(evolve(do.instance, path=self._below(do.instance.path)), self.ids[do.graph])
        elif type(do) is Get and do.slot.startswith(FROM_ROOT):
            do = Get(self._below(do.slot))
        stack: Stack = node.stack
        if any(frame.path.startswith(FROM_ROOT) for frame in stack):
            stack = tuple([evolve(frame, path=self._below(frame.path)) for frame in stack])
        renamed = node.with_refs(self._arg)
        if do is node.do and stack is node.stack:
            return renamed
        return Node(node.name, do, renamed.args, renamed.kwargs, stack, node.meta)

    def _below(self, path: str) -> str:
        return f"{FROM_ROOT}{self.path}.{path[1:]}" if path.startswith(FROM_ROOT) else path

    def _arg(self, ref: Arg) -> Arg:
        return Body(self.ids[ref.graph]) if type(ref) is Body else ref
