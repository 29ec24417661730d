"""``outline``: the flat program becomes the tree of module calls, or only as many calls as the fuel allows.

Nodes are scheduled first (``schedule.py``), then extracted (``extraction.py``).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection

from ...ir.errors import FlatCallWarning
from ...ir.graph import Call, Frame, Node, Stack
from ...ir.names import escaped
from ...ir.program import Program
from ..transformation import UNLIMITED, Fuel, transformation
from .extraction import Walk
from .schedule import gather

__all__ = ["outline", "walked"]


def _what_fuel_allows(program: Program, fuel: Fuel, flat: Collection[Frame]) -> Collection[Stack] | None:
    # The calls that may be cut out, each as the stack of its nodes, in the order of their last nodes; None for all.
    if not fuel.limited:
        return None
    ends: dict[Stack, tuple[int, int]] = {}
    sizes: dict[Stack, int] = {}
    for number, node in enumerate(program.main.nodes):
        for depth in [number + 1 for number, frame in enumerate(node.stack) if frame not in flat]:
            ends[node.stack[:depth]] = (number, -depth)
            sizes[node.stack[:depth]] = sizes.get(node.stack[:depth], 0) + 1
    allowed: set[Stack] = set()
    for call in sorted(ends, key=ends.__getitem__):
        if not fuel.burn("cut out", call[-1], f"({sizes[call]} {'node' if sizes[call] == 1 else 'nodes'})"):
            return allowed
        allowed.add(call)
    return None


def _cut_some(program: Program, allowed: Collection[Stack], flat: Collection[Frame]) -> Program:
    # The program with some of its module calls cut out, and with each those inside it but for those that stay flat.
    if not allowed:
        return program
    outer: dict[Stack, Stack] = {}
    """For each stack the part of it that stays."""
    stays: dict[str, Stack] = {}
    callers: dict[tuple[str, int], Stack] = {}
    nodes: list[Node] = []
    for node in program.main.nodes:
        kept = outer.get(node.stack)
        if kept is None:
            kept = outer[node.stack] = _outer(node.stack, allowed, flat)
        inner = node.stack[len(kept) :]
        stays[node.name] = kept
        callers.update([((frame.path, frame.call), kept) for frame in inner])
        nodes.append(node.evolve(stack=inner) if kept else node)
    result = _walked(program.with_main(program.main.with_nodes(nodes)), flat).program()

    def placed(node: Node) -> Node:
        # A call is named after the value that it returns, or else bears a new name.
        kept = stays.get(node.name)
        if kept is None and type(node.do) is Call:
            kept = callers[node.do.instance.path, node.do.instance.call]
        return node.evolve(stack=(*kept, *node.stack)) if kept else node

    return result.with_main(result.main.with_nodes(map(placed, result.main.nodes)))


def _outer(stack: Stack, allowed: Collection[Stack], flat: Collection[Frame]) -> Stack:
    depth = len(stack)
    while depth and (stack[:depth] in allowed or stack[depth - 1] in flat):
        depth -= 1
    return stack[:depth]


@transformation(
    proven=True,
    establishes={"outlined"},
    forgets={"flat", "deduplicated"},
    inverse="inline",
    laws=[
        "inlining gives back the program",
        "a legal reordering of the program gives the same hierarchy",
        "each call passes exactly the free values of its body and gives back exactly those that escape",
    ],
)
def outline(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Turn module stacks into calls of bodies.

    Before::

        linear = aten.linear.default(x, p_weight)          in mlp/mlp.up
        gelu = aten.gelu.default(linear)                    in mlp
        return gelu

    After::

        graph ""           gelu = call mlp(x)
        graph "mlp"        linear = call up(x);  gelu = aten.gelu.default(linear)
        graph "mlp.up"     linear = aten.linear.default(x, p_weight)

    Args:
        program: a program whose root graph carries module stacks.
        fuel: a rewrite is one call that is cut out, in the order in which they end, inner ones first; the others stay flat.

    Returns:
        The program with one body for each module call.  A call whose nodes cannot be gathered, because others need its results
        and it needs theirs, stays flat in its caller; ``FlatCallWarning`` names it.

    Raises:
        UnsupportedProgram: such a call has a preserved call signature.

    >>> import purefx as px
    >>> node = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("a"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))})
    >>> px.outline(program).graphs["a"].nodes[0].stack
    ()
    """
    if not any(node.stack for node in program.main.nodes):
        return program
    walk = walked(program)
    allowed = _what_fuel_allows(program, fuel, walk.flat)
    return walk.program() if allowed is None else _cut_some(program, allowed, walk.flat)


def walked(program: Program) -> Walk:
    """Return the walk over the root of a program whose calls are one run of nodes each; they are gathered if they are not.

    Args:
        program: its root carries module stacks.

    Raises:
        UnsupportedProgram: a call with a preserved signature cannot be gathered.
    """
    walk = _walked(program, ())
    if flat := walk.flat:
        said = f"the calls {', '.join(map(str, flat))} stay" if len(flat) > 1 else f"the call {flat[0]} stays"
        warnings.warn(
            escaped(f"{said} flat in the caller: other nodes need its results before it has all of its arguments"),
            FlatCallWarning,
            stacklevel=2,
        )
    return walk


def _walked(program: Program, flat: Collection[Frame]) -> Walk:
    walk = Walk(program, program.main.nodes, flat)
    if walk.returned:
        walk = Walk(program, *gather(program, flat))
        assert not walk.returned, "gathering leaves every call in one run"
    return walk
