"""``split_by_tags``: a program becomes a chain of parts, one body for each tag.

One idea: splitting is placing and cutting.  The program is flattened, each node goes to the part of its tag as far as the one
dependency relation allows (``placing.py``), the parts are cut out under the original names (``cut.py``), and the tables
get the parts in front of their names (``tables.py``).  What was outlined is outlined again inside the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...ir.node import Call, Node
from ...ir.parts import part_names
from ...ir.program import Program
from ..transformation import transformation
from .cut import cut
from .inside import outlined_inside, with_bodies_of
from .join import joined_flat
from .placing import place
from .tables import below_parts
from .tags import checked_tags

__all__ = ["split_by_tags"]


@transformation(
    proven=True,
    requires={"state sunk", "token free"},
    establishes={"split"},
    forgets={"flat", "deduplicated"},
    inverse="join",
    laws=[
        "join gives the program back, nodes in an order that is legal",
        "the parts run in the order of the tags, and each takes and gives back exactly what crosses its border, in graph order",
        "each part has exactly the state that it reads, and state that one part reads is in one part",
    ],
)
def split_by_tags(
    program: Program,
    tags: Sequence[str],
    *,
    tag_of: Mapping[str, str] | Callable[[Node], str | None] | None = None,
    allow_reuse: bool = False,
) -> Program:
    """Split a program into parts, one for each tag.

    Before::

        w = get up.weight;  up = aten.linear.default(x, w)            in up
        w_1 = get down.weight;  down = aten.linear.default(up, w_1)   in down

    After ``split_by_tags(program, ("a", "b"), tag_of={"up": "a", "down": "b"})``::

        graph ""           up = call a(x);  down = call b(up)
        graph "a"          w = get up.weight;  up = aten.linear.default(x, w)           in up
        graph "b"          w_1 = get down.weight;  down = aten.linear.default(up, w_1)  in down

    Reads of state go to every part that uses them, parts of tuples go where the tuple is made, borders of regions and of
    preserved calls go with what they enclose: none of them is asked for a tag.  A node without a tag goes where the last
    of what it depends on is; one that depends on nothing tagged goes to the first part that uses it.  A tag that no node
    has is a part that does nothing.  A program that is split already is joined first.

    State and modules move below the part: ``up.weight`` is ``a.up.weight`` then.  State that several parts read is one tensor
    with a name in each. ``where_went`` tells where everything is, ``parts`` lists the parts.

    Args:
        program: a program with sunk state, flat or outlined.
        tags: the names of the parts, in the order in which they run.
        tag_of: the tag of a node: a function of the node as it stands in the flat program, its ``stack`` counted from the
            root; or a mapping from names of nodes or paths of modules, of which the innermost one counts; without it,
            ``node.meta["tag"]``.
        allow_reuse: whether a tag whose nodes can not all be had in one part becomes several: ``a``, ``b``, ``a_1``.

    Returns:
        The program as a root that calls the parts; outlined inside the parts if it was outlined, flat inside otherwise.

    Raises:
        PartitionError: the order of the tags contradicts the dependencies, a region or a preserved call would be cut, a tag or a
            key is unknown, or a tag can not be the name of a module.
        PipelineError: its state is still an input: run ``transform``, or ``sink_state``, first.
        TypeError: ``tags`` or ``tag_of`` is of another kind.

    >>> import purefx as px
    >>> nodes = [px.Node(n, px.Op("toy.neg"), (px.Ref(x),)) for n, x in (("y", "x"), ("z", "y"))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("z"),))})
    >>> print(px.split_by_tags(program, ("a", "b"), tag_of={"y": "a", "z": "b"}).main)
    graph @""(x) {
      y = call @a(x) as a
      z = call @b(y) as b
      return (z,)
    }
    """
    names = checked_tags(tags)
    flat, outlined = joined_flat(program)
    placing = place(flat, names, tag_of, allow_reuse=allow_reuse)
    made = cut(flat, placing)
    bodies = tuple([node.do.graph for node in made.main.callers if type(node.do) is Call])
    made = below_parts(flat, made, placing.names, bodies)
    if outlined:
        made = outlined_inside(made)
    made = with_bodies_of(program, made)
    return program if part_names(program) and made == program else made
