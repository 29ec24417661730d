"""Hooks of lowered modules: they run for every call of a module as a whole, or are refused when they are registered.

One idea: a hook is told the arguments and the result of a call, so it can run where a module is called, in one piece, and nowhere
else.  A module whose call was cut, or whose operators run in the body of another one, has no such place, and says so at once; a
hook that is silently told a piece, or nothing, would be worse.  A module that left no operator in the program is never called.
"""

from __future__ import annotations

from ..ir.errors import UnsupportedProgram
from ..ir.node import Call
from .family import Family

__all__ = ["check_hooked", "unhooked"]


def check_hooked(family: Family, path: str) -> None:
    """Refuse hooks of a module that is never called in one piece.

    Args:
        family: what the module was lowered with.
        path: the module; the root is called as it is.

    Raises:
        UnsupportedProgram: its call was cut, or its operators run inside of another body.
    """
    known = unhooked(family)
    why = next((known[each] for each in family.paths_of(path) if each in known), None)
    if why is not None:
        raise UnsupportedProgram(f"hooks of module {path!r} can not run: {why}")


def unhooked(family: Family) -> dict[str, str]:
    """Return why hooks of a module can not run, by path; a module for which they can is not there.

    Args:
        family: of the program that runs.
    """
    found: dict[str, str] | None = family.derived.get("unhooked")
    if found is None:
        found = family.derived["unhooked"] = _unhooked(family)
    return found


def _unhooked(family: Family) -> dict[str, str]:
    found: dict[str, str] = {}
    called = family.bodies_at
    for path, needs in family.needs.items():
        if needs.inside and path not in called:
            around = needs.inside[0].caller or "the root"
            found[path] = (
                f"its operators run in the body of {around}, and nothing calls it; outline the "
                "program before it is lowered (px.transform does), or hook the module around it"
            )
        for asked in needs.calls:
            do = asked.node.do
            if asked.path == path and type(do) is Call and family.shallow.inlines(asked.graph, do.graph):
                found[path] = (
                    "it is nested so deeply that its code runs inside of that of a module around it; hook one further out"
                )
    for path, calls in called.items():
        if any(frame.part for frame, _ in calls):
            found[path] = (
                "its call was cut in pieces, because others must run in between, so no hook would be told what the module "
                "takes and gives; hook the module around it, or those in it, or export with "
                f"preserve_module_call_signature=({path!r},), which keeps it whole where anything can"
            )
    return found
