"""Bodies that an operator runs one of, or again and again: what they give has to be what the operator is said to give.

What is not known of a value is taken to agree.  Bodies are not walked here: what their meta says is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch

from ..arguments import Arg, Body, Ref
from ..graph import Graph, Node, Op
from ..torch_private import device_of

BRANCHES: Mapping[str, slice] = {"higher_order.cond": slice(1, 3), "higher_order.while_loop": slice(1, 2)}
"""Operators that give what a body gives, and which of their arguments those bodies are."""


def branches_of(node: Node) -> list[str]:
    """Return the graphs of which a node gives what they give; none for most.

    >>> from ..operators import op_of
    >>> cond = op_of(torch.ops.higher_order.cond)
    >>> branches_of(Node("y", cond, (Ref("p"), Body("yes"), Body("no"), ()))), branches_of(Node("y", Op("toy.neg")))
    (['yes', 'no'], [])
    """
    wanted = BRANCHES.get(node.do.name) if type(node.do) is Op else None
    return [] if wanted is None else [arg.graph for arg in node.args[wanted] if type(arg) is Body]


def disagreement_of_branches(node: Node, graphs: Mapping[str, Graph]) -> str | None:
    """Return in words which body of a node gives something else than the node, or than another one; None if all agree.

    Args:
        node: of any operator.
        graphs: those of the program.
    """
    told = [(f"the branch {name!r} gives", _given(graphs[name])) for name in branches_of(node) if name in graphs]
    pairs = [(one, other, False) for one, other in pairwise(told)]  # of two sizes an operator can make one that a run knows
    if "val" in node.meta:
        pairs += [(one, ("its meta says", _parts(node.meta["val"])), True) for one in told]
    for (who, mine), (other, theirs), sized in pairs:
        if len(mine) != len(theirs):
            return f"{who} {len(mine)} values, and {other} {len(theirs)}"
        for number, (left, right) in enumerate(zip(mine, theirs, strict=True)):
            if _differ(left, right, sized=sized):
                at = f" as value {number}" if len(mine) > 1 else ""
                return f"{who} {_shown(left)}{at}, and {other} {_shown(right)}"
    return None


def _given(graph: Graph) -> tuple[Any, ...]:
    def value(arg: Arg) -> Any:
        return graph.metas.get(arg.name, {}).get("val") if type(arg) is Ref else None

    return tuple(map(value, _parts(graph.output)))


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _differ(mine: Any, theirs: Any, *, sized: bool) -> bool:
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return False
    if (mine.dtype, device_of(mine).type, mine.dim()) != (theirs.dtype, device_of(theirs).type, theirs.dim()):
        return True
    return sized and any(
        type(one) is type(other) is int and one != other for one, other in zip(mine.shape, theirs.shape, strict=True)
    )


def _shown(value: torch.Tensor) -> str:
    return f"a {value.dtype} of shape {tuple(value.shape)} on {device_of(value).type}"
