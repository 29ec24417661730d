"""What is asked for: paths that can be swapped, and what may stand in for a module.

One idea: everything is asked before anything is made, and each refusal says what, where and what to do.  A path below another
one is a part of what replaces that: a program has it swapped in turn.  ``n@1`` is one call of ``n``, the second; what answers it
stands beside ``n``, as ``n_1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from attrs import define, field

from ...ir.callers import Standing, calls_from
from ...ir.errors import SwapError
from ...ir.names import did_you_mean
from ...ir.node import Frame
from ...ir.paths import is_below
from ...ir.program import Program

__all__ = ["Request", "calls_by_path", "read_requests"]

Replacement = torch.nn.Module | Program


@define
class Request:
    """One module to swap."""

    path: str
    """Where the replacement stands."""
    by: Replacement
    inside: dict[str, Replacement] = field(factory=dict)
    """What is swapped in the replacement, by path below it."""
    call: tuple[str, int] | None = None
    """The one call that goes there, by module and number; None where all calls of the module do."""


def read_requests(program: Program, modules: Any) -> dict[str, Request]:
    """Return what is to be swapped, by path.

    Args:
        program: whose modules they are.
        modules: a mapping from paths to replacements, or pairs of them.

    Returns:
        The requests by where their replacements stand.

    Raises:
        SwapError: a path is unknown, given twice or the root's; or something is no replacement.

    >>> from purefx.ir import Graph, Program
    >>> read_requests(Program.of({"": Graph((), ())}), {})
    {}
    """
    found: dict[str, Request] = {}
    known = _known_paths(program)
    for path, by in _pairs(modules):
        if not isinstance(path, str):
            raise SwapError(f"modules are named by their paths, which are strings; {path!r} is a {type(path).__name__}")
        if path in found:
            raise SwapError(f"module {path!r} is given twice; give one replacement for each path")
        if not path:
            raise SwapError("the root can not be swapped: what stands in for it takes and gives what it likes; use that instead")
        found[path] = Request(path, _replacement(path, by))
    nested = _nested(found, known)
    calls = {path: request for path, request in nested.items() if path not in known}
    places = _places(program, calls, known) if calls else {}
    return {places.get(path, path): request for path, request in nested.items()}


def _places(program: Program, calls: dict[str, Request], known: set[str]) -> dict[str, str]:
    # Where the replacement of one call stands: beside the module, under a name that nothing has.
    there: dict[tuple[str, int], None] = dict.fromkeys((path, call.instance.call) for _, call, path in calls_from(program))
    taken = {*known, *program.state.order}
    found: dict[str, str] = {}
    for path, request in calls.items():
        module, _, number = path.rpartition("@")
        request.call = (module, int(number))
        if request.call not in there:
            calls_of = ", ".join(str(Frame(*each)) for each in there if each[0] == module)
            said = f"the calls of it are {calls_of}" if calls_of else "it is not called in this program"
            raise SwapError(f"module {module!r} has no call {number} (counted from 0); {said}")
        place = f"{module}_{number}"
        while place in taken:
            place += "_"
        taken.add(place)
        request.path = found[path] = place
    return found


def _is_call(path: str, known: set[str]) -> bool:
    module, _, number = path.rpartition("@")
    return module in known and number.isascii() and number.isdigit()


def _pairs(modules: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(modules, Mapping):
        return list(modules.items())
    try:
        return [(path, by) for path, by in modules]
    except (TypeError, ValueError):
        said = f"swap_modules takes a mapping from paths to replacements, not a {type(modules).__name__}"
        raise SwapError(f'{said}: swap_modules(program, {{"layers.0.mlp": module}})') from None


def _replacement(path: str, by: Any) -> Replacement:
    if isinstance(by, Program):
        return by
    if isinstance(by, type) and issubclass(by, torch.nn.Module):
        raise SwapError(f"module {path!r}: {by.__name__} is a class; give an instance of it")
    if not isinstance(by, torch.nn.Module):
        raise SwapError(
            f"module {path!r}: a {type(by).__name__} can not stand in for a module; give a torch.nn.Module (eager, fx or "
            "compiled) or a purefx Program"
        )
    return by


def _nested(found: dict[str, Request], known: set[str]) -> dict[str, Request]:
    outermost: dict[str, Request] = {}
    for path in sorted(found, key=lambda path: path.count(".")):
        outer = next((request for request in outermost.values() if is_below(path, request.path)), None)
        if outer is None:
            if path not in known and not _is_call(path, known):
                raise SwapError(f"there is no module {path!r}{_suggestion(path, known)}")
            outermost[path] = found[path]
        elif isinstance(outer.by, Program):
            outer.inside[path[len(outer.path) + 1 :]] = found[path].by
        else:
            inside = path[len(outer.path) + 1 :]
            raise SwapError(
                f"module {path!r} is below {outer.path!r}, which is swapped as well for a {type(outer.by).__name__}: put it "
                f"into that ({inside} = ...), or leave one of the two out"
            )
    return {path: outermost[path] for path in found if path in outermost}


def _suggestion(path: str, known: set[str]) -> str:
    near = did_you_mean(path, known)
    if near:
        return near
    few = sorted(known, key=lambda path: (path.count("."), path))[:5]
    return f"; the program has {', '.join(map(repr, few))}{' ...' if len(known) > len(few) else ''}" if few else ""


def _known_paths(program: Program) -> set[str]:
    listed = [module.path for module in program.modules]
    stacks = [frame.path for node in program.main.nodes for frame in node.stack]
    return {path for path in (*listed, *calls_by_path(program), *stacks) if path}


def calls_by_path(program: Program) -> dict[str, list[Standing]]:
    """Return, for each module that is called, the bodies that call it, each with the path that it stands in.

    >>> from purefx.ir import Graph, Program
    >>> calls_by_path(Program.of({"": Graph((), ())}))
    {}
    """
    found: dict[str, list[Standing]] = {}
    for caller, _, path in calls_from(program):
        found.setdefault(path, []).append(caller)
    return found
