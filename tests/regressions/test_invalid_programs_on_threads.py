"""``transform`` writes nothing on the caller's program before it is known to be valid: threads, interrupts, dropped nodes."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir import forks
from purefx.laws.law import GENERIC, Case, invalid
from purefx.laws.purity import as_imported, on_threads, outcome
from tests.models import Tower, exported

pytestmark = pytest.mark.usefixtures("unverified")


class UsesTuple(torch.nn.Module):
    """Its export is edited: an operator of one tensor gets the pair that ``torch.max`` returns."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(100):
            x = x.neg()
        return torch.max(x, 0)[0].relu()


def using_tuple() -> torch.export.ExportedProgram:
    """Return an invalid exported program that only ``verify`` finds."""
    ep = torch.export.export(UsesTuple(), (torch.ones(3, 2),))
    nodes = {node.name: node for node in ep.graph.nodes}
    nodes["relu"].args = (next(node for node in nodes.values() if "max" in str(node.target)),)
    ep.graph.eliminate_dead_code()
    return ep


def test_no_thread_accepts_an_invalid_program() -> None:
    program = px.import_ep(using_tuple())
    for result in on_threads(px.transform, program):
        assert isinstance(result, px.errors.InvalidProgram)
    assert not program.checked


class Interrupt(BaseException):
    """As a KeyboardInterrupt, but of this test."""


@contextmanager
def interrupted(after: int) -> Generator[None]:
    """Raise ``Interrupt`` in the block at a call of a function, counted from 1."""
    left = after

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal left
        if event == "call":
            left -= 1
            if left == 0:
                raise Interrupt

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


def calls_in(action: Callable[[], object]) -> int:
    """Return the number of calls of Python functions in an action."""
    count = 0

    def counted(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def locks_are_free() -> bool:
    """Return whether another thread can acquire each lock of the library."""

    def acquires(lock: Any) -> bool:
        is_free = lock.acquire(timeout=5)
        if is_free:
            lock.release()
        return is_free

    with ThreadPoolExecutor(1) as thread:
        return all(thread.map(acquires, forks._LOCKS))


def test_an_interrupt_at_any_call_of_a_pause_frees_its_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _report: None)

    def pause() -> None:
        with forks.collector_paused(), forks.collector_paused():
            pass

    threshold = gc.get_threshold()
    for number in range(1, calls_in(pause) + 1):
        with pytest.raises(Interrupt), interrupted(number):
            pause()
        assert gc.get_threshold() == threshold, number
        assert locks_are_free(), number


POINTS = 60
"""The number of places at which one action is interrupted, evenly distributed over its calls."""


@pytest.mark.parametrize(
    "door", [px.transform, px.lower, px.verify], ids=lambda door: door.__name__
)
@pytest.mark.parametrize("is_valid", [True, False], ids=["valid", "invalid"])
def test_an_interrupt_leaves_no_mark_and_the_collector_on(
    door: Callable[[px.Program], Any], is_valid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An interrupt in a destructor or a generator that closes is reported here.
    monkeypatch.setattr(sys, "unraisablehook", lambda _report: None)
    valid = px.import_ep(exported(Tower(2), torch.ones(1, 4)))
    program = valid if is_valid else invalid(valid)
    expected = outcome(px.transform, as_imported(program))
    outcome(
        door, as_imported(program)
    )  # what torch and Python import on first use is not interrupted
    count = calls_in(lambda: outcome(door, as_imported(program)))
    before = gc.isenabled(), gc.get_threshold()
    for number in range(POINTS):
        fresh = as_imported(program)
        try:
            with interrupted(1 + number * count // POINTS):
                outcome(door, fresh)
        except Interrupt:
            pass
        assert (gc.isenabled(), gc.get_threshold()) == before
        assert locks_are_free()
        assert is_valid or not fresh.checked
        result = outcome(px.transform, fresh)
        assert type(result) is type(expected)
        assert not is_valid or result == expected
        assert is_valid or isinstance(outcome(px.lower, fresh), px.errors.InvalidProgram)  # type: ignore[arg-type]


def test_an_invalid_node_that_a_step_drops_is_refused() -> None:
    ep = using_tuple()
    nodes = {node.name: node for node in ep.graph.nodes}
    output = next(node for node in ep.graph.nodes if node.op == "output")
    output.args = ((nodes["neg"],),)
    ep.graph_signature.output_specs[0].arg.name = "neg"
    program = px.import_ep(ep)
    assert px.verify(program)
    with pytest.raises(px.errors.InvalidProgram):
        px.transform(program, px.eliminate_dead_code)
    with pytest.raises(px.errors.InvalidProgram):
        px.lower(program)


def test_a_program_is_not_marked_if_only_its_result_was_verified() -> None:
    """Merged bodies keep one of several entries, so a valid result does not show that the program is valid."""
    ep = exported(Tower(2), torch.ones(1, 4))
    [*nodes] = [node for node in ep.graph.nodes if node.op == "call_function"]
    nodes[-1].meta["val"] = {1, 2}
    program = px.import_ep(ep)
    assert px.verify(program)
    result = outcome(px.transform, program)
    assert isinstance(result, px.errors.InvalidProgram) or px.verify(result) == ()
    for _ in range(2):
        with pytest.raises(px.errors.InvalidProgram):
            px.lower(program)


def test_the_law_of_threads_finds_a_mark_before_the_check() -> None:
    def marks_first(program: px.Program) -> px.Program:
        object.__setattr__(program, "checked", True)
        time.sleep(0.05)  # the other threads run, however busy the machine is
        if px.verify(program):
            object.__setattr__(program, "checked", False)
            raise px.errors.InvalidProgram(px.verify(program))
        return program

    def accepts_marked(program: px.Program) -> px.Program:
        return program if program.checked else marks_first(program)

    law = next(law for law in GENERIC if law.name == "threads")
    case = Case(px.import_ep(exported(Tower(2), torch.ones(1, 4))))
    assert law.check(accepts_marked, case)
    assert law.check(px.transform, case) == []
