"""``legal_tags``: tags for the nodes of a program along legal cuts, chosen by a seed; ``split_somewhere`` splits by such tags.

One idea: a tag never goes down along the dependency relation, and goes up where a checksum of what a node does says so.  Names
and the order of independent nodes do not matter, so variants of one program have the same tags.  Nothing here splits.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from attrs import evolve

from ...ir.effects.dependencies import dependencies
from ...ir.node import Get, Node, Op
from ...ir.program import Program
from ...transforms import Transformation, split_by_tags
from ...transforms.partition.join import joined_flat
from ...transforms.partition.units import found_units

__all__ = ["coarser", "legal_tags", "split_somewhere"]

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
