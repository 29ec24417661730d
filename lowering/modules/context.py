"""``LoweringContext``: data that all modules of one lowering share at run time: names, calls and uses of the program.

Bodies of operators that read state run with the enclosing module as ``self``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from attrs import Factory, define, evolve, frozen

from ...ir.calls.call_graph import Label, bodies_of_calls, calls_by_label, instances
from ...ir.calls.call_sites import Convention, conventions
from ...ir.calls.parts import first_paths
from ...ir.calls.uncertain_names import uncertain_names
from ...ir.graph import Call, Frame, Get, Graph, Node, Op, Uncopied
from ...ir.names import FROM_ROOT, is_below, join, parent_of
from ...ir.own_operators import is_module_call, read_modules
from ...ir.persistent import derived, grouped
from ...ir.program import Module, Program, Step
from ...ir.state import Slot, SlotKind, State
from ...transforms.shared_bodies import placed

FIRST = "@"
"""The attribute of a bound module that holds the module whose state it uses."""

Key = tuple[str, int, str]
"""Path, call number and graph: identifies a module of a lowering."""

T = TypeVar("T")


def bound_to(holder: torch.nn.Module, body: torch.nn.Module) -> torch.nn.Module:
    """Return a module that runs a body on the state of another module."""
    made: Any = body.__class__.__new__(body.__class__)
    made.__dict__.update(body.__dict__)
    made.__dict__[FIRST] = holder
    return made


@frozen(eq=False)
class StateNames:
    """What only the state of a program tells about its names; pickled modules keep it."""

    constants: Mapping[str, Sequence[str]]
    """The names of constants, by the path of their module."""
    ties: Mapping[str, tuple[str, ...]]
    """All names of each tied tensor, by each name."""
    hooked: Mapping[str, str]
    """For each path of a module that is lowered to several objects, the path of the object with the hooks."""
    uncertain: Mapping[str, tuple[str, ...]]
    """The names under which calls of a module may have been made instead, by its path."""


@frozen(eq=False)
class LoweringContext(Uncopied):
    """Shared by the modules of one lowering and their copies; contains no tensors."""

    program: Program
    """The program, without its state."""
    to: str
    """The kind of the modules, as ``lower`` accepts it."""
    same: Mapping[str, str]
    """For each further path of a module, the path under which it is lowered."""
    names: StateNames
    merged: Step | None
    """The step that merged equal bodies; the program before it has the metadata of each call."""
    nested: dict[str, torch.nn.Module] = Factory(dict)
    """The modules of bodies of operators, by graph id."""
    copies: dict[Key, tuple[type[torch.nn.Module], dict[str, Any]]] = Factory(dict)
    """In an unpickled lowering, the class and own attributes of each module."""
    warned: set[bool] = Factory(set)
    """The modes of which a warning was issued."""
    derived: dict[Any, Any] = Factory(dict)
    """Cached results."""

    reduce_context: ClassVar[Callable[[LoweringContext], Any]]
    reduce_module: ClassVar[Callable[[Any], Any]]
    admitted: ClassVar[Callable[[Any, str, Any], Any]]
    """Pickling and assignment, which import modules and are called by them: set in ``lowering/__init__.py``."""

    @classmethod
    def of(
        cls, program: Program, original: Program, to: str, names: StateNames | None
    ) -> LoweringContext:
        """Return the context of a program.

        Args:
            program: the program that the modules run; its state is not kept.
            original: the program that was passed to ``lower``.
            to: the kind of the modules.
            names: those of pickled modules; by default, those of the program.
        """
        same, others = one_object(program)
        merged = next(
            (step for step in reversed(original.trail) if step.name == "deduplicate"), None
        )
        if names is None:
            constants = [
                slot.rpartition(".")
                for slot, one in original.state.pairs
                if one.kind is SlotKind.CONSTANT
            ]
            ties = {
                name: names
                for names in original.state.by_cell.values()
                if len(names) > 1
                for name in names
            }
            grouped_constants = grouped([(path, name) for path, _, name in constants])
            names = StateNames(grouped_constants, ties, others, uncertain_names(original))
        # Modules that are not lowered to one object are distinct from here on, as this cannot be recomputed without the state.
        one = {*same, *same.values()}
        modules = [
            module if module.cell is None or module.path in one else evolve(module, cell=None)
            for module in program.modules
        ]
        bare = program.evolve(state=State(), trail=(), modules=tuple(modules))
        return cls(bare, to, same, names, merged and merged.on(_without_values))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return LoweringContext.reduce_context(self)

    def paths_of(self, path: str) -> list[str]:
        """Return all paths of a module, the lowered one first."""
        return [path, *[other for other, real in self.same.items() if real == path]]

    def names_of(self, path: str) -> list[str]:
        """Return the paths of all objects of one original module, the one with the hooks first."""
        hooked = self.names.hooked
        first = hooked.get(path, path)
        return [first, *[name for name, other in hooked.items() if other == first]]


@derived
def position_dependent(context: LoweringContext) -> frozenset[str]:
    """Return the graphs that read state or call modules, or pass such graphs to operators; they run on the enclosing module."""
    return placed(context.program)


@derived
def before_merging(context: LoweringContext) -> Mapping[Frame, Graph]:
    """Return the body of each call before equal bodies were merged, with its own meta."""
    if context.merged is None:
        return {}
    before = context.merged.before
    return {frame: before.graphs[name] for frame, name in reversed([*bodies_of_calls(before)])}


@derived
def conventions_of(context: LoweringContext) -> dict[str, Convention]:
    """Return the calling convention of each body with a preserved call signature, by graph id."""
    return conventions(context.program)


@derived
def bodies_at(context: LoweringContext) -> Mapping[str, list[tuple[Frame, str]]]:
    """Return the calls of each module with their bodies, by path."""
    return grouped(
        [(frame.path, (frame, name)) for frame, name in bodies_of_calls(context.program)]
    )


def _without_values(program: Program) -> Program:
    # The modules live longer than the program, so they must not keep its tensors.
    slots = {
        name: Slot(slot.kind, None, slot.cell, slot.storage) for name, slot in program.state.pairs
    }
    return program.evolve(state=State.of(slots), trail=())


def one_object(program: Program) -> tuple[dict[str, str], dict[str, str]]:
    """Map further paths of shared modules to the first: paths that are lowered to one object, and paths that are not.

    >>> from purefx.ir import Graph
    >>> modules = Module(""), Module("a", cell=0), Module("a.x"), Module("b", cell=0), Module("b.x")
    >>> one_object(Program.of({"": Graph((), (), ())}, modules=modules))
    ({'b': 'a', 'b.x': 'a.x'}, {})
    """
    first = first_paths(program.modules)
    types = program.types
    if not first or not _parents_first(program.modules):
        return {}, {}
    inside = _below(first, [(path, path) for path in types])
    calls = _below(first, calls_by_label(program).items())
    slots = _below(
        first,
        [(name, (slot.cell, slot.kind, slot.persistent)) for name, slot in program.state.pairs],
    )
    kept, firsts = dict[str, str](), dict[str, str]()
    for path, kind in types.items():
        above, _, name = path.rpartition(".")
        other, within = [
            join(known.get(above, above), name) if path else path for known in (kept, firsts)
        ]
        if (
            other == path and path in first and types[first[path]] == kind
        ):  # children of one object are one object too
            ours, theirs = path, first[path]
            same = inside[ours].keys() == inside[theirs].keys() and _agree(
                slots[ours], slots[theirs]
            )
            other = theirs if same and _same_calls(calls[ours], calls[theirs]) else path
        kept[path] = kept.get(other, path)
        firsts[path] = first.get(within, within)
    others = {
        path: kept[other]
        for path, other in firsts.items()
        if other in kept and kept[path] == path != kept[other]
    }
    return {path: other for path, other in kept.items() if path != other}, others


def _parents_first(modules: Iterable[Module]) -> bool:
    visited = {""}
    for module in modules:
        if parent_of(module.path) not in visited:
            return False
        visited.add(module.path)
    return True


def _below(paths: Iterable[str], items: Iterable[tuple[str, T]]) -> dict[str, dict[str, T]]:
    # The items at and below each path, by relative name.
    found: dict[str, dict[str, T]] = {path: {} for path in paths}
    for name, item in items:
        outer = name
        while outer:
            if outer in found:
                found[outer][name[len(outer) :]] = item
            outer = parent_of(outer)
    return found


def _agree(ours: Mapping[T, object], theirs: Mapping[T, object]) -> bool:
    return all(theirs.get(key, mine) == mine for key, mine in ours.items())


def _same_calls(
    ours: Mapping[str, Mapping[Label, str]], theirs: Mapping[str, Mapping[Label, str]]
) -> bool:
    # Only for called paths; the object has the body of its first call.
    return all(
        min(labels) == min(theirs[name]) and _agree(labels, theirs[name])
        for name, labels in ours.items()
        if name in theirs
    )


@frozen(eq=False)
class ExternalUse:
    """A call, or a read of a piece of state."""

    path: str
    """The called module or the slot, from the root."""
    caller: str
    """The module whose body contains the node."""
    graph: str
    """The graph id of that body."""
    node: Node


@define
class ExternalUses:
    """The external uses of one module and its submodules."""

    calls: list[ExternalUse] = Factory(list)
    held: list[ExternalUse] = Factory(list)
    """Calls of modules that are state of the program."""
    reads: list[ExternalUse] = Factory(list)
    inside: list[ExternalUse] = Factory(list)
    """Nodes of the module itself that are still in the body of another."""


@derived
def external_uses(context: LoweringContext) -> dict[str, ExternalUses]:
    """Return the external uses of each module that has any, by path.

    The original may have read a tied tensor under any of its names.
    """
    program, ties = context.program, context.names.ties
    found: dict[str, ExternalUses] = {}
    leading = {name: _leading(program.graphs[name]) for name in program.order}
    for name, caller in instances(program):
        for kind, target, node in leading[name]:
            whole = join(caller, target)
            for each in ties.get(whole, (whole,)) if kind == "reads" else (whole,):
                use = ExternalUse(each, caller, name, node)
                for path in _entered(parent_of(each) if kind == "reads" else each, caller):
                    getattr(found.setdefault(path, ExternalUses()), kind).append(use)
    return found


def _leading(graph: Graph) -> list[tuple[str, str, Node]]:
    # Uses of other modules or submodules in a body: the kind (a field of ExternalUses), the path, and the node.
    found: list[tuple[str, str, Node]] = []
    held = read_modules(graph.nodes)
    operands = {name for node in graph.callers if type(node.do) is Op for name in node.refs()}
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
            if (
                node.name in operands
            ):  # the exporter passes the state of modules to branches that call them
                inside.setdefault(parent_of(do.slot) or FROM_ROOT, node)
        elif is_module_call(node):
            slot = held.get(getattr(node.args[0], "name", ""))
            if slot is not None:
                found.append(("held", slot, node))
    return found + [("inside", path, node) for path, node in inside.items()]


def _entered(target: str, caller: str) -> Iterator[str]:
    while target and target != caller and not is_below(caller, target):
        yield target
        target = parent_of(target)
