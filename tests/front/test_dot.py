"""``to_dot``: what Graphviz reads of it, on programs of every kind, with names that want to be syntax."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.errors import InvalidProgram, NamingError
from purefx.laws.tiers import drawn_cases
from tests.front.reports import PAYLOADS, hostile
from tests.programs import Tower
from tests.verify.corruptors import VARIANTS
from tests.verify.programs import PROGRAMS

DOT = shutil.which("dot")

needs_dot = pytest.mark.skipif(DOT is None, reason="no Graphviz: apt-get install graphviz")


def read(text: str, form: str = "json0") -> Any:
    """Return what Graphviz reads, without a layout."""
    assert DOT is not None
    found = subprocess.run([DOT, f"-T{form}"], input=text.encode(), capture_output=True, check=True)
    assert not found.stderr
    return json.loads(found.stdout) if form == "json0" else found.stdout.decode()


def tower() -> px.Program:
    return px.transform(px.capture(Tower(3), (torch.ones(2, 4),)))


def test_each_body_is_drawn_once_with_its_values_and_calls() -> None:
    program = tower()
    text = px.to_dot(program)
    assert text == px.to_dot(tower())
    assert text.count("subgraph cluster_") == len(program.order)
    calls = [node for name in program.order for node in program.graphs[name].nodes if type(node.do) is px.Call]
    assert text.count("lhead=") == len(calls)
    assert 'g1_n0 -> g1_n1 [label="f32[2, 8]"]' in text


def test_a_node_tells_its_line() -> None:
    (line,) = [line for line in px.to_dot(tower()).splitlines() if "    g1_n1 [" in line]
    assert 'tooltip="relu = aten.relu.default(linear)  # ' in line
    assert "programs.py:" in line


def test_one_body_alone() -> None:
    text = px.to_dot(tower(), graph="Block")
    assert text.count("subgraph cluster_") == 1
    assert "lhead" not in text
    assert "@Linear as up" in text
    assert px.to_dot(tower(), graph="layers.1") == text
    assert px.to_dot(tower(), graph="").count("@Block as") == 3


def test_module_calls_of_a_flat_program_are_clusters_in_each_other() -> None:
    lines = px.to_dot(px.capture(Tower(2), (torch.ones(2, 4),))).splitlines()
    (outer,) = [line for line in lines if 'label="layers.1"' in line]
    (inner,) = [line for line in lines if 'label="layers.1.up"' in line]
    assert lines.index(outer) < lines.index(inner)
    assert len(inner) - len(inner.lstrip()) == len(outer) - len(outer.lstrip()) + 2


class Branching(torch.nn.Module):
    """Has an operator with bodies."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


def test_bodies_of_operators_are_reached() -> None:
    text = px.to_dot(px.capture(Branching(), (torch.ones(2),)))
    assert "lhead=cluster_g1" in text
    assert "lhead=cluster_g2" in text


def test_very_deep_module_calls() -> None:
    stack = tuple(px.Frame(".".join(["m"] * depth)) for depth in range(1, 2000))
    node = px.Node("y", px.Op("toy.neg"), (), stack=stack)
    assert px.to_dot(px.Program.of({"": px.Graph((), (node,))})).count("{") == 2001


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(TypeError, match="import_ep"):
        px.to_dot(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    with pytest.raises(NamingError, match="did you mean 'Block'"):
        px.to_dot(tower(), graph="block")
    for none in ("layers", "layers.1.", 3, b"Block", ["Block"]):
        with pytest.raises(NamingError, match="there is no graph"):
            px.to_dot(tower(), graph=none)


@pytest.mark.parametrize("corruptor", VARIANTS, ids=lambda one: f"{one.rule}-{one.name}")
def test_broken_programs_are_drawn_or_refused(corruptor: Any) -> None:
    broken = corruptor.apply(PROGRAMS[corruptor.start]())
    try:
        text = px.to_dot(broken)
    except InvalidProgram:
        assert px.verify(broken)
    else:
        assert text.startswith("digraph")


@needs_dot
@pytest.mark.parametrize(
    "payload",
    [*PAYLOADS, "\\", '\\"', "a\\nb\\l\\N\\G", "&amp;&#65;", "<<b>x</b>>", "}; evil [", "x" * 10**5],
    ids=lambda p: ascii(p)[:20],
)
def test_graphviz_reads_names_as_text(payload: str) -> None:
    program = hostile(payload)
    found = read(px.to_dot(program))
    boxes = [one for one in found["objects"] if "nodes" not in one and not one["name"].startswith("cluster")]
    assert len(boxes) == sum(len(graph.inputs) + len(graph.nodes) + 1 for graph in program.graphs.values())
    picture = read(px.to_dot(program), "svg")
    assert "<script" not in picture
    assert 'onerror="' not in picture


@needs_dot
def test_what_is_shown_is_the_name() -> None:
    for name in ("&lt;b&gt;", "\\N", "a\\", '"', "<b>", "é", "{x|y}"):
        graph = px.Graph((px.Input(name),), ())
        picture = read(px.to_dot(px.Program.of({"": graph})), "svg")
        texts = [line.partition(">")[2].removesuffix("</text>") for line in picture.splitlines() if line.startswith("<text")]
        assert name in [html.unescape(text) for text in texts]


@needs_dot
def test_graphviz_reads_drawn_programs() -> None:
    for case in (*drawn_cases("aten", "flat", 5), *drawn_cases("modules", "deduplicated", 5)):
        found = read(px.to_dot(case.program))
        nodes = [one for one in found["objects"] if not one["name"].startswith("cluster")]
        graphs = [case.program.graphs[name] for name in case.program.order]
        assert len(nodes) == sum(len(graph.inputs) + len(graph.nodes) + 1 for graph in graphs)
