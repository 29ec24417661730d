"""Modules of several paths that are lowered to one object: those of which the program says so, and whose calls can be one's.

One idea: an object runs one body for each of its calls and holds one set of tensors, so two paths are one object where all
that is called at and below them runs the same bodies, and all that they hold is the same tensors.  Paths of which that is not
so (calls with other sizes, a body that a rewrite changed) are lowered to two objects that share their state, like all aliases
of an export that does not know them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from ..ir.callers import calls_from
from ..ir.listing import first_paths
from ..ir.paths import join
from ..ir.program import Module, Program

__all__ = ["Label", "calls_by_label", "one_object", "other_names"]

Label = tuple[int, int]
"""The number of a call, and of the piece of it."""

T = TypeVar("T")


def calls_by_label(program: Program) -> dict[str, dict[Label, str]]:
    """Return the bodies that each module runs, by its path and the call.

    >>> from purefx.ir import Graph
    >>> calls_by_label(Program.of({"": Graph((), (), ())}))
    {}
    """
    found: dict[str, dict[Label, str]] = {}
    for _, call, path in calls_from(program):
        found.setdefault(path, {}).setdefault((call.instance.call, call.instance.part), call.graph)
    return found


def one_object(program: Program) -> dict[str, str]:
    """Return the path under which a module is lowered, for each other path that leads to it.

    >>> from purefx.ir import Graph
    >>> modules = Module(""), Module("a", cell=0), Module("a.x"), Module("b", cell=0), Module("b.x")
    >>> one_object(Program.of({"": Graph((), (), ())}, modules=modules))
    {'b': 'a', 'b.x': 'a.x'}
    """
    first = first_paths(program.modules)
    types = {module.path: module.type_name for module in program.modules}
    if not first or not _parents_first(program.modules):
        return {}
    inside = _below(first, [(path, path) for path in types])
    calls = _below(first, calls_by_label(program).items())
    slots = _below(first, [(name, _facts(program, name)) for name in program.state.order])
    kept: dict[str, str] = {}
    for path, kind in types.items():
        above, _, name = path.rpartition(".")
        other = join(kept.get(above, above), name) if path else path  # what is below one object is one object
        if other == path and path in first and types[first[path]] == kind:
            ours, theirs = path, first[path]
            alike = inside[ours].keys() == inside[theirs].keys() and _agree(slots[ours], slots[theirs])
            other = theirs if alike and _run_alike(calls[ours], calls[theirs]) else path
        kept[path] = kept.get(other, path)
    return {path: other for path, other in kept.items() if path != other}


def other_names(program: Program, same: Mapping[str, str]) -> dict[str, str]:
    """Return the path of the first object, for each path of a module that is lowered to another one.

    Args:
        program: what is lowered.
        same: the paths that are lowered to one object, as ``one_object`` says.

    >>> from purefx.ir import Graph
    >>> modules = Module(""), Module("a", cell=0), Module("a.x"), Module("b", cell=0), Module("b.x")
    >>> other_names(Program.of({"": Graph((), (), ())}, modules=modules), {})
    {'b': 'a', 'b.x': 'a.x'}
    """
    first = first_paths(program.modules)
    if not first or not _parents_first(program.modules):
        return {}
    found: dict[str, str] = {}
    for path in [module.path for module in program.modules]:
        above, _, name = path.rpartition(".")
        within = join(found.get(above, above), name) if path else path
        found[path] = first.get(within, within)
    real = {path: same.get(path, path) for path in found}
    return {path: real[other] for path, other in found.items() if other in real and real[path] == path != real[other]}


def _parents_first(modules: Iterable[Module]) -> bool:
    met = {""}
    for module in modules:
        if module.path.rpartition(".")[0] not in met:
            return False
        met.add(module.path)
    return True


def _below(paths: Iterable[str], items: Iterable[tuple[str, T]]) -> dict[str, dict[str, T]]:
    # What is at and below each path, by its name from there.
    found: dict[str, dict[str, T]] = {path: {} for path in paths}
    for name, item in items:
        for outer in _outer(name):
            if outer in found:
                found[outer][name[len(outer) :]] = item
    return found


def _outer(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def _facts(program: Program, name: str) -> object:
    slot = program.state.slots[name]
    return slot.cell, slot.kind, slot.persistent


def _agree(ours: Mapping[str, object], theirs: Mapping[str, object]) -> bool:
    return all(theirs.get(name, mine) == mine for name, mine in ours.items())


def _run_alike(ours: Mapping[str, Mapping[Label, str]], theirs: Mapping[str, Mapping[Label, str]]) -> bool:
    # Where a path is called at all; the object has the body of its first call.
    return all(
        min(labels) == min(theirs[name]) and _agree_on(labels, theirs[name]) for name, labels in ours.items() if name in theirs
    )


def _agree_on(ours: Mapping[Label, str], theirs: Mapping[Label, str]) -> bool:
    return all(theirs.get(label, body) == body for label, body in ours.items())
