"""A real model in a file: what is loaded is what was saved, and runs as eager."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import purefx as px
from examples import zoo
from purefx.laws import value_differences

pytestmark = pytest.mark.models


def test_llama(tmp_path: Path) -> None:
    """Flat and as a tree; the pipeline makes the same of what was loaded."""
    example = zoo.llama(3)
    model = example.build()
    flat = px.import_ep(example.export(model))
    tree = px.transform(flat)
    for number, program in enumerate((flat, tree)):
        px.save(program, tmp_path / f"{number}.purefx")
        found = px.load(tmp_path / f"{number}.purefx")
        assert found == program
        assert px.digest(found) == px.digest(program)
    again = px.transform(px.load(tmp_path / "0.purefx"))
    assert again == tree
    args, kwargs = example.inputs()
    with torch.no_grad():
        assert value_differences(px.lower(again)(*args, **kwargs), model(*args, **kwargs)) == []
