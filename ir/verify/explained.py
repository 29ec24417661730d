"""What is malformed in a graph, in words that users read.

The survey doubts a place at one look; here that place is looked at with care, and each mistake of it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..arguments import Body, Ref
from ..graph import Get, Input, Node, Stack
from ..names import FROM_ROOT
from .census import Census
from .findings import INPUTS, Fault, Finding, depth_fault, is_argument, leaves, short
from .types import accepts, type_faults
from .well_formed import meta_faults


def stack_fault(stack: Stack, census: Census) -> str | None:
    """Return why a stack of frames cannot be that of a node, or None.

    Args:
        stack: the module calls around the node.
        census: of its graph.

    >>> from purefx.ir import Frame, Graph
    >>> from purefx.ir.verify.census import Seen
    >>> stack_fault((Frame("a"), Frame("a")), Census("", Graph((), ()), Seen()))
    'its stack enters a twice'
    """
    if len(set(stack)) < len(stack):
        twice = next(frame for frame in stack if stack.count(frame) > 1)
        return f"its stack enters {twice} twice"
    for frame in stack if census.is_root else ():
        if frame.path.startswith(FROM_ROOT):
            return f"its stack has {frame}: in the root every path is counted from the root already"
    return None


def explained(census: Census, doubts: Sequence[int]) -> Iterator[Fault]:
    """Find what is malformed at some places of a graph.

    Args:
        census: of the graph.
        doubts: the positions of nodes, ``INPUTS``, or the number of nodes for the output.

    >>> from purefx.ir import Graph, Op
    >>> from purefx.ir.verify.census import Seen
    >>> node = Node("y", Op("toy.neg"), (Ref("x"),))
    >>> [found.message for _, found in explained(Census("", Graph((), (node,)), Seen()), [0])]
    ["it uses 'x', which its graph does not define"]
    """
    # Malformed nodes count as definitions: their users are not to blame.
    inputs, nodes = census.graph.inputs, census.graph.nodes
    defined: dict[str, int] = {}
    for at, part in enumerate((*inputs, *nodes), -len(inputs)):
        name: Any = getattr(part, "name", None)
        if type(name) is str:
            defined.setdefault(name, at)
    for at in doubts:
        if at == INPUTS:
            for number, formal in enumerate(inputs):
                found = _input_faults(number, formal, defined[formal.name] + len(inputs) if accepts(Input)(formal) else number)
                yield from [(rule, Finding(said, census.name, at, getattr(formal, "name", None))) for rule, said in found]
        elif at < len(nodes):
            yield from [(rule, census.at(at, said)) for rule, said in _node_faults(at, nodes[at], census, defined)]
        else:
            yield from [(rule, census.at(at, said)) for rule, said in _output_faults(census.graph.output, at, defined)]


def _input_faults(number: int, formal: Any, first: int) -> Iterator[tuple[str, str]]:
    wrong = (
        list(type_faults(formal, f"input {number}"))
        if type(formal) is Input
        else [f"input {number} is {short(formal)}, not an Input"]
    )
    if wrong:
        yield from [("well-formed", fault) for fault in wrong]
        return
    yield from [("meta", f"input {formal.name}: {fault}") for fault in meta_faults(formal.meta)]
    if first != number:
        yield "unique-names", f"the name {formal.name!r} is taken already by input {first}"


def _node_faults(at: int, node: Any, census: Census, defined: dict[str, int]) -> Iterator[tuple[str, str]]:
    wrong = list(_type_faults(node))
    if wrong:
        yield from [("well-formed", fault) for fault in wrong]
        return
    first = defined[node.name]
    if first != at:
        taken = f"node {first}" if first >= 0 else f"input {first + len(census.graph.inputs)}"
        yield "unique-names", f"the name {node.name!r} is taken already by {taken}"
    for arg in (*node.args, *(value for _, value in node.kwargs)):
        if (fault := depth_fault(arg)) is not None:
            yield "argument-kinds", f"among its arguments is {short(arg)}: {fault}"
        for leaf in leaves(arg):
            if not is_argument(leaf):
                yield "argument-kinds", f"among its arguments is {short(leaf)}"
            yield from _use_faults(leaf, at, defined)
    yield from [("keywords", fault) for fault in _keyword_faults(node)]
    if (fault := stack_fault(node.stack, census)) is not None:
        yield "stacks", fault
    yield from [("meta", fault) for fault in meta_faults(node.meta)]


def _type_faults(node: Any) -> Iterator[str]:
    if type(node) is not Node:
        yield f"it is {short(node)}, not a Node"
        return
    yield from type_faults(node)
    if type(node.args) is not tuple:
        yield f"args is {short(node.args)}, not a tuple"
    if type(node.kwargs) is not tuple or any(type(pair) is not tuple or len(pair) != 2 for pair in node.kwargs):
        yield f"kwargs is {short(node.kwargs)}, not a tuple of pairs"
    if type(node.do) is Get and any(type(given) is not tuple or given for given in (node.args, node.kwargs)):
        yield "a read takes no arguments"


def _keyword_faults(node: Node) -> Iterator[str]:
    seen: set[str] = set()
    for key, _ in node.kwargs:
        if type(key) is not str:
            yield f"it has the keyword {short(key)}, not a string"
        elif key in seen:
            yield f"it has the keyword {key!r} twice"
        else:
            seen.add(key)


def _use_faults(leaf: Any, at: int, defined: dict[str, int]) -> Iterator[tuple[str, str]]:
    name: Any = leaf.name if type(leaf) is Ref else None
    if type(name) is not str:
        return
    where = defined.get(name)
    if where is None:
        yield "defined-values", f"it uses {name!r}, which its graph does not define"
    elif where == at:
        yield "earlier-values", f"it uses {name!r}, its own result"
    elif where > at:
        yield "earlier-values", f"it uses {name!r}, which is defined {where - at} nodes later"


def _output_faults(output: Any, end: int, defined: dict[str, int]) -> Iterator[tuple[str, str]]:
    if (fault := depth_fault(output)) is not None:
        yield "argument-kinds", f"what the graph returns: {fault}"
    for leaf in leaves(output):
        if type(leaf) is Body or not is_argument(leaf):
            yield "argument-kinds", f"among what the graph returns is {short(leaf)}"
        yield from _use_faults(leaf, end, defined)
