"""Two processes issue the operators of each group in one order, and get the numbers that they got, whatever moved their nodes.

Generated programs are transformed for each process by itself, run on both over gloo, and compared with the original bit by bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module

import purefx as px
from purefx.ir.effects.registered import effects_of
from purefx.laws.strategies.programs import legal_tags
from purefx.laws.tiers import examples_of
from purefx.laws.variants import reordered
from tests.communication.fresh import operators
from tests.communication.pair import Pair, Ran
from tests.communication.talking import talking_programs

import_module("torch.distributed._functional_collectives")

Programs = Callable[[int], px.Program]


def cut(program: px.Program) -> px.Program:
    """Cut a program into parts at random."""
    tags, tag_of = legal_tags(program, seed=7)
    return px.split_by_tags(program, tags, tag_of=tag_of)


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
    jobs = [(originals[0].text(), originals[1].text())]
    jobs += [(step(originals[0]).text(), step(originals[1]).text()) for step in KEEPING.values()]
    original, *ran = pair.run(jobs, data=data)
    assert not original[0].error, original[0].error
    wrong = {name: differences(each, original) for name, each in zip(KEEPING, ran, strict=True)}
    return {name: found for name, found in wrong.items() if found}


def test_both_processes_stay_in_step(pair: Pair) -> None:
    for number, programs in enumerate(examples_of(talking_programs(steps=12), 12, 1)):
        assert ask(pair, programs, number) == {}, programs(0).text()


def test_what_collectives_give_shares_no_memory_with_what_they_take(pair: Pair) -> None:
    """So says ``sends`` of their effects: what is sent is read until the wait, and is not what comes."""
    fresh = [str(op) for op in operators() if effects_of(op).sends]
    ran = [mine for mine, _ in pair.ask("tests.communication.fresh:sharing", [fresh, fresh])]
    assert len(ran) > 18
    assert [name for name, shares in ran if shares] == []
