"""The same assignments on the module that ``torch.export.unflatten`` gives: silently wrong where ours are errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.lowering.swaps import Counting, Layers, Pair, Parent, Plus, Scaled, X, both, program_of, put, refused
from tests.unflatten.harness import export

CASES: dict[str, tuple[Callable[[], nn.Module], str, Callable[[], nn.Module]]] = {
    "a constant argument": (lambda: Parent(lambda p, x: p.a(x, 0.5), a=Scaled()), "a", lambda: Scaled(-1.0)),
    "results in another order": (lambda: Parent(lambda p, x: torch.sub(*p.a(x)), a=Pair()), "a", lambda: Pair(7.0)),
    "a module that emitted no node": (lambda: Parent(lambda p, x: p.a(x) + 1, a=nn.Identity()), "a", Plus),
    "a buffer that is written": (lambda: Parent(lambda p, x: p.a(x) + p.a.n, a=Counting()), "a", lambda: Counting(2.0)),
    "a longer list": (Layers, "layers", lambda: nn.ModuleList([Plus(), Plus(), Plus()])),
}


@pytest.mark.parametrize("case", CASES)
def test_torch_is_silently_wrong(case: str) -> None:
    make, path, new = CASES[case]
    model, replacement = make(), new()
    theirs: Any = torch.export.unflatten(export(model, (X,)))
    other = copy.deepcopy(model)
    for module in (other, theirs):
        put(module, path, copy.deepcopy(replacement))
    assert not torch.allclose(theirs(X), other(X))
    way = "decomposed" if "buffer" in case else "plain"  # plain, ours writes the buffer in the module, as eager does
    for module in both(program_of(model, way=way)):
        refused(module, path, replacement, "export|program calls")
