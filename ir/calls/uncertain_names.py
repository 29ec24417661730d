"""Calls of modules with several names in strict exports.

A strict export records a call under the name that forward read last, not under the name that it called: ``c(b(a(x)))`` are
three calls of ``a`` if the three are one module.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ..errors import SwapWarning
from ..names import escaped, parent_of
from ..persistent import grouped
from ..program import Program
from .call_graph import calls_from

LAST_NAME = "calls by last name"
"""The fact of programs from strict exports."""

KNOWN_OBJECTS = "known objects"
"""The fact that ``program.modules`` tells which names are one module, as ``capture`` makes it after a strict export."""

OURS = frozenset({"purefx", "torch", "functools"})
"""The packages whose frames are between a warning and the line of the user."""


def uncertain_names(program: Program) -> Mapping[str, tuple[str, ...]]:
    """Return the other names of modules whose calls may have been made under them, by path; empty for most exports.

    The calls are certain if the module has one call, or each name has one.  Names count as names of one module if the
    program says so, or if one is never called and all of their state is tied.

    Args:
        program: any program; only those of strict exports have such names.

    >>> from purefx.ir import Graph
    >>> uncertain_names(Program.of({"": Graph((), (), ())}))
    {}
    """
    if LAST_NAME not in program.facts:
        return {}
    calls = Counter([path for _, _, path in calls_from(program)])
    names = _names(program, calls)
    uncertain: dict[str, tuple[str, ...]] = {}
    for path, others in names.items():
        # A child of one object has one name there.
        own = [other for other in others if not _is_same_child(path, other, names)]
        counts = [calls[name] for name in (path, *own)]
        if own and sum(counts) > 1 and set(counts) != {1}:
            uncertain[path] = tuple(own)
    return uncertain


def _is_same_child(path: str, other: str, names: Mapping[str, Collection[str]]) -> bool:
    (above, _, name), (around, _, called) = path.rpartition("."), other.rpartition(".")
    return name == called and around in names.get(above, ())


def _names(program: Program, calls: Collection[str]) -> dict[str, list[str]]:
    # The other names of each module.
    contents = _contents(program)
    cells = {module.path: module.cell for module in program.modules if module.path}
    # Strict exports list modules that they never called without a class.
    unknown = {module.path for module in program.modules if module.type_name is None}
    unknown.difference_update(calls)
    by_cell = grouped([(cell, path) for path, cell in cells.items()])
    guessed = KNOWN_OBJECTS not in program.facts
    by_content = grouped([(contents[path], path) for path in cells if guessed])
    names: dict[str, list[str]] = {}
    for path, cell in cells.items():
        same = by_cell[cell] if cell is not None else []
        tied = [
            other
            for other in by_content.get(contents[path], ())
            if (cell is None or cells[other] is None) and (path in unknown or other in unknown)
        ]
        names[path] = [other for other in dict.fromkeys([*same, *tied]) if other != path]
    return names


def _contents(program: Program) -> dict[str, frozenset[tuple[str, int | None]]]:
    # The children of each module, and its state with the cells, by relative names.
    paths = [module.path for module in program.modules]
    items: list[tuple[str, int | None]] = [(path, None) for path in paths]
    items.extend([(name, slot.cell) for name, slot in program.state.pairs])
    inside: dict[str, set[tuple[str, int | None]]] = {path: set() for path in paths}
    for name, cell in items:
        outer = parent_of(name)
        while outer:
            if outer in inside:
                inside[outer].add((name[len(outer) :], cell))
            outer = parent_of(outer)
    return {path: frozenset(content) for path, content in inside.items()}


def not_called(path: str, others: Sequence[str]) -> str:
    """Return the refusal of a replacement for a name without recorded calls.

    >>> not_called("b", ["a"]).partition(";")[0]
    "module 'b': the strict export recorded no call under this name"
    """
    listed = " or ".join(map(repr, others))
    return (
        f"module {path!r}: the strict export recorded no call under this name; if the module is also {listed}, export with "
        "strict=False to keep the names apart; if its call exports no operators, export with "
        f"preserve_module_call_signature=({path!r},)"
    )


def warn_of_other_names(program: Program, path: str, others: Sequence[str]) -> None:
    """Warn that a replacement changes calls of a module that may have been made under its other names.

    Args:
        program: the program before the replacement.
        path: the name that is replaced.
        others: the other names of the module.
    """
    listed = " or ".join(map(repr, others))
    count = sum(called == path for _, _, called in calls_from(program))
    calls = f"{count} calls" if count > 1 else "1 call"
    text = (
        f"module {path!r}: the replacement changes {calls}, and forward may have made some of them as {listed}, which eager mode "
        "would keep: a strict export records calls of one module under one of its names; export with strict=False to keep the "
        "names apart"
    )
    # The line of the user, outside of purefx and torch.
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(escaped(text), SwapWarning, stacklevel=max(level - 1, 1) + 1)
