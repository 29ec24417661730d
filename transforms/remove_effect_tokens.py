"""``remove_effect_tokens``: threaded tokens become ordered effects.

One idea: ``token, y = with_effects(token, op, x)`` says that ``op`` is ordered; here that is written on the operator and
the token goes.  It does not touch the order of nodes.
"""

from __future__ import annotations

from attrs import evolve

from ..ir.arguments import Arg, Ref, map_refs
from ..ir.effects.schema import effects_of
from ..ir.errors import UnsupportedProgram
from ..ir.graph import Graph
from ..ir.meta import Meta, freeze_meta
from ..ir.node import Node, Op
from ..ir.operators import op_name
from ..ir.program import Program
from ..ir.signature import InputMutation, Signature, Token
from ..ir.torch_private import OpOverload, schema_of
from .transformation import transformation

__all__ = ["remove_effect_tokens"]

WITH_EFFECTS = "higher_order.with_effects"


@transformation(proven=True, establishes={"token free"}, laws=["ordered operators run in the same order"])
def remove_effect_tokens(program: Program) -> Program:
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

    Returns:
        The program without token inputs, outputs and ``with_effects``.

    Raises:
        UnsupportedProgram: a nested body takes tokens.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())})
    >>> px.remove_effect_tokens(program) is program
    True
    """
    specs = (*program.signature.inputs, *program.signature.outputs)
    root = program.main
    if not any(type(spec) is Token for spec in specs) and not any(_threads(node) for _, node in program.nodes()):
        return program
    for name, node in program.nodes():
        if name != program.root and _threads(node):
            raise UnsupportedProgram(f"graph {name}, node {node.name}: effect tokens inside a nested body are not supported yet")
    nodes, replaced = _unthread(root)
    inputs = tuple(formal for formal, spec in zip(root.inputs, program.signature.inputs, strict=True) if type(spec) is not Token)
    output = tuple(
        map_refs(arg, lambda ref: replaced.get(ref.name, ref) if type(ref) is Ref else ref)
        for arg, spec in zip(root.output, program.signature.outputs, strict=True)
        if type(spec) is not Token
    )
    signature = evolve(
        program.signature,
        inputs=tuple(spec for spec in program.signature.inputs if type(spec) is not Token),
        outputs=tuple(spec for spec in program.signature.outputs if type(spec) is not Token),
    )
    return program.with_main(Graph(inputs, nodes, output), signature=_shift_mutations(program, signature))


def _shift_mutations(program: Program, signature: Signature) -> Signature:
    # Input mutations count root inputs, and the tokens before them are gone.
    kept = [index for index, spec in enumerate(program.signature.inputs) if type(spec) is not Token]
    moved = {old: new for new, old in enumerate(kept)}
    outputs = tuple(InputMutation(moved[spec.index]) if type(spec) is InputMutation else spec for spec in signature.outputs)
    return evolve(signature, outputs=outputs)


def _threads(node: Node) -> bool:
    return type(node.do) is Op and node.do.name == WITH_EFFECTS


def _unthread(root: Graph) -> tuple[tuple[Node, ...], dict[str, Arg]]:
    threaded: dict[str, int] = {}  # a with_effects node: how many results its operator has
    replaced: dict[str, Arg] = {}
    nodes: list[Node] = []
    for node in root.nodes:
        source = node.args[0] if node.args else None
        if _threads(node):
            _, target, *rest = node.args
            effects = evolve(effects_of(target), ordered=True)
            results = len(schema_of(target).returns) if isinstance(target, OpOverload) else 1
            threaded[node.name] = results
            op = Op(op_name(target), effects, target)
            kwargs = tuple((key, _use(value, replaced)) for key, value in node.kwargs)
            args = tuple(_use(arg, replaced) for arg in rest)
            nodes.append(evolve(node, do=op, args=args, kwargs=kwargs, meta=_without_token(node.meta, results)))
        elif type(source) is Ref and source.name in threaded and node.args[1:] == (0,):
            continue  # the token
        elif type(source) is Ref and source.name in threaded and threaded[source.name] <= 1:
            replaced[node.name] = source
        elif type(source) is Ref and source.name in threaded:
            nodes.append(evolve(node, args=(source, node.args[1] - 1)))
        else:
            args = tuple(_use(arg, replaced) for arg in node.args)
            kwargs = tuple((key, _use(value, replaced)) for key, value in node.kwargs)
            same = all(a is b for a, b in zip(args, node.args, strict=True)) and not node.kwargs
            nodes.append(node if same else evolve(node, args=args, kwargs=kwargs))
    return tuple(nodes), replaced


def _without_token(meta: Meta, results: int) -> Meta:
    value = meta.get("val")
    if not isinstance(value, tuple):
        return meta
    kept = value[1:] if results > 1 else (value[1] if results == 1 and len(value) > 1 else None)
    return freeze_meta({**meta, "val": kept})


def _use(arg: Arg, replaced: dict[str, Arg]) -> Arg:
    return map_refs(arg, lambda ref: replaced.get(ref.name, ref) if type(ref) is Ref else ref)
