"""Corruptors of graphs, calls and module scopes.

The links between graphs are broken one by one: a body is missing, one is never called, a call passes too little, a scope is
entered again.
"""

from __future__ import annotations

import operator
from collections import deque
from itertools import pairwise

from attrs import evolve

from ...ir.arguments import Body, Items, Ref, bodies_in
from ...ir.calls.parts import PART, part_names, parts
from ...ir.graph import Call, Frame, Node, Op
from ...ir.names import Names
from ...ir.operators import op_of
from ...ir.own_operators import CALL_MODULE, PACK
from ...ir.program import Module, Program
from ...ir.torch_private import pytree
from ...ir.verify.operands import fault_of
from .corruptor import Corruptor, changed, choose, fresh_name, is_call, is_op, places, replaced, with_graph

__all__ = ["IN_CALLS"]


def _no_root(program: Program, seed: int) -> Program:
    return program.evolve(root=Names(program.graphs).fresh(f"root{seed}"))


def _missing(program: Program, seed: int) -> Program | None:
    name = choose(program.order[1:], seed)
    return program.evolve(graphs=program.graphs.remove(name)) if name is not None else None


def _orphan(program: Program, seed: int) -> Program | None:
    name = choose(program.order, seed)
    if name is None:
        return None
    return program.evolve(graphs=program.graphs.set(Names(program.graphs).fresh("orphan"), program.graphs[name]))


def _circle(program: Program, seed: int) -> Program | None:
    name = choose(program.order, seed)
    if name is None:
        return None
    graph = program.graphs[name]
    again = Node(fresh_name(graph), Call(Frame("again"), name), tuple(Ref(formal.name) for formal in graph.inputs))
    return with_graph(program, name, nodes=(*graph.nodes, again))


def _argument_more(program: Program, seed: int) -> Program | None:
    place = choose(places(program, is_call), seed)
    return changed(program, place, args=(*place.node.args, 1)) if place is not None else None


def _argument_less(program: Program, seed: int) -> Program | None:
    place = choose(places(program, lambda node: is_call(node) and bool(node.args)), seed)
    return changed(program, place, args=place.node.args[:-1]) if place is not None else None


def _result_beyond(program: Program, seed: int) -> Program | None:
    def gives_tuple(node: Node) -> bool:
        return type(node.do) is Call and type(program.graphs[node.do.graph].output) is tuple

    place = choose(places(program, gives_tuple), seed)
    if place is None or type(place.node.do) is not Call:
        return None
    item = len(program.graphs[place.node.do.graph].output)
    beyond = Node(fresh_name(program.graphs[place.graph]), op_of(operator.getitem), (Ref(place.node.name), item))
    return replaced(program, place, place.node, beyond)


def _body_hidden(program: Program, seed: int) -> Program | None:
    place = choose(places(program, lambda node: is_op(node) and bool(bodies_in(node.args, node.kwargs))), seed)
    if place is None or type(place.node.do) is not Op:
        return None
    effects = evolve(place.node.do.effects, through_bodies=False)
    return changed(program, place, do=evolve(place.node.do, effects=effects))


def _body_gives_number(program: Program, seed: int) -> Program | None:
    bodies = {arg for _, node in program.nodes() if is_op(node) for arg in bodies_in(node.args, node.kwargs)}
    name = choose(sorted(bodies), seed)
    return with_graph(program, name, output=3) if name is not None else None


def _entered_again(program: Program, seed: int) -> Program | None:
    place = choose(places(program, graph=program.root), seed)
    if place is None:
        return None
    paths = [module.path for module in program.modules if module.path]
    stack = place.node.stack or (Frame(choose(paths, seed) or "a"),)
    return changed(program, place, stack=(*stack, stack[-1]))


def _scope_divided(program: Program, seed: int) -> Program | None:
    nodes = program.main.nodes
    makes = [node.stack for node in nodes]
    deep = places(program, lambda node: len(node.stack) > 1 and makes.count(node.stack) > 1, graph=program.root)
    place = choose(deep, seed)
    if place is None:
        return None
    *above, outer, inner = place.node.stack
    highest = max(frame.call for stack in makes for frame in stack)
    return changed(program, place, stack=(*above, evolve(outer, call=highest + 1), inner))


def _module_twice(program: Program, seed: int) -> Program:
    modules = program.modules or (Module(""),)
    return program.evolve(modules=(*modules, choose(modules, seed) or Module("")))


def _module_in_itself(program: Program, seed: int) -> Program:
    path = f"self{seed}"
    return program.evolve(modules=(*program.modules, Module(path, cell=0), Module(f"{path}.inside", cell=0)))


def _module_orphaned(program: Program, seed: int) -> Program:
    return program.evolve(modules=(*program.modules, Module(f"nowhere{seed}.inside")))


def _unknown_module(program: Program, seed: int) -> Program | None:
    place = choose(places(program, lambda node: not is_call(node), graph=program.root), seed)
    return changed(program, place, stack=(Frame("nowhere"),)) if program.modules and place is not None else None


def _unknown_instance(program: Program, seed: int) -> Program | None:
    place = choose(places(program, is_call), seed)
    if place is None or not program.modules or type(place.node.do) is not Call:
        return None
    return changed(program, place, do=evolve(place.node.do, instance=Frame("nowhere")))


def _one_label(program: Program, seed: int) -> Program | None:
    options = [
        (second, evolve(second.node.do, instance=first.node.do.instance))
        for name in program.order
        for first, second in pairwise(places(program, is_call, graph=name))
        if type(first.node.do) is Call and type(second.node.do) is Call and first.node.do.graph != second.node.do.graph
    ]
    chosen = choose(options, seed)
    return changed(program, chosen[0], do=chosen[1]) if chosen is not None else None


def _part_added(program: Program, seed: int) -> Program | None:
    if part_names(program) or not any(module.path for module in program.modules):
        return None
    return program.evolve(modules=(*program.modules, Module(f"part{seed}", PART)))


def _part_again(program: Program, seed: int) -> Program | None:
    part = choose(parts(program), seed)
    if part is None or type(part.node.do) is not Call:
        return None
    again = evolve(part.node, name=fresh_name(program.main), do=Call(Frame(part.name, 1), part.graph))
    return with_graph(program, program.root, nodes=(*program.main.nodes, again))


def _body_returned(program: Program, seed: int) -> Program | None:
    name = choose(program.order[1:], seed)
    if name is None:
        return None
    output = program.main.output
    return with_graph(program, program.root, output=(*output[:-1], Body(name))) if output else None


def _no_module_called(program: Program, seed: int) -> Program | None:
    place = choose(places(program, lambda node: bool(node.args) and type(node.args[0]) is Ref and is_op(node)), seed)
    return changed(program, place, do=CALL_MODULE) if place is not None else None


def _object_used(program: Program, seed: int) -> Program | None:
    # The first input of a graph is put together as an object, which an operator takes.
    name = choose([name for name in program.order if program.graphs[name].inputs], seed)
    if name is None:
        return None
    graph = program.graphs[name]
    names = graph.names()
    spec = pytree.TreeSpec(deque, None, [pytree.tree_structure(0)])
    packed = Node(names.fresh("packed"), PACK, (Items([Ref(graph.inputs[0].name)]), spec))
    item = Node(names.fresh("item"), op_of(operator.getitem), (Ref(packed.name), 0))
    return with_graph(program, name, nodes=(*graph.nodes, packed, item))


def _text_handed(program: Program, seed: int) -> Program | None:
    place = choose(places(program, lambda node: is_call(node) and _wants_no_text(program, node) is not None), seed)
    at = _wants_no_text(program, place.node) if place is not None else None
    if place is None or at is None:
        return None
    return changed(program, place, args=(*place.node.args[:at], "text", *place.node.args[at + 1 :]))


def _wants_no_text(program: Program, node: Node) -> int | None:
    body = program.graphs[node.do.graph] if type(node.do) is Call else None
    for at, formal in enumerate(body.inputs if body is not None else ()):
        for user in body.nodes if body is not None else ():
            if type(user.do) is Op and fault_of(user.using({formal.name: "text"}), user.do.target) is not None:
                return at
    return None


IN_CALLS: tuple[Corruptor, ...] = (
    Corruptor("no root", "verify:root", "the root names no graph", _no_root),
    Corruptor("subgraph missing", "verify:known-callees", "a graph that is called or given to an operator is gone", _missing),
    Corruptor("orphan", "verify:reachable-graphs", "there is a graph that nothing calls", _orphan),
    Corruptor("circle", "verify:acyclic-calls", "a graph calls itself", _circle),
    Corruptor("argument more", "verify:call-arguments", "a call passes a value more than its body takes", _argument_more),
    Corruptor("argument less", "verify:call-arguments", "a call passes a value less than its body takes", _argument_less),
    Corruptor("text handed", "verify:handed-values", "a call passes text where its body takes a tensor", _text_handed),
    Corruptor("object used", "verify:packed-values", "an operator takes what pack made of a registered type", _object_used),
    Corruptor("result beyond", "verify:projections", "a result is taken that the called body does not have", _result_beyond),
    Corruptor("body hidden", "verify:operator-bodies", "the effects of an operator that takes graphs do not go through them",
              _body_hidden),
    Corruptor("body gives number", "verify:operator-bodies", "a graph that an operator takes returns a number",
              _body_gives_number),
    Corruptor("body returned", "verify:argument-kinds", "the root returns a graph", _body_returned),
    Corruptor("scope entered again", "verify:stacks", "a module call is entered while it runs", _entered_again),
    Corruptor("scope divided", "verify:scopes", "one module call is made in two other calls", _scope_divided),
    Corruptor("module twice", "verify:module-paths", "a module is listed twice", _module_twice),
    Corruptor("module in itself", "verify:module-paths", "a module and one inside it are one object", _module_in_itself),
    Corruptor("module without parent", "verify:module-paths", "a module is listed whose parent is not", _module_orphaned),
    Corruptor("unknown module path", "verify:known-modules", "a node is inside a module that is not listed", _unknown_module),
    Corruptor("unknown module called", "verify:known-modules", "a module is called that is not listed", _unknown_instance),
    Corruptor("part added", "verify:parts", "a part is listed in a program that is not split", _part_added),
    Corruptor("part called again", "verify:parts", "the root calls a part for the second time", _part_again),
    Corruptor("one label for two", "verify:call-labels", "two calls with different bodies get one path, number and part",
              _one_label),
    Corruptor("no module called", "verify:opaque-modules", "a value is called as if it were a module", _no_module_called),
)  # fmt: skip
