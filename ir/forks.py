"""Changes of the process for the duration of a block: locks, a pause of the garbage collector, replaced attributes.

A child that is forked while another thread is in such a block does not have that thread, so nobody would leave the block.
There, the change is undone and the lock is free.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from operator import methodcaller
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as cached_property  # noqa: PLC0414  pyright: exported
else:
    import functools

    class cached_property(functools.cached_property):  # noqa: N801  as in functools
        """``functools.cached_property`` without the lock of Python 3.11.

        That lock is shared by all instances: threads wait for each other, and a forked child forever.  Here, two threads may
        both compute the value; all get the first that is stored.

        >>> class Square:
        ...     side = 3
        ...     area = cached_property(lambda self: self.side**2)
        >>> square = Square()
        >>> square.area, vars(square)
        (9, {'area': 9})
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            known = instance.__dict__
            if self.attrname not in known:
                known.setdefault(self.attrname, self.func(instance))
            return known[self.attrname]


_OPEN: dict[object, tuple[int, Callable[[], object]]] = {}
"""The thread of each open block, and the function that undoes its change; oldest first."""


@contextmanager
def undone_by(undo: Callable[[], object]) -> Generator[None]:
    """Undo a change at the end of the block, also after an interrupt; in a child that another thread forks, at once.

    Args:
        undo: the function; calling it twice must not differ from calling it once.

    >>> with undone_by(lambda: print("undone")):
    ...     print("changed")
    changed
    undone
    """
    key = object()
    _OPEN[key] = threading.get_ident(), undo
    try:
        yield
    finally:
        try:
            undo()
        except BaseException:
            undo()  # an interrupt came before it
            raise
        finally:
            _OPEN.pop(key, None)


_LOCKS: list[threading.RLock] = []
"""All locks of ``new_lock``; they are global variables of modules."""


def new_lock() -> threading.RLock:
    """Return a reentrant lock; in a forked child it is free unless the forking thread holds it.

    It is a lock of Python itself: an interrupt may come before a method that is written in Python
    releases a lock, and then other threads would wait for ever.

    >>> lock = new_lock()
    >>> with lock, lock:
    ...     pass
    """
    lock = threading.RLock()
    _LOCKS.append(lock)
    return lock


def _free(lock: Any) -> None:
    # Python's own locks are freed in a child by the same method.
    if lock.acquire(blocking=False):
        lock.release()
    else:
        methodcaller("_at_fork_reinit")(lock)


PAUSED = 2_000_000_011
"""The threshold of the collector's first generation during a pause: more objects than fit into memory."""


class _Collector:
    """The pauses of the garbage collector in all threads.

    The collector is paused by its threshold: ``gc.disable`` and ``gc.enable`` are left to the user, who may call them in a
    callback or in another thread.  A threshold that is no longer ``PAUSED`` is the user's, too.
    """

    def __init__(self) -> None:
        self.lock = new_lock()
        self.pauses: set[object] = set()
        self.threshold = 0
        """The user's threshold."""

    def pause(self, pause: object) -> None:
        """Begin a pause."""
        with self.lock:
            threshold = gc.get_threshold()[0]
            if threshold != PAUSED and not self.pauses:
                self.threshold = threshold
                gc.set_threshold(PAUSED)
            self.pauses.add(pause)

    def resume(self, pause: object) -> None:
        """End a pause; the last one restores the threshold."""
        with self.lock:
            self.pauses.discard(pause)
            if not self.pauses and gc.get_threshold()[0] == PAUSED:
                gc.set_threshold(self.threshold)


_COLLECTOR = _Collector()


@contextmanager
def collector_paused() -> Generator[None]:
    """Keep the garbage collector from running by itself until the end of the block; in other threads as well.

    Pauses of several threads and nested pauses are counted.  What the user sets meanwhile with ``gc.enable``, ``gc.disable``
    or ``gc.set_threshold`` stays, and ``gc.collect`` works.

    >>> before = gc.get_threshold()
    >>> with collector_paused():
    ...     gc.isenabled(), gc.get_threshold()[0] == PAUSED
    (True, True)
    >>> gc.get_threshold() == before
    True
    """
    pause = object()
    with undone_by(lambda: _COLLECTOR.resume(pause)):
        _COLLECTOR.pause(pause)
        yield


def _in_child() -> None:
    # Only the forking thread is left; it leaves its blocks itself.
    for lock in _LOCKS:
        _free(lock)
    me = threading.get_ident()
    for key, (thread, undo) in reversed([*_OPEN.items()]):
        if thread != me:
            del _OPEN[key]
            undo()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
