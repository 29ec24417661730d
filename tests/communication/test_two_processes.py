"""Two processes issue the operators of each group in one order, and get the numbers that they got, whatever moved their nodes.

Generated programs are transformed for each process by itself, run on both over gloo, and compared with the original bit by bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.fx
from hypothesis import given
from hypothesis import strategies as st

import purefx as px
from purefx.ir.effects.registered import effects_of
from purefx.laws.tiers import examples_of
from purefx.laws.variants import reordered
from tests.communication.fresh import operators
from tests.communication.pair import Pair, Ran
from tests.communication.talking import talking_programs

import_module("torch.distributed._functional_collectives")

Programs = Callable[[int], px.Program]


def cut(program: px.Program) -> px.Program:
    """Cut a program in three parts at random, which run again where the order asks for it."""
    draw = random.Random(7)
    tags = {node.name: draw.choice("abc") for node in program.main.nodes}
    return px.split_by_tags(program, list("abc"), tag_of=lambda node: tags[node.name], allow_reuse=True)


def outlined(program: px.Program) -> px.Program:
    """Say of nodes at random that they are in modules, and cut those out; equal ones are one body."""
    draw = random.Random(5)
    frames = [(), (px.Frame("m"),), (px.Frame("m"), px.Frame("m.inner")), (px.Frame("n"),)]
    nodes = [px.ir.Node(one.name, one.do, one.args, one.kwargs, draw.choice(frames), one.meta) for one in program.main.nodes]
    modules = tuple([px.ir.Module(path, "Module") for path in ("", "m", "m.inner", "n")])
    return px.transform(program.with_main(program.main.with_nodes(nodes)).evolve(modules=modules))


KEEPING: dict[str, Callable[[px.Program], px.Program]] = {
    "without dead code": px.eliminate_dead_code,
    "computed once": px.eliminate_common_subexpressions,
    "canonical": px.canonicalize,
    "in another order": lambda program: reordered(program, seed=3),
    "cut": cut,
    "cut and joined": lambda program: px.join(cut(program)),
    "cut, without skips": lambda program: px.relay_skips(px.move_non_tensor_nodes(cut(program))),
    "outlined": outlined,
    "outlined and inlined": lambda program: px.inline(outlined(program)),
    "simplified": lambda program: px.remove_noops(px.fold_constants(px.eliminate_dead_code(outlined(program)))),
    "functional and back": lambda program: px.inplace_mutations(px.functionalize(program)),
}


def differences(ran: tuple[Ran, Ran], original: tuple[Ran, Ran]) -> list[str]:
    """Return what is wrong with how two processes ran a program."""
    found = [one.error for one in ran if one.error]
    if not found and ran[0].issued != ran[1].issued:
        found.append(f"the processes say different things: {ran[0].issued} and {ran[1].issued}")
    if not found and ran[0].issued != original[0].issued:
        found.append(f"another order: {ran[0].issued}, which was {original[0].issued}")
    if not found and [one.outputs for one in ran] != [one.outputs for one in original]:
        found.append("other numbers")
    return found


def ask(pair: Pair, programs: Programs, data: int) -> dict[str, list[str]]:
    """Return what is wrong, by what was done to the program; nothing but what is wrong."""
    originals = [programs(rank) for rank in range(2)]
    jobs = [(str(originals[0]), str(originals[1]))]
    jobs += [(str(step(originals[0])), str(step(originals[1]))) for step in KEEPING.values()]
    original, *ran = pair.run(jobs, data=data)
    assert not original[0].error, original[0].error
    wrong = {name: differences(each, original) for name, each in zip(KEEPING, ran, strict=True)}
    return {name: found for name, found in wrong.items() if found}


def by_data_alone(program: px.Program) -> px.Program:
    """Put starts first, as far as operands allow."""
    nodes, done, order = list(program.main.nodes), {one.name for one in program.main.inputs}, list[px.Node]()
    while nodes:
        ready = [node for node in nodes if done.issuperset(node.refs())]
        first = next((node for node in ready if "all_gather" in str(node.do)), ready[-1])
        nodes.remove(first)
        order.append(first)
        done.add(first.name)
    return program.with_main(program.main.with_nodes(order))


def test_both_processes_stay_in_step(pair: Pair) -> None:
    for number, programs in enumerate(examples_of(talking_programs(steps=12), 12, 1)):
        assert ask(pair, programs, number) == {}, str(programs(0))


def test_what_collectives_give_shares_no_memory_with_what_they_take(pair: Pair) -> None:
    """So says ``sends`` of their effects: what is sent is read until the wait, and is not what comes."""
    fresh = [str(op) for op in operators() if effects_of(op).sends]
    ran = [mine for mine, _ in pair.ask("tests.communication.fresh:sharing", [fresh, fresh])]
    assert len(ran) > 18
    assert [name for name, shares in ran if shares] == []


def test_one_process_that_goes_by_operands_alone_is_found(pair: Pair) -> None:
    """Two reductions that share no operand are one order on one process, and another on the other: sums of what is not meant."""
    graph = torch.fx.Graph()
    x, y, _ = [graph.placeholder(name) for name in "xyz"]
    talk: Any = torch.ops._c10d_functional
    sent = [graph.call_function(talk.all_reduce.default, (each, "sum", "0")) for each in (x, y)]
    graph.output(tuple(graph.call_function(talk.wait_tensor.default, (each,)) for each in sent))
    program = px.import_fx(torch.fx.GraphModule({}, graph))
    moved = by_data_alone(program)
    original, wrong, both = pair.run([(str(program), str(program)), (str(program), str(moved)), (str(moved), str(moved))])
    assert differences(wrong, original) == ["other numbers"]
    assert differences(both, original) == []


def test_processes_that_go_by_operands_alone_are_found(pair: Pair) -> None:
    """Both in the same way: they stay together, and neither sends what it did; or they wait for one another."""
    found = 0
    for number, programs in enumerate(examples_of(talking_programs(steps=12), 20, 2)):
        originals = [programs(rank) for rank in range(2)]
        if "isend" not in str(originals[0]):  # those get stuck, which takes its time
            moved = [by_data_alone(program) for program in originals]
            original, wrong = pair.run([(str(originals[0]), str(originals[1])), (str(moved[0]), str(moved[1]))], data=number)
            found += differences(wrong, original) != []
    assert found


@pytest.mark.deep
def test_an_order_that_gets_stuck_is_found(pair: Pair) -> None:
    """Both wait for what they sent before they are ready to receive.  The relation keeps the wait behind."""
    talk: Any = torch.ops._c10d_functional

    def program(rank: int) -> px.Program:
        graph = torch.fx.Graph()
        x, y, _ = [graph.placeholder(name) for name in "xyz"]
        sent = graph.call_function(talk.isend.default, (x, 1 - rank, 0, "0"))
        come = graph.call_function(talk.irecv.default, (y, 1 - rank, 0, "0"))
        graph.output(tuple(graph.call_function(talk.wait_tensor.default, (each,)) for each in (sent, come)))
        return px.import_fx(torch.fx.GraphModule({}, graph))

    assert px.ir.dependencies(program(0), program(0).main)[2] == [0, 1]
    stuck = [with_order(program(rank), (0, 2, 1, 3)) for rank in range(2)]
    original, wrong = pair.run([(str(program(0)), str(program(1))), (str(stuck[0]), str(stuck[1]))])
    assert not original[0].error
    assert all(one.error for one in wrong), "one runs out of time, and closes what the other waits on"


def with_order(program: px.Program, order: tuple[int, ...]) -> px.Program:
    """Return a program with its nodes in another order, legal or not."""
    return program.with_main(program.main.with_nodes([program.main.nodes[number] for number in order]))


@pytest.mark.deep
def test_both_processes_stay_in_step_on_many_programs(pair: Pair) -> None:
    @given(talking_programs(steps=30), st.integers(0, 1000))
    def in_step(programs: Programs, data: int) -> None:
        assert ask(pair, programs, data) == {}, str(programs(0))

    in_step()
