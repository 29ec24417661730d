"""Mistakes of transformations that move nodes: what a value does not forbid, the world may.

Data edges are half of the dependency relation; writes, draws and what is seen outside are the other half.
"""

from __future__ import annotations

import itertools

import purefx as px
from purefx.laws import toy

from .mistake import Nodes, mistake, values_used, with_nodes


@mistake("flat", "effects")
def removes_what_gives_nothing(program: px.Program) -> px.Program:
    used = values_used(program)
    return with_nodes(program, [node for node in program.main.nodes if node.name in used or node.do != toy.EMIT])


@mistake("flat", "effects")
def removes_unused_operators_with_bodies(program: px.Program) -> px.Program:
    # The operator by itself does nothing; what its bodies do is not looked at.
    used = values_used(program)
    return with_nodes(program, [node for node in program.main.nodes if node.name in used or node.do != toy.COND])


@mistake("in place", "meaning")
def hoists_pure_operators(program: px.Program) -> px.Program:
    # It knows that they compute only, and not that others write what they read.
    nodes: Nodes = []
    for node in program.main.nodes:
        place = len(nodes)
        if node.do in (toy.NEG, toy.MUL, toy.CLONE):
            while place and nodes[place - 1].name not in node.refs():
                place -= 1
        nodes.insert(place, node)
    return with_nodes(program, nodes)


@mistake("in place", "meaning")
def moves_reads_over_writes_through_views(program: px.Program) -> px.Program:
    # It stops at writes to what it reads, by name; a view of that has another name and the same memory.
    nodes: Nodes = []
    for node in program.main.nodes:
        place, mine = len(nodes), set(node.refs())
        if node.do in (toy.NEG, toy.MUL, toy.CLONE):
            while place and nodes[place - 1].name not in mine and not mine & set(written(nodes[place - 1])):
                place -= 1
        nodes.insert(place, node)
    return with_nodes(program, nodes)


def written(node: px.Node) -> list[str]:
    """Return the operands that a node writes, by name; those with bodies or without a schema may write all."""
    if type(node.do) is not px.Op or node.do.effects.through_bodies:
        return node.refs()
    found = [at.find(node.args, node.kwargs) for at in node.do.effects.writes]
    return [arg.name for arg in found if type(arg) is px.Ref]


@mistake("in place", "meaning")
def delays_until_the_first_use(program: px.Program) -> px.Program:
    # To shorten lifetimes; what it reads may be overwritten while it waits.
    waiting: dict[str, px.Node] = {}
    nodes: Nodes = []
    for node in program.main.nodes:
        todo = [name for name in node.refs() if name in waiting]
        while todo:
            inner = [name for name in waiting[todo[-1]].refs() if name in waiting]
            if inner:
                todo += inner
            else:
                nodes.append(waiting.pop(todo.pop()))
                todo = [name for name in todo if name in waiting]
        if node.do == toy.NEG:
            waiting[node.name] = node
        else:
            nodes.append(node)
    return with_nodes(program, [*nodes, *waiting.values()])


def exchanged(program: px.Program, op: px.Op) -> px.Program:
    """Return the program with two nodes of an operator exchanged that no value holds in order."""
    nodes = list(program.main.nodes)
    places = [index for index, node in enumerate(nodes) if node.do == op]
    for one, other in itertools.pairwise(places):
        swapped = [*nodes]
        swapped[one], swapped[other] = nodes[other], nodes[one]
        result = with_nodes(program, swapped)
        if not px.verify(result):
            return result
    return program


@mistake("sunk", "effects")
def exchanges_random_draws(program: px.Program) -> px.Program:
    return exchanged(program, toy.RAND)


@mistake("flat", "effects")
def exchanges_prints(program: px.Program) -> px.Program:
    return exchanged(program, toy.PRINT)


@mistake("flat", "effects")
def exchanges_operators_with_bodies(program: px.Program) -> px.Program:
    return exchanged(program, toy.COND)


@mistake("tokens", "effects")
def follows_tokens_from_the_end(program: px.Program) -> px.Program:
    # The chain of tokens begins at the output, so the list that is made of it begins with the last.
    result = px.remove_effect_tokens(program)
    threaded = {node.name for node in program.main.nodes if node.do == toy.THREAD}
    backwards = iter([node for node in reversed(result.main.nodes) if node.name in threaded])
    return with_nodes(result, [next(backwards) if node.name in threaded else node for node in result.main.nodes])


@mistake("tokens", "effects")
def orders_tokens_among_themselves_only(program: px.Program) -> px.Program:
    # Other ordered operators have no token, and keep their order with those that do.
    result = px.remove_effect_tokens(program)
    prints = [node for node in result.main.nodes if node.do == toy.PRINT]
    return with_nodes(result, [*(node for node in result.main.nodes if node.do != toy.PRINT), *prints])


@mistake("in place", "meaning")
def moves_operators_into_regions(program: px.Program) -> px.Program:
    # Neither data nor memory ties an operator to the region that it stands in.
    nodes: Nodes = []
    for node in program.main.nodes:
        place = len(nodes)
        if node.do in (toy.NEG, toy.MUL) and nodes and nodes[-1].do in (toy.ENTER, toy.LEAVE):
            place -= 1
        nodes.insert(place, node)
    return with_nodes(program, nodes)


@mistake("sunk", "effects")
def removes_draws_that_are_not_used(program: px.Program) -> px.Program:
    # What is drawn next is what these would have drawn.
    used = values_used(program)
    return with_nodes(program, [node for node in program.main.nodes if node.name in used or node.do != toy.RAND])


@mistake("flat", "effects")
def removes_all_that_is_not_used(program: px.Program) -> px.Program:
    used = values_used(program)
    return with_nodes(program, [node for node in program.main.nodes if node.name in used])
