"""Printing lowered modules.

Cause: fx prints a module with its ``_code``, which modules that make their code on demand did not have yet, so
``print(module)`` ended in an AttributeError.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import purefx as px
from tests.programs import Tower, exported


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_a_module_that_was_just_lowered_can_be_printed(to: Any) -> None:
    """The root and a child; the root's text has the code that fx makes."""
    module = px.lower(px.transform(px.import_ep(exported(Tower(2), torch.ones(2, 4)))), to=to)
    assert "torch.nn.modules.linear.Linear" in str(module.get_submodule("layers.1")) or to == "interpreter"
    assert ("def forward" in str(module)) == (to == "graph_module")
    assert "(down)" in repr(module)
