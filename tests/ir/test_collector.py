"""The collector is as it was found: with threads, and after errors."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
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
