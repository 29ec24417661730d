"""Rules about calls: the graphs that a program names exist, are reached, nest without circles and get what they take.

One idea: calls were collected by the survey, so each rule is a loop over the calls and none over the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..arguments import Body, Items, Ref
from ..graph import Graph
from ..node import Call, Node, Op
from ..torch_private import HigherOrderOperator, OpOverload, schema_of
from .kinds import is_argument, is_nested, short
from .rule import Finding
from .screen import Census
from .survey import Survey
from .tensors import value_in

__all__ = [
    "check_acyclic", "check_arity", "check_bodies", "check_known_callees", "check_projections", "check_reachable", "check_root",
    "projection_fault",
]  # fmt: skip

LONGEST = 8
"""How many graphs of a circle a message names."""


def check_root(survey: Survey) -> Iterator[Finding]:
    """Find that there is no root graph."""
    if survey.root not in survey.graphs:
        yield Finding(f"the root is {survey.program.root!r}, and program.graphs has no such graph")


def check_known_callees(survey: Survey) -> Iterator[Finding]:
    """Find calls and operator bodies that name no graph."""
    for census in survey.censuses.values():
        for index, callee in census.callees:
            if callee not in survey.graphs:
                text = f"it names the graph {callee!r}, and program.graphs has none"
                yield Finding(text, census.name, index, _name(census, index))


def check_reachable(survey: Survey) -> Iterator[Finding]:
    """Find graphs that nothing reaches from the root."""
    if len(survey.graphs) == len(survey.censuses) or any(_is_partial(survey, suspect) for suspect in survey.suspects):
        return  # what a malformed node would have called is not known
    if any(callee not in survey.graphs for census in survey.censuses.values() for _, callee in census.callees):
        return  # nor is what a missing graph would have called
    if survey.root in survey.graphs:
        for name in sorted(survey.graphs.keys() - survey.censuses.keys()):
            yield Finding("nothing that the root reaches calls this graph", name)


def check_acyclic(survey: Survey) -> Iterator[Finding]:
    """Find calls that lead back to a graph that is being called."""
    closed: set[str] = set()
    for start in survey.censuses:
        if start in closed:
            continue
        trail: list[str] = [start]
        depth: dict[str, int] = {start: 0}
        work = [iter(survey.censuses[start].callees)]
        while work:
            for index, callee in work[-1]:
                if callee in depth:
                    yield _circle(survey, trail, depth[callee], index)
                elif callee not in closed and callee in survey.censuses:
                    depth[callee] = len(trail)
                    trail.append(callee)
                    work.append(iter(survey.censuses[callee].callees))
                    break
            else:
                work.pop()
                done = trail.pop()
                del depth[done]
                closed.add(done)


def _circle(survey: Survey, trail: list[str], start: int, index: int) -> Finding:
    length = len(trail) - start
    shown = [name or "the root" for name in trail[start : start + LONGEST]]
    more = f" -> ({length - LONGEST} more)" if length > LONGEST else ""
    text = f"graphs call one another in a circle: {' -> '.join(shown)}{more} -> {shown[0]}"
    return Finding(text, trail[-1], index, _name(survey.censuses[trail[-1]], index))


def check_arity(survey: Survey) -> Iterator[Finding]:
    """Find calls that do not pass exactly the inputs of their body, by position."""
    for census in survey.censuses.values():
        for index, node in census.calls:
            body = survey.graphs.get(node.do.graph) if type(node.do) is Call else None
            if body is None or type(body.inputs) is not tuple:
                continue
            if len(node.args) != len(body.inputs) or node.kwargs:
                keywords = f" and the keywords {[key for key, _ in node.kwargs]}" if node.kwargs else ""
                given = f"{len(node.args)} values{keywords}"
                yield Finding(f"it passes {given}; its body takes {len(body.inputs)}, by position", census.name, index, node.name)


def check_projections(survey: Survey) -> Iterator[Finding]:
    """Find ``getitem`` of what is no value, and beyond the number of results where that is known."""
    for census in survey.censuses.values():
        if not census.projections:
            continue
        wanted = {node.args[0].name for _, node in census.projections if node.args and type(node.args[0]) is Ref}
        makers = {node.name: node for _, node in survey.nodes_of(census) if node.name in wanted}
        for index, node in census.projections:
            fault = projection_fault(survey, node, makers) if len(node.args) == 2 else None
            if fault is not None:
                yield Finding(fault, census.name, index, node.name)


def projection_fault(survey: Survey, node: Node, makers: Mapping[str, Node]) -> str | None:
    """Return why a ``getitem`` takes what is not there, or None.

    Args:
        survey: the program.
        node: the ``getitem``, of two arguments.
        makers: the nodes that make values, as far as they are of interest.
    """
    source, item = node.args
    maker = makers.get(source.name) if type(source) is Ref else None
    if not is_argument(source) and not is_nested(source):
        return None  # "argument-kinds" says so
    if type(source) is not Ref and type(source) is not tuple and type(source) is not Items:
        return f"it takes an item of {short(source)}, which is no value with items"
    length = _length(survey, maker) if maker is not None else len(source) if isinstance(source, tuple) else None
    is_call = maker is not None and type(maker.do) is Call
    if length is None or (type(item) in (Ref, slice) and not is_call):
        return None  # Python takes any part of a tuple
    if type(item) is not int or not -length <= item < length:
        return f"it takes result {short(item)} of {repr(source.name) if type(source) is Ref else 'a literal'}, which has {length}"
    return None


def check_bodies(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given a graph although their effects do not say so, and bodies that give back no values."""
    for census in survey.censuses.values():
        for index, callee in census.bodies:
            node = census.graph.nodes[index]
            if type(node.do) is not Op or not node.do.effects.through_bodies:
                text = f"it is given the graph {callee!r}, but its effects do not go through bodies"
                yield Finding(text, census.name, index, node.name)
            body = survey.graphs.get(callee)
            if body is not None and type(body.output) not in (tuple, Items, Ref):
                text = f"the graph {callee!r} that it is given gives back {short(body.output)}, not values"
                yield Finding(text, census.name, index, node.name)


RESULTS = {
    "cond": 1,
    "while_loop": 1,
    "invoke_subgraph": 0,
    "wrap_with_set_grad_enabled": 1,
    "hints_wrapper": 0,
    "strict_mode": 0,
}
"""Which argument of a higher-order operator is the graph whose results it gives."""


def _length(survey: Survey, maker: Node) -> int | None:
    """Return how many results a node gives; None where that is not known, or where it gives no tuple or list."""
    do = maker.do
    if type(do) is Call:
        return _width(survey.graphs.get(do.graph))
    if type(do) is not Op:
        return None
    target: Any = do.target
    if isinstance(target, OpOverload) and len(schema_of(target).returns) != 1:
        return len(schema_of(target).returns)
    if isinstance(target, HigherOrderOperator) and target.name() in RESULTS:
        place = RESULTS[target.name()]
        body = maker.args[place] if place < len(maker.args) else None
        return _width(survey.graphs.get(body.graph)) if type(body) is Body else None
    known = value_in(maker.meta)
    return len(known) if type(known) in (tuple, list) else None


def _width(graph: Graph | None) -> int | None:
    return len(graph.output) if graph is not None and type(graph.output) in (tuple, Items) else None


def _name(census: Census, index: int) -> str | None:
    return census.graph.nodes[index].name


def _is_partial(survey: Survey, census: Census) -> bool:
    nodes: Any = census.graph.nodes
    return type(nodes) is not tuple or len(survey.nodes_of(census)) < len(nodes)
