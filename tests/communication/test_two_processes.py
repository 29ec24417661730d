"""Two processes issue the operators of each group in one order, and get the numbers that they got, whatever moved their nodes.

Generated programs are transformed for each process by itself, run on both over gloo, and compared with the original bit by bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import purefx as px
from purefx.laws.draws import examples_of
from purefx.laws.strategies.talking import talking_programs
from purefx.laws.variants import reordered
from tests.communication.pair import Pair, Ran

Programs = Callable[[int], px.Program]

OVERLAP, BUCKET = px.training.overlap_communication, px.training.bucket_collectives


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
    "outlined": outlined,
    "outlined, and overlapped inside": lambda program: OVERLAP(outlined(program)),
    "overlapped": OVERLAP,
    "overlapped, two in flight": OVERLAP.bind(in_flight=2),
}
"""What keeps the collectives that there are."""

JOINING: dict[str, Callable[[px.Program], px.Program]] = {
    "in buckets": BUCKET,
    "in small buckets": BUCKET.bind(bytes=40),
    "in buckets inside of bodies": lambda program: BUCKET(outlined(program)),
    "in buckets and overlapped": lambda program: OVERLAP(BUCKET(program)),
}


def differences(ran: tuple[Ran, Ran], original: tuple[Ran, Ran], *, joins: bool) -> list[str]:
    """Return what is wrong with how two processes ran a program."""
    found = [one.error for one in ran if one.error]
    if not found and ran[0].issued != ran[1].issued:
        found.append(f"the processes say different things: {ran[0].issued} and {ran[1].issued}")
    if not found and not joins and ran[0].issued != original[0].issued:
        found.append(f"another order: {ran[0].issued}, which was {original[0].issued}")
    if not found and [one.outputs for one in ran] != [one.outputs for one in original]:
        found.append("other numbers")
    return found


def ask(pair: Pair, programs: Programs, data: int) -> dict[str, list[str]]:
    """Return what is wrong, by what was done to the program; nothing but what is wrong."""
    originals = [programs(rank) for rank in range(2)]
    steps = KEEPING | JOINING
    jobs = [(str(originals[0]), str(originals[1]))]
    jobs += [(str(step(originals[0])), str(step(originals[1]))) for step in steps.values()]
    original, *ran = pair.run(jobs, data=data)
    assert not original[0].error, original[0].error
    wrong = {name: differences(each, original, joins=name in JOINING) for name, each in zip(steps, ran, strict=True)}
    return {name: found for name, found in wrong.items() if found}


def test_both_processes_stay_in_step(pair: Pair) -> None:
    for number, programs in enumerate(examples_of(talking_programs(steps=12), 12, 1)):
        assert ask(pair, programs, number) == {}, str(programs(0))


@pytest.mark.deep
def test_both_processes_stay_in_step_on_many_programs(pair: Pair) -> None:
    @given(talking_programs(steps=30), st.integers(0, 1000))
    def in_step(programs: Programs, data: int) -> None:
        assert ask(pair, programs, data) == {}, str(programs(0))

    in_step()
