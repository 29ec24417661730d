"""Rules about calls: referenced graphs exist, are reachable, nest without cycles and get the operands of their inputs.

Where each body is instantiated is found once for all rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

from ..arguments import Body, Items, Ref
from ..calls.parts import is_part
from ..graph import Call, Frame, Get, Graph, Node, Op
from ..names import join
from ..persistent import derived
from ..state import Slot, SlotKind
from ..tensors import disagreement, value_in
from ..torch_private import HigherOrderOperator, OpOverload, checks_inputs, schema_of
from .findings import Finding, is_argument, is_nested, short
from .survey import Census, Survey

__all__ = [
    "Instances",
    "check_acyclic",
    "check_arity",
    "check_bodies",
    "check_known_callees",
    "check_projections",
    "check_reachable",
    "check_root",
    "instances_of",
    "projection_fault",
]


@frozen
class Instances:
    """What the walk found, for four rules."""

    unresolved: tuple[Finding, ...]
    misshapen: tuple[Finding, ...]
    off_map: tuple[Finding, ...]
    """Calls of modules that the hierarchy does not have."""
    ambiguous: tuple[Finding, ...]
    """Calls with the path, number and part of another call, and another body."""
    modules: Mapping[str, frozenset[str]]
    """The reads that come to a module of the state, by graph."""
    acting: Mapping[str, frozenset[str]]
    """Those that come to one that may do more than to check what it is given."""
    entered: tuple[Finding, ...]
    """Calls of bodies at or below the path of a module of the state."""


class _Walk:
    """One walk from the root over pairs of body and path."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.slots = survey.slots
        listed = () if all(is_part(module) for module in survey.modules) else survey.modules
        self.modules = {module.path for module in listed if type(module.path) is str}
        self.paths = self.modules or _known_paths(self.slots)
        self.unresolved: dict[int, Finding] = {}
        self.misshapen: dict[int, Finding] = {}
        self.off_map: dict[int, Finding] = {}
        self.ambiguous: dict[int, Finding] = {}
        self.bodies: dict[tuple[str, int, int], tuple[str, str]] = {}
        """For each label, the body that it was first met with, and the graph that calls it."""
        self.agreed: set[int] = set()
        self.modules_read: dict[str, set[str]] = {}
        self.acting: dict[str, set[str]] = {}
        self.held = {name for name, slot in self.slots.items() if slot.kind is SlotKind.MODULE}
        self.entered: dict[int, Finding] = {}
        self.dead: set[str] = set()
        self.seen: set[tuple[str, str]] = set()
        self.todo: list[tuple[str, str]] = [(survey.root, "")]

    def run(self) -> Instances:
        censuses, seen = self.survey.censuses, self.seen
        while self.todo:
            place = self.todo.pop()
            name, path = place
            census = censuses.get(name)
            if census is None or place in seen:
                continue
            seen.add(place)
            if path and path not in self.paths:
                if name in self.dead:
                    continue
                self.dead.add(name)
            if census.gets:
                self._resolve(census, path)
            if census.callees:
                self._descend(census, path)
        # Files of earlier versions keep the meta of one call in a shared body, so a read must fit one of the slots that it
        # resolves to; that it fits all is asked with `infer=True`.
        misshapen = [finding for key, finding in self.misshapen.items() if key not in self.agreed]
        found = (self.unresolved.values(), misshapen, self.off_map.values(), self.ambiguous.values())
        modules, acting = (
            {name: frozenset(reads) for name, reads in all_reads.items()} for all_reads in (self.modules_read, self.acting)
        )
        return Instances(*map(tuple, found), modules=modules, acting=acting, entered=tuple(self.entered.values()))

    def _resolve(self, census: Census, path: str) -> None:
        slots, agreed = self.slots, self.agreed
        prefix = f"{path}." if path else ""
        for index, node in census.gets:
            do, key = node.do, id(node)
            assert type(do) is Get
            slot = slots.get(prefix + do.slot) or slots.get(join(path, do.slot))
            if slot is None:
                if key not in self.unresolved:
                    self.unresolved[key] = _lost(census, index, node, path)
            elif slot.kind is SlotKind.MODULE:
                self.modules_read.setdefault(census.name, set()).add(node.name)
                if not checks_inputs(slot.value):
                    self.acting.setdefault(census.name, set()).add(node.name)
            elif key not in agreed:
                meta = node.meta
                known = meta.get("val") if type(meta) is MappingProxyType or isinstance(meta, Mapping) else None
                difference = disagreement(known, slot.value)
                if difference is None:
                    agreed.add(key)
                elif key not in self.misshapen:
                    self.misshapen[key] = Finding(f"it reads {difference}", census.name, index, node.name)

    def _descend(self, census: Census, path: str) -> None:
        for _, callee in reversed(census.bodies):
            self.todo.append((callee, path))
        for index, node in reversed(census.calls):
            do = node.do
            assert type(do) is Call
            inner = join(path, do.instance.path)
            if self.modules and inner not in self.modules and id(node) not in self.off_map:
                self.off_map[id(node)] = _strange(census, index, node, do.instance, inner)
            if self.held and id(node) not in self.entered and (held := _held_by(self.held, inner)) is not None:
                said = f"it calls a body at {inner!r}, and {held!r} is a module that the program holds as it is"
                self.entered[id(node)] = Finding(said, census.name, index, node.name)
            label = (inner, do.instance.call, do.instance.part)
            known = self.bodies.setdefault(label, (do.graph, census.name))
            if known[0] != do.graph and id(node) not in self.ambiguous:
                self.ambiguous[id(node)] = _second_body(census, index, node, inner, known)
            self.todo.append((do.graph, inner))


@derived
def instances_of(survey: Survey) -> Instances:
    """Return what the reads and calls of a program come to, followed from the root through every instance, once."""
    return _Walk(survey).run()


def _known_paths(slots: dict[str, Slot]) -> set[str]:
    # Every module path on the way to a slot; stopping at a known one keeps this linear in the distinct paths.
    found: set[str] = set()
    for name in slots:
        path = name.rpartition(".")[0]
        while path and path not in found:
            found.add(path)
            path = path.rpartition(".")[0]
    return found


def _held_by(held: set[str], path: str) -> str | None:
    # The module of the state that a path leads to, or into.
    while path and path not in held:
        path = path.rpartition(".")[0]
    return path or None


def _lost(census: Census, index: int, node: Node, path: str) -> Finding:
    slot = node.do.slot if type(node.do) is Get else ""
    seen = join(path, slot)
    text = f"it reads {slot!r}, which is the slot {seen!r} when called as {path or 'the root'}: there is none"
    return Finding(text, census.name, index, node.name)


def _second_body(census: Census, index: int, node: Node, path: str, known: tuple[str, str]) -> Finding:
    frame, graph = (node.do.instance, node.do.graph) if type(node.do) is Call else (None, "")
    which = f"it calls {frame}, which is the module {path!r}, with the body {graph!r}"
    text = f"{which}; in {known[1] or 'the root'} the same call of the same module has the body {known[0]!r}"
    return Finding(text, census.name, index, node.name)


def _strange(census: Census, index: int, node: Node, frame: Frame, path: str) -> Finding:
    return Finding(f"it calls {frame}, which is the module {path!r}: program.modules has none", census.name, index, node.name)


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
    """Find ``getitem`` of what is not a value, and beyond the number of results where that is known."""
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
        return f"it takes an item of {short(source)}, which is not a value with items"
    length = _length(survey, maker) if maker is not None else len(source) if isinstance(source, tuple) else None
    is_call = maker is not None and type(maker.do) is Call
    if length is None or (type(item) in (Ref, slice) and not is_call):
        return None  # Python takes any part of a tuple
    if type(item) is not int or not -length <= item < length:
        return f"it takes result {short(item)} of {repr(source.name) if type(source) is Ref else 'a literal'}, which has {length}"
    return None


def check_bodies(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given a graph although their effects do not say so, and bodies that return no values."""
    for census in survey.censuses.values():
        for index, callee in census.bodies:
            node = census.graph.nodes[index]
            if type(node.do) is not Op or not node.do.effects.through_bodies:
                text = f"it is given the graph {callee!r}, but its effects do not go through bodies"
                yield Finding(text, census.name, index, node.name)
            body = survey.graphs.get(callee)
            if body is not None and type(body.output) not in (tuple, Items, Ref):
                text = f"the graph {callee!r} that it is given returns {short(body.output)}, not values"
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
    """Return how many results a node returns; None if that is not known, or where it gives no tuple or list."""
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
