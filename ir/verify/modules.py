"""Rules about the module hierarchy: calls are entered once, paths are unique, every module has a parent and is known.

One idea: a path is a place in one tree; who calls a module need not be above it.  Contiguity is not asked for: the nodes of
a call may be anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..node import Frame, Stack
from ..parts import is_part
from ..paths import FROM_ROOT, way_to
from ..program import Module
from .instances import instances_of
from .kinds import short
from .rule import Finding
from .survey import Survey

__all__ = ["check_known_modules", "check_labels", "check_module_paths", "check_scopes", "check_stacks"]


def check_stacks(survey: Survey) -> Iterator[Finding]:
    """Find stacks in which a call stands twice, and paths of the root that are not written plainly."""
    for census in survey.suspects:
        for index, stack in census.stacks:
            fault = _fault(stack, is_root=census.name == survey.root)
            if fault is not None:
                yield Finding(fault, census.name, index, census.graph.nodes[index].name)


def _fault(stack: Stack, *, is_root: bool) -> str | None:
    if len(set(stack)) < len(stack):
        twice = next(frame for frame in stack if stack.count(frame) > 1)
        return f"its stack enters {twice} twice"
    for frame in stack if is_root else ():
        if frame.path.startswith(FROM_ROOT):
            return f"its stack has {frame}: in the root every path is counted from the root already"
    return None


def check_scopes(survey: Survey) -> Iterator[Finding]:
    """Find module calls of the root that are entered from two other calls; bodies of operators may be traced again."""
    root = survey.censuses.get(survey.root)
    if root is None:
        return
    around: dict[Frame, Stack] = {}
    known: set[int] = set()
    doubtful = any(census is root for census in survey.suspects)
    for index, stack in root.stacks:
        if id(stack) in known or (doubtful and _fault(stack, is_root=True) is not None):
            continue
        known.add(id(stack))
        for depth in range(len(stack) - 1, -1, -1):
            frame, above = stack[depth], stack[:depth]
            other = around.setdefault(frame, above)
            if other is not above:  # met before, and with it all that is around it
                if other != above:
                    text = f"it is inside {frame} of {_shown(above)}, but that call is made in {_shown(other)}"
                    yield Finding(text, root.name, index, root.graph.nodes[index].name)
                break


def _shown(stack: Stack) -> str:
    return " / ".join(map(str, stack)) or "the root"


def check_module_paths(survey: Survey) -> Iterator[Finding]:
    """Find modules that are listed twice, have no path, have no parent or have a name that reads as another path."""
    paths: set[str] = set()
    for module in survey.modules:
        if type(module.path) is not str:
            yield Finding(f"a module has the path {short(module.path)}, not a string", node="program.modules")
        elif module.path in paths:
            yield Finding(f"the module {module.path!r} is listed twice", node="program.modules")
        else:
            paths.add(module.path)
            if f".{module.path}".find(f".{FROM_ROOT}") >= 0:
                said = f"has a name that begins with {FROM_ROOT!r}, as paths do that are counted from the root"
                yield Finding(f"the module {module.path!r} {said}", node="program.modules")
    yield from _wrong_cells(survey.modules)
    # A program that lists no modules lists its parts when it is split.
    for path in [module.path for module in survey.modules if type(module.path) is str and module.path and not is_part(module)]:
        parent = path.rpartition(".")[0]
        if parent not in paths:
            yield Finding(f"the module {path!r} is listed, its parent {parent!r} is not", node="program.modules")


def _wrong_cells(modules: Iterable[Module]) -> Iterator[Finding]:
    paths: dict[int, list[str]] = {}
    for module in modules:
        if module.cell is None or type(module.path) is not str:
            continue
        if type(module.cell) is not int or module.cell < 0 or not module.path:
            said = "no number of an object" if module.path else "and the root is one object with nothing else"
            yield Finding(f"the module {module.path!r} has the cell {short(module.cell)}, {said}", node="program.modules")
        else:
            paths.setdefault(module.cell, []).append(module.path)
    for found in paths.values():
        known = set(found)
        for outer, inner in [(outer, path) for path in found for outer in way_to(path)[:-1] if outer in known]:
            said = f"the modules {outer!r} and {inner!r} are one object by their cell, and no module is inside itself"
            yield Finding(said, node="program.modules")


def check_labels(survey: Survey) -> Iterator[Finding]:
    """Find calls that one path, call number and part name, and that have different bodies."""
    yield from instances_of(survey).ambiguous


def check_known_modules(survey: Survey) -> Iterator[Finding]:
    """Find calls of modules, and nodes inside modules, that the hierarchy does not have; a program may list none at all."""
    yield from instances_of(survey).off_map
    root = survey.censuses.get(survey.root)
    known = {module.path for module in survey.modules if type(module.path) is str}
    if root is None or all(is_part(module) for module in survey.modules):
        return
    seen: set[int] = set()
    told: set[str] = set()
    for index, stack in root.stacks:
        if id(stack) in seen:
            continue
        seen.add(id(stack))
        for frame in stack:
            if frame.path not in known and frame.path not in told:
                told.add(frame.path)
                text = f"it is inside {frame}, and program.modules has no {frame.path!r}"
                yield Finding(text, root.name, index, root.graph.nodes[index].name)
