"""``Draft``: a graph while rules rewrite it says who uses what by now, and not who did."""

from __future__ import annotations

import purefx as px
from purefx.transforms.rules.draft import Draft


def test_a_value_whose_users_went_has_none() -> None:
    nodes = (px.Node("y", px.Op("toy.neg"), (px.Ref("x"),)), px.Node("w", px.Op("toy.exp"), (px.Ref("y"),)))
    draft = Draft(px.Graph((px.Input("x"),), nodes, (px.Ref("w"),)))
    draft.replace("w", px.Ref("x"), ["w"])
    assert (list(draft.users("y")), draft.is_used_beyond("x", ["y"])) == ([], True)
    draft.replace("y", px.Ref("x"), ["y"])
    assert (draft.graph().nodes, draft.graph().output) == ((), (px.Ref("x"),))
