"""``programs``: hypothesis strategies for whole programs at each stage of the default pipeline.

One idea: the flat program is built from what is drawn; later stages are what the transformations before them make of
it.  Programs of later stages that no transformation of ours makes are in ``trees.py``.  Nothing here checks a law.
"""

from __future__ import annotations

from typing import Literal, get_args

import hypothesis.strategies as st
from attrs import evolve
from hypothesis import reject

from ...ir.arguments import Ref
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Graph, Input
from ...ir.node import Node
from ...ir.program import Program
from ...ir.signature import InputMutation, Token
from ...transforms import Transformation, deduplicate, inplace_mutations, insert_ivals, outline, sink_state
from .. import toy
from ..variants import renamed, reordered
from .build import build
from .numbers import some_numbers
from .recipe import recipes
from .tags import split_somewhere
from .trees import trees

__all__ = ["STAGES", "Stage", "legal_orders", "programs", "renamings", "with_tokens"]

Stage = Literal["tokens", "flat", "in place", "sunk", "ivals", "outlined", "deduplicated", "split", "tree"]

STAGES: tuple[Stage, ...] = get_args(Stage)

PASSES: dict[str, tuple[Transformation, ...]] = {
    "in place": (inplace_mutations,),
    "sunk": (inplace_mutations, sink_state),
    "ivals": (inplace_mutations, sink_state, insert_ivals),
    "outlined": (inplace_mutations, sink_state, insert_ivals, outline),
    "deduplicated": (inplace_mutations, sink_state, insert_ivals, outline, deduplicate),
    "split": (inplace_mutations, sink_state, some_numbers, split_somewhere),
}


def programs(stage: Stage = "flat") -> st.SearchStrategy[Program]:
    """Return a strategy of valid programs of toy operators, which shrink by dropping module calls.

    Args:
        stage: ``"tokens"`` threads tokens through ordered effects, ``"flat"`` is what import gives without them, the next
            five are what the default pipeline makes of it; ``"split"`` is split at drawn places; ``"tree"`` draws outlined
            programs directly, with shared bodies.

    >>> from hypothesis import find
    >>> program = find(programs("sunk"), lambda program: len(program.main.nodes) > 0)
    >>> [node.do.name for node in program.main.nodes]
    ['toy.neg']
    """
    if stage == "tree":
        return trees()
    flat = recipes().map(build)
    if stage == "tokens":
        return flat.map(with_tokens)

    def passed(program: Program) -> Program:
        try:
            for step in PASSES.get(stage, ()):
                program = step(program)
        except UnsupportedProgram:
            reject()  # a write that had to be put behind another module can cut a preserved call, which outline says
        return program

    return flat.map(passed)


def legal_orders(program: Program) -> st.SearchStrategy[Program]:
    """Return a strategy of programs whose root has its nodes in another legal order.

    Args:
        program: a program at any stage.

    >>> from hypothesis import find
    >>> program = Program.of({"": Graph((), (), ())})
    >>> find(legal_orders(program), lambda other: True) is program
    True
    """
    return st.integers(0, 1 << 16).map(lambda seed: reordered(program, seed=seed))


def renamings(program: Program) -> st.SearchStrategy[Program]:
    """Return a strategy of programs with other names for values and graphs, one for one.

    Args:
        program: a program at any stage.

    >>> from hypothesis import find
    >>> find(renamings(Program.of({"": Graph((Input("x"),), (), ())})), lambda other: True).main.inputs[0].name
    'r0'
    """
    return st.integers(0, 1 << 16).map(lambda seed: renamed(program, seed=seed))


def with_tokens(program: Program) -> Program:
    """Return a flat program in which the prints are threaded through a token, as the exporter writes them.

    >>> node = Node("p", toy.PRINT, ("hi",))
    >>> [made.name for made in with_tokens(Program.of({"": Graph((), (node,), ())})).main.nodes]
    ['p', 'p_token']
    """
    token = "token"  # noqa: S105  no password
    nodes: list[Node] = []
    for node in program.main.nodes:
        if node.do != toy.PRINT:
            nodes.append(node)
            continue
        nodes.append(evolve(node, do=toy.THREAD, args=(Ref(token), toy.PRINT.target, *node.args)))
        token = f"{node.name}_token"
        nodes.append(Node(token, toy.GETITEM, (Ref(node.name), 0), (), node.stack))
    main, signature = program.main, program.signature
    outputs = tuple(InputMutation(spec.index + 1) if type(spec) is InputMutation else spec for spec in signature.outputs)
    signature = evolve(signature, inputs=(Token(), *signature.inputs), outputs=(Token(), *outputs))
    graph = Graph((Input("token"), *main.inputs), tuple(nodes), (Ref(token), *main.output))
    return program.with_main(graph, signature=signature)
