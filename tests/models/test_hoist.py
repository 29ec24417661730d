"""`hoist` and `replicate` on real architectures: fewer operators run, and the results are those of eager, bit by bit."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch

import purefx as px
from examples.zoo import by_name

pytestmark = pytest.mark.models

FEWER = {"llama": 1, "llama_dynamic": 1, "mixtral": 1, "gemma2": 1, "bert": 0, "gpt2": 0, "albert": 0, "t5": 1}
"""Models, and whether their layers compute something alike: views of rotary tables, or masks as numbers (T5)."""


def runs(program: px.Program) -> Counter[str]:
    """Return how often each operator runs in a call of the program."""
    return Counter(node.do.name for node in px.inline(program).main.nodes if type(node.do) is px.Op)


@pytest.mark.parametrize("name", FEWER)
def test_real_models(name: str) -> None:
    example = by_name(name)
    model = example.build()
    program = px.transform(px.import_ep(example.export(model)))
    hoisted = px.hoist(program)
    assert (px.verify(hoisted, infer=True), px.hoist(hoisted)) == ((), hoisted)
    assert (runs(hoisted).total() < runs(program).total()) is bool(FEWER[name])
    back = px.replicate(hoisted)
    assert px.verify(back, infer=True) == ()
    assert runs(back) == runs(px.replicate(program))
    eager = copy.deepcopy(model)
    for result in (hoisted, back, px.inline(hoisted), px.expand(hoisted)):
        lowered = px.lower(result)
        for seed in (1, 2, 3):
            args, kwargs = example.inputs(seed)
            with torch.no_grad():
                torch.testing.assert_close(lowered(*args, **kwargs), eager(*args, **kwargs), rtol=0, atol=0)
