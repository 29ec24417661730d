"""Where each body is reached from, and what its reads find there.

One idea: a body can be shared by many module calls, and a read is relative, so it is resolved once for each pair of
body and absolute path.  Only paths that exist are followed to the end: off them a body is looked at once, so the walk
stays linear in the calls of the hierarchy even where shared bodies multiply.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from attrs import frozen

from ..node import Call, Frame, Get, Node
from ..parts import is_part
from ..paths import join
from ..state import Slot, SlotKind
from ..torch_private import checks_inputs
from .rule import Finding
from .screen import Census
from .survey import Survey
from .tensors import disagreement

__all__ = ["Instances", "instances_of"]


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


def instances_of(survey: Survey) -> Instances:
    """Return what the reads and calls of a program come to, followed from the root through every instance, once."""
    known = survey.derived.get("instances")
    if known is None:
        known = survey.derived["instances"] = _Walk(survey).run()
    return cast(Instances, known)


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
