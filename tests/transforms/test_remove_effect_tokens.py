"""Effect tokens become ordered effects: same operators, same order, no tokens."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import purefx as px
from tests.programs import exported


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
    assert any(isinstance(spec, px.Token) for spec in program.signature.inputs)
    result = px.remove_effect_tokens(program)
    assert not any(isinstance(spec, px.Token) for spec in (*result.signature.inputs, *result.signature.outputs))
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


def test_nothing_to_do_gives_the_same_object() -> None:
    """A program without tokens is returned as it is."""
    program = px.import_ep(exported(Speaker(), torch.ones(2)))
    assert px.remove_effect_tokens(program) is program
