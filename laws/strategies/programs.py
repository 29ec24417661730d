"""Strategies of whole programs at each stage of the default pipeline, and split ones.

Tags are drawn along legal cuts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Literal, get_args

import hypothesis.strategies as st
from attrs import evolve
from hypothesis import reject

from ...ir.arguments import Ref
from ...ir.effects.dependencies import dependencies
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Get, Graph, Input, Node, Op
from ...ir.program import Program
from ...ir.signature import InputMutation, Token
from ...transforms import Transformation, deduplicate, inplace_mutations, insert_ivals, outline, sink_state, split_by_tags
from ...transforms.partition.cut import joined_flat
from ...transforms.partition.placement import found_units
from .. import toy
from ..variants import renamed, reordered
from .recipes import recipes
from .toys import build_flat, build_tree

__all__ = [
    "STAGES",
    "Stage",
    "legal_orders",
    "legal_tags",
    "programs",
    "renamings",
    "split_somewhere",
    "with_tokens",
]

Tagging = tuple[tuple[str, ...], Callable[[Node], str | None]]
"""Tags, and the tag of a node."""


def legal_tags(program: Program, *, seed: int = 0, all_tagged: bool = False) -> Tagging:
    """Return tags for splitting a program, and the tag of each node; some nodes have none.

    Args:
        program: a program with sunk state, at any stage.
        seed: selects the number of tags and the cuts.
        all_tagged: whether every node has a tag.

    >>> from purefx.ir import Graph, Input, Ref
    >>> nodes = tuple(Node(name, Op("toy.neg"), (Ref(of),)) for name, of in ("yx", "zy"))
    >>> tags, tag_of = legal_tags(Program.of({"": Graph((Input("x"),), nodes, ())}), all_tagged=True)
    >>> tags.index(tag_of(nodes[0])) <= tags.index(tag_of(nodes[1]))
    True
    """
    flat, _ = joined_flat(program)
    tags = tuple([f"t{number}" for number in range(1 + _draw(seed, "how many") % 4)])
    found = _labels(flat, seed, len(tags) - 1)
    of: dict[str, str | None] = {}
    for node, label in zip(flat.main.nodes, found, strict=True):
        untagged = not all_tagged and _draw(seed, _what(node), "untagged") % 5 == 0
        of[node.name] = None if untagged else tags[label]
    return tags, lambda node: of[node.name]


def _labels(flat: Program, seed: int, most: int) -> list[int]:
    nodes, before = flat.main.nodes, dependencies(flat, flat.main)
    levels: list[int] = []
    for earlier in before:
        levels.append(1 + max([levels[other] for other in earlier], default=0))
    least = [0] * len(nodes)
    units = found_units(flat)
    while True:
        labels: list[int] = []
        for number, (node, earlier) in enumerate(zip(nodes, before, strict=True)):
            up = type(node.do) is not Get and _draw(seed, _what(node), levels[number]) % 3 == 0
            label = max([labels[other] for other in earlier], default=0) + up
            labels.append(max(min(label, most), least[number]))
        for _, members in units:
            for number in members:
                least[number] = max(labels[other] for other in members)
        if all(labels[number] == least[number] for _, members in units for number in members):
            return labels


def _what(node: Node) -> str:
    return f"{node.do.name if type(node.do) is Op else ''} {' '.join(map(str, node.stack))}"


def _draw(seed: int, *what: object) -> int:
    return zlib.crc32(repr((seed, what)).encode())


def _split_somewhere(program: Program) -> Program:
    flat, _ = joined_flat(program)
    tags, tag_of = legal_tags(program, seed=_draw(0, *sorted(map(_what, flat.main.nodes))))
    return split_by_tags.apply(program, tags, tag_of=tag_of)


split_somewhere: Transformation = evolve(split_by_tags, apply=_split_somewhere)
"""``split_by_tags`` with tags that depend on operators only: variants of a program have the same."""


Stage = Literal["tokens", "flat", "in place", "sunk", "ivals", "outlined", "deduplicated", "split", "tree"]

STAGES: tuple[Stage, ...] = get_args(Stage)

PASSES: dict[str, tuple[Transformation, ...]] = {
    "in place": (inplace_mutations,),
    "sunk": (inplace_mutations, sink_state),
    "ivals": (inplace_mutations, sink_state, insert_ivals),
    "outlined": (inplace_mutations, sink_state, insert_ivals, outline),
    "deduplicated": (inplace_mutations, sink_state, insert_ivals, outline, deduplicate),
    "split": (inplace_mutations, sink_state, split_somewhere),
}


def programs(stage: Stage = "flat") -> st.SearchStrategy[Program]:
    """Return a strategy of valid programs of toy operators, which shrink by dropping module calls.

    Args:
        stage: ``"tokens"`` threads tokens through ordered effects, ``"flat"`` is an imported program without them, the next
            five are stages of the default pipeline; ``"split"`` is split at drawn places; ``"tree"`` draws outlined
            programs directly, with shared bodies.

    >>> from hypothesis import Phase, find, settings
    >>> from purefx.ir import StateInput
    >>> program = find(programs("sunk"), lambda program: True, settings=settings(phases=[Phase.generate]))
    >>> StateInput in map(type, program.signature.inputs)
    False
    """
    if stage == "tree":
        return recipes().map(build_tree)
    flat = recipes().map(build_flat)
    if stage == "tokens":
        return flat.map(with_tokens)

    def passed(program: Program) -> Program:
        try:
            for step in PASSES.get(stage, ()):
                program = step(program)
        except UnsupportedProgram:
            reject()  # a reordered write can cut a preserved call, which outline refuses
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
    """Return a strategy of programs with renamed values and graphs.

    Args:
        program: a program at any stage.

    >>> from hypothesis import find
    >>> find(renamings(Program.of({"": Graph((Input("x"),), (), ())})), lambda other: True).main.inputs[0].name
    'r0'
    """
    return st.integers(0, 1 << 16).map(lambda seed: renamed(program, seed=seed))


def with_tokens(program: Program) -> Program:
    """Return a flat program with a token threaded through its prints, as the exporter writes it.

    >>> node = Node("p", toy.PRINT, ("hi",))
    >>> [made.name for made in with_tokens(Program.of({"": Graph((), (node,), ())})).main.nodes]
    ['p', 'p_token']
    """
    token = "token"  # noqa: S105  not a password
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
