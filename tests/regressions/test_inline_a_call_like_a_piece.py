"""A whole call whose body equals the second piece of a cut call.  Found by the law "valid" of ``inline``.

Cause: ``deduplicate`` named such a call after the piece, as ``c#1``, and ``inline`` took it for a piece of the call that was
cut.  A call is now named after a whole call, and a piece after the same piece.
"""

from __future__ import annotations

import purefx as px
from tests.programs import NEG, flat

PLACES = (
    ((("a", 0), ("a.c", 0), ("a.c.e", 0))),
    ((("a", 0),)),
    ((("a", 0), ("a.c", 0))),
    ((("a", 0), ("a.c", 1))),
    ((("a", 1), ("a.c", 2), ("a.c.e", 1))),
    ((("a", 1),)),
    ((("a", 1), ("a.c", 2))),
    ((("a", 1), ("a.c", 3))),
)


def test_a_whole_call_is_not_named_after_a_piece() -> None:
    stacks = [tuple(px.Frame(path, call) for path, call in place) for place in PLACES]
    nodes = [
        px.Node(f"n{index}", NEG, (px.Ref(f"n{index - 1}" if index else "x"),), stack=stack) for index, stack in enumerate(stacks)
    ]
    program = flat(nodes, (), "x")  # nobody uses the last one, so the two calls of a differ
    merged = px.deduplicate(px.outline(program))
    frames = [node.do.instance for _, node in merged.nodes() if type(node.do) is px.Call and node.do.instance.path == "c"]
    assert sorted((frame.call, frame.part) for frame in frames) == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (3, 0)]
    inlined = px.inline(merged)
    assert px.verify(inlined) == ()
    assert px.alpha_equal(inlined, program)
