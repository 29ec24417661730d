"""Taking tokens that order nothing any more out of a program: from the signature and from the bodies of operators.

One idea: an operator hands what it takes to its bodies in order, last to last (``cond``, ``while_loop``, ``invoke_subgraph`` and
the regions all do), and gives back what they give.  So which values are tokens spreads from the inputs of the root in both
directions until nothing changes.  It unthreads nothing: that was done before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import evolve

from ..ir.arguments import Arg, Body, Items, Ref, bodies_in
from ..ir.errors import UnsupportedProgram
from ..ir.graph import Graph
from ..ir.meta import Meta, freeze_meta
from ..ir.node import Call, Node, Op
from ..ir.program import Program
from ..ir.signature import InputMutation, Token

__all__ = ["without_tokens"]

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
    # Which of an operator's results are tokens; a body that only decides (while_loop's first) gives back none.
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
