"""Pictures of the gallery: nothing overlaps, values flow down, names stay text; ``tests/models`` compares them with programs."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch

import purefx as px
from examples.gallery.drawing import draw
from examples.gallery.scene import scene

PICTURES = sorted((Path(__file__).parents[2] / "docs" / "gallery").glob("*.svg"))

SVG = "{http://www.w3.org/2000/svg}"


def panels(picture: str) -> list[ET.Element]:
    return ET.fromstring(picture).findall(f"{SVG}g")


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_boxes_do_not_overlap_and_values_flow_down(path: Path) -> None:
    for panel in panels(path.read_text(encoding="utf-8")):
        boxes = [[int(box.get(side, "")) for side in ("x", "y", "width")] for box in panel.findall(f"{SVG}rect")]
        for (x, y, width), (other, at, wide) in combinations(boxes, 2):
            assert y != at or x + width <= other or other + wide <= x
        for edge in panel.findall(f"{SVG}path"):
            numbers = [int(number) for number in re.findall(r"-?\d+", edge.get("d", ""))]
            assert numbers[1] < numbers[-1]


def graph(*nodes: px.Node) -> px.Program:
    return px.Program.of({"": px.Graph((px.Input("x"),), nodes, (px.Ref(nodes[-1].name),))})


NEG, EXP = px.op(torch.ops.aten.neg.default), px.op(torch.ops.aten.exp.default)


def test_a_scene_is_what_differs_and_its_neighbours() -> None:
    first = [px.Node("a", NEG, (px.Ref("x"),)), px.Node("b", NEG, (px.Ref("a"),)), px.Node("c", NEG, (px.Ref("b"),))]
    last = px.Node("d", NEG, (px.Ref("c"),))
    shown = scene(graph(*first, last), graph(first[0], first[1].evolve(do=EXP), first[2], last))
    assert [(box.label, box.differs) for box in shown.before] == [("neg", False), ("neg", True), ("neg", False)]
    assert [(box.label, box.differs) for box in shown.after] == [("neg", False), ("exp", True), ("neg", False)]
    assert shown.lines[1:3] == ("-b = aten.neg.default(a)", "+b = aten.exp.default(a)")


def test_names_are_text() -> None:
    wicked = '"><script>alert(1)</script>&\x00\x1b[2J'
    before = graph(px.Node("w", px.Get(wicked)), px.Node("y", NEG, (px.Ref("w"),)))
    picture = draw(scene(before, graph(px.Node("y", EXP, (px.Ref("x"),)))))
    allowed = {f"{SVG}{tag}" for tag in ("svg", "rect", "g", "text", "path", "line")}
    assert {element.tag for element in ET.fromstring(picture).iter()} <= allowed
    assert "\x1b" not in picture


def test_programs_that_are_equal_have_a_scene() -> None:
    program = graph(px.Node("y", NEG, (px.Ref("x"),)))
    assert scene(program, program).lines == ()
    assert len(panels(draw(scene(program, program)))) == 2
