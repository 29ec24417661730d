"""``outline``: the flat program becomes the tree of module calls.

One idea: call identity and dependencies decide, not contiguity.  When every call is one run of nodes already, they
are cut out as they stand (``scopes.py``); otherwise the runs are gathered first, as far as the dependency relation allows
(``gather.py``).  Values keep their names across calls: a call is named after the value that it gives back.
"""

from __future__ import annotations

from ...ir.errors import UnsupportedProgram
from ...ir.program import Program
from ..transformation import transformation
from .gather import gather
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
def outline(program: Program) -> Program:
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

    Returns:
        The program with one body for each module call; a call whose nodes can not be gathered because others need its
        results and it needs theirs becomes several bodies (``part`` 0, 1, ...).

    Raises:
        UnsupportedProgram: the exporter was asked to preserve call signatures.

    >>> import purefx as px
    >>> node = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("a"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), (px.Ref("y"),))})
    >>> px.outline(program).graphs["a"].nodes[0].stack
    ()
    """
    if not any(node.stack for node in program.main.nodes):
        return program
    if len(program.call_signatures):
        paths = ", ".join(sorted(str(frame) for frame in program.call_signatures))
        raise UnsupportedProgram(
            f"the call signatures of {paths} were preserved at export; purefx does not support that yet: "
            "export again without preserve_module_call_signature"
        )
    whole = cut_out(program, program.main.nodes)
    if whole is None:
        whole = cut_out(program, gather(program))
    assert whole is not None, "gathering leaves every call, or piece of one, in one run"
    return whole
