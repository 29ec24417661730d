"""``some_of``: the result of a pass that takes no fuel, with as many of its rewrites as the fuel allows.

A pass of others cannot be stopped on its way, so it runs to its end, and what it changed is taken apart by node: nodes that it
added, removed or rewrote and that only make sense together are one rewrite, and each is kept or left by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve, frozen

from ...ir.arguments import Arg, Body, Ref
from ...ir.graph import Graph, Node
from ...ir.program import Program
from ...ir.verify import check
from ...transforms import Fuel

__all__ = ["rewrites", "some_of"]

OUTPUT = " output"
"""Stands for the output among names; no node is called like this."""

NAMED = 3
"""How many nodes of a rewrite a label names."""


def some_of(before: Program, after: Program, fuel: Fuel) -> Program:
    """Return what a pass made of a program, as far as the fuel allows; ``before`` itself where it allows nothing.

    Args:
        before: what the pass was given, flat.
        after: what it made of it.
        fuel: is asked before each rewrite.

    Raises:
        InvalidProgram: some of the rewrites without the others are no valid program.

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> some_of(program, program, Fuel(0)) is program
    True
    """
    one, other = before.main, after.main
    found = rewrites(before, after)
    done: set[str] = set()
    count = 0
    for names in found:
        if not fuel.burn(*_label(one, other, names)):
            break
        done.update(names)
        count += 1
    if count == len(found):
        return after
    return check(after.with_main(_merged(one, other, done))) if count else before


def rewrites(before: Program, after: Program) -> list[tuple[str, ...]]:
    """Return the names of the nodes that each rewrite adds, removes or changes; the first in the graph comes first.

    It is all one rewrite where the pass changed the order of nodes, a body of an operator, an input or the contents of state.

    Args:
        before: what the pass was given, flat.
        after: what it made of it.

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> tanh = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))
    >>> rewrites(program, tanh(program))
    [('relu', 'tanh', ' output')]
    """
    one, other = before.main, after.main
    changed = list(_changed(one, other))
    if not changed or _is_whole(before, after):
        return [tuple(changed)]
    groups = {name: [name] for name in changed}
    for name, near in _links(one, other, changed):
        mine, theirs = groups[name], groups[near]
        if mine is not theirs:
            mine += theirs
            groups.update(dict.fromkeys(theirs, mine))
    place = {name: number for number, name in enumerate(changed)}
    kept = {id(names): tuple(sorted(names, key=place.__getitem__)) for names in groups.values()}
    return list(kept.values())


def _changed(one: Graph, other: Graph) -> Iterator[str]:
    # In the order of the graphs: what comes before the same node that stays stands side by side.
    yield from [name for name in _in_order(one, other) if one.by_name.get(name) != other.by_name.get(name)]
    if one.output != other.output:
        yield OUTPUT


def _in_order(one: Graph, other: Graph) -> Iterator[str]:
    rest, new = iter(one.nodes), list[str]()
    for node in other.nodes:
        if node.name not in one.by_name:
            new.append(node.name)
            continue
        for old in rest:
            if old.name == node.name:
                yield from new
                yield old.name
                new = []
                break
            yield old.name
    yield from [*[old.name for old in rest], *new]


def _is_whole(before: Program, after: Program) -> bool:
    one, other = before.main, after.main
    orders = ([node.name for node in mine.nodes if node.name in theirs.by_name] for mine, theirs in ((one, other), (other, one)))
    bodies = ({name: graph for name, graph in each.graphs.items() if name != each.root} for each in (before, after))
    inputs = ([formal.name for formal in each.inputs] for each in (one, other))
    same = all(after.state[name].value is before.state[name].value for name in before.state if name in after.state)
    return not (_equal(orders) and _equal(bodies) and _equal(inputs) and same and len(before.state) <= len(after.state))


def _equal(pair: Iterator[object]) -> bool:
    first, second = pair
    return first == second


def _links(one: Graph, other: Graph, changed: Sequence[str]) -> Iterator[tuple[str, str]]:
    # A node belongs to what it uses and is there on one side only, and to what it uses that is another thing now, if it is too.
    single = {name for name in changed if (name in one.by_name) != (name in other.by_name)}
    itself = {name for name in changed if name not in single and _kept(one, name, single) != _kept(other, name, single)}
    for name in changed:
        for graph in (one, other):
            for used in _refs(graph, name):
                if used in single or (used in itself and name in itself):
                    yield name, used


def _refs(graph: Graph, name: str) -> Sequence[str]:
    if name == OUTPUT:
        return list(graph.output_refs())
    return list(graph.by_name[name].refs()) if name in graph.by_name else ()


def _kept(graph: Graph, name: str, single: set[str]) -> Node | None:
    # A node without the names that are there on one side only: it differs only where it does another thing.
    def known(ref: Ref | Body) -> Arg:
        return Ref("") if type(ref) is Ref and ref.name in single else ref

    node = graph.by_name.get(name)
    return None if node is None else node.with_refs(known)


def _merged(one: Graph, other: Graph, done: set[str]) -> Graph:
    nodes: list[Node] = []
    for name in _in_order(one, other):
        node = (other if name in done else one).by_name.get(name)
        nodes += [node] if node is not None else []
    output = other.output if OUTPUT in done else one.output
    return evolve(one, nodes=tuple(nodes), output=output)


@frozen
class _Names:
    names: Sequence[str]

    def __str__(self) -> str:
        more = f" and {len(self.names) - NAMED} more" if len(self.names) > NAMED else ""
        return ", ".join(self.names[:NAMED]) + more


def _label(one: Graph, other: Graph, names: Sequence[str]) -> tuple[object, ...]:
    gone = [name for name in names if name in one.by_name and name not in other.by_name]
    new = [name for name in names if name in other.by_name and name not in one.by_name]
    if gone:
        return ("replace", _Names(gone), "by", _Names(new)) if new else ("remove", _Names(gone))
    return ("add", _Names(new)) if new else ("rewrite", _Names([name.strip() for name in names] or ["the graph"]))
