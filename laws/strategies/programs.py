"""Strategies of whole programs at each stage of the default pipeline, split ones, and ones that are wrong in one respect.

Tags are drawn along legal cuts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
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
from ..corruptions import CORRUPTORS, Corruption, Corruptor
from ..evaluate import Meaning
from ..toy import toy_meaning
from ..variants import renamed, reordered
from .build import build
from .recipe import recipes
from .trees import some_numbers, trees

__all__ = [
    "STAGES",
    "Stage",
    "coarser",
    "corrupt",
    "corruptions",
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
    """Return tags that a program can be split by, and the tag of each node of it; some nodes have none.

    Args:
        program: a program with sunk state, at any stage.
        seed: chooses how many tags there are, and where the cuts are.
        all_tagged: whether every node has one.

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


def coarser(tagging: Tagging) -> Tagging:
    """Return the tags with each two neighbours as one.

    >>> coarser((("a", "b", "c"), lambda node: "c"))[0]
    ('a_b', 'c')
    """
    tags, tag_of = tagging
    wide = {tag: "_".join(tags[number // 2 * 2 : number // 2 * 2 + 2]) for number, tag in enumerate(tags)}

    def of(node: Node) -> str | None:
        tag = tag_of(node)
        return None if tag is None else wide[tag]

    return tuple(dict.fromkeys(wide.values())), of


def _split_somewhere(program: Program) -> Program:
    flat, _ = joined_flat(program)
    tags, tag_of = legal_tags(program, seed=_draw(0, *sorted(map(_what, flat.main.nodes))))
    return split_by_tags.apply(program, tags, tag_of=tag_of)


split_somewhere: Transformation = evolve(split_by_tags, apply=_split_somewhere)
"""``split_by_tags`` with tags that are drawn by what the operators of the program are: the same for variants of it."""


def in_order_of(nodes: Sequence[Node], wanted: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes in the order that others of the same names have; those that have no such name come last.

    >>> [node.name for node in in_order_of([Node("a", Get("w")), Node("b", Get("w"))], [Node("b", Get("w"))])]
    ['b', 'a']
    """
    rank = {node.name: number for number, node in enumerate(wanted)}
    return tuple(sorted(nodes, key=lambda node: rank.get(node.name, len(rank))))


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

    >>> from hypothesis import Phase, find, settings
    >>> from purefx.ir import StateInput
    >>> program = find(programs("sunk"), lambda program: True, settings=settings(phases=[Phase.generate]))
    >>> StateInput in map(type, program.signature.inputs)
    False
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


def corrupt(
    program: Program, corruptor: Corruptor, *, seed: int = 0, meaning: Callable[[Program], Meaning] = toy_meaning
) -> Corruption | None:
    """Return a program that is broken in one way, or None if that does not apply to it.

    Args:
        program: a valid program.
        corruptor: what to break.
        seed: chooses the place.
        meaning: runs a program; called where the result is valid: if it means the same, nothing was broken.

    >>> from purefx.ir import Graph
    >>> by_name = {corruptor.name: corruptor for corruptor in CORRUPTORS}
    >>> program = Program.of({"": Graph((), (), ())})
    >>> corrupt(program, by_name["orphan"]).program.order, corrupt(program, by_name["node lost"])
    (('',), None)
    """
    broken = corruptor.apply(program, seed)
    if broken is None or (corruptor.rule is None and meaning(broken) == meaning(program)):
        return None
    return Corruption(corruptor, broken, program)


def corruptions(stage: Stage = "flat", *, corruptors: Sequence[Corruptor] = CORRUPTORS) -> st.SearchStrategy[Corruption]:
    """Return a strategy of corrupted programs of toy operators, with the corruptor and the original.

    Args:
        stage: the stage of the originals; see ``programs``.
        corruptors: what to choose from; where the drawn one does not apply to the drawn program, the next that does.

    >>> from hypothesis import Phase, find, settings
    >>> no_root = [corruptor for corruptor in CORRUPTORS if corruptor.rule == "root"]
    >>> first = settings(phases=[Phase.generate])
    >>> corruption = find(corruptions(corruptors=no_root), lambda corruption: True, settings=first)
    >>> corruption.program.root in corruption.program.graphs
    False
    """

    def broken(program: Program, seed: int, first: int) -> Corruption | None:
        rows = [*corruptors[first:], *corruptors[:first]]
        return next((found for row in rows if (found := corrupt(program, row, seed=seed)) is not None), None)

    drawn = st.builds(broken, programs(stage), st.integers(0, 1 << 16), st.integers(0, len(corruptors) - 1))
    return drawn.filter(lambda found: found is not None).map(_found)


def _found(corruption: Corruption | None) -> Corruption:
    assert corruption is not None
    return corruption
