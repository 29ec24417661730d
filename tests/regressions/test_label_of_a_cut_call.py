"""A call that is cut because the call around it is cut.  Found by the law "one body a label".

Cause: ``outline`` numbered the pieces of a call among its siblings only, so ``a.c`` in both pieces of ``a`` was twice
part 0, with two bodies; ``deduplicate`` ended in a ValueError, and lowering called the same body for both.
Parts are now numbered over the whole program.
"""

from __future__ import annotations

import torch

import purefx as px
from purefx.laws import behaviour_differences
from tests.programs import COPY_, NEG, flat

A, C, AGAIN = px.Frame("a"), px.Frame("a.c"), px.Frame("a", 1)


def test_pieces_inside_pieces_are_told_apart() -> None:
    """The write in a.c must follow the read in a@1, which needs what a.c made first."""
    nodes = [
        px.Node("first", NEG, (px.Ref("x"),), stack=(AGAIN,)),
        px.Node("made", NEG, (px.Ref("y"),), stack=(A, C)),
        px.Node("write", COPY_, (px.Ref("x"), px.Ref("made")), stack=(A, C)),
        px.Node("last", NEG, (px.Ref("made"),), stack=(AGAIN,)),
    ]
    program = flat(nodes, (px.Ref("first"), px.Ref("last")), "x", "y")
    outlined = px.outline(program)
    frames = [node.do.instance for name in outlined.order for node in outlined.graphs[name].nodes if type(node.do) is px.Call]
    assert sorted(frame.part for frame in frames if frame.path == "c") == [0, 1]
    result = px.deduplicate(outlined)
    calls = [((torch.ones(2) * number, torch.arange(2.0)), {}) for number in range(3)]
    assert behaviour_differences(px.lower(result), px.lower(program), calls) == []
