"""``LoweringContext``: what all modules of one lowering share at run time, read from the program: names, calls, uses.

Bodies of operators that read state run with the enclosing module as ``self``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
from attrs import define, evolve, field, frozen

from ...ir.arguments import bodies_in
from ...ir.calls.call_graph import Label, bodies_of_calls, calls_by_label, instances
from ...ir.calls.call_sites import Convention, conventions
from ...ir.calls.parts import first_paths
from ...ir.graph import Call, Frame, Get, Graph, Node, Op
from ...ir.names import FROM_ROOT, is_below, join
from ...ir.own_operators import is_module_call, read_modules
from ...ir.program import Module, Program
from ...ir.state import SlotKind, State

__all__ = ["FIRST", "ExternalUse", "ExternalUses", "LoweringContext", "bound_to", "external_uses", "one_object"]

FIRST = "@"
"""The attribute under which a body that runs on another module has that module."""

Key = tuple[str, int, str]
"""Path, number of the call and graph: identifies a module of a lowering."""

T = TypeVar("T")


def bound_to(holder: torch.nn.Module, body: torch.nn.Module) -> torch.nn.Module:
    """Return a module that runs a body on another module."""
    made: Any = body.__class__.__new__(body.__class__)
    made.__dict__.update(body.__dict__)
    made.__dict__[FIRST] = holder
    return made


@define(eq=False, slots=False)
class LoweringContext:
    """What the modules of one lowering have in common; it holds no tensor, and copies of the modules share it."""

    program: Program
    """The program that they run, without its state."""
    to: str
    """The kind of the modules, as ``lower`` accepts it."""
    same: Mapping[str, str]
    """The path under which a module is lowered, for each other path that leads to it."""
    hooked: Mapping[str, str]
    """The path of the object that has the hooks, for each path of a module that was lowered to another object."""
    unmerged: Program | None
    """The program before equal bodies became one: it has the meta of each."""
    constants: Mapping[str, tuple[str, ...]]
    """The names of constants, by the path of their module."""
    ties: Mapping[str, tuple[str, ...]]
    """All names of a tensor that has several, by each of them."""
    nested: dict[str, torch.nn.Module] = field(factory=dict)
    """The modules of bodies of operators, by graph id."""
    copies: dict[Key, tuple[type[torch.nn.Module], dict[str, Any]]] = field(factory=dict)
    """In a lowering that was loaded, the class and own attributes of each module."""
    derived: dict[Any, Any] = field(factory=dict)
    """Results that are computed once."""
    has_warned: bool = False
    """Whether a warning about modes was given."""

    reduce_context: ClassVar[Callable[[LoweringContext], Any]]
    reduce_module: ClassVar[Callable[[Any], Any]]
    admitted: ClassVar[Callable[[Any, str, Any], Any]]
    """Pickling and assignment, which are built on modules and called by them: ``lowering/__init__.py`` connects them."""

    @classmethod
    def of(cls, program: Program, given: Program, to: str, hooked: Mapping[str, str]) -> LoweringContext:
        """Return the context of a program.

        Args:
            program: what the modules run; its state is not kept.
            given: the program that was passed to ``lower``.
            to: the kind of the modules.
            hooked: of modules that were pickled, which cannot be found without the state.
        """
        same, others = one_object(program)
        unmerged = next((step.before for step in reversed(given.trail) if step.name == "deduplicate"), None)
        constants: dict[str, tuple[str, ...]] = {}
        for path, _, name in [slot.rpartition(".") for slot, one in given.state.pairs if one.kind is SlotKind.CONSTANT]:
            constants[path] = (*constants.get(path, ()), name)
        ties = {name: names for names in given.state.by_cell.values() if len(names) > 1 for name in names}
        # Modules that are not lowered to one object are distinct from here on: without the state this cannot be recomputed.
        one = {*same, *same.values()}
        modules = [
            module if module.cell is None or module.path in one else evolve(module, cell=None) for module in program.modules
        ]
        bare = program.evolve(state=State(), trail=(), modules=tuple(modules))
        before = unmerged.evolve(state=State(), trail=()) if unmerged is not None else None
        return cls(bare, to, same, {**others, **hooked}, before, constants, ties)

    def __deepcopy__(self, memo: dict[int, Any]) -> LoweringContext:
        return self  # what copies share as well

    def __reduce_ex__(self, protocol: Any) -> Any:
        return LoweringContext.reduce_context(self)

    @cached_property
    def position_dependent(self) -> frozenset[str]:
        """The graphs that read state or call modules, or pass such a graph to an operator: they run on the module around them."""
        found: set[str] = set()
        for name in self.program.bottom_up:
            for node in self.program.graphs[name].nodes:
                if type(node.do) is not Op or (
                    node.do.effects.through_bodies and not found.isdisjoint(bodies_in(node.args, node.kwargs))
                ):
                    found.add(name)
                    break
        return frozenset(found)

    @cached_property
    def types(self) -> Mapping[str, str | None]:
        """The class of every module of the hierarchy, by path."""
        return {module.path: module.type_name for module in self.program.modules}

    @cached_property
    def _bodies_before(self) -> Mapping[tuple[str, int], Graph]:
        before, found = self.unmerged, dict[tuple[str, int], Graph]()
        for frame, name in bodies_of_calls(before) if before is not None else ():
            found.setdefault((frame.path, frame.call), before.graphs[name])
        return found

    def before_merging(self, path: str, call: int) -> Graph | None:
        """Return the body of a call as it was before equal bodies became one; None if it is unknown."""
        return self._bodies_before.get((path, call))

    @cached_property
    def needs(self) -> dict[str, ExternalUses]:
        """The external uses of each module, by path."""
        return external_uses(self.program, self.ties)

    @cached_property
    def conventions(self) -> dict[str, Convention]:
        """How each body with a preserved call signature is called, by graph id."""
        return conventions(self.program)

    @cached_property
    def _paths(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path, real in self.same.items():
            found.setdefault(real, [real]).append(path)
        return found

    def paths_of(self, path: str) -> list[str]:
        """Return all paths that lead to a module, first the one under which it was lowered."""
        return self._paths.get(path) or [path]

    def names_of(self, path: str) -> list[str]:
        """Return the paths of all objects that are one module of the original, first the one that has the hooks."""
        first = self.hooked.get(path, path)
        return [first, *[name for name, other in self.hooked.items() if other == first]]

    @cached_property
    def bodies_at(self) -> dict[str, tuple[tuple[Frame, str], ...]]:
        """The calls of each module and the body that each runs, by path."""
        found: dict[str, list[tuple[Frame, str]]] = {}
        for frame, name in bodies_of_calls(self.program):
            found.setdefault(frame.path, []).append((frame, name))
        return {path: tuple(calls) for path, calls in found.items()}


def one_object(program: Program) -> tuple[dict[str, str], dict[str, str]]:
    """Return which paths lead to one module: those that are lowered to one object, and those that are not, each with the first.

    >>> from purefx.ir import Graph
    >>> modules = Module(""), Module("a", cell=0), Module("a.x"), Module("b", cell=0), Module("b.x")
    >>> one_object(Program.of({"": Graph((), (), ())}, modules=modules))
    ({'b': 'a', 'b.x': 'a.x'}, {})
    """
    first = first_paths(program.modules)
    types = {module.path: module.type_name for module in program.modules}
    if not first or not _parents_first(program.modules):
        return {}, {}
    inside = _below(first, [(path, path) for path in types])
    calls = _below(first, calls_by_label(program).items())
    slots = _below(first, [(name, (slot.cell, slot.kind, slot.persistent)) for name, slot in program.state.pairs])
    kept, firsts = dict[str, str](), dict[str, str]()
    for path, kind in types.items():
        above, _, name = path.rpartition(".")
        other, within = [join(known.get(above, above), name) if path else path for known in (kept, firsts)]
        if other == path and path in first and types[first[path]] == kind:  # what is below one object is one object
            ours, theirs = path, first[path]
            alike = inside[ours].keys() == inside[theirs].keys() and _agree(slots[ours], slots[theirs])
            other = theirs if alike and _run_alike(calls[ours], calls[theirs]) else path
        kept[path] = kept.get(other, path)
        firsts[path] = first.get(within, within)
    others = {path: kept[other] for path, other in firsts.items() if other in kept and kept[path] == path != kept[other]}
    return {path: other for path, other in kept.items() if path != other}, others


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
        outer = name
        while outer:
            if outer in found:
                found[outer][name[len(outer) :]] = item
            outer = outer.rpartition(".")[0]
    return found


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
