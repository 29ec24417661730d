"""``outline``: the flat program becomes the tree of module calls, or only as many calls as the fuel allows.

Nodes are scheduled first (``schedule.py``), then extracted (``extraction.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from attrs import evolve

from ...ir.errors import UnsupportedProgram
from ...ir.graph import Call, Node, Stack
from ...ir.program import Program
from ..transformation import UNLIMITED, Fuel, transformation
from .extraction import Walk
from .schedule import gather

__all__ = ["cut_some", "outline", "walked", "what_fuel_allows"]


def what_fuel_allows(program: Program, fuel: Fuel) -> Collection[Stack] | None:
    """Return the calls that may be cut out, each as the stack of its nodes; None for all.

    Args:
        program: its root carries module stacks.
        fuel: is asked for each call, in the order of their last nodes.
    """
    if not fuel.limited:
        return None
    ends: dict[Stack, tuple[int, int]] = {}
    sizes: dict[Stack, int] = {}
    for number, node in enumerate(program.main.nodes):
        for depth in range(1, len(node.stack) + 1):
            ends[node.stack[:depth]] = (number, -depth)
            sizes[node.stack[:depth]] = sizes.get(node.stack[:depth], 0) + 1
    allowed: set[Stack] = set()
    for call in sorted(ends, key=ends.__getitem__):
        if not fuel.burn("cut out", call[-1], f"({sizes[call]} {'node' if sizes[call] == 1 else 'nodes'})"):
            return allowed
        allowed.add(call)
    return None


def cut_some(program: Program, allowed: Collection[Stack], cut: Callable[[Program], Program]) -> Program:
    """Return the program with some of its module calls cut out.

    Args:
        program: its root carries module stacks.
        allowed: the calls, and with each those inside it.
        cut: cuts out all calls of a program.
    """
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
            kept = outer[node.stack] = _outer(node.stack, allowed)
        inner = node.stack[len(kept) :]
        stays[node.name] = kept
        if inner:
            callers[inner[0].path, inner[0].call] = kept
        nodes.append(node.evolve(stack=inner) if kept else node)
    result = cut(program.with_main(program.main.with_nodes(nodes)))

    def placed(node: Node) -> Node:
        # A call is named after the value that it returns, or else bears a new name.
        stack = stays.get(node.name)
        if stack is None and type(node.do) is Call:
            stack = callers[node.do.instance.path, node.do.instance.call]
        return node.evolve(stack=stack or None)

    return result.with_main(result.main.with_nodes(map(placed, result.main.nodes)))


def _outer(stack: Stack, allowed: Collection[Stack]) -> Stack:
    depth = len(stack)
    while depth and stack[:depth] in allowed:
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
        The program with one body for each module call; a call whose nodes cannot be gathered because others need its
        results and it needs theirs becomes several bodies (``part`` 0, 1, ...).

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
    allowed = what_fuel_allows(program, fuel)
    return _cut(program) if allowed is None else cut_some(program, allowed, _cut)


def _cut(program: Program) -> Program:
    return walked(program).program()


def walked(program: Program) -> Walk:
    """Return the walk over the root of a program whose calls are one run of nodes each; they are gathered if they are not.

    Args:
        program: its root carries module stacks.

    Raises:
        UnsupportedProgram: a call with a preserved signature cannot be gathered.
    """
    walk = Walk(program, program.main.nodes)
    if walk.returned:
        nodes = gather(program)
        _check_whole(program, nodes)
        walk = Walk(program, nodes)
        assert not walk.returned, "gathering leaves every call, or piece of one, in one run"
    return walk


def _check_whole(program: Program, nodes: list[Node]) -> None:
    if not len(program.call_signatures):
        return
    for node in nodes:
        frame = next((frame for frame in node.stack if frame.part and evolve(frame, part=0) in program.call_signatures), None)
        if frame is not None:
            raise UnsupportedProgram(
                f"node {node.name}: the call signature of {frame.path} (call {frame.call}) was preserved, but other modules need "
                "its results before it has all of its arguments, so it is not a single call; export again without preserving it"
            )
