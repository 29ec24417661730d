"""A picture of a scene as SVG: two columns of layers, values flow down.

A box stands one layer below the lowest box that it uses, boxes that use nothing right above what uses them first; in a layer
they are ordered by where their neighbours stand.  Coordinates are whole numbers, so a picture is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from attrs import frozen

from examples.gallery.scene import Box, Scene

HEIGHT, GAP, LAYER, LETTER, MARGIN, TITLE = 24, 14, 54, 7, 16, 36
"""Of boxes, between boxes, from layer to layer, of a letter, around a picture, above the boxes."""

COLOURS = {
    "before": ("#ffebe9", "#cf222e"),
    "after": ("#dafbe1", "#1a7f37"),
    "": ("#f6f8fa", "#8c959f"),
}


@frozen
class Panel:
    """Boxes with their places: the left edge, the layer and the width of each."""

    boxes: tuple[Box, ...]
    left: dict[str, int]
    layer: dict[str, int]
    width: int
    height: int


def draw(scene: Scene) -> str:
    """Return a scene as the text of an SVG file."""
    panels = [panel(scene.before), panel(scene.after)]
    width = sum(each.width for each in panels) + 4 * MARGIN
    height = max(each.height for each in panels) + TITLE + MARGIN
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    x = MARGIN
    for title, each in zip(("before", "after"), panels, strict=True):
        lines += [
            f'<g transform="translate({x},{TITLE})">',
            f'<text y="-14" fill="#57606a">{title}</text>',
        ]
        lines += [*_edges(each), *_boxes(each, title), "</g>"]
        x += each.width + 2 * MARGIN
    middle = panels[0].width + 2 * MARGIN
    lines.append(
        f'<line x1="{middle}" y1="{MARGIN}" x2="{middle}" y2="{height - MARGIN}" stroke="#d0d7de"/>'
    )
    return "\n".join([*lines, "</svg>", ""])


def panel(boxes: Sequence[Box]) -> Panel:
    """Return boxes with their places."""
    layer = _layers(boxes)
    rows = _rows(boxes, layer)
    widths = [sum(_width(box) + GAP for box in row) - GAP for row in rows]
    widest = max(widths, default=0)
    left: dict[str, int] = {}
    for row, width in zip(rows, widths, strict=True):
        x = (widest - width) // 2
        for box in row:
            left[box.name] = x
            x += _width(box) + GAP
    return Panel(tuple(boxes), left, layer, widest, (len(rows) - 1) * LAYER + HEIGHT)


def _width(box: Box) -> int:
    return len(box.label) * LETTER + 16


def _layers(boxes: Sequence[Box]) -> dict[str, int]:
    layer: dict[str, int] = {}
    for box in boxes:  # in program order
        layer[box.name] = 1 + max([layer[name] for name in box.operands], default=-1)
    for box in reversed(boxes):
        users = [layer[other.name] for other in boxes if box.name in other.operands]
        if not box.operands and users:
            layer[box.name] = min(users) - 1
    return layer


def _rows(boxes: Sequence[Box], layer: dict[str, int]) -> list[list[Box]]:
    rows: list[list[Box]] = [[] for _ in range(1 + max(layer.values(), default=0))]
    for box in boxes:
        rows[layer[box.name]].append(box)
    near = {
        box.name: {*box.operands, *[other.name for other in boxes if box.name in other.operands]}
        for box in boxes
    }
    for sweep in range(6):
        place = {
            box.name: (number + 1) / (len(row) + 1)
            for row in rows
            for number, box in enumerate(row)
        }
        for row in rows[:: -1 if sweep % 2 else 1]:
            row.sort(
                key=lambda box: round(
                    sum(place[name] for name in near[box.name]) / max(len(near[box.name]), 1), 6
                )
            )
            place.update(
                {box.name: (number + 1) / (len(row) + 1) for number, box in enumerate(row)}
            )
    return rows


def _boxes(drawn: Panel, title: str) -> list[str]:
    lines: list[str] = []
    for box in drawn.boxes:
        fill, line = COLOURS[title if box.differs else ""]
        x, y, width = drawn.left[box.name], drawn.layer[box.name] * LAYER, _width(box)
        shape = f'x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="5"'
        lines.append(f'<rect {shape} fill="{fill}" stroke="{line}"/>')
        lines.append(
            f'<text x="{x + width // 2}" y="{y + 16}" text-anchor="middle" fill="#1f2328">{escape(box.label)}</text>'
        )
    return lines


def _edges(drawn: Panel) -> list[str]:
    width = {box.name: _width(box) for box in drawn.boxes}
    lines: list[str] = []
    for box in drawn.boxes:
        for name in box.operands:
            x, y = drawn.left[name] + width[name] // 2, drawn.layer[name] * LAYER + HEIGHT
            to, down = drawn.left[box.name] + width[box.name] // 2, drawn.layer[box.name] * LAYER
            bend = (down - y) // 2
            lines.append(
                f'<path d="M{x},{y} C{x},{y + bend} {to},{down - bend} {to},{down}" fill="none" stroke="#8c959f"/>'
            )
    return lines
