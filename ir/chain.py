"""``chain_of``: a split program read as its parts in order, with what each takes from and gives to the root.

One idea: the root of a split program does nothing itself: it calls one body for each part and takes results apart.  Whoever
rewires parts or runs them elsewhere reads that once, here, and never looks at the nodes of the root again.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from .arguments import Arg, Ref
from .errors import UnsupportedProgram
from .node import Call, Node, Op
from .parts import part_names
from .program import Program

__all__ = ["Chain", "Part", "chain_of"]


@frozen
class Part:
    """One part of a split program: the call in the root, and what it gives.

    >>> from purefx.ir import Frame
    >>> Part(Node("y", Call(Frame("stage0"), "stage0"), (Ref("x"),)), "stage0", "stage0", (Ref("n"),), ("y",)).given
    ('y',)
    """

    node: Node
    path: str
    """Where the part is in the module tree: its tag."""
    graph: str
    outputs: tuple[Arg, ...]
    """What its body gives back, in order, as the body names it."""
    given: tuple[str | None, ...]
    """For each of these the name that the root has for it; None where the root does not take it."""


@frozen
class Chain:
    """The parts of a program in the order in which they run.

    >>> Chain((), {}).parts
    ()
    """

    parts: tuple[Part, ...]
    makers: Mapping[str, tuple[int, int]]
    """For each value of the root that a part gives: the number of the part, and of the result."""

    def value(self, name: str) -> str:
        """Return the first name that the root has for a value: one result may have been taken twice."""
        at = self.makers.get(name)
        return name if at is None else self.parts[at[0]].given[at[1]] or name


def chain_of(program: Program, *, asked_by: str) -> Chain:
    """Return the parts of a split program.

    Args:
        program: its root calls the parts, one after the other, and takes their results apart.
        asked_by: who needs it, for the message.

    Raises:
        UnsupportedProgram: the root does something itself, so the program is not split.

    >>> from purefx.ir import Frame, Graph, Input, Module
    >>> from purefx.ir.parts import PART
    >>> body = Graph((Input("a"),), (), Ref("a"))
    >>> main = Graph((Input("x"),), (Node("y", Call(Frame("stage0"), "b"), (Ref("x"),)),), (Ref("y"),))
    >>> program = Program.of({"": main, "b": body}, modules=(Module("stage0", PART),))
    >>> chain_of(program, asked_by="this").makers
    {'y': (0, 0)}
    """
    parts = frozenset(part_names(program))
    numbers: dict[str, int] = {}
    calls: list[Node] = []
    takes: list[tuple[Node, int, int]] = []
    for node in program.main.nodes:
        if type(node.do) is Call and node.do.instance.path in parts:
            numbers[node.name] = len(calls)
            calls.append(node)
            continue
        at = _taken(node, numbers)
        if at is None:
            raise UnsupportedProgram(
                f"{asked_by} takes a split program, whose root only calls its parts, and node {node.name} of the root is "
                "in no part; begin with split_by_tags, split_by_module or split_balanced"
            )
        takes.append((node, *at))
    return _read(program, calls, takes)


def _taken(node: Node, numbers: Mapping[str, int]) -> tuple[int, int] | None:
    if type(node.do) is not Op or node.do.name != "operator.getitem":
        return None
    whole, index = node.args
    if type(whole) is not Ref or whole.name not in numbers or type(index) is not int:
        return None
    return numbers[whole.name], index


def _read(program: Program, calls: list[Node], takes: list[tuple[Node, int, int]]) -> Chain:
    outputs: list[tuple[Arg, ...]] = []
    given: list[list[str | None]] = []
    makers: dict[str, tuple[int, int]] = {}
    for number, node in enumerate(calls):
        assert type(node.do) is Call
        output = program.graphs[node.do.graph].output
        several = type(output) is tuple
        outputs.append(output if several else (output,))
        given.append([None] * len(outputs[-1]))
        if not several:
            given[-1][0] = node.name
            makers[node.name] = (number, 0)
    for node, number, index in takes:
        if given[number][index] is None:
            given[number][index] = node.name
        makers[node.name] = (number, index)
    parts: list[Part] = []
    for node, results, names in zip(calls, outputs, given, strict=True):
        assert type(node.do) is Call
        parts.append(Part(node, node.do.instance.path, node.do.graph, results, tuple(names)))
    return Chain(tuple(parts), makers)
