"""Rules about the module hierarchy: stacks nest, paths are unique, every module has a parent and is known.

One idea: a path is a place in one tree.  Contiguity is not asked for: the nodes of a call may be anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ..node import Stack
from .kinds import short
from .rule import Finding

if TYPE_CHECKING:
    from .survey import Survey

__all__ = ["check_known_modules", "check_module_paths", "check_stacks"]


def check_stacks(survey: Survey) -> Iterator[Finding]:
    """Find stacks in which a frame is not below the one before it."""
    for census in survey.suspects:
        for index, stack in census.stacks:
            fault = _break(stack)
            if fault is not None:
                yield Finding(fault, census.name, index, census.graph.nodes[index].name)


def _break(stack: Stack) -> str | None:
    for above, frame in pairwise(stack):
        length = len(above.path)
        if not frame.path.startswith(above.path) or frame.path[length : length + 1] != ".":
            return f"its stack is inside {frame}, which is not below {above.path}"
    return None


def check_module_paths(survey: Survey) -> Iterator[Finding]:
    """Find modules that are listed twice, have no path or have no parent."""
    paths: set[str] = set()
    for module in survey.modules:
        if type(module.path) is not str:
            yield Finding(f"a module has the path {short(module.path)}, not a string", node="program.modules")
        elif module.path in paths:
            yield Finding(f"the module {module.path!r} is listed twice", node="program.modules")
        else:
            paths.add(module.path)
    for path in [module.path for module in survey.modules if type(module.path) is str and module.path]:
        parent = path.rpartition(".")[0]
        if parent not in paths:
            yield Finding(f"the module {path!r} is listed, its parent {parent!r} is not", node="program.modules")


def check_known_modules(survey: Survey) -> Iterator[Finding]:
    """Find calls of modules, and nodes inside modules, that the hierarchy does not have; a program may list none at all."""
    yield from survey.instances.off_map
    root = survey.censuses.get(survey.root)
    known = {module.path for module in survey.modules if type(module.path) is str}
    if root is None or not known:
        return
    # Paths nest ("stacks") and parents are listed ("module-paths"), so the innermost call speaks for all around it.
    seen: set[str] = set()
    for index, stack in root.stacks:
        path = stack[-1].path
        if path not in known and path not in seen:
            seen.add(path)
            text = f"it is inside {stack[-1]}, and program.modules has no {path!r}"
            yield Finding(text, root.name, index, root.graph.nodes[index].name)
