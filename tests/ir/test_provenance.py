"""``history`` and ``became``: through every step back to what was imported, and forward again; off, saved, exported, hostile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir.meta import ORIGIN
from purefx.laws.provenance import unknown_origins
from tests.models import parent


class Layer(parent(up=lambda: nn.Linear(4, 8), down=lambda: nn.Linear(8, 4))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x))) * 1 + 0


class Model(parent(layers=lambda: nn.ModuleList([Layer() for _ in range(3)]))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.view(2, 4)


X = torch.ones(2, 4)


@pytest.fixture(scope="module")
def program() -> px.Program:
    return px.import_ep(torch.export.export(Model(), (X,)))


@px.rule
def fused(x: px.Match, w: px.Match, b: px.Match) -> torch.Tensor:
    return torch.relu(nn.functional.linear(x, w, b))  # pyright: ignore[reportArgumentType]


@fused.becomes
def _(_: px.Match, x: px.Match, w: px.Match, b: px.Match) -> torch.Tensor:
    return torch.tanh(nn.functional.linear(x, w, b)).neg()  # pyright: ignore[reportArgumentType]


def names(found: object) -> list[str]:
    return sorted(one.name for one in found)  # type: ignore[attr-defined]


def test_a_node_of_a_shared_body_leads_to_all_that_share_it(program: px.Program) -> None:
    found = px.history(px.transform(program), "Layer / relu")
    assert names(found.imported) == ["relu", "relu_1", "relu_2"]
    assert [change.step for change in found.changes] == ["deduplicate", "outline"]
    assert [frame.path for origin in found.imported for frame in origin.stack] == [
        "layers.0",
        "layers.1",
        "layers.2",
    ]
    assert "test_provenance.py:" in str(found) and "self.down(torch.relu(self.up(x)))" in str(found)


def test_in_one_module_it_is_the_node_of_that_module(program: px.Program) -> None:
    tree = px.transform(program)
    assert names(px.history(tree, "layers.1 / relu").imported) == ["relu_1"]
    assert names(px.history(tree, "relu", graph="layers.2").imported) == ["relu_2"]
    assert names(px.history(px.expand(tree), "relu", graph="layers.2").imported) == ["relu_2"]


def test_a_call_leads_to_what_its_body_computes_and_a_read_to_state(program: px.Program) -> None:
    tree = px.transform(program)
    call = next(node for node in tree.main.nodes if type(node.do) is px.Call)
    assert "relu" in names(px.history(tree, call.name).imported)
    read = px.history(tree, "layers.1.up / weight")
    assert read.state == ("layers.1.up.weight",) and "p_layers_1_up_weight" in names(read.inputs)


def test_forward_through_every_step_and_until_it_is_gone(program: px.Program) -> None:
    tree = px.transform(program)
    assert [(place.graph, place.name) for place in px.became(tree, "relu_2").nodes] == [
        ("Layer", "relu")
    ]
    lost = px.eliminate_dead_code(
        tree.with_main(evolve(tree.main, output=tuple(map(px.Ref, [tree.main.inputs[0].name]))))
    )
    assert px.became(lost, "relu").gone_by == "eliminate_dead_code"
    assert (
        px.became(tree, "relu_1", graph="layers.1", step=2).nodes == px.became(tree, "relu_1").nodes
    )


def test_what_does_nothing_is_stood_for_by_what_it_was_done_to(program: px.Program) -> None:
    clean = px.remove_noops(program)
    assert [place.name for place in px.became(clean, "view").nodes] == [
        program.main.by_name["view"].args[0].name
    ]
    assert px.became(px.inline(px.remove_noops(px.transform(program))), "view").gone_by is None


def test_a_rule_makes_of_all_that_it_matched(program: px.Program) -> None:
    result = fused(program)
    for name in ("tanh_1", "neg_1"):
        found = px.history(result, name)
        assert names(found.imported) == ["linear_2", "relu_1"]
        assert found.changes[0].rules == ("fused",)
    assert (
        names(px.became(result, "relu_1").nodes)
        == names(px.became(result, "linear_2").nodes)
        == ["linear_7", "neg_1", "tanh_1"]
    )
    assert "torch_fn" not in result.main.by_name["neg_1"].meta


class Scaled(parent(shift=lambda: torch.ones(3))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (torch.arange(3.0).exp() + self.shift)


def test_a_folded_constant_is_made_of_all_that_it_was_computed_of() -> None:
    folded = px.fold_constants(px.import_ep(torch.export.export(Scaled(), (torch.ones(3),))))
    read = folded.main.nodes[0].name
    told = str(px.history(folded, read))
    assert all(f"imported {name} (aten.{name}." in told for name in ("arange", "exp", "add")), told
    assert "input b_shift" in told


def test_everything_leads_back_and_nothing_is_lost(program: px.Program) -> None:
    result = px.transform(program, fused, *px.DEFAULT, px.expand, px.inline)
    assert list(unknown_origins(program, result)) == []
    for node in program.main.nodes:
        found = px.became(result, node.name)
        assert bool(found.nodes) is (found.gone_by is None)


def test_it_survives_a_file(program: px.Program, tmp_path: Path) -> None:
    result = px.remove_noops(px.transform(program, fused, *px.DEFAULT))
    px.save(result, tmp_path / "one.purefx")
    again = px.load(tmp_path / "one.purefx")
    assert again == result and not again.trail
    px.save(again, tmp_path / "two.purefx")
    assert (tmp_path / "one.purefx").read_bytes() == (tmp_path / "two.purefx").read_bytes()
    for name, node in result.nodes():
        mine, theirs = (px.history(one, node.name, graph=name) for one in (result, again))
        assert str(mine) == str(theirs)
    for node in program.main.nodes:
        assert px.became(result, node.name) == px.became(again, node.name)
    assert str(px.history(px.inline(again), "neg_1")) == str(px.history(px.inline(result), "neg_1"))


def test_hostile_names_are_escaped() -> None:
    evil = "y\x1b[2J\u202e"
    hand = px.Program.of({"": px.Graph((), (px.Node(evil, px.Op("toy.one\x07")),), px.Ref(evil))})
    told = px.ir.tracked(hand)
    for text in (str(px.history(told, evil)), str(px.became(told, evil))):
        assert text.replace("\n", "").isprintable()


def test_off_nothing_is_kept_and_nothing_is_told() -> None:
    ep = torch.export.export(Model(), (X,))
    off = px.transform(px.import_ep(ep, provenance=False), fused, *px.DEFAULT)
    assert not any(
        ORIGIN in item.meta
        for graph in off.graphs.values()
        for item in (*graph.inputs, *graph.nodes)
    )
    assert off == px.transform(px.import_ep(ep), fused, *px.DEFAULT)
    with pytest.raises(px.errors.NamingError, match="provenance=False"):
        px.history(off, off.main.nodes[-1].name)
    with pytest.raises(px.errors.NamingError, match="with a known origin"):
        px.became(off, "relu")


def test_fx_graphs_have_it_too() -> None:
    traced = px.import_fx(torch.fx.symbolic_trace(Model()))
    assert px.history(traced, "relu_1").imported[0].op == "torch.relu"
    passed = px.from_fx_pass(lambda module: module.graph.eliminate_dead_code())(
        px.import_ep(torch.export.export(Model(), (X,)))
    )
    assert names(px.history(passed, "relu_1").imported) == ["relu_1"]
