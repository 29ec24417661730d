"""What is derived from a graph is no part of its value, is kept with it, and goes with it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from attrs import evolve

import purefx as px
from bench.edits import Variants, anew, tree
from purefx.ir.persistent import pmap


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


def test_it_goes_with_the_graph() -> None:
    base = asked(tree(8))
    variant = asked(Variants(base).next())
    graph = weakref.ref(variant.graphs["block 1"])
    del variant
    assert graph() is None, "without a collection"


@pytest.mark.usefixtures("quick_collection")
def test_two_thousand_variants_leave_nothing_behind() -> None:
    base = asked(tree(8))
    variants = Variants(base)

    def search(count: int) -> None:
        for _ in range(count):
            asked(variants.next())

    search(100)
    gc.collect()
    before = len(gc.get_objects())
    search(2000)
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_the_edited_body_is_the_only_graph_that_is_looked_at() -> None:
    base = asked(tree(16))
    known = {name: dict(graph.derived) for name, graph in base.graphs.items()}
    variant = asked(Variants(base).next())
    for name, graph in variant.graphs.items():
        assert graph is not base.graphs[name] or graph.derived == known[name]


def test_maps_edit_alike_below_and_above_the_size_of_a_tree() -> None:
    for size in (3, 3000):
        objects = {f"k{number}": object() for number in range(size)}
        first = pmap(objects)
        second = first.set("k1", 1).set("new", 2)
        assert dict(second) == {**objects, "k1": 1, "new": 2} and dict(first) == objects
        assert dict(second.remove("new")) == {**objects, "k1": 1} and second.discard("no") is second
        assert dict(first.update({"k2": 3})) == {**objects, "k2": 3}
        with pytest.raises(KeyError):
            first.remove("no")


def test_a_version_that_comes_back_has_its_digest_and_its_code() -> None:
    base = tree(4)
    other = Variants(base).next()
    back = other.evolve(graphs=other.graphs.set("block 1", base.graphs["block 1"]))
    assert px.digest(back) == px.digest(base) != px.digest(other)
    x = torch.ones(2, 8)
    assert torch.equal(px.lower(back)(x), px.lower(base)(x))
