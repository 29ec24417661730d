"""The programs in ``examples/`` run, say what they should, and end well."""

from __future__ import annotations

import pytest
import torch

from examples import capture, demo, import_fx, quickstart, save_load, to_ep, train

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


def test_train(capsys: pytest.CaptureFixture[str]) -> None:
    """Eight steps of SGD: the loss goes down and is eager's."""
    assert train.main() == 0
    assert "equal, bit by bit" in capsys.readouterr().out


def test_import_fx(capsys: pytest.CaptureFixture[str]) -> None:
    """A trace with leaf modules and a default, counted and run."""
    import_fx.main()
    said = capsys.readouterr().out
    assert "tensor.div_(" in said
    assert said.endswith("equal to eager, with and without the default\n")


def test_capture(capsys: pytest.CaptureFixture[str]) -> None:
    """Captured with dynamic rows, and from threads."""
    capture.main()
    said = capsys.readouterr().out
    assert "aten.linear.default" in said
    assert said.endswith("equal to eager, bit by bit\n")


def test_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    """The README's lines; the two blocks are one body."""
    quickstart.main()
    assert "call @Block(" in capsys.readouterr().out


def test_to_ep(capsys: pytest.CaptureFixture[str]) -> None:
    """A rewritten model is saved, loaded and compared."""
    to_ep.main()
    assert "equal to the rewritten model" in capsys.readouterr().out


def test_save_load(capsys: pytest.CaptureFixture[str]) -> None:
    """With weights and without: the same digest, equal to eager."""
    assert save_load.main() == 0
    assert "same digest, equal to eager" in capsys.readouterr().out
