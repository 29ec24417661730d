"""Rules about calls: referenced graphs exist, are reachable, nest without cycles and get the operands of their inputs.

Where each body is instantiated is found once for all rules.  What a preserved call takes and gives is said once, by boundaries
inside of it that have the leaves of its pytrees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from attrs import frozen

from ..arguments import Items, Ref, refs_in
from ..calls.call_graph import instance_paths, plain_calls, signatures_of_bodies
from ..calls.parts import is_part
from ..graph import Call, Frame, Get, Node, Op
from ..names import join
from ..own_operators import GIVES, TAKES, is_boundary
from ..persistent import derived
from ..program import CallSignature
from ..state import Slot, SlotKind
from ..tensors import disagreement, value_in
from ..torch_private import checks_inputs
from .findings import Finding, short
from .survey import Census, Survey


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
        modules = survey.program.modules
        self.modules = set[str]() if all(map(is_part, modules)) else {module.path for module in modules}
        self.paths = self.modules or _known_paths(self.slots)
        self.unresolved: dict[int, Finding] = {}
        self.misshapen: dict[int, Finding] = {}
        self.off_map: dict[int, Finding] = {}
        self.ambiguous: dict[int, Finding] = {}
        self.bodies: dict[tuple[str, int], tuple[str, str]] = {}
        """For each label, the body that it was first met with, and the graph that calls it."""
        self.agreed: set[int] = set()
        self.modules_read: dict[str, set[str]] = {}
        self.acting: dict[str, set[str]] = {}
        self.held = set(survey.program.state.modules)
        self.entered: dict[int, Finding] = {}
        self.dead: set[str] = set()
        self.seen: set[tuple[str, str]] = set()
        self.todo: list[tuple[str, str]] = [(survey.program.root, "")]

    def run(self) -> Instances:
        censuses, seen = self.survey.censuses, self.seen
        while self.todo:
            place = self.todo.pop()
            name, path = place
            if place in seen:
                continue
            seen.add(place)
            census = censuses[name]
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
        for index, node, do in census.gets:
            key = id(node)
            slot = slots.get(prefix + do.slot) or slots.get(join(path, do.slot))
            if slot is None:
                if key not in self.unresolved:
                    self.unresolved[key] = census.at(index, _lost(do, path))
            elif slot.kind is SlotKind.MODULE:
                self.modules_read.setdefault(census.name, set()).add(node.name)
                if not checks_inputs(slot.value):
                    self.acting.setdefault(census.name, set()).add(node.name)
            elif key not in agreed:
                difference = disagreement(value_in(node.meta), slot.value)
                if difference is None:
                    agreed.add(key)
                elif key not in self.misshapen:
                    self.misshapen[key] = census.at(index, f"it reads {difference}")

    def _descend(self, census: Census, path: str) -> None:
        for _, callee in reversed(census.bodies):
            self.todo.append((callee, path))
        for index, node, do in reversed(census.calls):
            inner = join(path, do.instance.path)
            if self.modules and inner not in self.modules and id(node) not in self.off_map:
                said = f"it calls {do.instance}, which is the module {inner!r}: program.modules has none"
                self.off_map[id(node)] = census.at(index, said)
            if self.held and id(node) not in self.entered and (held := held_by(self.held, inner)):
                said = f"it calls a body at {inner!r}, and {held!r} is a module that the program holds as it is"
                self.entered[id(node)] = census.at(index, said)
            label = (inner, do.instance.call)
            known = self.bodies.setdefault(label, (do.graph, census.name))
            if known[0] != do.graph and id(node) not in self.ambiguous:
                self.ambiguous[id(node)] = census.at(index, _second_body(do, inner, known))
            self.todo.append((do.graph, inner))


@derived
def instances_of(survey: Survey) -> Instances:
    """Return what the reads and calls of a program come to, followed from the root through every instance, once."""
    return _Walk(survey).run()


def _known_paths(slots: Mapping[str, Slot]) -> set[str]:
    # Every module path on the way to a slot; stopping at a known one keeps this linear in the distinct paths.
    found: set[str] = set()
    for name in slots:
        path = name.rpartition(".")[0]
        while path and path not in found:
            found.add(path)
            path = path.rpartition(".")[0]
    return found


def held_by(held: Collection[str], path: str) -> str:
    """Return the module among some that a path leads to, or into; an empty text if there is none.

    >>> held_by({"a", "a.b"}, "a.b.weight"), held_by({"a"}, "b.weight")
    ('a.b', '')
    """
    while path and path not in held:
        path = path.rpartition(".")[0]
    return path


def _lost(read: Get, path: str) -> str:
    seen = join(path, read.slot)
    return f"it reads {read.slot!r}, which is the slot {seen!r} when called as {path or 'the root'}: there is none"


def _second_body(call: Call, path: str, known: tuple[str, str]) -> str:
    which = f"it calls {call.instance}, which is the module {path!r}, with the body {call.graph!r}"
    return f"{which}; in {known[1] or 'the root'} the same call of the same module has the body {known[0]!r}"


LONGEST = 8
"""How many graphs of a circle a message names."""


def check_known_callees(survey: Survey) -> Iterator[Finding]:
    """Find calls and operator bodies that name no graph."""
    for census in survey.censuses.values():
        for index, callee in census.callees:
            if callee not in survey.censuses:
                yield census.at(index, f"it names the graph {callee!r}, and program.graphs has none")


def check_reachable(survey: Survey) -> Iterator[Finding]:
    """Find graphs that nothing reaches from the root."""
    if len(survey.program.graphs) > len(survey.censuses):
        for name in sorted(survey.program.graphs.keys() - survey.censuses.keys()):
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
    return survey.censuses[trail[-1]].at(index, text)


def check_arity(survey: Survey) -> Iterator[Finding]:
    """Find calls that do not pass exactly the inputs of their body, by position."""
    for census in survey.censuses.values():
        for index, node, do in census.calls:
            body = survey.censuses.get(do.graph)
            if body is not None and (len(node.args) != len(body.graph.inputs) or node.kwargs):
                keywords = f" and the keywords {[key for key, _ in node.kwargs]}" if node.kwargs else ""
                given = f"{len(node.args)} values{keywords}"
                yield census.at(index, f"it passes {given}; its body takes {len(body.graph.inputs)}, by position")


def check_bodies(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given a graph although their effects do not say so, and bodies that return no values."""
    for census in survey.censuses.values():
        for index, callee in census.bodies:
            do, output = census.graph.nodes[index].do, survey.censuses[callee].graph.output
            if type(do) is not Op or not do.effects.through_bodies:
                yield census.at(index, f"it is given the graph {callee!r}, but its effects do not go through bodies")
            if type(output) not in (tuple, Items, Ref):
                yield census.at(index, f"the graph {callee!r} that it is given returns {short(output)}, not values")


def _takes(node: Node) -> bool:
    return type(node.do) is Op and node.do.name == TAKES.name


def check_boundaries(survey: Survey) -> Iterator[Finding]:
    """Find boundaries outside preserved calls, second ones, and those with more or fewer leaves than their pytree."""
    if {TAKES.name, GIVES.name}.isdisjoint(op.name for op, _, _ in survey.ops.values()):
        return
    program = survey.program
    bodies, places = signatures_of_bodies(program), instance_paths(program)
    for name, census in survey.censuses.items():
        yield from _uses(census)
        yield from _beside(census, bodies)
        seen: set[object] = set()
        for index, node in census.nodes:
            if is_boundary(node):
                inner = node.stack[-1] if node.stack else None
                frame = None if inner is None else Frame(join(places[name], inner.path), inner.call)
                signature = bodies.get(name) if frame is None else program.call_signatures.get(frame)
                key = (_takes(node), node.stack)
                fault = _fault(node, signature, second=key in seen) or _made_inside(node, census, is_body=frame is None)
                seen.add(key)
                if fault is not None:
                    yield census.at(index, fault)


def _uses(census: Census) -> Iterator[Finding]:
    # A boundary says what crosses it, and gives nothing.
    boundaries = {node.name for _, node in census.nodes if is_boundary(node)}
    if not boundaries:
        return
    for index, node in census.nodes:
        for used in boundaries.intersection(refs_in(node.args, node.kwargs)):
            yield census.at(index, f"it uses {used!r}, which says what a preserved call takes or gives, and is not a value")
    for used in boundaries.intersection(refs_in((census.graph.output,))):
        yield census.at(len(census.graph.nodes), f"it returns {used!r}, which is not a value")


def _beside(census: Census, bodies: Mapping[str, CallSignature]) -> Iterator[Finding]:
    # The leaf of the result that each value is has to be found by its name.
    output = census.graph.output
    odd = [part for part in (output if type(output) is tuple else (output,)) if type(part) is not Ref]
    if odd and census.name in bodies and not census.is_root:
        text = f"it returns {short(odd[0])}; what a body with a preserved call signature returns are values"
        yield census.at(len(census.graph.nodes), text)


def _made_inside(node: Node, census: Census, *, is_body: bool) -> str | None:
    # What a call takes is there before it; reads are placed by who sinks them.
    if not _takes(node) or (is_body and census.is_root):
        return None
    names, stack = set(refs_in(node.args)), node.stack
    for _, maker in census.nodes:
        if maker.name in names and type(maker.do) is not Get and maker.stack[: len(stack)] == stack:
            return f"it takes {maker.name!r}, which is made in that very call"
    return None


def _fault(node: Node, signature: CallSignature | None, *, second: bool) -> str | None:
    where = str(node.stack[-1]) if node.stack else "this body"
    takes = _takes(node)
    if signature is None:
        return f"it names what {where} takes or gives, and program.call_signatures does not have that call"
    if second:
        return f"{where} says for the second time what it {'takes' if takes else 'gives'}"
    count = getattr(signature.in_spec if takes else signature.out_spec, "num_leaves", None)
    if node.kwargs or count != len(node.args):
        return f"it has {len(node.args) + len(node.kwargs)} leaves, the pytree of {where} has {count}"
    return None


def check_shared(survey: Survey) -> Iterator[Finding]:
    """Find calls without a signature of modules whose calls share a callable: it would answer them as another call."""
    program = survey.program
    paths = {frame.path for frame, signature in program.call_signatures.items() if signature.shared}
    for frame in sorted(program.call_signatures, key=str) if paths else ():
        if frame.path in paths and not program.call_signatures[frame].shared:
            yield Finding(f"{frame} shares no callable, and other calls of {frame.path} do", node="program.call_signatures")
    for frame, (name, index) in plain_calls(program, paths).items():
        text = f"{frame} has no signature, and other calls of {frame.path} share one callable"
        yield survey.censuses[name].at(index, text)
