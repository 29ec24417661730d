"""Where a read of state belongs, and which bodies it matters for where they stand.

One idea: state is read in the innermost call on the stack whose module owns the tensor under some of its names, so that
bodies name state relative to themselves.  Nothing here decides what is read.
"""

from __future__ import annotations

from ..ir.node import Op, Stack
from ..ir.program import Program
from ..ir.state import State

__all__ = ["placed", "reading_place"]


def reading_place(state: State, slot: str, stack: Stack) -> tuple[int, str]:
    """Return how deep in a stack a slot is read, and under which of its names.

    Args:
        state: says which names are one tensor.
        slot: the slot; where its own name lies below a call, that name is taken before others.
        stack: the module calls around the reader, outermost first.

    Returns:
        The length of the part of the stack that the read stands in, and a name below the last of it.

    >>> from purefx.ir import Frame, Slot, SlotKind, State, pmap
    >>> state = State(("a.w", "b.w"), pmap({name: Slot(SlotKind.BUFFER, None, 0, 0) for name in ("a.w", "b.w")}))
    >>> reading_place(state, "a.w", (Frame("b"), Frame("b.c")))
    (1, 'b.w')
    """
    if stack and slot.startswith(stack[-1].path + "."):
        return len(stack), slot
    tied = state.by_cell[state[slot].cell]
    for depth in range(len(stack), 0, -1):
        prefix = stack[depth - 1].path + "."
        if slot.startswith(prefix):
            return depth, slot
        for name in tied:
            if name.startswith(prefix):
                return depth, name
    return 0, slot


def placed(program: Program) -> frozenset[str]:
    """Return the graphs that read state or call modules, themselves or through others: where they stand matters.

    Args:
        program: any program.

    >>> from purefx.ir import Get, Graph, Node
    >>> sorted(placed(Program.of({"": Graph((), (Node("w", Get("weight")),))})))
    ['']
    """
    found: set[str] = set()
    for name in program.bottom_up:
        graph = program.graphs[name]
        if any(type(node.do) is not Op for node in graph.nodes) or not found.isdisjoint(graph.callees):
            found.add(name)
    return frozenset(found)
