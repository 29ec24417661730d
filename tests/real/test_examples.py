"""The programs in ``examples/`` run, say what they should, and end well."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from examples import demo

pytestmark = pytest.mark.models


def test_demo(capsys: pytest.CaptureFixture[str]) -> None:
    """The demo ends with 0, shows the layers as one line, and finds everything equal."""
    assert demo.main(["--layers", "3"]) == 0
    said = capsys.readouterr().out
    assert "0-2  LlamaDecoderLayer  x3" in said
    assert said.count("equal to eager") == 3
    assert "DIFFERENT" not in said
    assert "torch.export.unflatten" in said


def test_demo_says_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    """A module that is not the same as eager is not called equal."""
    example = demo.llama(1)
    model = example.build()
    other = example.build()
    with torch.no_grad():
        next(other.parameters()).add_(1)
    assert not demo.compare(other, model, example)
    assert "DIFFERENT" in capsys.readouterr().out


SAID = {
    "train": ("equal, bit by bit", ""),  # eight steps of SGD: the loss goes down and is eager's
    "import_fx": ("tensor.div_(", "equal to eager, with and without the default\n"),
    "capture": ("aten.linear.default", "equal to eager, bit by bit\n"),
    "quickstart": ("call @Block(", ""),  # the two blocks are one body
    "to_ep": ("equal to the rewritten model", ""),
    "save_load": ("same digest, equal to eager", ""),  # with weights and without
}


@pytest.mark.parametrize("name", SAID)
def test_an_example_says_what_it_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_module(f"examples.{name}").main() in (0, None)
    said = capsys.readouterr().out
    within, end = SAID[name]
    assert within in said and said.endswith(end)
