"""A child that is forked while another thread works is as if that thread had not begun.

The thread does not exist in the child, so its lock was never released, and the collector stayed off.
"""

from __future__ import annotations

import functools
import gc
import importlib
import logging
import os
import pkgutil
import signal
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch

import purefx
import purefx as px
from purefx import _doors
from purefx.ir.forks import collector_paused, new_lock, undone_by
from purefx.ir.inference import values
from purefx.ir.torch_private import FakeTensorMode, joints, silence

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning"),
]

SECONDS = 60
"""The longest time of a child."""


def fails_in_child(action: Callable[[], None]) -> str:
    """Run an action in a forked child; return its exception as text, or an empty string."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)  # ends a child that waits for a lock
        text = ""
        try:
            action()
        except BaseException:
            text = traceback.format_exc()
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return text if status == 0 else f"the child ended with {status}"


@contextmanager
def held_by_another_thread(enter: Callable[[], AbstractContextManager[Any]]) -> Generator[None]:
    """Let another thread be in a context during the block."""
    inside, go_on = threading.Event(), threading.Event()

    def run() -> None:
        with enter():
            inside.set()
            assert go_on.wait(2 * SECONDS)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert inside.wait(SECONDS)
        yield
    finally:
        go_on.set()
        thread.join()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * 1.0


X = torch.ones(2, 4)
EP = torch.export.export(Model(), (X,))
TIMES_ONE = px.rule(lambda x: x * 1.0).becomes(lambda m, x: x)


def works() -> None:
    """Import, transform, infer, rewrite, lower and run a program."""
    assert gc.isenabled()
    assert gc.get_threshold() == THRESHOLD
    program = px.infer(px.transform(TIMES_ONE(px.import_ep(EP))))
    assert px.verify(program, infer=True) == ()
    assert torch.equal(px.lower(program)(X), EP.module()(X))
    assert px.to_device(program, "meta") != program
    assert gc.isenabled()
    assert gc.get_threshold() == THRESHOLD


THRESHOLD = gc.get_threshold()


@pytest.fixture(autouse=True)
def threshold() -> Generator[None]:
    """Run the tests with one known threshold of the collector."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLD)
    yield
    gc.set_threshold(*before)


@contextmanager
def nested_pauses() -> Generator[None]:
    with collector_paused(), collector_paused():
        yield


def mode() -> Any:
    """Return the fake mode of the exported program."""
    return next(node.meta["val"].fake_mode for node in EP.graph.nodes if node.op == "placeholder")


@contextmanager
def in_kernel() -> Generator[None]:
    """Run an operator whose kernel waits, as purefx runs it."""
    with values.running(mode()):
        before, mode().in_kernel_invocation = mode().in_kernel_invocation, True
        try:
            yield
        finally:
            mode().in_kernel_invocation = before


HELD: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "the lock of inference": lambda: values.LOCK,
    "the lock of capture": lambda: _doors.LOCK,
    "the lock of wrapped functions": lambda: joints.LOCK,
    "a pause of the collector": collector_paused,
    "nested pauses of the collector": nested_pauses,
    "fake values": lambda: values.running(mode()),
    "a kernel": in_kernel,
    "wrapped module calls": lambda: joints.calls_wrapped(lambda call: call),
    "numbered backward": joints.backward_numbered,
}
"""What a thread can be in while another one forks."""


@pytest.mark.parametrize("held", HELD.values(), ids=HELD)
def test_a_child_works_beside_a_thread_that_holds(
    held: Callable[[], AbstractContextManager[Any]],
) -> None:
    works()
    with held_by_another_thread(held):
        assert fails_in_child(works) == ""
    works()


def test_a_child_has_the_functions_of_torch() -> None:
    call = torch.nn.Module._call_impl
    autograd: Any = torch.autograd
    run = autograd._engine_run_backward

    def is_original() -> None:
        assert torch.nn.Module._call_impl is call
        assert autograd._engine_run_backward is run
        assert not any(logging.getLogger(name).filters for name in LOGGERS)

    @contextmanager
    def everything() -> Generator[None]:
        with (
            joints.calls_wrapped(lambda call: lambda *args: call(*args)),
            silence(),
            joints.backward_numbered(),
        ):
            yield

    with held_by_another_thread(everything):
        assert torch.nn.Module._call_impl is not call
        assert fails_in_child(is_original) == ""
    is_original()


LOGGERS = FakeTensorMode.__module__, "torch.export", "torch.fx.experimental.symbolic_shapes"


@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_a_child_has_the_collector_of_the_user(is_on: bool) -> None:
    def is_as_before() -> None:
        assert gc.isenabled() is is_on
        assert gc.get_threshold() == THRESHOLD

    try:
        (gc.enable if is_on else gc.disable)()
        with held_by_another_thread(collector_paused):
            assert fails_in_child(is_as_before) == ""
    finally:
        gc.enable()


def test_a_thread_that_forks_leaves_its_own_blocks_in_the_child() -> None:
    lock, undone = new_lock(), list[int]()

    def leaves() -> None:
        with lock:  # the forking thread holds it
            assert gc.get_threshold() != THRESHOLD
            assert undone == []

    with lock, collector_paused(), undone_by(lambda: undone.append(1)):
        assert fails_in_child(leaves) == ""
    assert undone == [1]
    assert gc.get_threshold() == THRESHOLD


def test_no_class_has_the_cached_property_that_locks() -> None:
    """In Python 3.11 its lock is shared by all instances; attrs replaces those of classes with slots."""
    for module in pkgutil.walk_packages(purefx.__path__, "purefx."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    types = [each for each in gc.get_objects() if isinstance(each, type)]
    locking = [
        f"{each.__module__}.{each.__name__}.{name}"
        for each in types
        if each.__module__.startswith("purefx")
        for name, value in vars(each).items()
        if type(value) is functools.cached_property
    ]
    assert locking == []


def test_children_of_a_busy_process_work() -> None:
    """Threads work all the time, so they hold whatever there is to be held."""
    end = threading.Event()

    def busy() -> None:
        while not end.is_set():
            px.infer(px.transform(px.import_ep(EP)))

    works()
    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12):
            assert fails_in_child(works) == ""
    finally:
        end.set()
        for thread in threads:
            thread.join()
    works()
