"""Rules about calls: the graphs that a program names exist, are reached, nest without circles and get what they take.

One idea: calls were collected by the survey, so each rule is a loop over the calls and none over the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..arguments import Items, Ref
from ..node import Call, Op
from .kinds import short
from .rule import Finding
from .screen import Census

if TYPE_CHECKING:
    from .survey import Survey

__all__ = [
    "check_acyclic", "check_arity", "check_bodies", "check_known_callees", "check_projections", "check_reachable", "check_root",
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
    """Find ``getitem`` of a call's results beyond the number of results."""
    for census in survey.censuses.values():
        if not census.projections or not census.calls:
            continue
        results = _results(survey, census)
        for index, node in census.projections:
            source: Any = node.args[0] if node.args else None
            output: Any = results.get(source.name) if type(source) is Ref else None
            if type(output) not in (tuple, Items):
                continue
            item: Any = node.args[1] if len(node.args) > 1 else None
            if type(item) is not int or not -len(output) <= item < len(output):
                text = f"it takes result {short(item)} of {source.name!r}, which has {len(output)}"
                yield Finding(text, census.name, index, node.name)


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


def _results(survey: Survey, census: Census) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _, node in census.calls:
        body = survey.graphs.get(node.do.graph) if type(node.do) is Call else None
        if body is not None:
            found[node.name] = body.output
    return found


def _name(census: Census, index: int) -> str | None:
    return census.graph.nodes[index].name


def _is_partial(survey: Survey, census: Census) -> bool:
    nodes: Any = census.graph.nodes
    return type(nodes) is not tuple or len(survey.nodes_of(census)) < len(nodes)
