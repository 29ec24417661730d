"""Corruptors of what operators get: too much, too little, other kinds, all results, nothing to run.

A part of the table in ``corruptors.py``, for the rules about operators and their arguments.
"""

from __future__ import annotations

from collections import deque

from purefx import ir
from purefx.ir.operators import op_of
from purefx.ir.own_operators import PACK
from purefx.ir.torch_private import pytree
from tests.verify.changes import CAT, RELU, SUM, Corruption, result_of_topk, with_graph, with_node
from tests.verify.programs import GETITEM

__all__ = ["OPERANDS"]


def packing(change: Corruption) -> Corruption:
    """Return a corruption that first puts an object of a registered type together."""
    made = ir.Node("packed", PACK, (ir.Items([ir.Ref("x")]), pytree.tree_structure(deque([1]))))
    return lambda program: change(with_graph(program, "", nodes=(made, *program.main.nodes)))


OPERANDS: dict[str, dict[str, tuple[str, Corruption]]] = {
    "operands": {
        "too-few": ("flat", with_node("y", args=(ir.Ref("x"),))),
        "keyword": ("flat", with_node("y", kwargs=(("beta", 1),))),
        "keyword-and-position": ("flat", with_node("y", kwargs=(("other", ir.Ref("x")),))),
        "text": ("flat", with_node("y", args=(ir.Ref("x"), "p_w"))),
        "list": ("flat", with_node("y", args=(ir.Ref("x"), ir.Items([ir.Ref("p_w")])))),
        "text-in-keyword": ("flat", with_node("y", kwargs=(("alpha", "1"),))),
        "number-for-a-tensor": ("flat", with_node("unused", do=op_of(RELU), args=(1,))),
        "text-in-a-list": ("flat", with_node("unused", do=op_of(SUM), args=(ir.Ref("x"), ir.Items([0, "1"])))),
        "number-for-a-list": ("flat", with_node("unused", do=op_of(CAT), args=(ir.Ref("x"), 0, 1))),
    },
    "results": {
        "projections-bool": ("tree", with_node("first", args=(ir.Ref("lin"), True))),
        "projections-of-an-operator": ("flat", result_of_topk(2)),
        "projections-text-of-an-operator": ("flat", result_of_topk("0")),
        "projections-of-text": ("tree", with_node("first", args=("lin", 0))),
        "projections-of-a-literal": ("tree", with_node("first", args=((ir.Ref("x"),), 1))),
        "of-an-operator": ("flat", result_of_topk(ir.Ref("pair"), RELU)),
    },
    "packed-values": {
        "item": ("tree", packing(with_node("first", do=GETITEM, args=(ir.Ref("packed"), 0)))),
        "in-a-list": ("tree", packing(with_node("first", do=ir.Op("toy.f"), args=(ir.Items([ir.Ref("packed")]),)))),
        "handed": ("tree", packing(with_node("act", args=(ir.Ref("packed"),)))),
    },
}
