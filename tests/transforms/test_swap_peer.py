"""Where ``torch.export._swap`` is silently wrong, and a real model.

One idea: the same replacement goes into eager, into torch's swap and into ours; ours is eager's.  Where torch is right one day,
the test that says that it is not fails, and its line goes.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.export._swap import _swap_modules  # the peer

import purefx as px
from examples.zoo import llama
from tests.unflatten.harness import export

X = torch.randn(4, 3)


class Scaled(nn.Module):
    def forward(self, x: Any, k: Any) -> Any:
        return x * k


class Pair(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + 1, x * 2


class Reordered(nn.Module):
    def forward(self, x: Any) -> Any:
        later = x * 2
        return x + 1, later


class Parent(nn.Module):
    def __init__(self, child: nn.Module, run: Any) -> None:
        super().__init__()
        self.a, self.run = child, run

    def forward(self, x: Any) -> Any:
        return self.run(self.a, x)


class OtherScaled(nn.Module):
    def forward(self, x: Any, k: Any) -> Any:
        return x - (0 if k is None else k)


class OtherPair(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 10, x - 7


CASES = {
    "a constant argument": (Parent(Scaled(), lambda a, x: a(x, 2.0)), OtherScaled()),
    "only the second output is used": (Parent(Pair(), lambda a, x: a(x)[1] + 0), OtherPair()),
    "outputs are made in another order": (Parent(Reordered(), lambda a, x: torch.sub(*a(x))), OtherPair()),
}


def results(case: str) -> tuple[Any, Any, Any]:
    model, other = CASES[case]
    ep = export(model, (X,), preserve=("a",))
    eager = copy.deepcopy(model)
    eager.a = other
    ours = px.lower(px.swap_modules(px.transform(px.import_ep(ep)), {"a": other}))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs: Any = _swap_modules(ep, {"a": other})(X)
    except Exception as error:
        theirs = error
    return eager(X), theirs, ours(X)


@pytest.mark.parametrize("case", CASES)
def test_ours_is_eager(case: str) -> None:
    eager, _, ours = results(case)
    torch.testing.assert_close(ours, eager, rtol=0, atol=0)


@pytest.mark.parametrize("case", CASES)
def test_torch_is_silently_wrong(case: str) -> None:
    eager, theirs, _ = results(case)
    assert isinstance(theirs, torch.Tensor)
    assert not torch.allclose(theirs, eager)


def test_a_small_llama_with_other_mlps() -> None:
    class Gate(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.lin = nn.Linear(size, size)

        def forward(self, hidden: Any) -> Any:
            return torch.sigmoid(self.lin(hidden)) * hidden

    example = llama(2)
    model = example.build().eval()
    paths = [name for name, _ in model.named_modules() if name.endswith(".mlp")]
    assert len(paths) == 2
    args, kwargs = (), example.inputs(0)
    if isinstance(kwargs, tuple):
        args, kwargs = kwargs
    ep = export(model, tuple(args), kwargs, preserve=tuple(paths))
    size = model.get_submodule(paths[0]).gate_proj.in_features  # type: ignore[union-attr]
    gates = {path: Gate(size) for path in paths}
    ours = px.lower(px.swap_modules(px.transform(px.import_ep(ep)), gates))
    eager = copy.deepcopy(model)
    for path, gate in gates.items():
        eager.set_submodule(path, copy.deepcopy(gate))
    with torch.no_grad():
        mine, theirs = ours(*args, **kwargs), eager(*args, **kwargs)
    torch.testing.assert_close(mine.logits if hasattr(mine, "logits") else mine["logits"], theirs.logits, rtol=0, atol=0)
    assert list(ours.state_dict()) == list(eager.state_dict())
