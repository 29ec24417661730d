"""The nodes that call a body: the call, and one node for each of several results.

One idea: a single result bears the name of the value that it is; several are taken from a result with a name of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ..ir.arguments import Ref
from ..ir.meta import Meta
from ..ir.names import Names, word_of
from ..ir.node import Call, Node
from ..ir.operators import op_of
from .metas import value_only

__all__ = ["GETITEM", "call_nodes"]

GETITEM = op_of(operator.getitem)


def call_nodes(
    call: Call, inputs: Iterable[str], outputs: Sequence[str], names: Names, metas: Mapping[str, Meta]
) -> tuple[Node, ...]:
    """Return the nodes of a caller that give a body its inputs and take its results.

    Args:
        call: which body, as which module call.
        inputs: the values that it is given.
        outputs: the values that it gives back, in the order of the output of the body.
        names: hands out the name of several results together.
        metas: of the values by name.

    >>> from purefx.ir import Frame
    >>> [node.name for node in call_nodes(Call(Frame("m"), "m"), "x", "ab", Names("xab"), {"a": {}, "b": {}})]
    ['m', 'a', 'b']
    """
    args = tuple([Ref(name) for name in inputs])
    if len(outputs) == 1:
        return (Node(outputs[0], call, args, (), (), value_only(metas[outputs[0]])),)
    result = names.fresh(word_of(call.instance.path))
    values = MappingProxyType({"val": tuple([metas[output].get("val") for output in outputs])})
    taken = [
        Node(output, GETITEM, (Ref(result), index), (), (), value_only(metas[output])) for index, output in enumerate(outputs)
    ]
    return (Node(result, call, args, (), (), values), *taken)
