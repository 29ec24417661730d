"""``LoweringContext``: the context that all modules of one lowering share.

Bodies of operators that read state run with the enclosing module as ``self``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch
from attrs import evolve

from ...ir.arguments import bodies_in
from ...ir.calls.call_graph import bodies_of_calls
from ...ir.calls.call_sites import Convention, conventions
from ...ir.graph import Frame, Graph, Op
from ...ir.inference import CallValues
from ...ir.program import Program
from ...ir.state import Slot, SlotKind, State
from .interface import ExternalUses, external_uses, one_object, other_names

__all__ = ["FIRST", "LoweringContext", "bound_to", "without_state"]

FIRST = "@"
"""Under which attribute a body that runs on another module has that module."""


def bound_to(holder: torch.nn.Module, body: torch.nn.Module) -> torch.nn.Module:
    """Return the module of a body, which runs on another module."""
    made: Any = body.__class__.__new__(body.__class__)
    made.__dict__.update(body.__dict__)
    made.__dict__[FIRST] = holder
    return made


Key = tuple[str, int, str]
"""Path, number of the call and graph: which module of a lowering it is."""


def without_state(program: Program) -> Program:
    """Return a program without its tensors and without the programs that it was made from: what a running module keeps.

    >>> from purefx.ir import Graph, Program
    >>> without_state(Program.of({"": Graph((), (), ())})).trail
    ()
    """
    return program.evolve(state=State(), trail=())


class LoweringContext(dict[str, torch.nn.Module]):
    """The modules of nested graphs by graph id, and what else the modules of one lowering have in common.

    Args:
        program: what they run; its state is not kept.
        given: what ``lower`` was given.
        to: which kind of modules they are.
    """

    reduce_context: ClassVar[Callable[[LoweringContext], Any]]
    reduce_module: ClassVar[Callable[[Any], Any]]
    admitted: ClassVar[Callable[[Any, str, Any], Any]]
    """What pickling and assignment do, which are built on modules and called by them: ``lowering/__init__.py`` connects them."""

    def __init__(self, program: Program, given: Program, to: str) -> None:
        super().__init__()
        self.same = one_object(program)
        """The path under which a module is lowered, for each other path that leads to it."""
        self.hooked: Mapping[str, str] = other_names(program, self.same)
        """The path of the object that has the hooks, for each path of a module that was lowered to another object."""
        self.program = without_state(_with_objects(program, self.same))
        self.to = to
        unmerged = next((step.before for step in reversed(given.trail) if step.name == "deduplicate"), None)
        self.unmerged = without_state(unmerged) if unmerged is not None else None
        """The program before equal bodies became one: it has the meta of each."""
        self.constants = _constants(given.state.pairs)
        self.ties = _ties(given.state)
        """All names of a tensor that has several, by each of them."""
        self.copies: dict[Key, tuple[type[torch.nn.Module], dict[str, Any]]] = {}
        """In a family that was loaded, what its modules are copied from: class and own attributes of each."""
        self.derived: dict[Any, Any] = {}
        """What others derive from it, each once."""
        self.said_modes = False
        """Whether a warning about modes was given."""

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
    def _bodies_before(self) -> dict[tuple[str, int], str]:
        if self.unmerged is None:
            return {}
        found: dict[tuple[str, int], str] = {}
        for frame, name in bodies_of_calls(self.unmerged):
            found.setdefault((frame.path, frame.call), name)
        return found

    def before_merging(self, path: str, call: int) -> Graph | None:
        """Return the body of a call as it was before equal bodies became one; None if that is not known."""
        name = self._bodies_before.get((path, call))
        return self.unmerged.graphs[name] if name is not None and self.unmerged is not None else None

    @cached_property
    def values_by_call(self) -> CallValues:
        """The fake values of each call, as far as they follow without the state."""
        return CallValues(self.program)

    @cached_property
    def calls(self) -> tuple[tuple[Frame, str], ...]:
        """Every call of a module, with its absolute path, and the graph that it runs; outer modules first."""
        return tuple(bodies_of_calls(self.program))

    @cached_property
    def needs(self) -> dict[str, ExternalUses]:
        """The external uses of each module, by path."""
        return external_uses(self.program, self.ties)

    @cached_property
    def conventions(self) -> dict[str, Convention]:
        """How each body with a preserved call signature is called, by graph id."""
        return conventions(self.program)

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.types:
            found.setdefault(path.rpartition(".")[0], []).append(path)
        return found

    def children_of(self, path: str) -> list[str]:
        """Return the paths of the modules that the original had right below one, as far as the program lists them."""
        return self._children.get(path, [])

    @cached_property
    def _paths(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path, real in self.same.items():
            found.setdefault(real, [real]).append(path)
        return found

    def paths_of(self, path: str) -> list[str]:
        """Return all paths that lead to a module, first the one under which it was lowered."""
        return self._paths.get(path) or [path]

    @cached_property
    def bodies_at(self) -> dict[str, tuple[tuple[Frame, str], ...]]:
        """The calls of each module and the body that each runs, by path."""
        found: dict[str, list[tuple[Frame, str]]] = {}
        for frame, name in self.calls:
            found.setdefault(frame.path, []).append((frame, name))
        return {path: tuple(calls) for path, calls in found.items()}


def _with_objects(program: Program, same: Mapping[str, str]) -> Program:
    # Modules that are not lowered to one object are distinct from here on: without the state this could not be recomputed.
    one = {*same, *same.values()}
    if all(module.cell is None or module.path in one for module in program.modules):
        return program
    modules = [module if module.path in one else evolve(module, cell=None) for module in program.modules]
    return program.evolve(modules=tuple(modules))


def _ties(state: State) -> dict[str, tuple[str, ...]]:
    if len({slot.cell for _, slot in state.pairs}) == len(state.order):
        return {}
    return {name: names for names in state.by_cell.values() if len(names) > 1 for name in names}


def _constants(pairs: tuple[tuple[str, Slot], ...]) -> dict[str, tuple[str, ...]]:
    # The names of constants by the path of their module.
    found: dict[str, tuple[str, ...]] = {}
    for name, slot in pairs:
        if slot.kind is SlotKind.CONSTANT:
            path, _, last = name.rpartition(".")
            found[path] = (*found.get(path, ()), last)
    return found
