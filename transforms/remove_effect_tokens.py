"""``remove_effect_tokens``: threaded tokens become ordered effects.

One idea: ``token, y = with_effects(token, op, x)`` says that ``op`` is ordered; here that is written on the operator and
the token goes.  It does not touch the order of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from ..ir.arguments import Arg, Ref, bodies_in, replace_refs
from ..ir.callables import op_name
from ..ir.effects.registered import effects_of
from ..ir.graph import Graph
from ..ir.meta import Meta, freeze_meta
from ..ir.node import Node, Op
from ..ir.program import Program
from ..ir.signature import Token
from ..ir.torch_private import OpOverload, schema_of
from .fuel import UNLIMITED, Fuel
from .tokens import without_tokens
from .transformation import transformation

__all__ = ["remove_effect_tokens"]

WITH_EFFECTS = "higher_order.with_effects"


@transformation(proven=True, establishes={"token free"}, laws=["ordered operators run in the same order"])
def remove_effect_tokens(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Turn effect tokens into ordered effects.

    Before::

        with_effects = higher_order.with_effects(token, aten._print.default, "hi")
        getitem = operator.getitem(with_effects, 0)
        return getitem, x

    After::

        with_effects = aten._print.default("hi")
        return x

    Args:
        program: any program.
        fuel: a rewrite is one operator that is threaded no more, in order; the last one takes the tokens from the signature.

    Returns:
        The program without token inputs, outputs and ``with_effects``, in the root and in the bodies of operators.

    Raises:
        UnsupportedProgram: a module call takes a token; this comes before ``outline``.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.remove_effect_tokens(program) is program
    True
    """
    specs = (*program.signature.inputs, *program.signature.outputs)
    changed: dict[str, Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        if any(_threads(node) for node in graph.nodes):
            nodes, replaced = _unthread(graph, fuel)
            unthreaded = Graph(graph.inputs, nodes, replace_refs(graph.output, replaced))
            if unthreaded != graph:
                changed[name] = unthreaded
    result = program.evolve(graphs=program.graphs.update(changed)) if changed else program
    if any(type(spec) is Token for spec in specs) and fuel.burn("take the tokens from the signature"):
        return without_tokens(result)
    return result


def _threads(node: Node) -> bool:
    return type(node.do) is Op and node.do.name == WITH_EFFECTS


def _unthread(graph: Graph, fuel: Fuel) -> tuple[tuple[Node, ...], dict[str, Arg]]:
    threaded: dict[str, int] = {}  # a with_effects node: how many results its operator has
    replaced: dict[str, Arg] = {}
    tokens: dict[str, Arg] = {}  # a with_effects node: the token that it took, which stands for the one that it gave
    nodes: list[Node] = []
    for node in graph.nodes:
        source = node.args[0] if node.args else None
        if _threads(node) and fuel.burn("unthread", node.name):
            token, target, *rest = node.args
            tokens[node.name] = replace_refs(token, replaced)
            effects = evolve(effects_of(target), ordered=True)
            results = _results(target, rest)
            threaded[node.name] = results
            op = Op(op_name(target), effects, target)
            kwargs = tuple((key, replace_refs(value, replaced)) for key, value in node.kwargs)
            args = tuple(replace_refs(arg, replaced) for arg in rest)
            nodes.append(evolve(node, do=op, args=args, kwargs=kwargs, meta=_without_token(node.meta, results)))
        elif type(source) is Ref and source.name in threaded and node.args[1:] == (0,):
            replaced[node.name] = tokens[source.name]
        elif type(source) is Ref and source.name in threaded and threaded[source.name] <= 1:
            replaced[node.name] = source
        elif type(source) is Ref and source.name in threaded:
            nodes.append(evolve(node, args=(source, node.args[1] - 1)))
        else:
            nodes.append(node.using(replaced))
    return tuple(nodes), replaced


def _results(target: Any, args: Sequence[Arg]) -> int:
    # A higher-order operator gives a tuple where it has bodies; otherwise (call_torchbind) one value.
    if isinstance(target, OpOverload):
        return len(schema_of(target).returns)
    return 2 if bodies_in(tuple(args)) else 1


def _without_token(meta: Meta, results: int) -> Meta:
    value = meta.get("val")
    if not isinstance(value, tuple):
        return meta
    kept = value[1:] if results > 1 else (value[1] if results == 1 and len(value) > 1 else None)
    return freeze_meta({**meta, "val": kept})
