"""Patterns that lie in several modules: in a tree, the operators of two modules stand in two bodies, where no rule sees both.

``near_misses`` finds such places, and ``through_modules`` applies rules to them: on the flat program, which is a tree again
afterwards.  In a flat program modules are stacks of nodes, and nothing lies between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ...ir.calls.parts import part_names
from ...ir.errors import RuleError
from ...ir.graph import Call, Op, place_of
from ...ir.inference import CallValues, values_of
from ...ir.program import Program
from ..deduplicate import deduplicate
from ..inline import inline
from ..outline import outline
from .matching import Found
from .new_state import NewState
from .place import Match
from .scope import Scope
from .several import found_in
from .telling import conditions_hold
from .terms import AnyCall, AnyOf, Applied, parts_of

__all__ = ["advice", "is_tree", "may_match", "near_misses", "through_modules"]


def is_tree(program: Program) -> bool:
    """Return whether modules are called in a program, so that a pattern may lie in several bodies.

    >>> from purefx.ir import Graph
    >>> is_tree(Program.of({"": Graph((), ())}))
    False
    """
    return any(type(node.do) is Call for node in program.main.callers)


def through_modules(program: Program, apply: Callable[[Program], Program]) -> Program:
    """Return a tree after rules that were applied to the flat program; the same object if they did nothing.

    Args:
        program: a tree.
        apply: applies the rules.

    Raises:
        RuleError: they did something, and the program is split: where its parts lie is not known of what they made.
    """
    flat = inline(program)
    made = apply(flat)
    if made is flat:
        return program
    if names := part_names(program):
        raise RuleError(
            f"the program is split into {', '.join(map(repr, names[:4]))}, and a match of a rule with across_modules=True is in\n"
            f"several modules: to put those together would undo the parts; {advice(program)}.\n"
            "across_modules=False matches inside of modules alone."
        )
    return deduplicate(outline(made))


def advice(program: Program) -> str:
    """Return what to do about matches that lie in several modules.

    Args:
        program: a tree; one that is split has parts, which stay only if rules are applied before.

    >>> from purefx.ir import Graph
    >>> advice(Program.of({"": Graph((), ())}))
    'say across_modules=True, or apply the rule before outline'
    """
    if part_names(program):
        return "apply the rule before the program is split, or to px.join(program), and split that"
    return "say across_modules=True, or apply the rule before outline"


def near_misses(program: Program, rules: Mapping[Any, Sequence[Any]]) -> list[str]:
    """Return where rules would match if the modules were not called, in words.

    Args:
        program: a tree.
        rules: by the operator at their root.
    """
    targets = frozenset([node.do.target for _, node in program.nodes() if type(node.do) is Op])
    rules = {root: [each for each in several if may_match(each.term, targets)] for root, several in rules.items()}
    if not any(rules.values()):
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


def may_match(term: Any, targets: AbstractSet[Any]) -> bool:
    """Return whether operators are there that a term may be made of: without them it stands nowhere, however modules lie.

    Args:
        term: what a rule looks for.
        targets: the operators of a program.

    >>> import torch
    >>> from .terms import Var
    >>> term = torch.relu(torch.exp(Var("x")))
    >>> may_match(term, {torch.ops.aten.relu.default}), may_match(term, {torch.ops.aten.relu.default, torch.ops.aten.exp.default})
    (False, True)
    """
    done: dict[int, bool] = {}

    def may(each: Any) -> bool:
        if id(each) not in done:
            if isinstance(each, AnyOf):
                done[id(each)] = any(map(may, each.terms))
            else:
                is_there = not isinstance(each, Applied | AnyCall) or not targets.isdisjoint(each.overloads)
                done[id(each)] = is_there and all(map(may, parts_of(each)))
        return done[id(each)]

    return may(term)


def _crosses(way: Found) -> bool:
    # Whether an operand is computed in another module; several results may well be in several that use one value.
    stacks = {node.name: node.stack for node in way.nodes}
    return any(stacks.get(name, node.stack) != node.stack for node in way.nodes for name in node.refs())
