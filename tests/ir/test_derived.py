"""What is derived from a graph is no part of its value, is kept with it, and goes with it."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import purefx as px
from bench.edits import Variants, anew, tree
from purefx.ir.inference.results import returned_input
from purefx.ir.operators import op_of
from purefx.ir.persistent import collector_paused, pmap
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


# The collector is as it was found: with threads, and after errors.


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
