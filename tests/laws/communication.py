"""Laws of communication: what a process group sees stays as it is, and collectives are joined, early and late as far as may be.

They are asked of ``overlap_communication`` and of ``bucket_collectives``; the first holds of every transformation that keeps what
collectives there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from purefx.ir.arguments import Ref
from purefx.ir.effects.declared import COMMUNICATION
from purefx.ir.graph import Graph, Node, Op
from purefx.ir.program import Program
from purefx.laws.law import Case, Transform, law
from purefx.transforms.precedence import precedences

__all__ = [
    "BUCKETED",
    "OVERLAPPED",
    "early",
    "groups_in_order",
    "late",
    "names_stay",
    "said_to_groups",
    "same_said",
]


def said_to_groups(program: Program) -> dict[str, list[str]]:
    """Return what each graph says to each process group, in order: the operator and its operands, one for each tensor.

    Args:
        program: a program at any stage.

    >>> said_to_groups(Program.of({"": Graph((), (), ())}))
    {}
    """
    found: dict[str, list[str]] = {}
    for name in program.order:
        for node in program.graphs[name].nodes:
            if _starts(node):
                for group, said in _said(node):
                    found.setdefault(f"{name} / {group}", []).append(said)
    return found


def _starts(node: Node) -> bool:
    return type(node.do) is Op and node.do.effects.domain == COMMUNICATION


def _waits(node: Node) -> bool:
    return type(node.do) is Op and bool(node.do.effects.completes) and not _starts(node)


def _said(node: Node) -> Iterator[tuple[str, str]]:
    assert type(node.do) is Op
    at = node.do.effects.group
    group: Any = at.find(node.args, node.kwargs) if at is not None else None
    first, *others = node.args
    is_list = node.do.name.removesuffix(".default").endswith("_coalesced") and not isinstance(first, Ref)
    for operand in tuple(first) if is_list else (first,):  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues]
        yield str(group), f"{node.do.name.replace('_coalesced', '')} {operand} {others}"


@law("every process group sees the same operators on the same operands in the same order")
def groups_in_order(transform: Transform, case: Case) -> list[str]:
    before, after = said_to_groups(case.program), said_to_groups(transform(case.program))
    return [
        f"in {where} it says {after.get(where, [])}, where it said {before.get(where, [])}"
        for where in sorted(before.keys() | after.keys())
        if before.get(where) != after.get(where)
    ]


@law("only the order of nodes changes")
def same_said(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    return [
        f"{name} has other nodes"
        for name in before.order
        if {id(node) for node in before.graphs[name].nodes} != {id(node) for node in after.graphs[name].nodes}
    ]


def _ancestors(before: list[list[int]]) -> list[int]:
    found: list[int] = []
    for of in before:
        mine = 0
        for earlier in of:
            mine |= found[earlier] | 1 << earlier
        found.append(mine)
    return found


@law("before a start stands what it needs, or another start")
def early(transform: Transform, case: Case) -> list[str]:
    found: list[str] = []
    program = transform(case.program)
    for name, before in precedences(program):
        nodes = program.graphs[name].nodes
        for number, node in enumerate(nodes):
            between = nodes[max(before[number], default=-1) + 1 : number] if _starts(node) else ()
            found += [
                f"{one.name} stands before {node.name} in @{name}, which does not need it" for one in between if not _starts(one)
            ]
    return found


@law("behind a wait stands what needs it, or what needs another wait that stands behind it")
def late(transform: Transform, case: Case) -> list[str]:
    found: list[str] = []
    program = transform(case.program)
    for name, before in precedences(program):
        graph, ancestors = program.graphs[name], _ancestors(before)
        waits = [number for number, node in enumerate(graph.nodes) if _waits(node)]
        for wait in waits:
            behind = sum(1 << number for number in waits if number >= wait)
            found += [
                f"{node.name} stands behind {graph.nodes[wait].name} in @{name}, and needs no wait from there on"
                for number, node in enumerate(graph.nodes[wait + 1 :], wait + 1)
                if not (_waits(node) or ancestors[number] & behind)
            ]
    return found


@law("joined collectives give each user what it had, under its name")
def names_stay(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    return [
        f"{name} has no {gone}"
        for name in before.order
        for gone in sorted(_values(before.graphs[name]) - _values(after.graphs[name]))
    ]


def _values(graph: Graph) -> set[str]:
    # But for lists, which are other lists now.
    return {node.name for node in graph.nodes if not (type(node.do) is Op and "_coalesced" in node.do.name)}


OVERLAPPED = (groups_in_order, same_said, early, late)

BUCKETED = (groups_in_order, names_stay)
