"""Copies of lowered modules.

Cause: ``copy.deepcopy`` of a root copied its call plan down to the pytree specs, and copying a leaf spec makes torch
warn of its own deprecated class, so a user with ``-W error`` could not copy a module.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch

import purefx as px
from purefx.lowering.calls.root import LoweredRoot


def lowered(to: Any) -> torch.nn.Module:
    ep = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))
    return px.lower(px.transform(px.import_ep(ep)), to=to)


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_copying_a_lowered_module_warns_of_nothing(to: str) -> None:
    module = lowered(to)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = copy.deepcopy(module)
    x = torch.ones(1, 2)
    assert torch.equal(twin(x), module(x))


def test_a_copy_that_is_converted_leaves_the_checks_of_the_original() -> None:
    module = lowered("graph_module")
    assert isinstance(module, LoweredRoot)
    twin = copy.deepcopy(module).double()
    assert twin(torch.ones(1, 2).double()).dtype is torch.float64
    with pytest.raises(px.InputValueError, match="dtype"):
        module(torch.ones(1, 2).double())
