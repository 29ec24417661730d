"""``split_by_module``: a program is split by the paths of its modules.

One idea: it is ``split_by_tags`` with the tags of a mapping, asked by path alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.program import Program
from .split_by_tags import split_by_tags
from .tags import ByModule

__all__ = ["split_by_module"]


def split_by_module(program: Program, modules: Mapping[str, str], *, allow_reuse: bool = False) -> Program:
    """Split a program into parts by module.

    What is in none of the modules goes where the last of what it depends on is, or, if it depends on none of them, to the first
    part that uses it; ``""`` names the root, and with it all that no other path names.

    Args:
        program: a program with sunk state, flat or outlined.
        modules: for paths of modules the name of the part that runs them; of nested ones the innermost counts.  Parts run in
            the order in which they are first named.
        allow_reuse: whether a part whose nodes can not all be had together becomes several, see ``split_by_tags``.

    Returns:
        The program as a root that calls the parts.

    Raises:
        PartitionError: a path is that of no module, or the parts can not be had in that order.
        PipelineError: its state is still an input: run ``transform``, or ``sink_state``, first.

    >>> import purefx as px
    >>> nodes = [px.Node(m, px.Op("toy.neg"), (px.Ref(x),), stack=(px.Frame(m),)) for m, x in (("a", "x"), ("b", "a"))]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("b"),))})
    >>> [part.name for part in px.parts(px.split_by_module(program, {"a": "stage0", "b": "stage1"}))]
    ['stage0', 'stage1']
    """
    if not isinstance(modules, Mapping):
        raise TypeError(f"modules is a mapping from paths of modules to names of parts, not a {type(modules).__name__}")
    tags = tuple(dict.fromkeys(modules.values()))
    return split_by_tags(program, tags, tag_of=ByModule(dict(modules)), allow_reuse=allow_reuse)
