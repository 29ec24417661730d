"""``remove_effect_tokens``: replace threaded tokens by ordered effects.

Tokens that no longer order anything are removed from the signature and from the bodies of operators.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import is_
from typing import Any

from attrs import evolve

from ..ir.arguments import Arg, Body, Items, Ref, arg_leaves, bodies_in
from ..ir.callables import op_name
from ..ir.effects.registered import effects_of
from ..ir.errors import UnsupportedProgram
from ..ir.graph import Call, Do, Graph, Input, Node, Op
from ..ir.meta import Meta, freeze_meta
from ..ir.program import Program
from ..ir.rewriter import Rewriter
from ..ir.signature import Token
from ..ir.torch_private import OpOverload, schema_of
from .transformation import UNLIMITED, Fuel, transformation

Tokens = Mapping[str, Collection[str]]
"""For each graph, the names of its tokens."""


def without_tokens(program: Program) -> Program:
    """Return a program without token inputs and outputs, in the root and in the bodies of operators.

    Args:
        program: a program without threaded operators.

    Raises:
        UnsupportedProgram: a module call takes a token, or callers pass both a token and a value for one input of a body.

    >>> from purefx.ir import Graph, Input, Program, Ref, Signature
    >>> root = Graph((Input("t"),), (), (Ref("t"),))
    >>> program = Program.of({"": root}, signature=Signature((Token(),), (Token(),)))
    >>> without_tokens(program).main.inputs
    ()
    """
    tokens = _tokens(program)
    signature = program.signature
    main = _rewritten(program, program.root, tokens)
    graphs = {name: _rewritten(program, name, tokens) for name in program.order[1:]}
    inputs = [spec for spec in signature.inputs if type(spec) is not Token]
    outputs = [spec for spec in signature.outputs if type(spec) is not Token]
    return program.with_graphs(graphs).with_boundary(main, inputs, outputs)


def _tokens(program: Program) -> Tokens:
    tokens: dict[str, set[str]] = {name: set() for name in program.order}
    tokens[program.root].update(
        formal.name for formal, spec in program.inputs if type(spec) is Token
    )
    count = -1
    while count != sum(map(len, tokens.values())):
        count = sum(map(len, tokens.values()))
        for name in program.order:
            _spread(program, program.graphs[name], tokens[name], tokens)
    return tokens


def _spread(program: Program, graph: Graph, mine: set[str], tokens: Mapping[str, set[str]]) -> None:
    for node in graph.nodes:
        source, index = node.item
        if source and index in _token_results(program, graph.by_name.get(source), tokens):
            mine.add(node.name)
        for body in node.bodies:
            passed = _passed(program, node, body)
            tokens[body].update(
                [formal.name for formal, leaf in passed if type(leaf) is Ref and leaf.name in mine]
            )


def _passed(program: Program, node: Node, body: str) -> list[tuple[Input, Arg]]:
    # The inputs of a body with the operands that they get: the last ones of the operator.
    inputs = program.graphs[body].inputs
    found = [part for part in arg_leaves(node.args) if type(part) is not Body]
    return (
        list(zip(inputs, found[len(found) - len(inputs) :], strict=False))
        if len(found) >= len(inputs)
        else []
    )


def _token_results(program: Program, node: Node | None, tokens: Tokens) -> list[int]:
    # Which of an operator's results are tokens; a body that only decides (while_loop's first) returns none.
    found: list[int] = []
    for body in node.bodies if node is not None else ():
        mine = tokens[body]
        output = program.graphs[body].output
        parts = output if isinstance(output, tuple) else ()
        found = [
            index for index, part in enumerate(parts) if type(part) is Ref and part.name in mine
        ] or found
    return found


def _rewritten(program: Program, name: str, tokens: Tokens) -> Graph:
    graph, mine = program.graphs[name], tokens[name]
    edit = Rewriter(graph)
    edit.erase(*mine)
    for number, node in enumerate(graph.nodes):
        if node.name in mine:
            continue
        if type(node.do) is Call and any(ref in mine for ref in node.refs()):
            raise UnsupportedProgram(
                f"graph {name!r}: the module call {node.name} takes an effect token; do this before outline"
            )
        source, index = node.item
        if source and (gone := _token_results(program, graph.by_name.get(source), tokens)):
            edit.put(
                number,
                node.evolve(args=(Ref(source), index - sum(number < index for number in gone))),
            )
        elif inner := node.bodies:
            _check_uses(program, node, inner, mine, tokens)
            edit.put(number, _without_operands(node, mine, _token_results(program, node, tokens)))
    inputs = tuple([formal for formal in graph.inputs if formal.name not in mine])
    if name != program.root:
        return edit.graph(inputs=inputs, output=_without(graph.output, mine))
    output = tuple([arg for arg, spec in program.outputs if type(spec) is not Token])
    return edit.graph(inputs=inputs, output=output)


def _check_uses(
    program: Program, node: Node, bodies: Sequence[str], mine: Collection[str], tokens: Tokens
) -> None:
    for body in bodies:
        for formal, leaf in _passed(program, node, body):
            if formal.name in tokens[body] and not (type(leaf) is Ref and leaf.name in mine):
                raise UnsupportedProgram(
                    f"graph {body!r}: {formal.name!r} is an effect token, and node {node.name} passes {leaf}"
                )


def _without_operands(node: Node, tokens: Collection[str], gone: list[int]) -> Node:
    value = node.val
    meta: Meta = node.meta
    if gone and isinstance(value, tuple | list):
        meta = freeze_meta(
            {**meta, "val": tuple([part for index, part in enumerate(value) if index not in gone])}
        )
    args: Any = _without(node.args, tokens)
    return node.evolve(args=args, meta=meta)


def _without(arg: Arg, tokens: Collection[str], *, depth: int = 2) -> Arg:
    # Operands stand at the top or in one tuple or list.
    if not isinstance(arg, tuple) or not depth:
        return arg
    left = [part for part in arg if not (type(part) is Ref and part.name in tokens)]
    kept = [_without(part, tokens, depth=depth - 1) for part in left]
    if len(kept) == len(arg) and all(map(is_, kept, arg)):
        return arg
    return Items(kept) if type(arg) is Items else tuple(kept)


WITH_EFFECTS = "higher_order.with_effects"


@transformation(
    proven=True, establishes={"token free"}, laws=["ordered operators run in the same order"]
)
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
        fuel: a rewrite is one operator that no longer threads a token, in order; the last one removes the tokens from the
            signature.

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
    threaded = [name for name in program.order if any(map(_threads, program.graphs[name].distinct))]
    result = program.with_graphs(
        {name: _unthreaded(program.graphs[name], fuel) for name in threaded}
    )
    if any(type(spec) is Token for spec in specs) and fuel.burn(
        "take the tokens from the signature"
    ):
        return without_tokens(result)
    return result


def _threads(do: Do) -> bool:
    return type(do) is Op and do.name == WITH_EFFECTS


def _unthreaded(graph: Graph, fuel: Fuel) -> Graph:
    results: dict[str, int] = {}
    """The number of results of each formerly threaded operator, without the token."""
    tokens: dict[str, Arg] = {}
    """The token operand of each of these, which replaces its token result."""
    edit = Rewriter(graph)
    for number, node in enumerate(graph.nodes):
        source, index = node.item
        if _threads(node.do) and fuel.burn("unthread", node.name):
            tokens[node.name], target, *rest = node.args
            count = results[node.name] = _results(target, rest)
            op = Op(op_name(target), evolve(effects_of(target), ordered=True), target)
            edit.put(
                number, node.evolve(do=op, args=tuple(rest), meta=_without_token(node.meta, count))
            )
        elif source in results and index == 0:
            edit.drop(node.name, tokens[source])
        elif source in results and results[source] <= 1:
            edit.drop(node.name, Ref(source))
        elif source in results:
            edit.put(number, node.evolve(args=(Ref(source), index - 1)))
    return edit.graph()


def _results(target: Any, args: Sequence[Arg]) -> int:
    # A higher-order operator returns a tuple where it has bodies; otherwise (call_torchbind) one value.
    if isinstance(target, OpOverload):
        return len(schema_of(target).returns)
    return 2 if bodies_in(tuple(args)) else 1


def _without_token(meta: Meta, results: int) -> Meta:
    value = meta.get("val")
    if not isinstance(value, tuple):
        return meta
    kept = value[1:] if results > 1 else (value[1] if results == 1 and len(value) > 1 else None)
    return freeze_meta({**meta, "val": kept})
