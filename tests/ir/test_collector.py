"""The collector is as it was found: with threads, after errors, and in forked children."""

from __future__ import annotations

import gc
import os
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from purefx.ir.persistent import collector_paused


@pytest.fixture
def _often_switched() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.enable()


def pauses(times: int) -> bool:
    """Pause the collector again and again; say whether it ever ran inside."""
    ran = False
    for _ in range(times):
        with collector_paused():
            ran = ran or gc.isenabled()
    return ran


@pytest.mark.usefixtures("_often_switched")
def test_threads_leave_the_collector_running() -> None:
    with ThreadPoolExecutor(8) as threads:
        assert not any(threads.map(pauses, [2_000] * 8))
    assert gc.isenabled()


@pytest.mark.usefixtures("_often_switched")
def test_a_collector_that_did_not_run_stays_so() -> None:
    gc.disable()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(pauses, [500] * 8))
    assert not gc.isenabled()


def test_pauses_nest_and_end_after_an_error() -> None:
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    with pytest.raises(ZeroDivisionError), collector_paused():
        _ = 1 // 0
    assert gc.isenabled()


def status_of_child(run: Callable[[], bool]) -> int:
    """Run something in a forked child; 0 where it says True."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of threads, which are the case that is tested
        pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if run() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("running", [True, False])
def test_a_child_forked_while_another_thread_pauses(running: bool) -> None:
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with collector_paused():
            inside.set()
            done.wait()

    if not running:
        gc.disable()
    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    try:
        assert status_of_child(lambda: gc.isenabled() is running) == 0
        assert status_of_child(lambda: pauses(2) is False and gc.isenabled() is running) == 0
        assert not gc.isenabled()
    finally:
        done.set()
        thread.join()
        was_running = gc.isenabled()
        gc.enable()
    assert was_running is running


def test_a_child_forked_inside_a_pause_loses_it() -> None:
    with collector_paused():
        assert status_of_child(lambda: gc.isenabled() and not pauses(2) and gc.isenabled()) == 0
        assert not gc.isenabled()
