"""Flowcharts of mermaid as SVG, so that a site shows them without a script or a network.

It reads what the pages have: ``graph`` or ``flowchart``, ``TD`` or ``LR``, nodes ``a``, ``a["text"]``, ``a([text])``, and edges
``a --> b`` and ``a -- text --> b``.  Anything else is an error, and so the site is not built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

LETTER, LINE, PAD, GAP, BEND = 7, 17, 12, 70, 46
"""Width of a letter, height of a line, around a text, between layers, how far an edge over a layer bends."""

NODE = re.compile(r"(\w+)(?:\(\[(.*)\]\)|\[\"(.*)\"\])?$")

EDGE = re.compile(r"(\w+) (?:-- (.*) )?--> (\w+)$")

ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z"/></marker></defs>'
)


def flowchart(text: str) -> str:
    """Return a flowchart as the text of an SVG element."""
    first, *lines = [line.strip() for line in text.strip().splitlines()]
    labels: dict[str, list[str]] = {}
    edges: list[tuple[str, str, str]] = []
    for line in lines:
        if found := EDGE.match(line):
            edges.append((found[1], found[3], found[2] or ""))
        elif found := NODE.match(line):
            labels[found[1]] = (found[2] or found[3] or found[1]).split("<br>")
        else:
            raise ValueError(f"the flowcharts of the site have no line like {line!r}")
    for name in [name for edge in edges for name in edge[:2]]:
        labels.setdefault(name, [name])
    boxes, size = _placed(labels, edges, across=first.endswith("LR"))
    drawn = [_edge(boxes, edge, across=first.endswith("LR")) for edge in edges]
    drawn += [_box(*boxes[name], label) for name, label in labels.items()]
    head = f'<svg class="flowchart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}">'
    return "".join([head, ARROW, *drawn, "</svg>"])


Box = tuple[int, int, int, int]
"""Left, top, width, height."""


def _placed(
    labels: Mapping[str, Sequence[str]], edges: Sequence[tuple[str, str, str]], *, across: bool
) -> tuple[dict[str, Box], tuple[int, int]]:
    # A node stands one layer behind the last one that leads to it; the layers of these charts have one node each, or few.
    layer = dict.fromkeys(labels, 0)
    for _ in labels:
        for start, end, _text in edges:
            layer[end] = max(layer[end], layer[start] + 1)
    sizes = {
        name: (max(map(len, label)) * LETTER + 2 * PAD, len(label) * LINE + 2 * PAD - 4)
        for name, label in labels.items()
    }
    along, over = (0, 1) if across else (1, 0)
    boxes: dict[str, Box] = {}
    position, widest = 2, max(size[over] for size in sizes.values())
    gap = max([GAP, *[len(text) * LETTER + 40 for _, _, text in edges]]) if across else 36
    for number in range(max(layer.values()) + 1):
        names = [name for name in labels if layer[name] == number]
        for rank, name in enumerate(names):
            place = [0, 0]
            place[along] = position
            place[over] = BEND + (widest - sizes[name][over]) // 2 + rank * (widest + 20)
            boxes[name] = (place[0], place[1], *sizes[name])
        position += max(sizes[name][along] for name in names) + gap
    size = [0, 0]
    size[along], size[over] = (
        position - gap + 2,
        max(box[over] + box[2 + over] for box in boxes.values()) + 4,
    )
    return boxes, (size[0], size[1])


def _edge(boxes: Mapping[str, Box], edge: tuple[str, str, str], *, across: bool) -> str:
    start, end, text = edge
    (x, y, width, height), (left, top, wide, high) = boxes[start], boxes[end]
    if not across:
        return f'<path d="M{x + width // 2} {y + height} L{left + wide // 2} {top}" marker-end="url(#arrow)"/>'
    one, other = (x + width, y + height // 2), (left, top + high // 2)
    between = any(one[0] < box[0] < other[0] and name != end for name, box in boxes.items())
    if not between:
        path, at = (
            f"M{one[0]} {one[1]} L{other[0]} {other[1]}",
            ((one[0] + other[0]) // 2, one[1] - 6),
        )
    else:  # over the boxes between
        path = (
            f"M{x + width // 2} {y} Q{(x + left + wide) // 2} {-BEND // 3} {left + wide // 2} {top}"
        )
        at = ((x + left + wide) // 2, 14)
    words = f'<text x="{at[0]}" y="{at[1]}">{escape(text)}</text>' if text else ""
    return f'<path d="{path}" marker-end="url(#arrow)"/>{words}'


def _box(x: int, y: int, width: int, height: int, label: Sequence[str]) -> str:
    lines = [
        f'<text x="{x + width // 2}" y="{y + PAD + 10 + LINE * number}">{escape(line)}</text>'
        for number, line in enumerate(label)
    ]
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>{"".join(lines)}'
