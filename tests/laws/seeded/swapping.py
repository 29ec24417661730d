"""Mistakes of swapping: state, callers and bodies of others.

Each swaps modules for their own bodies, and gets one thing wrong that only shows somewhere else.
"""

from __future__ import annotations

from attrs import evolve

import purefx as px
from tests.laws.swapping import swap_own_bodies

from .mistake import mistake


@mistake("tree", "others stay")
def makes_every_body_anew(program: px.Program) -> px.Program:
    result = swap_own_bodies(program)
    if result is program:
        return program
    return result.evolve(graphs=px.ir.pmap({name: evolve(result.graphs[name]) for name in result.order}))


@mistake("tree", "called as often")
def swaps_only_the_first_call(program: px.Program) -> px.Program:
    # The others are left out, as if one call of a module were all.
    result = swap_own_bodies(program)
    seen: set[str] = set()
    nodes: list[px.Node] = []
    for node in result.main.nodes:
        path = node.do.instance.path if type(node.do) is px.Call else ""
        if path and path in seen:
            node = evolve(node, do=evolve(node.do, instance=px.Frame(f"{path}_again")))
        seen.add(path)
        nodes.append(node)
    return result if nodes == list(result.main.nodes) else result.with_main(evolve(result.main, nodes=tuple(nodes)))


@mistake("tree", "meaning")
def loses_a_tie(program: px.Program) -> px.Program:
    # State of what is swapped in gets cells of its own, as if it were never that of others.
    result = swap_own_bodies(program)
    if result is program:
        return program
    slots: dict[str, px.ir.Slot] = {}
    for number, (name, slot) in enumerate(result.state.pairs):
        slots[name] = evolve(slot, value=slot.value.clone(), cell=1000 + number, storage=1000 + number)
    return result if not slots else result.evolve(state=px.ir.State(tuple(slots), px.ir.pmap(slots)))
