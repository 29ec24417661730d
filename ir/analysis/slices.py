"""The backward slice of values: all that they are computed of, by operands alone.

What must come first for other reasons, writes and draws, is in ``effects/dependencies``; and bodies are not looked into.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..graph import Node


def computed_of(names: Iterable[str], nodes: Mapping[str, Node]) -> dict[str, None]:
    """Return values and what they are computed of, in the order in which they were found; a dict, which is searched quickly.

    Args:
        names: the values.
        nodes: where it is followed, by the values that they make; others, such as inputs, are found and not followed.

    >>> from purefx.ir import Op, Ref
    >>> y, z = Node("y", Op("toy.neg"), (Ref("x"),)), Node("z", Op("toy.add"), (Ref("y"), Ref("w")))
    >>> list(computed_of(["z"], {"y": y, "z": z})), list(computed_of(["z"], {"z": z}))
    (['z', 'w', 'y', 'x'], ['z', 'w', 'y'])
    """
    found, todo = dict[str, None](), list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = None
            node = nodes.get(name)
            if node is not None:
                todo += node.refs()
    return found
