"""A child that is called before its parent ever is, because the root skips the parent.  Found by generated exported programs.

Cause: ``lower`` made the bodies of later calls in the order of first calls, so those of the child were given to the
parent before the parent's own were there; the parent's second call ended in an AttributeError (``c@2``).
"""

from __future__ import annotations

from typing import Literal

import pytest
import torch

import purefx as px
from purefx.laws import behaviour_differences
from tests.programs import MUL, NEG, flat


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_every_call_of_the_parent_has_the_child(to: Literal["graph_module", "interpreter"]) -> None:
    stacks = ((px.Frame("m.c", 0),), (px.Frame("m", 0), px.Frame("m.c", 1)), (px.Frame("m", 1), px.Frame("m.c", 2)))
    nodes = [
        px.Node("a", NEG, (px.Ref("x"),), stack=stacks[0]),
        px.Node("b", NEG, (px.Ref("a"),), stack=stacks[1]),
        px.Node("c", MUL, (px.Ref("b"), px.Ref("b")), stack=stacks[2][:1]),
        px.Node("d", NEG, (px.Ref("c"),), stack=stacks[2]),
    ]
    program = flat(nodes, (px.Ref("d"),), "x")
    calls = [((torch.arange(2.0) + number,), {}) for number in range(3)]
    assert behaviour_differences(px.lower(px.outline(program), to=to), px.lower(program), calls) == []
