"""What is derived from a graph is no part of its value, is kept with it, and goes with it."""

from __future__ import annotations

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


def test_maps_edit_alike_below_and_above_the_size_of_a_tree() -> None:
    for size in (3, 3000):
        objects = {f"k{number}": object() for number in range(size)}
        first = pmap(objects)
        second = first.set("k1", 1).set("new", 2)
        assert dict(second) == {**objects, "k1": 1, "new": 2} and dict(first) == objects
        assert dict(second.remove("new")) == {**objects, "k1": 1}
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
