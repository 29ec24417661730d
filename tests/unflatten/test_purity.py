"""Issue 4, number 10: the exported program is as it was, and nobody else notices.

One idea: look at everything before and after.
"""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.laws.purity import changes_in_export, changes_in_process
from tests.programs import Shared
from tests.unflatten.harness import Case, compare, export

X = (torch.randn(4, 4),)
WAYS = pytest.mark.parametrize("way", ["plain", "decomposed"])
PRESERVED = pytest.mark.parametrize("preserve", [(), ("items.0",)])


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Shared()

    def forward(self, x: Any) -> Any:
        return self.inner(x)


@WAYS
@PRESERVED
def test_the_exported_program_is_unchanged(way: str, preserve: tuple[str, ...]) -> None:
    eager = Shared()
    ep = export(eager, X, way=way, preserve=preserve)
    assert not changes_in_export(ep, lambda: px.unflatten(ep)(*X))
    case = Case(Shared, [X])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)  # torch copies its own specs
        again = copy.deepcopy(ep)
    compare(px.unflatten(again), eager, case)
    compare(px.unflatten(ep), eager, case)


@WAYS
@PRESERVED
def test_the_process_is_unchanged(way: str, preserve: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    ep = export(Shared(), X, way=way, preserve=preserve)
    px.unflatten(ep)  # what is imported on first use
    capfd.readouterr()
    assert not changes_in_process(lambda: px.unflatten(ep)(*X))
    assert capfd.readouterr() == ("", "")


@WAYS
@PRESERVED
def test_nothing_is_kept_alive(way: str, preserve: tuple[str, ...]) -> None:
    """The module keeps nothing of the exported program, and the exported program nothing of the module."""
    ep = export(Shared(), X, way=way, preserve=preserve)
    lowered: Any = px.unflatten(ep)
    lowered(*X)
    parts = [weakref.ref(part) for part in (ep, *ep.state_dict.values())]  # torch keeps the graph
    del ep
    gc.collect()
    assert [part() for part in parts] == [None] * len(parts)
    lowered(*X)

    ep = export(Shared(), X, way=way, preserve=preserve)
    lowered = px.unflatten(ep)
    lowered(*X)
    parts = [weakref.ref(part) for part in (lowered, lowered.a, lowered.items.get_submodule("0"), *lowered.parameters())]
    del lowered
    gc.collect()
    assert [part() for part in parts] == [None] * len(parts)
