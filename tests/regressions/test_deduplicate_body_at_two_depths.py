"""A body that stands in a module and in that module's child.  Found by the law "bodies distinct".

Cause: the digest of a body took in what its callee is *where the caller stands*, if the callee happened to stand there for
another caller; so one body had two digests and stayed twice.  Only bodies of operators are looked up at the place itself now.
"""

from __future__ import annotations

import purefx as px
from tests.programs import NEG


def body(name: str, do: px.Op | px.Call) -> px.Graph:
    """Return a body of one node."""
    return px.Graph((px.Input("x"),), (px.Node(name, do, (px.Ref("x"),)),), px.Ref(name))


def test_one_body_stays_one() -> None:
    """g1 stands in a and in a.a; its callee g0 stands in a.a too, called by g1 in a."""
    nodes = (
        px.Node("y", px.Call(px.Frame("a", 1), "g1"), (px.Ref("x"),)),
        px.Node("z", px.Call(px.Frame("a", 2), "g2"), (px.Ref("y"),)),
    )
    graphs = {
        "": px.Graph((px.Input("x"),), nodes, (px.Ref("z"),)),
        "g0": body("y", NEG),
        "g1": body("y", px.Call(px.Frame("a"), "g0")),
        "g2": body("y", px.Call(px.Frame("a", 1), "g1")),
    }
    program = px.Program.of(graphs)
    assert px.deduplicate(program) is program
