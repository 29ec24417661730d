"""What is derived from a graph is no part of its value, is kept with it, and goes with it."""

from __future__ import annotations

import contextlib
import gc
import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from random import Random

import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import purefx as px
from bench.edits import Variants, anew, tree
from purefx.ir.forks import collector_paused
from purefx.ir.inference.results import returned_input
from purefx.ir.operators import op_of
from purefx.ir.persistent import pmap
from purefx.ir.state import SlotKind
from purefx.ir.tensors import TensorIds, cell_key


def asked(program: px.Program) -> px.Program:
    """Return a program after all questions were asked."""
    assert program.order and program.bottom_up and not px.verify(program) and px.digest(program)
    return program


def test_what_is_derived_is_no_part_of_a_value() -> None:
    program = asked(tree(3))
    fresh = anew(program)
    assert fresh == program and hash(fresh) == hash(program) and program.text() == fresh.text()
    graph, state = program.main, program.state
    assert graph.derived and not evolve(graph).derived
    assert state.derived and not evolve(state).derived


def test_maps_edit_alike_below_and_above_the_size_of_a_tree() -> None:
    for size in (3, 3000):
        objects = {f"k{number}": object() for number in range(size)}
        first = pmap(objects)
        second = first.set("k1", 1).set("new", 2)
        assert dict(second) == {**objects, "k1": 1, "new": 2} and dict(first) == objects
        assert dict(first.update({"k2": 3})) == {**objects, "k2": 3}


def test_a_version_that_comes_back_has_its_digest_and_its_code() -> None:
    base = tree(4)
    other = Variants(base).next()
    back = other.evolve(graphs=other.graphs.set("block 1", base.graphs["block 1"]))
    assert px.digest(back) == px.digest(base) != px.digest(other)
    x = torch.ones(2, 8)
    assert torch.equal(px.lower(back)(x), px.lower(base)(x))


# The collector is as the user set it: with threads, nested pauses, and after errors.


def collects() -> bool:
    """Return whether the collector runs by itself."""
    before = [each["collections"] for each in gc.get_stats()]
    _ = [[] for _ in range(20_000)]
    return [each["collections"] for each in gc.get_stats()] != before


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
        assert collects() is runs
    finally:
        gc.enable()


def test_pauses_nest_and_end_after_an_error() -> None:
    assert collects()
    with collector_paused():
        with collector_paused():
            pass
        assert not collects()
    with pytest.raises(ZeroDivisionError), collector_paused():
        _ = 1 // 0
    assert gc.isenabled()
    assert collects()


class Worker:
    """A thread that enters and leaves pauses on request."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1)
        self.open: list[AbstractContextManager[None]] = []

    def enter(self) -> None:
        self.open.append(collector_paused())
        self.thread.submit(self.open[-1].__enter__).result()

    def leave(self, error: BaseException | None) -> None:
        pause = self.open.pop()
        kind = None if error is None else type(error)
        with contextlib.suppress(ZeroDivisionError):
            self.thread.submit(pause.__exit__, kind, error, None).result()


@pytest.mark.parametrize("seed", range(40))
def test_the_collector_is_the_users_after_any_interleaving(seed: int) -> None:
    """Threads begin and end nested pauses, some with an error; meanwhile the user sets the collector."""
    random = Random(seed)
    workers, before = [Worker() for _ in range(3)], gc.get_threshold()
    enabled, threshold, is_users = True, before[0], True
    try:
        for _ in range(80):
            worker = random.choice(workers)
            match random.choice(["enter", "enter", "leave", "leave", "enable", "disable", "set"]):
                case "enter":
                    is_users = is_users and any(other.open for other in workers)
                    worker.enter()
                case "leave" if worker.open:
                    worker.leave(random.choice([None, ZeroDivisionError()]))
                    is_users = is_users or not any(other.open for other in workers)
                case "enable":
                    enabled = True
                    gc.enable()
                case "disable":
                    enabled = False
                    gc.disable()
                case "set" if random.random() < 0.3:
                    threshold, is_users = random.choice([0, 500, 900]), True
                    gc.set_threshold(threshold)
                case _:
                    pass
            assert gc.isenabled() is enabled
            assert (gc.get_threshold()[0] == threshold) is is_users
            assert gc.get_threshold()[1:] == before[1:]
        for worker in workers:
            while worker.open:
                worker.leave(None)
        assert (gc.isenabled(), gc.get_threshold()[0]) == (enabled, threshold)
    finally:
        gc.set_threshold(*before)
        gc.enable()
        for worker in workers:
            worker.thread.shutdown()


def test_what_the_user_switches_off_in_a_pause_stays_off() -> None:
    """A condition of a rule is the user's code, and runs during a pause."""

    def switches_off(_match: px.Match) -> bool:
        gc.disable()
        return True

    rule = px.rule(lambda x: torch.relu(x), where=switches_off).becomes(lambda m, x: torch.tanh(x))
    program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    try:
        assert rule(program) is not program
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert collects()


# Cells and storages are numbered as their definition says, whatever shares memory with what, in whatever order.


VIEWS: tuple[Callable[[torch.Tensor], object], ...] = (
    lambda tensor: tensor,
    lambda tensor: tensor.detach(),
    lambda tensor: tensor[1:],
    lambda tensor: tensor.t(),
    lambda tensor: tensor.view(torch.int64),
    lambda tensor: torch.nn.Parameter(tensor),
    lambda tensor: torch.nn.Parameter(tensor, requires_grad=False),
    lambda tensor: tensor.conj(),
    lambda tensor: tensor.to_sparse(),
    lambda tensor: tensor.clone(),
    lambda tensor: tuple(tensor.shape),
)


def numbered_by_definition(values: list[object]) -> list[tuple[int, int]]:
    cells: dict[object, int] = {}
    storages: dict[object, int] = {}
    found: list[tuple[int, int]] = []
    for value in values:
        window, memory = cell_key(value)
        key = (window, value.requires_grad) if isinstance(value, torch.Tensor) else window
        found.append(
            (cells.setdefault(key, len(cells)), storages.setdefault(memory, len(storages)))
        )
    return found


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(VIEWS)), max_size=9))
def test_numbers_are_those_of_the_definition(
    drawn: list[tuple[int, Callable[[torch.Tensor], object]]],
) -> None:
    memory = [torch.ones(3, 3, dtype=torch.complex64) for _ in range(3)]
    values = [view(memory[number]) for number, view in drawn]
    numbers = TensorIds()
    slots = [numbers.slot(value, SlotKind.CONSTANT, persistent=False) for value in values]
    assert [(slot.cell, slot.storage) for slot in slots] == numbered_by_definition(values)


def test_an_item_of_an_input_is_not_an_input() -> None:
    """The input of a body is a tuple if an operator of another module has several results."""
    body = px.Graph(
        (px.ir.Input("pair"),),
        (px.Node("item", op_of(operator.getitem), (px.Ref("pair"), 0)),),
        px.Ref("item"),
    )
    main = px.Graph(
        (px.ir.Input("x"),),
        (px.Node("y", px.ir.Call(px.ir.Frame("m"), "m"), (px.Ref("x"),)),),
        (px.Ref("y"),),
    )
    assert returned_input(px.Program.of({"": main, "m": body}), main, "y", {}) is None
