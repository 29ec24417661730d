"""The law of provenance: the origin of every node (``purefx.ir.origins``) is complete and right.

The flat programs before and after are compared.  A node with the operator of its origin computes the same value, so its operands
must lead to the operands of the origin; results likewise.  Origins of nodes with another operator are not checked.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cached_property

from attrs import frozen

from ..ir.analysis.history import origins_at, tracked
from ..ir.graph import Call, Get, Graph, Input, Node, Op
from ..ir.operators import GETITEM
from ..ir.origins import Imported, Origin, ancestors, origin_of
from ..ir.program import Program
from ..ir.signature import StateInput, UserOutput
from ..transforms.inline import inline
from .law import Case, Transform, law


@law("every node leads to its sources, and every source to the node or to the step that dropped it")
def provenance(transform: Transform, case: Case) -> list[str]:
    """List the nodes of a result without an origin, or with a wrong one."""
    before = tracked(case.program)
    after = transform(before)
    if after is before:
        return []
    return [*unknown_origins(before, after), *_misled(_Flat.of(before), _Flat.of(after))]


@law("a dropped node was not used by a node with successors")
def made_of_all(transform: Transform, case: Case) -> list[str]:
    """List the nodes without successors although one of their users has some."""
    program = tracked(case.program)
    result = transform(program)
    before, after = _Flat.of(program), _Flat.of(result)
    left = set(ancestors(_origins(result)))
    # Kept nodes may use less than before.
    origins = [(origin_of(node.meta), node.do.name) for node in after.graph.nodes if type(node.do) is Op]
    left_as_was = {one for origin, op in origins if origin is not None for one in _alike(origin) if one.op == op}
    found: list[str] = []
    for node in before.graph.nodes:
        user = origin_of(node.meta)
        anew = user in left and user not in left_as_was
        gone = [name for name in node.refs() if type(before.makers[name]) is Node and before.is_gone(name, left)] if anew else []
        found += [f"{name} has no successors, but its user {node.name} has some:\n{result.text()}" for name in gone]
    return found


def unknown_origins(before: Program, after: Program) -> Iterator[str]:
    """Describe the nodes of a program without an origin, or with an origin that did not exist before.

    Args:
        before: a program in which all nodes have origins.
        after: the program after a transformation.

    >>> from purefx.ir import Ref
    >>> program = Program.of({"": Graph((), (Node("y", Op("toy.one")),), (Ref("y"),))})
    >>> list(unknown_origins(tracked(program), program))[0]
    'the root / y: its origin is unknown'
    """
    known = set(ancestors(_origins(before)))
    for name, node in after.nodes():
        where = f"{name or 'the root'} / {node.name}"
        found, reads = origins_at(after, name, node.name)
        if type(node.do) is Op and not (found or reads):
            yield f"{where}: its origin is unknown"
        elif (
            type(node.do) is Call
            and not (found or reads)
            and any(type(one.do) is Op for one in after.graphs[node.do.graph].nodes)
        ):
            yield f"{where}: it does not lead to a node of its body"
        for root in ancestors(found):
            if isinstance(root, Imported) and root not in known:
                yield f"{where}: it leads to {root}, which did not exist"


def _origins(program: Program) -> Iterator[Origin]:
    for graph in program.graphs.values():
        for item in (*graph.inputs, *graph.nodes):
            origin = origin_of(item.meta)
            if origin is not None:
                yield origin


@frozen(eq=False, slots=False)
class _Flat:
    """A program without calls: its root, and the node or input of each name."""

    program: Program
    graph: Graph
    makers: Mapping[str, Node | Input]

    @classmethod
    def of(cls, program: Program) -> _Flat:
        flat = inline(program)
        return cls(flat, flat.main, {item.name: item for item in (*flat.main.inputs, *flat.main.nodes)})

    @cached_property
    def written(self) -> frozenset[str]:
        """Operands of writes: their memory may hold results of other nodes."""
        writers = [node for node in self.graph.nodes if type(node.do) is Op and node.do.effects.writes]
        return frozenset([name for node in writers for name in node.refs()])

    @cached_property
    def state(self) -> frozenset[str]:
        """Inputs that are state: several may be one tensor."""
        return frozenset([formal.name for formal, spec in self.program.inputs if type(spec) is StateInput])

    def origin(self, name: str) -> Origin | None:
        """Return the origin of a value; None if unknown, as for the contents of memory."""
        item = self.makers[name]
        while type(item) is Node and origin_of(item.meta) is None and item.projection is not None:
            item = self.makers[item.projection[0]]
        return None if self._is_open(item) else origin_of(item.meta)

    def is_gone(self, name: str, left: Container[Origin]) -> bool:
        """Return whether a value has no descendants."""
        origin = self.origin(name)
        return origin is not None and origin not in left

    def _is_open(self, item: Node | Input) -> bool:
        # Memory may hold writes of other nodes; results of operators with bodies come from the bodies.
        if isinstance(item, Input):
            return item.name in self.written or item.name in self.state
        whole = self.makers[item.projection[0]] if item.projection is not None else item
        return type(item.do) is Get or (type(whole) is Node and type(whole.do) is Op and whole.do.effects.through_bodies)

    def results(self) -> list[str]:
        """Return the names of user outputs; empty for outputs that are not values."""
        pairs = zip(self.graph.output, self.program.signature.outputs, strict=False) if self.program.signature.outputs else ()
        return [getattr(arg, "name", "") for arg, spec in pairs if type(spec) is UserOutput]


def _misled(before: _Flat, after: _Flat) -> Iterator[str]:
    were: dict[Origin, list[Node]] = {}
    for node in before.graph.nodes:
        origin = origin_of(node.meta)
        if origin is not None:
            were.setdefault(origin, []).append(node)
    right_ones, wrong = set[Origin](), dict[Origin, str]()
    for node in after.graph.nodes:
        origin = origin_of(node.meta)
        found = [] if origin is None or type(node.do) is not Op else [one for one in _same(origin, node.do.name) if one in were]
        odd = {one: [_odd(before, was, after, node) for was in were[one]] for one in found}
        right = [one for one, said in odd.items() if None in said]
        right_ones.update(right)
        # A node with several origins counts for one of them in each place.
        wrong.update({one: f"{node} has the origin {one}, which {odd[one][0]}" for one in found if not right})
        wrong.update({one: f"{node} has the origin {one}, although others descend from it" for one in found if one not in wrong})
    yield from [f"{said}; the flat result:\n{after.graph}" for one, said in wrong.items() if one not in right_ones]
    old, new = before.results(), after.results()
    for was, now in zip(old, new, strict=False) if len(old) == len(new) else ():
        if was and now and not _is_behind(before.origin(was), after.origin(now)):
            yield f"the result {now} does not lead back to {was}:\n{after.graph}"


def _same(origin: Origin, op: str) -> Iterator[Imported]:
    # The origins with the same operator, without items of results.
    yield from [one for one in _alike(origin) if one.op == op != GETITEM.name]


def _alike(origin: Origin) -> Iterator[Imported]:
    # The origin itself, or each origin that it merges.
    todo = [origin]
    while todo:
        one = todo.pop()
        if isinstance(one, Imported):
            yield one
        elif one.is_one:
            todo += one.of


def _odd(before: _Flat, was: Node, after: _Flat, now: Node) -> str | None:
    # The first operand that does not lead to the operand of the origin.  A copy of a copy may replace both.
    old, new = was.refs(), now.refs()
    own = {*_alike(origin)} if (origin := origin_of(now.meta)) is not None else set[Origin]()
    for mine, theirs in zip(old, new, strict=False) if len(old) == len(new) else ():
        if before.origin(mine) not in own and not _is_behind(before.origin(mine), after.origin(theirs)):
            return f"used {mine}, and {theirs} does not lead to that"
    return None


def _is_behind(was: Origin | None, now: Origin | None) -> bool:
    return was is None or now is None or any(was is one for one in ancestors([now]))
