"""The modules of a program: which paths are one object, and the external uses of each.

Read from the program; no module is made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

from attrs import define, field, frozen

from ...ir.calls.call_graph import Label, calls_by_label, instances
from ...ir.calls.parts import first_paths
from ...ir.graph import Call, Get, Graph, Node, Op
from ...ir.names import FROM_ROOT, is_below, join
from ...ir.own_operators import is_module_call, read_modules
from ...ir.program import Module, Program

__all__ = ["ExternalUse", "ExternalUses", "external_uses", "one_object", "other_names"]

T = TypeVar("T")


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
    slots = _below(first, [(name, (slot.cell, slot.kind, slot.persistent)) for name, slot in program.state.pairs])
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


def _agree(ours: Mapping[T, object], theirs: Mapping[T, object]) -> bool:
    return all(theirs.get(key, mine) == mine for key, mine in ours.items())


def _run_alike(ours: Mapping[str, Mapping[Label, str]], theirs: Mapping[str, Mapping[Label, str]]) -> bool:
    # Where a path is called at all; the object has the body of its first call.
    return all(
        min(labels) == min(theirs[name]) and _agree(labels, theirs[name]) for name, labels in ours.items() if name in theirs
    )


@frozen(eq=False)
class ExternalUse:
    """A call, or a read of a piece of state."""

    path: str
    """What is called, or read, from the root."""
    caller: str
    """The module whose body does it."""
    graph: str
    """That body."""
    node: Node


@define
class ExternalUses:
    """The external uses of one module and of those below it."""

    calls: list[ExternalUse] = field(factory=list)
    held: list[ExternalUse] = field(factory=list)
    """Calls of modules that the program holds as they are."""
    reads: list[ExternalUse] = field(factory=list)
    inside: list[ExternalUse] = field(factory=list)
    """Nodes of the module itself that stand in another body, because they were not cut out of it."""


def external_uses(program: Program, ties: Mapping[str, tuple[str, ...]] = MappingProxyType({})) -> dict[str, ExternalUses]:
    """Return the external uses of each module, by path; a module without any is left out.

    Args:
        program: what runs.
        ties: all names of a tensor that has several: the original may have read it under any of them.

    >>> from purefx.ir import Graph, Program
    >>> external_uses(Program.of({"": Graph((), (), ())}))
    {}
    """
    found: dict[str, ExternalUses] = {}
    leading = {name: _leading(program.graphs[name]) for name in program.order}
    for name, caller in instances(program):
        for kind, target, node in leading[name]:
            whole = join(caller, target)
            for each in ties.get(whole, (whole,)) if kind == "reads" else (whole,):
                asked = ExternalUse(each, caller, name, node)
                for path in _entered(each.rpartition(".")[0] if kind == "reads" else each, caller):
                    getattr(found.setdefault(path, ExternalUses()), kind).append(asked)
    return found


def _leading(graph: Graph) -> list[tuple[str, str, Node]]:
    # What leads out of the module that the body stands in, or into one below it: a list of ExternalUses, a path, and the node.
    found: list[tuple[str, str, Node]] = []
    held = read_modules(graph.nodes)
    handed = {name for node in graph.callers if type(node.do) is Op for name in node.refs()}
    inside: dict[str, Node] = {}
    for node in graph.nodes:
        for frame in node.stack:
            inside.setdefault(frame.path, node)
        do = node.do
        if type(do) is Call:
            found.append(("calls", do.instance.path, node))
        elif type(do) is Get:
            if node.name in held or not ("." in do.slot or do.slot.startswith(FROM_ROOT)):
                continue
            found.append(("reads", do.slot, node))
            if node.name in handed:  # the exporter hands the state of modules to branches that call them
                inside.setdefault(do.slot.rpartition(".")[0] or FROM_ROOT, node)
        elif is_module_call(node):
            slot = held.get(getattr(node.args[0], "name", ""))
            if slot is not None:
                found.append(("held", slot, node))
    return found + [("inside", path, node) for path, node in inside.items()]


def _entered(target: str, caller: str) -> Iterator[str]:
    while target and target != caller and not is_below(caller, target):
        yield target
        target = target.rpartition(".")[0]
