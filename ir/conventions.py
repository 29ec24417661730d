"""How modules with a preserved call signature are called: which leaf is which input, and what crosses besides.

One idea: a body that begins and ends with borders (``ir/borders.py``) is called with the arguments of the original module;
values that the signature does not name travel beside them.  Everything is worked out once, when a program is lowered;
``lowering/preserved.py`` makes the calls.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from .arguments import Arg, Ref, refs_in
from .borders import GIVES, TAKES, is_border
from .callers import signatures_of_bodies
from .graph import Graph
from .node import Node, Op
from .program import CallSignature, Program

__all__ = ["Convention", "conventions", "without_borders"]


@frozen
class Convention:
    """How one body with a preserved call signature is called."""

    signature: CallSignature
    takes: tuple[Arg, ...]
    """The leaves of the arguments, as inputs of the body or literals."""
    gives: tuple[Arg, ...]
    """The leaves of the result."""
    inputs: tuple[int, ...]
    """For each input of the body, its leaf; or -1: it is handed over beside the arguments."""
    outputs: tuple[int, ...]
    """For each value that the caller uses, its leaf in the result; or -1."""
    single: bool
    """Whether the body gives back one value and not a tuple."""
    unnamed: tuple[str, ...]
    """What the caller uses and the result does not hold."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing travels beside arguments and result."""
        return -1 not in self.inputs and -1 not in self.outputs


def conventions(program: Program) -> dict[str, Convention]:
    """Return how each body with a preserved call signature is called, by graph id.

    >>> from purefx.ir import Graph, Program
    >>> conventions(Program.of({"": Graph((), (), ())}))
    {}
    """
    found = {name: _convention(program.graphs[name], signature) for name, signature in signatures_of_bodies(program).items()}
    return {name: convention for name, convention in found.items() if convention is not None}


def _convention(graph: Graph, signature: CallSignature) -> Convention | None:
    borders = {node.do.name: node for node in graph.nodes if type(node.do) is Op and not node.stack and is_border(node)}
    if len(borders) < 2:
        return None  # a piece of a call that was cut
    takes, gives = borders[TAKES.name].args, borders[GIVES.name].args
    first = _first_places(takes)
    results = _first_places(gives)
    output = graph.output if type(graph.output) is tuple else (graph.output,)
    names = refs_in(output)
    return Convention(
        signature,
        takes,
        gives,
        tuple([first.get(formal.name, -1) for formal in graph.inputs]),
        tuple([results.get(name, -1) for name in names]),
        type(graph.output) is not tuple,
        tuple([name for name in names if name not in results]),
    )


def _first_places(leaves: tuple[Arg, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, leaf in enumerate(leaves):
        if type(leaf) is Ref:
            found.setdefault(leaf.name, number)
    return found


def without_borders(graph: Graph, convention: Convention | None) -> Graph:
    """Return what the code of a body runs: no borders; with a convention, the leaves of the result beside the output.

    >>> from purefx.ir import Input
    >>> graph = Graph((Input("x"),), (Node("t", TAKES, (Ref("x"),)),), Ref("x"))
    >>> without_borders(graph, None).nodes
    ()
    """
    if convention is None and not any(map(is_border, graph.nodes)):
        return graph
    nodes: list[Node] = [node for node in graph.nodes if not is_border(node)]
    output: Any = graph.output if convention is None else (graph.output, convention.gives)
    return Graph(graph.inputs, tuple(nodes), output)
