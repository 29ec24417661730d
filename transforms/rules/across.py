"""Patterns that lie in several modules: in a tree, the operators of two modules stand in two bodies, where no rule sees both.

``near_misses`` finds such places for ``explain``.  In a flat program modules are stacks of nodes, and nothing lies between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.calls.parts import part_names
from ...ir.graph import Call, place_of
from ...ir.inference import CallValues, values_of
from ...ir.program import Program
from ..inline import inline
from .matching import Found
from .new_state import NewState
from .place import Match
from .scope import Scope
from .several import found_in
from .telling import conditions_hold

__all__ = ["advice", "near_misses"]


def advice(program: Program) -> str:
    """Return what to do about matches that lie in several modules.

    Args:
        program: a tree; one that is split has parts, which stay only if rules are applied before.

    >>> from purefx.ir import Graph
    >>> advice(Program.of({"": Graph((), ())}))
    'apply the rule before outline'
    """
    if part_names(program):
        return "apply the rule before the program is split, or to px.join(program), and split that"
    return "apply the rule before outline"


def near_misses(program: Program, rules: Mapping[Any, Sequence[Any]]) -> list[str]:
    """Return where rules would match if the modules were not called, in words.

    Args:
        program: at any stage.
        rules: by the operator at their root.
    """
    if not any(type(node.do) is Call for node in program.main.callers):
        return []
    flat = inline(program)
    graph = flat.main
    scope = Scope(flat, flat.root, lambda: ("",), values_of(graph), graph.by_name.get, NewState(flat), CallValues(flat))
    found: list[str] = []
    for rule, node, several in found_in(graph, rules):
        places = [Match(scope, node.stack, 0, way, rule.variables) for way in several if _crosses(way)]
        if any(conditions_hold(rule, place) for place in places):
            inner = [one for one in places[0].nodes if one.stack != node.stack]
            found.append(f"{rule.name} at {place_of(node)} with {place_of(inner[0])}")
    return found


def _crosses(way: Found) -> bool:
    # Whether an operand is computed in another module; several results may well be in several that use one value.
    stacks = {node.name: node.stack for node in way.nodes}
    return any(stacks.get(name, node.stack) != node.stack for node in way.nodes for name in node.refs())
