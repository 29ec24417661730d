"""``to_model_explorer``: what it has of a program, against the inlined program, Model Explorer's own classes, and bad intent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.errors import InvalidProgram
from purefx.ir.operators import op_of
from purefx.ir.signature import Signature, TensorType, UserInput, UserOutput
from purefx.laws.tiers import drawn_cases, share
from tests.front.reports import PAYLOADS, hostile
from tests.programs import Block, Tower, parent


def well_formed(program: px.Program) -> dict[str, Any]:
    """Return the collection of a program, which is JSON, and whose ids are there and unique."""
    found = px.to_model_explorer(program)
    assert json.loads(json.dumps(found)) == found == px.to_model_explorer(program)
    names = [graph["id"] for graph in found["graphs"]]
    assert len(set(names)) == len(names)
    for graph in found["graphs"]:
        seen: dict[str, int] = {}
        for node in graph["nodes"]:
            for edge in node["incomingEdges"]:
                assert seen[edge["sourceNodeId"]] > int(edge["sourceNodeOutputId"]), (
                    "an edge leads from an output of a node before it"
                )
            assert node["id"] not in seen
            seen[node["id"]] = max(1, *[int(one["id"]) + 1 for one in node["outputsMetadata"]], 0)
            assert set(node.get("subgraphIds", ())) <= set(names)
            assert node["namespace"] in {*graph["groupNodeAttributes"], "Inputs", "State"}
    return found


def meaning(program: px.Program) -> list[Any]:
    """Return what each node of the first graph does, has and uses, nodes by number."""
    nodes = well_formed(program)["graphs"][0]["nodes"]
    number = {node["id"]: at for at, node in enumerate(nodes)}
    uses = [[(number[edge["sourceNodeId"]], edge["sourceNodeOutputId"]) for edge in node["incomingEdges"]] for node in nodes]
    return [(node["label"], node["outputsMetadata"], used) for node, used in zip(nodes, uses, strict=True)]


def agree(opened: list[Any], inlined: list[Any]) -> bool:
    """Say whether two programs mean one thing; inlining drops the types that differ from call to call."""
    pairs = list(zip(opened, inlined, strict=True))
    return all((mine[0], mine[2]) == (other[0], other[2]) and other[1] in ([], mine[1]) for mine, other in pairs)


@pytest.mark.parametrize("tier", ["toy", "aten", "modules"])
def test_calls_are_opened_as_inline_does(tier: Any) -> None:
    for case in drawn_cases(tier, "deduplicated", share(40)):
        assert agree(meaning(case.program), meaning(px.inline(case.program)))


def nodes_of(program: px.Program) -> dict[str, dict[str, Any]]:
    return {node["id"]: node for node in well_formed(program)["graphs"][0]["nodes"]}


def attributes(node: dict[str, Any]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in node["attrs"]}


def test_a_tower() -> None:
    program = px.transform(px.capture(Tower(3), (torch.ones(2, 4),)))
    nodes = nodes_of(program)
    assert nodes["layers.1/relu"]["namespace"] == "layers/1"
    assert [edge["sourceNodeId"] for edge in nodes["layers.1/relu"]["incomingEdges"]] == ["layers.1.up/linear"]
    assert "programs.py:" in attributes(nodes["layers.1/relu"])["source"]
    groups = px.to_model_explorer(program)["graphs"][0]["groupNodeAttributes"]
    assert groups["layers/2"] == {"module": "layers.2", "class": "tests.programs.Block", "graph": "Block"}
    assert groups[""] == {"facts": "deduplicated, outlined, state sunk"}
    assert attributes(nodes["layers.0.up/weight"]) == {
        "name": "weight",
        "text": "weight = get weight",
        "state": "layers.0.up.weight",
    }
    assert attributes(nodes["x"]) == {"input": "x", "signature": "user x: f32[2, 4]"}
    assert attributes(nodes["return"]) == {"0": "user"}
    assert "effects" not in attributes(nodes["layers.1/relu"])
    # A body that modules of other sizes share has the sizes of each.
    shapes = [nodes[f"layers.0.{name}/linear"]["outputsMetadata"][0]["attrs"][0]["value"] for name in ("up", "down")]
    assert shapes == ["f32[2, 8] cpu", "f32[2, 4] cpu"]


class Branching(parent(a=lambda: nn.Linear(4, 4), b=lambda: nn.Linear(4, 4))):
    """Has an operator with bodies, several results, and a dynamic size."""

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        values, indices = torch.topk(x, 4)
        chosen = torch.cond(values.sum() > 0, lambda y: self.a(y).sin(), lambda y: self.b(y).cos(), (values,))
        return {"chosen": chosen, "indices": indices + 1, "none": None}


def test_bodies_of_operators_results_and_dynamic_sizes() -> None:
    size = torch.export.Dim("n", min=2, max=9)
    program = px.transform(px.capture(Branching(), (torch.ones(3, 5),), dynamic_shapes=({0: size},)))
    found = well_formed(program)
    first, *bodies = found["graphs"]
    nodes = {node["id"]: node for node in first["nodes"]}
    assert nodes["cond"]["subgraphIds"] == [body["id"] for body in bodies]
    symbol = nodes["x"]["outputsMetadata"][0]["attrs"][0]
    assert symbol["key"] == "tensor_shape"
    assert symbol["value"].startswith("f32[s")
    assert [one["id"] for one in nodes["topk"]["outputsMetadata"]] == ["0", "1"]
    assert nodes["add"]["incomingEdges"][0] == {"sourceNodeId": "topk", "sourceNodeOutputId": "1", "targetNodeInputId": "0"}
    assert not any("getitem" in node["label"] for node in first["nodes"])


def test_a_flat_program_has_its_modules_as_namespaces_and_its_state_as_inputs() -> None:
    program = px.capture(Tower(2), (torch.ones(2, 4),))
    nodes = nodes_of(program).values()
    assert {node["namespace"] for node in nodes} >= {"State", "Inputs", "layers/1/up", ""}


class Twice(parent(block=Block)):
    """Calls a module twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.block(x))


def test_effects_and_pieces_of_calls_are_said() -> None:
    node = px.Node("y", op_of(torch.ops.aten.add_.Tensor), (px.Ref("x"), 1), stack=(px.Frame("a", 1, 2),))
    (_, made, _) = nodes_of(signed({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))})).values()
    assert attributes(made)["effects"] == "writes(0:self), returns(0:self), aliases(0:self)"
    assert (made["id"], made["namespace"]) == ("a@1#2/y", "a@1#2")


def test_each_call_of_a_module_has_a_namespace() -> None:
    places = {node["namespace"] for node in nodes_of(px.transform(px.capture(Twice(), (torch.ones(2, 4),)))).values()}
    assert {"block", "block@1", "block/up", "block@1/up"} <= places


@pytest.mark.parametrize("payload", PAYLOADS, ids=ascii)
def test_names_are_texts(payload: str) -> None:
    found = well_formed(hostile(payload))
    assert all(text.isprintable() for text in texts(found))


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, one in value.items() for text in (key, *texts(one))]
    return [text for one in value for text in texts(one)] if isinstance(value, list) else [value]


def test_paths_and_names_that_read_alike_have_their_own_ids() -> None:
    def body(name: str) -> px.Graph:
        return px.Graph((px.Input("x"),), (px.Node(name, px.Op("toy.neg"), (px.Ref("x"),)),), px.Ref(name))

    calls = [px.Node(f"c{n}", px.Call(px.Frame(path), path), (px.Ref("x"),)) for n, path in enumerate(("a", "b"))]
    clash = px.Node("inputs", px.Op("toy.neg"), (px.Ref("x"),))
    program = signed({"": px.Graph((px.Input("x"),), (*calls, clash), (px.Ref("c1"),)), "a": body("y"), "b": body("y")})
    assert {"a/y", "b/y", "inputs"} <= set(nodes_of(program))


def signed(graphs: dict[str, px.Graph], root: str = "") -> px.Program:
    """Return a program with a signature of tensors."""
    main = graphs[root]
    takes = tuple(UserInput(TensorType(torch.float32, (2,)), one.name) for one in main.inputs)
    gives = (UserOutput(),) * len(main.output)
    return px.Program.of(graphs, root=root, signature=Signature(takes, gives))


def doubling(depth: int, width: int = 2) -> px.Program:
    """Return a program whose bodies each call the next several times and give a tuple of the results."""
    names = [f"c{number}" for number in range(width)]
    graphs = {
        str(level): px.Graph((), tuple(px.Node(name, px.Call(px.Frame(name), str(level + 1))) for name in names),
                             tuple(px.Ref(name) for name in names))
        for level in range(depth)
    }  # fmt: skip
    last = px.Graph((), (px.Node("y", px.Op("toy.make")),), (px.Ref("y"),))
    return signed({**graphs, str(depth): last}, "0")


def test_very_many_instances_are_not_opened() -> None:
    found = well_formed(doubling(60))
    assert len(found["graphs"]) == 61
    calls = found["graphs"][0]["nodes"][:2]
    assert [node["subgraphIds"] for node in calls] == [[found["graphs"][1]["id"]]] * 2


def test_results_that_hold_each_other_have_a_bounded_number_of_edges() -> None:
    # One call a level, whose tuple is in the tuple of the next one twice: 2 ** 60 values.
    graphs = {
        str(level): px.Graph((), (px.Node("c", px.Call(px.Frame("c"), str(level + 1))),), (px.Ref("c"), px.Ref("c")))
        for level in range(60)
    }
    last = px.Graph((), (px.Node("y", px.Op("toy.make")),), (px.Ref("y"),))
    program = signed({**graphs, "60": last}, "0")
    if not px.verify(program):
        assert sum(len(node["incomingEdges"]) for node in well_formed(program)["graphs"][0]["nodes"]) <= 1000


def test_what_is_no_valid_program_is_refused() -> None:
    with pytest.raises(TypeError, match="import_ep"):
        px.to_model_explorer(torch.export.export(nn.ReLU(), (torch.ones(2),)))
    with pytest.raises(InvalidProgram):
        px.to_model_explorer(px.Program.of({}))


CHECK = """
import json, sys, dacite
from model_explorer.graph_builder import GraphCollection
for name in sys.argv[1:]:
    found = dacite.from_dict(GraphCollection, json.load(open(name)), dacite.Config(strict=True))
    print(found.label, *[len(graph.nodes) for graph in found.graphs])
"""


@pytest.mark.slow
def test_model_explorer_takes_it(tmp_path: Path) -> None:
    pytest.importorskip("model_explorer", reason="no Model Explorer: pip install -e '.[viewers]'")
    programs = [px.transform(px.capture(Tower(3), (torch.ones(2, 4),))), px.capture(Branching(), (torch.ones(3, 5),))]
    files = [tmp_path / f"{number}.json" for number in range(len(programs))]
    for program, file in zip(programs, files, strict=True):
        file.write_text(json.dumps(px.to_model_explorer(program)), "utf-8")
    # In a process of its own: it brings a web server, and imports what it finds.
    found = subprocess.run([sys.executable, "-c", CHECK, *map(str, files)], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in found.stdout.splitlines()] == ["Tower", "Branching"]
