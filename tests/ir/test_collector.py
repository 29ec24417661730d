"""The collector is as it was found: with threads, interrupted between any two instructions, and in forked children.

Threads enter and leave as fast as the interpreter lets them; an exception comes before each instruction once, and its
traceback is kept; signals come at drawn moments.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.persistent import collector_paused


@pytest.fixture
def _often_switched() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.enable()


@pytest.fixture
def _no_callbacks() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """Collections call nobody: hypothesis times them in Python code, where an exception is reported and gets lost."""
    callbacks, gc.callbacks[:] = [*gc.callbacks], []
    yield
    gc.callbacks[:] = callbacks


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


class Stop(BaseException):
    """What comes between two instructions."""


def stopped_at(moment: int, run: Callable[[], object]) -> Stop | None:
    """Run something with an exception before one of its instructions, by number; None where it has fewer."""
    moments = itertools.count()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event in ("call", "opcode") and next(moments) == moment:
            raise Stop
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except Stop as error:
        return error
    finally:
        sys.settrace(before)
    return None


def nested_pauses() -> int:
    with collector_paused():
        with collector_paused():
            found = 1
        found += 1
    return found


@pytest.mark.usefixtures("_no_callbacks")
@pytest.mark.parametrize("running", [True, False])
def test_an_exception_between_any_two_instructions_leaves_the_collector_as_it_was(running: bool) -> None:
    kept: list[Stop] = []  # with their tracebacks, as a debugger and an interactive session keep them
    try:
        for moment in itertools.count():
            if not running:
                gc.disable()
            stopped = stopped_at(moment, nested_pauses)
            if stopped is None:
                break
            kept.append(stopped)
            assert gc.isenabled() is running, f"{moment}: {stopped!r}"
            gc.enable()
            assert not pauses(1), moment
            assert gc.isenabled(), moment
    finally:
        gc.enable()
    assert len(kept) > 40


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


def interrupted(run: Callable[[], object], times: int) -> bool:
    """Run something again and again, each time with a Ctrl-C at a drawn moment; say whether the collector ever stayed off."""
    draw = random.Random(0)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sys.unraisablehook = lambda _: None  # what comes inside of a finalizer is only reported
    for _ in range(times):
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 4e-3))
            while signal.getitimer(signal.ITIMER_REAL)[0]:  # it comes once, and may have been lost in a finalizer
                run()
        except KeyboardInterrupt:
            pass
        if not gc.isenabled():
            return True
    return False


@pytest.mark.usefixtures("_no_callbacks")
def test_interrupts_of_transform_lower_and_verify() -> None:
    program = px.import_ep(torch.export.export(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), (torch.ones(1, 2),)))

    def work() -> None:
        outlined = px.transform(program)
        px.lower(outlined)
        px.verify(outlined)

    work()
    assert status_of_child(lambda: not interrupted(work, 250)) == 0
