"""Notes on errors: which node of which module failed, and the user's line that it came from.

One idea: nothing is done until something fails; then the traceback says which generated line ran.
"""

from __future__ import annotations

from types import CodeType, TracebackType
from typing import Any

from ..ir.names import escaped
from ..ir.node import Call, Get, Node
from .compiled import Body

__all__ = ["note_failure", "note_from_traceback"]


def note_failure(error: BaseException, path: str, node: Node) -> None:
    """Add to an error where in the program it happened; the innermost place is noted once.

    Args:
        error: what was raised.
        path: of the module that was running.
        node: of its body.
    """
    if getattr(error, "__purefx_noted__", False):
        return
    error.add_note(describe(path, node))
    try:
        error.__purefx_noted__ = True  # type: ignore[attr-defined]
    except AttributeError:  # an exception class with slots: a second note does no harm
        pass


def describe(path: str, node: Node) -> str:
    """Return the place of a node in words, with the last two lines of the user's stack trace."""
    match node.do:
        case Get(slot=slot):
            what = f"reads state {slot!r}"
        case Call(instance=instance):
            what = f"calls {instance}"
        case do:
            what = do.name
    trace = str(node.meta.get("stack_trace") or "").strip().splitlines()
    lines = "".join(f"\n    {line.strip()}" for line in trace[-2:])
    return escaped(f"while running {path or 'the root'} / {node.name} ({what}){lines}")


def note_from_traceback(error: BaseException, bodies: dict[CodeType, Body]) -> None:
    """Add to an error the innermost node that was running, found in its traceback."""
    if getattr(error, "__purefx_noted__", False):
        return
    found: tuple[Any, Body, int] | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        body = bodies.get(trace.tb_frame.f_code)
        index = body.node_at(trace.tb_lineno) if body is not None else None
        if body is not None and index is not None:
            found = (trace.tb_frame.f_locals.get("self"), body, index)
        trace = trace.tb_next
    if found is not None:
        module, body, index = found
        place = getattr(module, "__dict__", {}).get("purefx_place")
        note_failure(error, place.path if place is not None else "", body.runs.nodes[index])
