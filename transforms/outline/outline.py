"""``outline``: the flat program becomes the tree of module calls.

One idea: call identity and dependencies decide, not contiguity.  When every call is one run of nodes already, they
are cut out as they stand (``scopes.py``); otherwise the runs are gathered first, as far as the dependency relation allows
(``gather.py``).  Values keep their names across calls: a call is named after the value that it gives back.
"""

from __future__ import annotations

from attrs import evolve

from ...ir.errors import UnsupportedProgram
from ...ir.node import Node
from ...ir.program import Program
from ..fuel import UNLIMITED, Fuel
from ..transformation import transformation
from .gather import gather
from .partial import cut_some, what_fuel_allows
from .scopes import cut_out

__all__ = ["outline"]


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
        The program with one body for each module call; a call whose nodes can not be gathered because others need its
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
    whole = cut_out(program, program.main.nodes)
    if whole is None:
        nodes = gather(program)
        _check_whole(program, nodes)
        whole = cut_out(program, nodes)
    assert whole is not None, "gathering leaves every call, or piece of one, in one run"
    return whole


def _check_whole(program: Program, nodes: list[Node]) -> None:
    if not len(program.call_signatures):
        return
    for node in nodes:
        frame = next((frame for frame in node.stack if frame.part and evolve(frame, part=0) in program.call_signatures), None)
        if frame is not None:
            raise UnsupportedProgram(
                f"node {node.name}: the call signature of {frame.path} (call {frame.call}) was preserved, but other modules need "
                "its results before it has all of its arguments, so it is no single call; export again without preserving it"
            )
