"""Effect tokens become ordered effects, and go out of signatures, operands, results and meta."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.programs import exported

# Tokens that order nothing any more: they go out of signatures, operands, results and meta, and nothing else does.


# Effect tokens become ordered effects: same operators, same order, no tokens.


class Speaker(nn.Module):
    """Prints, and has a child that prints."""

    def __init__(self, *, child: bool = True) -> None:
        super().__init__()
        self.child = Speaker(child=False) if child else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._print("before")
        y = self.child(x) if self.child is not None else x + 1
        torch.ops.aten._print("after")
        return y * 2


def test_tokens_go_and_order_stays(capfd: pytest.CaptureFixture[str]) -> None:
    """The decomposed program threads tokens; the result prints in eager's order, three calls in a row."""
    program = px.import_ep(exported(Speaker(), torch.ones(2), decomposed=True))
    assert any(isinstance(spec, px.ir.Token) for spec in program.signature.inputs)
    result = px.remove_effect_tokens(program)
    assert not any(isinstance(spec, px.ir.Token) for spec in (*result.signature.inputs, *result.signature.outputs))
    assert [node.do.name for node in result.main.nodes if node.do.effects.ordered] == ["aten._print.default"] * 4  # type: ignore[union-attr]
    capfd.readouterr()
    model = Speaker()
    for _ in range(3):
        model(torch.ones(2))
    expected = capfd.readouterr().out
    assert expected.count("before") == 6
    for to in ("graph_module", "interpreter"):
        module = px.lower(px.transform(program), to=to)  # type: ignore[arg-type]
        for _ in range(3):
            assert torch.equal(module(torch.ones(2)), model(torch.ones(2)) * 1)
            capfd.readouterr()
        for _ in range(3):
            module(torch.ones(2))
        assert capfd.readouterr().out == expected


@torch.compiler.nested_compile_region  # type: ignore[misc]
def loudly(x: torch.Tensor) -> torch.Tensor:
    """Print inside a region of its own."""
    torch.ops.aten._print("inside")
    return torch.add(x.sin(), 1)


class Regions(nn.Module):
    """Calls a region that prints twice, between prints of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._print("before")
        y: torch.Tensor = loudly(loudly(x))  # type: ignore[assignment]
        torch.ops.aten._print("after")
        return y


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_tokens_go_out_of_the_bodies_of_operators(to: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """``invoke_subgraph`` hands the token in and gives it back."""
    ep = torch.export.export(Regions(), (torch.ones(2),), strict=True).run_decompositions({})
    program = px.import_ep(ep)
    body = next(name for name in program.order if name)
    assert program.graphs[body].nodes[0].do.name == "higher_order.with_effects"  # type: ignore[union-attr]
    result = px.remove_effect_tokens(program)
    assert px.verify(result) == ()
    assert len(result.graphs[body].inputs) == 1
    assert len(result.graphs[body].output) == 1  # type: ignore[arg-type]
    assert "with_effects" not in {node.do.name.rpartition(".")[2] for _, node in result.nodes() if isinstance(node.do, px.Op)}
    module = px.lower(px.transform(program), to=to)
    for _ in range(3):
        capfd.readouterr()
        torch.testing.assert_close(module(torch.ones(2)), torch.ones(2).sin().add(1).sin() + 1)
        assert capfd.readouterr().out.split() == ["before", "inside", "inside", "after"]
