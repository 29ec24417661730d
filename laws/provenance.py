"""The law of provenance: the origin of every node (``purefx.ir.origins``) is complete and right.

The flat programs before and after are compared.  A node with the operator of its origin computes the same value, so its operands
must lead to the operands of the origin; results likewise.  Origins of nodes with another operator are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..ir.analysis.history import origins_at, tracked
from ..ir.graph import Get, Node, Op
from ..ir.operators import GETITEM
from ..ir.origins import Imported, Origin, ancestors, origin_of
from ..ir.persistent import grouped
from ..ir.program import Program
from ..ir.signature import UserOutput
from ..transforms.inline import inline
from .law import Case, Transform, law

Origins = Mapping[str, Origin | None]
"""The origin of each value of a flat program; None if it is unknown, as for the contents of memory."""


@law("every node leads to its sources, and every source to the node or to the step that dropped it")
def provenance(transform: Transform, case: Case) -> list[str]:
    """List the nodes of a result without an origin or with a wrong one, and the sources that a result does not lead to."""
    before = tracked(case.program)
    after = transform(before)
    if after is before:
        return []
    flat, made = inline(before), inline(after)
    lost = [
        f"{fault}:\n{after.text()}"
        for fault in _lost(flat, made, frozenset(ancestors(_origins(after))))
    ]
    return [*unknown_origins(before, after), *_misled(flat, made), *lost]


def unknown_origins(before: Program, after: Program) -> Iterator[str]:
    """Describe the nodes of a program without an origin, or with an origin that did not exist before.

    Args:
        before: a program in which all nodes have origins.
        after: the program after a transformation.

    >>> from purefx.ir import Graph, Ref
    >>> program = Program.of({"": Graph((), (Node("y", Op("toy.one")),), (Ref("y"),))})
    >>> list(unknown_origins(tracked(program), program))[0]
    'the root / y: its origin is unknown'
    """
    known = set(ancestors(_origins(before)))
    for name, node in after.nodes():
        found, reads = origins_at(after, name, node.name)
        parts = (
            [node]
            if type(node.do) is Op
            else [part for body in node.callees for part in after.graphs[body].nodes]
        )
        faults = (
            ["its origin is unknown"]
            if not (found or reads) and any(type(part.do) is Op for part in parts)
            else []
        )
        new = [
            root for root in ancestors(found) if isinstance(root, Imported) and root not in known
        ]
        faults += [f"it leads to {root}, which did not exist" for root in new]
        yield from [f"{name or 'the root'} / {node.name}: {fault}" for fault in faults]


def _origins(program: Program) -> Iterator[Origin]:
    items = [item for graph in program.graphs.values() for item in (*graph.inputs, *graph.nodes)]
    return (origin for item in items if (origin := origin_of(item.meta)) is not None)


def _origins_of_values(program: Program) -> Origins:
    graph = program.main
    # The memory of an operand of a write may hold results of other nodes; several inputs of state may be one tensor.
    written = {name for node in graph.nodes if node.declared.writes for name in node.refs()}
    written.update(program.state_inputs)
    found = {
        formal.name: None if formal.name in written else origin_of(formal.meta)
        for formal in graph.inputs
    }
    for node in graph.nodes:
        whole = graph.by_name[node.projection[0]] if node.projection is not None else node
        origin = origin_of(node.meta) or (found[whole.name] if whole is not node else None)
        # Results of operators with bodies come from the bodies.
        is_open = type(node.do) is Get or (
            isinstance(whole, Node) and whole.declared.through_bodies
        )
        found[node.name] = None if is_open else origin
    return found


def _misled(before: Program, after: Program) -> Iterator[str]:
    old, new = _origins_of_values(before), _origins_of_values(after)
    were = grouped([(origin_of(node.meta), node) for node in before.main.nodes])
    right, wrong = set[Origin](), dict[Origin, str]()
    for node in after.main.nodes:
        for one in _same(node):
            if node.op_name == one.op != GETITEM.name and one in were:
                odd = [_odd(old, was, new, node) for was in were[one]]
                if "" in odd:
                    right.add(one)
                else:
                    wrong[one] = f"{node} has the origin {one}, which {odd[0]}"
    # A node with several origins counts for one of them in each place.
    yield from [
        f"{fault}; the flat result:\n{after.main}"
        for one, fault in wrong.items()
        if one not in right
    ]
    one, other = _results(before), _results(after)
    for was, now in zip(one, other, strict=True) if len(one) == len(other) else ():
        if was and now and not _is_behind(old[was], new[now]):
            yield f"the result {now} does not lead back to {was}:\n{after.main}"


def _lost(before: Program, after: Program, left: frozenset[Origin]) -> Iterator[str]:
    # Nodes without successors, although a user of them has some.  Kept users may use less than before.
    origins = _origins_of_values(before)
    kept = {
        one
        for node in after.main.nodes
        if type(node.do) is Op
        for one in _same(node)
        if one.op == node.do.name
    }
    inputs = set(before.main.input_names)
    for node in before.main.nodes:
        for name in node.refs() if origin_of(node.meta) in left - kept else ():
            if name not in inputs and origins[name] is not None and origins[name] not in left:
                yield f"{name} has no successors, but its user {node.name} has some"


def _results(program: Program) -> list[str]:
    # The names of user outputs; empty for outputs that are not values.
    pairs = program.outputs if program.signature.outputs else ()
    return [getattr(arg, "name", "") for arg, spec in pairs if type(spec) is UserOutput]


def _same(node: Node) -> Iterator[Imported]:
    # The origin of a node itself, or each origin that it merges.
    todo = [origin_of(node.meta)]
    while todo:
        one = todo.pop()
        if isinstance(one, Imported):
            yield one
        elif one is not None and one.is_one:
            todo += one.of


def _odd(old: Origins, was: Node, new: Origins, now: Node) -> str:
    # The first operand that does not lead to the operand of the origin.  A copy of a copy may replace both.
    own = set(_same(now))
    operands = (
        zip(was.refs(), now.refs(), strict=True) if len(was.refs()) == len(now.refs()) else ()
    )
    for mine, theirs in operands:
        if old[mine] not in own and not _is_behind(old[mine], new[theirs]):
            return f"used {mine}, and {theirs} does not lead to that"
    return ""


def _is_behind(was: Origin | None, now: Origin | None) -> bool:
    return was is None or now is None or any(was is one for one in ancestors([now]))
