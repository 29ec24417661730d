"""Variants of a program with the same meaning: other names, another legal order; and a canonical form.

They use neither transformations nor hypothesis; a seed selects them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from attrs import evolve

from ..ir.arguments import Arg, Body, Ref, map_refs
from ..ir.effects.declared import PURE, NodeEffects
from ..ir.effects.dependencies import dependencies
from ..ir.effects.resolved import program_effects, storages
from ..ir.graph import Call, Graph, Node, Op
from ..ir.persistent import pmap
from ..ir.program import Program
from ..ir.rewriter import Rewriter
from .toy import CLONE


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

    ids = {program.root: program.root, **swapped([name for name in program.order if name != program.root])}
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
    return _with_names(program, ids, lambda graph: {name: f"v{number}" for number, name in enumerate(_names(graph))})


def _names(graph: Graph) -> list[str]:
    return [*(formal.name for formal in graph.inputs), *(node.name for node in graph.nodes)]


def _with_names(program: Program, ids: Mapping[str, str], naming: Callable[[Graph], Mapping[str, str]]) -> Program:
    graphs = {ids[name]: _with_new_names(graph := program.graphs[name], naming(graph), ids) for name in program.order}
    return program.evolve(graphs=pmap(graphs), root=ids[program.root])


def _with_new_names(graph: Graph, names: Mapping[str, str], ids: Mapping[str, str]) -> Graph:
    def use(arg: Arg) -> Arg:
        return map_refs(arg, new)

    def new(ref: Ref | Body) -> Arg:
        return Body(ids[ref.graph]) if isinstance(ref, Body) else Ref(names[ref.name])

    def placed(node: Node) -> Node:
        do = Call(node.do.instance, ids[node.do.graph]) if type(node.do) is Call else node.do
        return evolve(node, name=names[node.name], do=do, args=use(node.args), kwargs=use(node.kwargs))

    inputs = tuple(evolve(formal, name=names[formal.name]) for formal in graph.inputs)
    return Graph(inputs, tuple(placed(node) for node in graph.nodes), use(graph.output))


def reordered(program: Program, *, seed: int = 0) -> Program:
    """Put the nodes of the root into another legal order.

    Args:
        program: a program at any stage.
        seed: selects the order.

    >>> from purefx.ir import Input
    >>> nodes = tuple(Node(name, Op("toy.neg"), (Ref("x"),)) for name in "ab")
    >>> program = Program.of({"": Graph((Input("x"),), nodes, ())})
    >>> [node.name for node in reordered(program).main.nodes]
    ['b', 'a']
    """
    graph, draw = program.main, random.Random(seed)  # noqa: S311  not secret
    before = dependencies(program, graph)
    waiting = [len(of) for of in before]
    after: list[list[int]] = [[] for _ in before]
    for index, of in enumerate(before):
        for earlier in of:
            after[earlier].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        index = ready.pop(draw.randrange(len(ready)))
        order.append(index)
        for later in after[index]:
            waiting[later] -= 1
            if not waiting[later]:
                ready.append(later)
    if order == sorted(order):
        return program
    return program.with_main(evolve(graph, nodes=tuple(graph.nodes[index] for index in order)))


NOT_DIFFERENTIABLE = frozenset({"aten.bernoulli.p", "aten.copy.default"})
"""Operators without a derivative whose result is like their first operand."""


def differentiable(program: Program) -> Program:
    """Replace operators that autograd refuses by copies: ``out=``, draws of bits, late writes.

    A write is late if the old contents were used before.  Statistics of a batch are not kept.

    >>> import torch
    >>> from purefx.ir import Input
    >>> from purefx.ir.operators import op_of
    >>> node = Node("y", op_of(torch.ops.aten.bernoulli.p), (Ref("x"), 0.5))
    >>> [str(node) for node in differentiable(Program.of({"": Graph((Input("x"),), (node,), (Ref("y"),))})).main.nodes]
    ['y = aten.clone.default(x)']
    """
    effects = program_effects(program)
    return program.with_graphs({name: _differentiable(program, program.graphs[name], effects[name]) for name in program.order})


def _differentiable(program: Program, graph: Graph, effects: Sequence[NodeEffects]) -> Graph:
    edit, memory, used = Rewriter(graph), storages(program, graph, list(effects)), set[object]()
    for number, (node, does) in enumerate(zip(graph.nodes, effects, strict=True)):
        name, taken = (node.do.name, node.do.effects) if type(node.do) is Op else ("", PURE)
        is_late = bool(taken.returns) and any(memory.find(ref) in used for ref in does.writes)
        used.update(memory.find(ref) for ref in node.refs())
        if is_late or name.endswith(".out") or name in NOT_DIFFERENTIABLE:
            copied = does.writes[0] if does.writes else node.refs()[0]
            edit.put(number, Node(node.name, CLONE, (Ref(copied),), (), node.stack, node.meta))
        elif name in ("aten.batch_norm.default", "aten.native_batch_norm.default"):
            edit.put(number, node.evolve(args=(*node.args[:3], None, None, True, *node.args[6:])))
    return edit.graph()
