"""What ``swap_modules`` refuses: a typed error that says which module, why and what to do, before anything happens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.transforms.test_swap import Parts, UsesAll, X, transformed
from tests.unflatten.harness import export

PART = Parts()
REFUSED: list[tuple[Any, str]] = [
    ({"prat": PART}, r"no module 'prat'; did you mean 'part'\?"),
    ({"": PART}, "the root cannot be swapped"),
    ({3: PART}, "paths, which are strings"),
    ({"part": Parts}, "Parts is a class; give an instance"),
    ({"part": torch.relu}, r"cannot stand in for a module"),
    ({"part": nn.Linear(3, 3)}, r"passes 3 positional, scale=, mask=, and Linear\.forward\(.*\) .* does not take that"),
    ({"part": nn.ModuleList()}, "a ModuleList has no forward"),
    ({"part": PART, "part.linear": nn.Tanh()}, r"'part.linear' is below 'part', which is swapped as well"),
    ([("part", PART), ("part", PART)], "given twice"),
    (7, "a mapping from paths"),
    ({"part.linear": nn.Linear(3, 3)}, r"no preserved call signature.*preserve_module_call_signature=\('part.linear',\)"),
]


@pytest.mark.parametrize(("modules", "said"), REFUSED)
def test_what_can_not_be_swapped_is_told_before_anything_happens(modules: Any, said: str) -> None:
    program = transformed(UsesAll(), "part")
    with pytest.raises(px.SwapError, match=said):
        px.swap_modules(program, modules)


def test_other_options_and_stages_are_told() -> None:
    program = transformed(UsesAll(), "part")
    for options in ({"signature": "falt"}, {"through": "both"}):
        with pytest.raises(px.SwapError, match="it is"):
            px.swap_modules(program, {"part": PART}, **options)
    flat = px.import_ep(export(UsesAll(), (X,), preserve=("part",)))
    with pytest.raises(px.PipelineError, match="requires a program that is"):
        px.swap_modules(flat, {"part": PART})
    sunk = px.transform(flat, px.inplace_mutations, px.sink_state)
    with pytest.raises(px.PipelineError, match=r"the calls of 'part' are outlined, .* run transform"):
        px.swap_modules(sunk, {"part": PART})


def test_values_that_cross_unnamed_are_told() -> None:
    box: list[Any] = []

    class Child(nn.Module):
        def forward(self, x: Any) -> Any:
            box[:] = [x.exp()]
            return x + 1

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Child()

        def forward(self, x: Any) -> Any:
            return self.a(x) + box[0]

    with pytest.raises(px.SwapError, match="exp is used outside of it and is not part of its result"):
        px.swap_modules(transformed(Model(), "a"), {"a": Child()})
