"""Facts belong to programs and graphs: they are no part of their value, go with them, and are those of an edit from then on."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from attrs import evolve

import purefx as px
from bench.edits import Variants, tree
from purefx.ir.facts import FIELDS, Edit, Fact, edit_between
from purefx.ir.persistent import changed_keys, pmap
from purefx.laws.edits import anew, differences


def asked(program: px.Program) -> px.Program:
    """Return a program after all questions were asked."""
    assert program.order and program.bottom_up and not px.verify(program) and px.digest(program)
    return program


def test_facts_are_no_part_of_a_value() -> None:
    program = asked(tree(3))
    fresh = anew(program)
    assert program.known and fresh == program and hash(fresh) == hash(program)
    other = evolve(program)
    assert not other.known and other == program
    graph = program.main
    assert graph.derived and not evolve(graph).derived
    assert "known" not in repr(program) and str(program) == str(fresh)


def test_facts_go_with_the_program() -> None:
    base = asked(tree(8))
    variant = asked(Variants(base).next())
    graph = weakref.ref(variant.graphs["block 1"])
    kept = [weakref.ref(known.program) for known in variant.known.values()]
    assert differences(variant) == []
    del variant
    assert graph() is None and all(one() is None or one() is base.known["itself"].program for one in kept), "without a collection"


def test_an_edit_does_not_keep_its_ancestors() -> None:
    program = asked(tree(8))
    graphs = []
    for _ in range(20):
        program = asked(Variants(program).next())
        graphs.append(weakref.ref(program.graphs["block 1"]))
    assert sum(one() is not None for one in graphs) <= 3


@pytest.mark.usefixtures("quick_collection")
def test_nobody_who_takes_other_state_keeps_this_one() -> None:
    program = asked(tree(2))
    value = weakref.ref(program.state.pairs[0][1].value)
    other = program.evolve(state=px.ir.State(), trail=())
    program.graphs  # noqa: B018
    del program
    gc.collect()
    assert not other.known and value() is None


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


def test_work_does_not_grow_with_the_other_bodies() -> None:
    def looked_at(blocks: int) -> int:
        base = asked(tree(blocks))
        variant = Variants(base).next()
        asked(variant)
        return sum("derived" in dir(graph) and bool(graph.derived) for graph in variant.graphs.values()) - len(base.graphs)

    assert looked_at(8) == looked_at(64) == 0, "the edited body is the only graph that was not known"


def test_a_fact_is_derived_once_for_all_versions() -> None:
    derived: list[px.Program] = []

    def count(program: px.Program) -> int:
        derived.append(program)
        return sum(len(graph.nodes) for graph in program.graphs.values())

    def after(known: int, edit: Edit) -> int:
        return known + sum(len(edit.after.graphs[name].nodes) - len(edit.before.graphs[name].nodes) for name in edit.changed)

    nodes = Fact("nodes", count, after)
    base = tree(8)
    variants = Variants(base)
    assert {nodes(variants.next()) for _ in range(5)} == {nodes(base)}
    assert len(derived) == 1 or (len(derived) == 2 and derived[-1] is base)
    program = base.evolve(root="block 0")
    assert nodes(program) == nodes(base) and derived[-1] is program, "another root is asked from nothing"


def test_a_fact_that_does_not_follow_is_derived() -> None:
    fact = Fact("names", lambda program: tuple(sorted(program.graphs)))
    base = tree(4)
    assert fact(base) == fact(Variants(base).next())
    more = base.evolve(graphs=base.graphs.set("other", base.main))
    assert "other" in fact(more) and "other" not in fact(base)


def test_changed_keys_are_those_of_a_scan() -> None:
    objects = {f"k{number}": object() for number in range(3000)}
    first = pmap(objects)
    second = first.set("k7", 1).set("k2999", 2)
    third = second.set("k7", objects["k7"])
    assert set(changed_keys(first, second) or ()) == {"k7", "k2999"}
    assert changed_keys(first, third) == ("k2999",) and changed_keys(second, third) == ("k7",)
    assert set(changed_keys(pmap(dict(first)), second) or ()) == {"k7", "k2999"}
    assert changed_keys(first, second.set("new", 1)) is None
    assert changed_keys(first, second.remove("k1").set("new", 1)) is None
    assert changed_keys(first, pmap(dict(second))) is not None and changed_keys(first, first) == ()


def test_edits_have_graphs_under_the_same_names() -> None:
    program = tree(3)
    assert edit_between(program, program.evolve(root="block 0")) is None
    assert edit_between(program, program.evolve(graphs=program.graphs.remove("block 0"))) is None
    edit = edit_between(program, Variants(program).next())
    assert edit is not None and edit.changed == ("block 1",) and edit.keeps(*[name for name in FIELDS if name != "graphs"])
    assert not edit.keeps("graphs")


def test_a_program_of_many_calls_has_the_digest_of_a_copy() -> None:
    for blocks in (31, 32, 33, 70):
        program = tree(blocks)
        px.digest(program)
        variants = Variants(program)
        for _ in range(3):
            variant = variants.next()
            assert px.digest(variant) == px.digest(anew(variant)) != px.digest(program)


def test_a_version_that_comes_back_has_its_digest_and_its_code() -> None:
    base = tree(4)
    other = Variants(base).next()
    back = other.evolve(graphs=other.graphs.set("block 1", base.graphs["block 1"]))
    assert px.digest(back) == px.digest(base) != px.digest(other)
    x = torch.ones(2, 8)
    assert torch.equal(px.lower(back)(x), px.lower(base)(x))
