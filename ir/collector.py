"""``collector_paused``: no garbage collection while many live values are made.

One idea: what import, verify, our own transformations and lowering make is alive while they run, so a collection in between
walks all of it and frees none (100,000 nodes: half of the time of outlining).  The state that was found is put back by the
death of an object, in C: an exception between any two instructions, Ctrl-C included, and a fork may lose a pause and never
keep one.
"""

from __future__ import annotations

import gc
import os
from contextlib import AbstractContextManager, nullcontext
from functools import partial

__all__ = ["collector_paused"]


class _Mark(str):
    """One block that pauses the collector; an empty string, see below."""

    __slots__ = ()


class _Last(_Mark):
    """The mark at the bottom, which is dropped when the last block ends."""

    __slots__ = ()
    __del__ = staticmethod(gc.enable)


_marks: list[_Mark] = []
"""One for each block that is on, in any thread; empty while the collector is as the user left it."""


class _Pause(str):
    """A block.  No method runs Python code, so no exception comes while it begins or ends; when it dies, its mark is dropped."""

    __slots__ = ()
    __init__ = staticmethod(_marks.append)  # pyright: ignore[reportAssignmentType]
    __enter__ = staticmethod(gc.disable)
    # Takes anything, is bound to the block, which keeps that alive, and gives back the empty string: exceptions go on.
    __exit__ = str.format
    __del__ = staticmethod(partial(_marks.__delitem__, slice(-1, None)))  # unlike pop, right where there is none


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_marks.clear)  # the threads of those blocks are not in the child


def collector_paused() -> AbstractContextManager[None]:
    """Pause the garbage collector, if it is running, until the end of the block; of the last one where threads overlap.

    >>> with collector_paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    if not (_marks or gc.isenabled()):
        return nullcontext()  # whoever stopped it wants that
    # No name is bound to the pause, here or by its users: a traceback that somebody keeps must not keep it.
    return (_Pause(_Mark()), setattr(_marks[0], "__class__", _Last))[0]  # pyright: ignore[reportCallIssue, reportReturnType]
