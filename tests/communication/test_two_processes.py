"""Transformations keep the order of communication: two processes issue the operators of each group in one order."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import purefx as px
from purefx.ir.effects.registered import effects_of
from purefx.laws.tiers import examples_of, share
from purefx.laws.variants import reordered
from tests.communication.pair import Ran, both
from tests.communication.talking import operators, talking_programs
from tests.laws.aims import legal_tags

import_module("torch.distributed._functional_collectives")

Programs = Callable[[int], px.Program]


def cut(program: px.Program) -> px.Program:
    """Cut a program into parts at random."""
    tags, tag_of = legal_tags(program, seed=7)
    return px.split_by_tags(program, tags, tag_of=tag_of)


def outlined(program: px.Program) -> px.Program:
    """Put nodes into modules at random, and outline those."""
    draw = random.Random(5)
    frames = [(), (px.Frame("m"),), (px.Frame("m"), px.Frame("m.inner")), (px.Frame("n"),)]
    nodes = [
        px.ir.Node(one.name, one.do, one.args, one.kwargs, draw.choice(frames), one.meta)
        for one in program.main.nodes
    ]
    modules = tuple([px.ir.Module(path, "Module") for path in ("", "m", "m.inner", "n")])
    return px.transform(program.with_main(program.main.with_nodes(nodes)).evolve(modules=modules))


KEEPING: dict[str, Callable[[px.Program], px.Program]] = {
    "without dead code": px.eliminate_dead_code,
    "computed once": px.eliminate_common_subexpressions,
    "in another order": lambda program: reordered(program, seed=3),
    "cut": cut,
    "cut and joined": lambda program: px.join(cut(program)),
    "cut, without skips": lambda program: px.relay_skips(px.move_non_tensor_nodes(cut(program))),
    "outlined": outlined,
    "outlined and inlined": lambda program: px.inline(outlined(program)),
    "simplified": lambda program: px.remove_noops(
        px.fold_constants(px.eliminate_dead_code(outlined(program)))
    ),
    "functional and back": lambda program: px.inplace_mutations(px.functionalize(program)),
}


def differences(ran: tuple[Ran, Ran], original: tuple[Ran, Ran]) -> list[str]:
    """Return how the runs of two processes differ from those of the original program."""
    found = [one.error for one in ran if one.error]
    if not found and ran[0].issued != ran[1].issued:
        found.append(
            f"the processes issue different operators: {ran[0].issued} and {ran[1].issued}"
        )
    if not found and ran[0].issued != original[0].issued:
        found.append(f"another order: {ran[0].issued}, which was {original[0].issued}")
    if not found and [one.outputs for one in ran] != [one.outputs for one in original]:
        found.append("other numbers")
    return found


def drawn_jobs(drawn: list[Programs]) -> list[list[tuple[str, int]]]:
    """Return the texts of drawn programs and of their transformations, for each process."""
    jobs: list[list[tuple[str, int]]] = [[], []]
    for number, programs in enumerate(drawn):
        for rank in range(2):
            original = programs(rank)
            jobs[rank] += [
                (each.text(), number)
                for each in (original, *[step(original) for step in KEEPING.values()])
            ]
    return jobs


@cache
def in_both() -> tuple[list[Programs], list[str], list[Any], list[Any]]:
    """Return the drawn programs, the collectives, and what two processes saw of each."""
    drawn: list[Programs] = examples_of(talking_programs(steps=12), share(6), 1)
    fresh = [str(op) for op in operators() if effects_of(op).sends]
    shares, ran = both(
        ("tests.communication.sharing:sharing", [fresh, fresh]),
        ("tests.communication.pair:run_texts", drawn_jobs(drawn)),
    )
    return drawn, fresh, shares, ran


def test_both_processes_stay_in_step() -> None:
    drawn, _, _, ran = in_both()
    for number, programs in enumerate(drawn):
        original, *others = ran[number * (len(KEEPING) + 1) : (number + 1) * (len(KEEPING) + 1)]
        assert not original[0].error, original[0].error
        wrong = {
            name: differences(each, original) for name, each in zip(KEEPING, others, strict=True)
        }
        assert not any(wrong.values()), f"{wrong}\n{programs(0).text()}"


# -- the memory of collectives ---------------------------------------------------------------------------------------------------


def test_the_results_of_collectives_share_no_memory_with_their_operands() -> None:
    """So ``sends`` of their effects assumes: an operand is read until the wait, and is not the result."""
    _, fresh, ran, _ = in_both()
    assert len(ran) == len(fresh) > 18
    assert [name for (name, shares), _ in ran if shares] == []
