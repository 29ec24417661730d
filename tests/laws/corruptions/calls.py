"""Corruptors of graphs, calls and module scopes.

The links between graphs are broken one by one: a body is missing, one is never called, a call passes too little, a scope is
entered again.
"""

from __future__ import annotations

import operator
from collections import deque
from itertools import pairwise

from attrs import evolve

from purefx.ir.arguments import Body, Items, Ref, bodies_in
from purefx.ir.calls.parts import PART, Part, part_names, parts
from purefx.ir.graph import Call, Frame, Node
from purefx.ir.names import Names
from purefx.ir.operators import op_of
from purefx.ir.own_operators import CALL_MODULE, PACK
from purefx.ir.program import Module, Program
from purefx.ir.torch_private import pytree
from tests.laws.corruptions.corruptor import (
    Corruptor,
    Place,
    changed,
    corrupts,
    fresh_name,
    graphs,
    is_call,
    is_op,
    nodes,
    once,
    places,
    replaced,
    with_graph,
)

__all__ = ["IN_CALLS"]


def bodies(program: Program) -> tuple[str, ...]:
    """Return the names of all graphs but the root."""
    return program.order[1:]


@corrupts("root", "the root names no graph", at=once)
def no_root(program: Program, _: None) -> Program:
    return program.evolve(root=Names(program.graphs).fresh("root"))


@corrupts("known-callees", "a graph that is called or given to an operator is gone", at=bodies)
def subgraph_missing(program: Program, name: str) -> Program:
    return program.evolve(graphs=program.graphs.remove(name))


@corrupts("reachable-graphs", "there is a graph that nothing calls", at=graphs)
def orphan(program: Program, name: str) -> Program:
    return program.evolve(graphs=program.graphs.set(Names(program.graphs).fresh("orphan"), program.graphs[name]))


@corrupts("acyclic-calls", "a graph calls itself", at=graphs)
def circle(program: Program, name: str) -> Program:
    graph = program.graphs[name]
    again = Node(fresh_name(graph), Call(Frame("again"), name), tuple(Ref(formal.name) for formal in graph.inputs))
    return with_graph(program, name, nodes=(*graph.nodes, again))


@corrupts("call-arguments", "a call passes a value more than its body takes", at=nodes(is_call))
def argument_more(program: Program, place: Place) -> Program:
    return changed(program, place, args=(*place.node.args, 1))


@corrupts(
    "call-arguments", "a call passes a value less than its body takes", at=nodes(lambda node: is_call(node) and bool(node.args))
)
def argument_less(program: Program, place: Place) -> Program:
    return changed(program, place, args=place.node.args[:-1])


def _with_inputs(program: Program) -> list[str]:
    return [name for name in program.order if program.graphs[name].inputs]


@corrupts("packed-values", "an operator takes what pack made of a registered type", at=_with_inputs)
def object_used(program: Program, name: str) -> Program:
    graph = program.graphs[name]
    names = graph.names()
    spec = pytree.TreeSpec(deque, None, [pytree.tree_structure(0)])
    packed = Node(names.fresh("packed"), PACK, (Items([Ref(graph.inputs[0].name)]), spec))
    item = Node(names.fresh("item"), op_of(operator.getitem), (Ref(packed.name), 0))
    return with_graph(program, name, nodes=(*graph.nodes, packed, item))


def _giving_tuples(program: Program) -> list[Place]:
    return [place for place in places(program, is_call) if type(program.graphs[place.do.graph].output) is tuple]


@corrupts("results", "a result is taken that the called body does not have", at=_giving_tuples)
def result_beyond(program: Program, place: Place) -> Program:
    count = len(program.graphs[place.do.graph].output)
    name = fresh_name(program.graphs[place.graph])
    return replaced(program, place, place.node, Node(name, op_of(operator.getitem), (Ref(place.node.name), count)))


def _takes_bodies(node: Node) -> bool:
    return is_op(node) and bool(bodies_in(node.args, node.kwargs))


@corrupts("operator-bodies", "the effects of an operator that takes graphs do not go through them", at=nodes(_takes_bodies))
def body_hidden(program: Program, place: Place) -> Program:
    return changed(program, place, do=evolve(place.do, effects=evolve(place.do.effects, through_bodies=False)))


def _bodies_of_operators(program: Program) -> list[str]:
    return sorted({name for _, node in program.nodes() if is_op(node) for name in bodies_in(node.args, node.kwargs)})


@corrupts("operator-bodies", "a graph that an operator takes returns a number", at=_bodies_of_operators)
def body_gives_number(program: Program, name: str) -> Program:
    return with_graph(program, name, output=3)


@corrupts("argument-kinds", "the root returns a graph", at=lambda program: bodies(program) if program.main.output else ())
def body_returned(program: Program, name: str) -> Program:
    return with_graph(program, program.root, output=(*program.main.output[:-1], Body(name)))


@corrupts("stacks", "a module call is entered while it runs", at=nodes(in_root=True))
def scope_entered_again(program: Program, place: Place) -> Program:
    path = next((module.path for module in program.modules if module.path), "a")
    stack = place.node.stack or (Frame(path),)
    return changed(program, place, stack=(*stack, stack[-1]))


def _deep(program: Program) -> list[Place]:
    stacks = [node.stack for node in program.main.nodes]
    return places(program, lambda node: len(node.stack) > 1 and stacks.count(node.stack) > 1, graph=program.root)


@corrupts("scopes", "one module call is made in two other calls", at=_deep)
def scope_divided(program: Program, place: Place) -> Program:
    *above, outer, inner = place.node.stack
    highest = max(frame.call for node in program.main.nodes for frame in node.stack)
    return changed(program, place, stack=(*above, evolve(outer, call=highest + 1), inner))


@corrupts("module-paths", "a module is listed twice", at=lambda program: program.modules or (Module(""),))
def module_twice(program: Program, module: Module) -> Program:
    return program.evolve(modules=(*(program.modules or (module,)), module))


@corrupts("module-paths", "a module and one inside it are one object", at=once)
def module_in_itself(program: Program, _: None) -> Program:
    return program.evolve(modules=(*program.modules, Module("itself", cell=0), Module("itself.inside", cell=0)))


@corrupts("module-paths", "a module is listed whose parent is not", at=once)
def module_without_parent(program: Program, _: None) -> Program:
    return program.evolve(modules=(*program.modules, Module("nowhere.inside")))


@corrupts(
    "known-modules",
    "a node is inside a module that is not listed",
    at=lambda program: places(program, lambda node: not is_call(node), graph=program.root) if program.modules else [],
)
def unknown_module_path(program: Program, place: Place) -> Program:
    return changed(program, place, stack=(Frame("nowhere"),))


@corrupts(
    "known-modules",
    "a module is called that is not listed",
    at=lambda program: places(program, is_call) if program.modules else [],
)
def unknown_module_called(program: Program, place: Place) -> Program:
    return changed(program, place, do=evolve(place.do, instance=Frame("nowhere")))


def _no_parts(program: Program) -> tuple[None, ...]:
    return () if part_names(program) or not any(module.path for module in program.modules) else (None,)


@corrupts("parts", "a part is listed in a program that is not split", at=_no_parts)
def part_added(program: Program, _: None) -> Program:
    return program.evolve(modules=(*program.modules, Module("part", PART)))


@corrupts("parts", "the root calls a part for the second time", at=parts)
def part_called_again(program: Program, part: Part) -> Program:
    again = evolve(part.node, name=fresh_name(program.main), do=Call(Frame(part.name, 1), part.graph))
    return with_graph(program, program.root, nodes=(*program.main.nodes, again))


def _neighbours(program: Program) -> list[tuple[Place, Frame]]:
    return [
        (second, first.do.instance)
        for name in program.order
        for first, second in pairwise(places(program, is_call, graph=name))
        if first.do.graph != second.do.graph
    ]


@corrupts("call-labels", "two calls with different bodies get one path, number and part", at=_neighbours)
def one_label_for_two(program: Program, at: tuple[Place, Frame]) -> Program:
    return changed(program, at[0], do=evolve(at[0].do, instance=at[1]))


@corrupts(
    "opaque-modules",
    "a value is called as if it were a module",
    at=nodes(lambda node: is_op(node) and bool(node.args) and type(node.args[0]) is Ref),
)
def no_module_called(program: Program, place: Place) -> Program:
    return changed(program, place, do=CALL_MODULE)


IN_CALLS: tuple[Corruptor, ...] = (
    no_root, subgraph_missing, orphan, circle, argument_more, argument_less, object_used, result_beyond, body_hidden,
    body_gives_number, body_returned, scope_entered_again, scope_divided, module_twice, module_in_itself, module_without_parent,
    unknown_module_path, unknown_module_called, part_added, part_called_again, one_label_for_two, no_module_called,
)  # fmt: skip
