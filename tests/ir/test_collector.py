"""The collector is as it was found: with threads, and after errors."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from purefx.ir.persistent import collector_paused


def pauses(times: int) -> None:
    for _ in range(times):
        with collector_paused():
            pass


@pytest.mark.parametrize("runs", [True, False])
def test_threads_leave_the_collector_as_it_was(runs: bool) -> None:
    try:
        (gc.enable if runs else gc.disable)()
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(pauses, [500] * 8))
        assert gc.isenabled() is runs
    finally:
        gc.enable()


def test_pauses_nest_and_end_after_an_error() -> None:
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    with pytest.raises(ZeroDivisionError), collector_paused():
        _ = 1 // 0
    assert gc.isenabled()
