"""Aims: what makes of a drawn program one that a law speaks of, where few drawn programs are such.

A law with an aim (``law(..., aim=...)``) is asked of two programs of three after its aim.  An aim keeps a program valid; what the
program means may become something else, since the law is asked of the new program alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from ..ir.arguments import Ref, bodies_in
from ..ir.calls.call_graph import module_calls
from ..ir.effects.declared import PURE, NodeEffects
from ..ir.effects.resolved import program_effects
from ..ir.graph import Call, Frame, Graph, Node, Op
from ..ir.own_operators import is_boundary
from ..ir.program import Program
from ..ir.rewriter import Rewriter
from ..transforms import hoist, inline, join, split_by_tags
from .strategies.programs import legal_tags
from .strategies.trees import ADD, SIZE
from .toy import CLONE

__all__ = ["called_twice", "half_hoisted", "hoisted", "split_across_sizes", "without_writes"]


def without_writes(program: Program) -> Program:
    """Return a program that gives copies where it wrote in place, and has no region.

    What writes in some other way than giving back what it wrote stays as it is.

    >>> from purefx.ir import Input
    >>> from purefx.laws.toy import ADD_
    >>> graph = Graph((Input("x"),), (Node("y", ADD_, (Ref("x"), 1)),), (Ref("y"),))
    >>> [str(node) for node in without_writes(Program.of({"": graph})).main.nodes]
    ['y = aten.clone.default(x)']
    """
    effects = program_effects(program)
    return program.with_graphs({name: _without_writes(program.graphs[name], effects[name]) for name in program.order})


def _without_writes(graph: Graph, effects: Sequence[NodeEffects]) -> Graph:
    edit = Rewriter(graph)
    used = {*graph.users, *graph.output_refs()}
    pairs = [(node, does) for node, does in zip(graph.nodes, effects, strict=True) if type(node.do) is Op]
    regions = {node.name for node, does in pairs if does.scope != (0, 0)}
    for number, (node, does) in enumerate(zip(graph.nodes, effects, strict=True)):
        changed = {*does.writes, *does.completes}.intersection(node.refs())
        ends = node.name in regions and node.name not in graph.output_refs()
        if ends and regions.issuperset(graph.users.get(node.name, ())):
            edit.erase(node.name)
        elif type(node.do) is not Op or len(changed) != 1 or any(bodies_in(node.args, node.kwargs)):
            continue
        elif node.name not in used:
            edit.erase(node.name)
        elif node.do.effects.returns or does.completes:
            edit.put(number, Node(node.name, CLONE, (Ref(*changed),), (), node.stack, node.meta))
    return edit.graph()


def called_twice(program: Program) -> Program:
    """Return a program without writes whose root makes each of its calls a second time, given the same, for nobody.

    >>> from purefx.ir import Input
    >>> call = Node("y", Call(Frame("a"), "f"), (Ref("x"),))
    >>> graphs = {"": Graph((Input("x"),), (call,), (Ref("y"),)), "f": Graph((Input("x"),), (), Ref("x"))}
    >>> [str(node.do.instance) for node in called_twice(Program.of(graphs)).main.nodes]
    ['a', 'a@1']
    """
    program = without_writes(program)
    edit = Rewriter(program.main)
    calls = Counter(path for frame in module_calls(program) for path in [frame.path] * (frame.call + 1))
    for number, node in enumerate(program.main.nodes):
        if type(node.do) is Call and node.do.instance not in program.call_signatures:
            path = node.do.instance.path
            again = Call(Frame(path, calls[path]), node.do.graph)
            calls[path] += 1
            edit.after(number, Node(edit.names.fresh(node.name), again, node.args, node.kwargs, node.stack, node.meta))
    return program.with_main(edit.graph()) if not edit.idle else program


def half_hoisted(program: Program) -> Program:
    """Return a program as ``hoisted`` does, of whose shared computations the first alone is in the callers.

    >>> half_hoisted(Program.of({"": Graph((), (), ())})).order
    ('',)
    """
    return hoist(called_twice(program), fuel=1)


def hoisted(program: Program) -> Program:
    """Return a program without writes in which callers compute what their calls share, each call made twice.

    >>> hoisted(Program.of({"": Graph((), (), ())})).order
    ('',)
    """
    return hoist(called_twice(program))


def split_across_sizes(program: Program) -> Program:
    """Return a split program without writes and regions, split anew, in which late operators are given sizes of early values.

    >>> from purefx.laws.strategies.programs import split_somewhere
    >>> split_across_sizes(split_somewhere(Program.of({"": Graph((), (), ())}))).order
    ('', 't0')
    """
    flat = without_writes(inline(join(program)))
    edit, pairs = Rewriter(flat.main), list[tuple[str, str]]()
    nodes = [(number, node) for number, node in enumerate(flat.main.nodes) if type(node.do) is Op and _is_tensor(node)]
    for (number, early), (place, late) in list(zip(nodes, reversed(nodes), strict=True))[: min(3, len(nodes) // 2)]:
        size = Node(edit.names.fresh("size"), SIZE, (Ref(early.name), 0), (), early.stack, {"val": 1})
        edit.after(number, size)
        total = Node(edit.names.fresh(late.name), ADD, (Ref(late.name), Ref(size.name)), (), late.stack, late.meta)
        edit.after(place, total)
        pairs.append((size.name, total.name))
    sized = flat if edit.idle else flat.with_main(edit.graph())
    tags, tag_of = legal_tags(sized, seed=0)
    for seed in range(1, TRIES):
        if any(tag_of(sized.main.by_name[size]) != tag_of(sized.main.by_name[total]) for size, total in pairs):
            break
        tags, tag_of = legal_tags(sized, seed=seed)
    return split_by_tags(sized, tags, tag_of=tag_of)


TRIES = 8
"""How often tags are drawn until a size crosses."""


def _is_tensor(node: Node) -> bool:
    value = node.meta.get("val")
    is_toy = (
        type(node.do) is Op and node.do.effects == PURE and value is None and node.projection is None and not is_boundary(node)
    )
    return is_toy or (isinstance(value, torch.Tensor) and value.dim() > 0)
