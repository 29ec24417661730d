"""Bodies that call the next one twice each, two hundred deep, and one preserved signature: to verify it took for ever.

Cause: the bodies that are called with a preserved signature were looked for at every path, and there are 2^200.  Paths at
which no signature is differ in nothing, so a body that stands at one of them is looked into once.
"""

from __future__ import annotations

from attrs import evolve

import purefx as px
from purefx.ir.calls.call_graph import instance_paths, signatures_of_bodies
from tests.transforms.small import tree

DEEP = 200


def test_verified_at_once() -> None:
    """What is found is what it was: the signature of the outermost body, and a place for each."""
    program = tree(
        """
        graph @""(x) {
          a = call @g0(x) as m
          return (a,)
        }
        graph @g0(x) {
          a = aten.neg.default(x)
          return a
        }
        """
    )
    twice = [px.Node(name, px.Call(px.Frame(name), ""), (px.Ref("x"),)) for name in ("l", "r")]
    graphs = {f"g{DEEP}": program.graphs["g0"]}
    for number in range(DEEP):
        nodes = tuple(evolve(node, do=evolve(node.do, graph=f"g{number + 1}")) for node in twice)
        graphs[f"g{number}"] = px.Graph((px.Input("x"),), nodes, px.Ref("r"))
    signature = px.CallSignature(None, None)
    deep = program.evolve(
        graphs=px.pmap({"": program.main, **graphs}), call_signatures=px.pmap({px.Frame("m.l.r"): signature}), modules=()
    )
    assert not px.verify(deep)
    assert signatures_of_bodies(deep) == {"g2": signature}
    assert instance_paths(deep)["g3"] == "m.l.l.l" and len(instance_paths(deep)) == DEEP + 2
