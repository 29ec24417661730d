"""Variants of a program with the same meaning: other names, another legal order; and a canonical form.

They use neither transformations nor hypothesis; a seed selects them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from graphlib import TopologicalSorter

from attrs import evolve

from ..ir.arguments import Arg, Body, Ref, map_refs
from ..ir.effects.dependencies import dependencies
from ..ir.graph import Call, Graph, Node
from ..ir.persistent import pmap
from ..ir.program import Program


def renamed(program: Program, *, seed: int = 0) -> Program:
    """Rename the values and graphs of a program at random: names are swapped, or new.

    Args:
        program: a program at any stage.
        seed: selects the names.

    >>> from purefx.ir import Input
    >>> renamed(Program.of({"": Graph((Input("x"),), (), (Ref("x"),))})).main.output
    (Ref(name='r0'),)
    """
    draw = random.Random(seed)  # noqa: S311  not secret

    def swapped(names: list[str]) -> Mapping[str, str]:
        new = [f"r{number}" for number in range(len(names))] if seed % 2 == 0 else list(names)
        draw.shuffle(new)
        return dict(zip(names, new, strict=True))

    ids = {
        program.root: program.root,
        **swapped([name for name in program.order if name != program.root]),
    }
    return _with_names(program, ids, lambda graph: swapped(_names(graph)))


def canonical(program: Program) -> Program:
    """Number the values and graphs of a program in order; programs that differ only in names become equal.

    Finer than ``digest``: call numbers, facts of operators and the contents of tensors are compared as well.

    >>> from purefx.ir import Input
    >>> left, right = (Program.of({"": Graph((Input(name),), (), (Ref(name),))}) for name in "ab")
    >>> left == right, canonical(left) == canonical(right)
    (False, True)
    """
    ids = {name: f"g{number}" for number, name in enumerate(program.order)}
    return _with_names(
        program,
        ids,
        lambda graph: {name: f"v{number}" for number, name in enumerate(_names(graph))},
    )


def _names(graph: Graph) -> list[str]:
    return [*graph.input_names, *(node.name for node in graph.nodes)]


def _with_names(
    program: Program, ids: Mapping[str, str], naming: Callable[[Graph], Mapping[str, str]]
) -> Program:
    graphs = {
        ids[name]: _with_new_names(graph := program.graphs[name], naming(graph), ids)
        for name in program.order
    }
    return program.evolve(graphs=pmap(graphs), root=ids[program.root])


def _with_new_names(graph: Graph, names: Mapping[str, str], ids: Mapping[str, str]) -> Graph:
    def new(ref: Ref | Body) -> Arg:
        return Body(ids[ref.graph]) if isinstance(ref, Body) else Ref(names[ref.name])

    def placed(node: Node) -> Node:
        do = Call(node.do.instance, ids[node.do.graph]) if type(node.do) is Call else node.do
        args, kwargs = map_refs(node.args, new), map_refs(node.kwargs, new)
        return evolve(node, name=names[node.name], do=do, args=args, kwargs=kwargs)

    inputs = tuple(evolve(formal, name=names[formal.name]) for formal in graph.inputs)
    return Graph(inputs, tuple(placed(node) for node in graph.nodes), map_refs(graph.output, new))


def reordered(program: Program, *, seed: int = 0) -> Program:
    """Put the nodes of the root into another legal order.

    Args:
        program: a program at any stage.
        seed: selects the order.

    >>> from purefx.ir import Input, Op
    >>> nodes = tuple(Node(name, Op("toy.neg"), (Ref("x"),)) for name in "ab")
    >>> program = Program.of({"": Graph((Input("x"),), nodes, ())})
    >>> [node.name for node in reordered(program).main.nodes]
    ['b', 'a']
    """
    graph, draw = program.main, random.Random(seed)  # noqa: S311  not secret
    sorter = TopologicalSorter(dict(enumerate(dependencies(program, graph))))
    sorter.prepare()
    ready, order = list[int](), list[int]()
    while sorter.is_active():
        ready += sorter.get_ready()
        order.append(ready.pop(draw.randrange(len(ready))))
        sorter.done(order[-1])
    if order == sorted(order):
        return program
    return program.with_main(evolve(graph, nodes=tuple(graph.nodes[index] for index in order)))
