"""The report of a real model: its size, and how long it takes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

import purefx as px
from examples.zoo import llama
from tests.front.reports import data_of


@px.rule
def spelled_silu(x: torch.Tensor) -> torch.Tensor:
    """Match a silu."""
    return torch.nn.functional.silu(x)


@spelled_silu.becomes
def _(_: px.Match, x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@pytest.mark.models
def test_llama_of_8_layers_and_8_steps(tmp_path: Path) -> None:
    example = llama(8)
    program = px.transform(px.import_ep(example.export(example.build())))
    rest = (px.remove_noops, px.eliminate_common_subexpressions, px.eliminate_dead_code)
    for step in (spelled_silu, *rest):
        program = step(program)
    assert len(program.trail) == 7
    start = time.process_time()
    page = px.report(program, tmp_path / "llama.html")
    assert time.process_time() - start < 10, "it takes one second"
    assert page.stat().st_size < 1_000_000, "issue 19 asks for less than 5 MB with 32 layers"
    assert len(data_of(page.read_text("ascii"))["versions"]) == 8
