"""``remove_effect_tokens``: threaded tokens become ordered effects.

Tokens that no longer order anything are removed from the signature and from bodies of operators.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attrs import evolve

from ..ir.arguments import Arg, Body, Items, Ref, bodies_in, replace_refs
from ..ir.callables import op_name
from ..ir.effects.registered import effects_of
from ..ir.errors import UnsupportedProgram
from ..ir.graph import Call, Graph, Node, Op
from ..ir.meta import Meta, freeze_meta
from ..ir.program import Program
from ..ir.signature import InputMutation, Token
from ..ir.torch_private import OpOverload, schema_of
from .transformation import UNLIMITED, Fuel, transformation

__all__ = ["remove_effect_tokens", "without_tokens"]

Tokens = Mapping[str, Collection[str]]
"""For each graph, the names of its tokens."""


def without_tokens(program: Program) -> Program:
    """Return a program without token inputs and outputs, in the root and in the bodies of operators.

    Args:
        program: one in which no operator is threaded.

    Raises:
        UnsupportedProgram: a module call takes a token, or a body is given one in one place and a value in another.

    >>> from purefx.ir import Graph, Input, Program, Ref, Signature
    >>> root = Graph((Input("t"),), (), (Ref("t"),))
    >>> program = Program.of({"": root}, signature=Signature((Token(),), (Token(),)))
    >>> without_tokens(program).main.inputs
    ()
    """
    tokens = _tokens(program)
    graphs = {name: _rewritten(program, name, tokens) for name in program.order}
    return program.evolve(graphs=program.graphs.update(graphs), signature=_signature(program))


def _signature(program: Program) -> Any:
    signature = program.signature
    kept = [index for index, spec in enumerate(signature.inputs) if type(spec) is not Token]
    moved = {old: new for new, old in enumerate(kept)}
    return evolve(
        signature,
        inputs=tuple([signature.inputs[index] for index in kept]),
        # Input mutations count root inputs, and the tokens before them are gone.
        outputs=tuple(
            [
                InputMutation(moved[spec.index]) if type(spec) is InputMutation else spec
                for spec in signature.outputs
                if type(spec) is not Token
            ]
        ),
    )


def _tokens(program: Program) -> Tokens:
    specs = program.signature.inputs
    tokens: dict[str, set[str]] = {name: set() for name in program.order}
    pairs = zip(program.main.inputs, specs, strict=True)
    tokens[program.root].update(formal.name for formal, spec in pairs if type(spec) is Token)
    count = -1
    while count != sum(map(len, tokens.values())):
        count = sum(map(len, tokens.values()))
        for name in program.order:
            _spread(program, program.graphs[name], tokens[name], tokens)
    return tokens


def _spread(program: Program, graph: Graph, mine: set[str], tokens: Mapping[str, set[str]]) -> None:
    for node in graph.nodes:
        source = _projected(node)
        if source is not None and node.args[1] in _given_back(program, graph.by_name.get(source), tokens):
            mine.add(node.name)
        for body in _bodies(node):
            inputs = program.graphs[body].inputs
            taken = _leaves(node)[-len(inputs) :] if inputs else []
            for formal, leaf in zip(reversed(inputs), reversed(taken), strict=False):
                if type(leaf) is Ref and leaf.name in mine:
                    tokens[body].add(formal.name)


def _bodies(node: Node) -> list[str]:
    return bodies_in(node.args, node.kwargs) if type(node.do) is Op and node.do.effects.through_bodies else []


def _projected(node: Node) -> str | None:
    is_projection = type(node.do) is Op and node.do.name == "operator.getitem" and type(node.args[0]) is Ref
    return node.args[0].name if is_projection else None  # type: ignore[union-attr]


def _leaves(node: Node) -> list[Arg]:
    # What an operator takes, in order, without its bodies.
    found: list[Arg] = []
    todo: list[Arg] = list(reversed(node.args))
    while todo:
        part = todo.pop()
        if isinstance(part, tuple):  # a list too
            todo.extend(reversed(part))
        elif type(part) is not Body:
            found.append(part)
    return found


def _given_back(program: Program, node: Node | None, tokens: Tokens) -> list[int]:
    # Which of an operator's results are tokens; a body that only decides (while_loop's first) returns none.
    found: list[int] = []
    for body in _bodies(node) if node is not None else ():
        mine = tokens[body]
        output = program.graphs[body].output
        parts = output if isinstance(output, tuple) else ()
        found = [index for index, part in enumerate(parts) if type(part) is Ref and part.name in mine] or found
    return found


def _rewritten(program: Program, name: str, tokens: Tokens) -> Graph:
    graph, mine = program.graphs[name], tokens[name]
    is_root = name == program.root
    nodes: list[Node] = []
    for node in graph.nodes:
        source = _projected(node)
        if node.name in mine:
            continue
        if type(node.do) is Call and any(ref in mine for ref in node.refs()):
            raise UnsupportedProgram(f"graph {name!r}: the module call {node.name} takes an effect token; do this before outline")
        if source is not None and (gone := _given_back(program, graph.by_name.get(source), tokens)):
            index: Any = node.args[1]
            nodes.append(evolve(node, args=(node.args[0], index - sum(number < index for number in gone))))
        elif inner := _bodies(node):
            _check_uses(program, node, inner, mine, tokens)
            nodes.append(_untaken(node, mine, _given_back(program, node, tokens)))
        else:
            nodes.append(node)
    if not mine and all(old is new for old, new in zip(graph.nodes, nodes, strict=False)):
        return graph if not is_root else evolve(graph, output=_kept_outputs(program))
    output = _kept_outputs(program) if is_root else _without(graph.output, mine)
    return Graph(tuple([formal for formal in graph.inputs if formal.name not in mine]), tuple(nodes), output)


def _kept_outputs(program: Program) -> Arg:
    output: Any = program.main.output
    return tuple([arg for arg, spec in zip(output, program.signature.outputs, strict=True) if type(spec) is not Token])


def _check_uses(program: Program, node: Node, bodies: list[str], mine: Collection[str], tokens: Tokens) -> None:
    for body in bodies:
        inputs = program.graphs[body].inputs
        taken = _leaves(node)[-len(inputs) :] if inputs else []
        for formal, leaf in zip(reversed(inputs), reversed(taken), strict=False):
            if formal.name in tokens[body] and not (type(leaf) is Ref and leaf.name in mine):
                raise UnsupportedProgram(
                    f"graph {body!r} is given an effect token as {formal.name!r} in one place, and {leaf} by node {node.name}"
                )


def _untaken(node: Node, tokens: Collection[str], gone: list[int]) -> Node:
    meta = node.meta
    value = meta.get("val")
    if gone and isinstance(value, tuple | list):
        kept: Meta = freeze_meta({**meta, "val": tuple([part for index, part in enumerate(value) if index not in gone])})
        meta = kept
    args: Any = _without(node.args, tokens)
    return node if args == node.args and meta is node.meta else evolve(node, args=args, meta=meta)


def _without(arg: Arg, tokens: Collection[str]) -> Arg:
    # Operands stand at the top or in one tuple or list.
    if not isinstance(arg, tuple):
        return arg
    kept = [_shallow(part, tokens) for part in arg if not (type(part) is Ref and part.name in tokens)]
    return Items(kept) if type(arg) is Items else tuple(kept)


def _shallow(arg: Arg, tokens: Collection[str]) -> Arg:
    if not isinstance(arg, tuple):
        return arg
    kept = [part for part in arg if not (type(part) is Ref and part.name in tokens)]
    return arg if len(kept) == len(arg) else Items(kept) if type(arg) is Items else tuple(kept)


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
