"""What the user noted on a whole module call: ``meta["custom"]`` that all of its nodes have in common.

One idea: it is said once, by the call, and not again by each node inside, as ``torch.export.unflatten`` has it.
"""

from __future__ import annotations

from typing import Any

from ..ir.borders import is_border
from ..ir.graph import Graph
from ..ir.meta import thaw
from ..ir.node import Call, Get
from ..ir.program import Program

__all__ = ["common_custom"]


def common_custom(program: Program, graph: Graph) -> dict[str, Any]:
    """Return what all nodes of a body say in ``meta["custom"]``, the nodes of the bodies that it calls too; {} if they differ.

    >>> from purefx.ir import Node, Op, Ref
    >>> nodes = tuple(Node(name, Op("toy.neg"), (Ref("x"),), meta={"custom": {"tag": 1}}) for name in "ab")
    >>> graph = Graph((), nodes)
    >>> common_custom(Program.of({"": graph}), graph)
    {'tag': 1}
    """
    common: Any = None
    seen: set[str] = set()
    todo = [graph]
    while todo:
        for node in todo.pop().nodes:
            do = node.do
            if type(do) is Get or is_border(node):
                continue
            if type(do) is Call and not node.meta.get("custom"):
                if do.graph not in seen:
                    seen.add(do.graph)
                    todo.append(program.graphs[do.graph])
                continue
            custom = node.meta.get("custom")
            if not custom or (common is not None and custom != common):
                return {}
            common = custom
    return thaw(common) if common is not None else {}
