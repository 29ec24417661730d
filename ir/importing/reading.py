"""What both readers of fx graphs share: nodes in messages, containers among arguments, results that are inputs, the output.

``nodes.py`` reads what the exporter makes, ``traced.py`` what any other tracer does.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from ..arguments import Arg, Items, Record, Ref
from ..errors import InvalidProgram, Violation
from ..graph import Node, Op
from ..names import is_identifier
from ..verify.findings import short


def check_output(graph: Any, name: str) -> list[Any]:
    """Return the nodes of an fx graph if it has one ``output``, as its last node: torch returns there, and runs nothing after it.

    Args:
        graph: the fx graph.
        name: what the program calls it.

    Raises:
        InvalidProgram: it has none, or several, or nodes after it.

    >>> import torch
    >>> check_output(torch.fx.symbolic_trace(torch.nn.ReLU()).graph, "")
    [input_1, relu, output]
    """
    nodes = list(graph.nodes)
    places = [place for place, node in enumerate(nodes) if node.op == "output"]
    if len(places) == 1 and places[0] == len(nodes) - 1:
        return nodes
    if len(places) == 1:
        said = f"the fx graph has {nodes[places[0] + 1].name!r} after its output, where nothing runs"
    else:
        said = f"the fx graph has {len(places) or 'no'} output nodes, not one"
    advice = "let graph.output(...) be called once and be the last node"
    raise InvalidProgram([Violation("signature-outputs", said, graph=name, node="output", advice=advice)])


def where(fx_node: Any) -> str:
    """Return how messages name a node: with the line of the user where that is known."""
    trace = str(fx_node.meta.get("stack_trace") or "").strip().splitlines()
    name = fx_node.name if is_identifier(fx_node.name) else short(fx_node.name)
    return f"node {name}" + (f" ({trace[-2].strip()})" if len(trace) > 1 else "")


def class_name(kind: Any) -> str:
    """Return the name under which a program knows a class: a class, or its name already.

    >>> class_name("a.B"), class_name(int)
    ('a.B', 'builtins.int')
    """
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def container_of(arg: Any, convert: Callable[[Any], Arg]) -> Arg | None:
    """Return a container among the arguments of an fx node as a value, with its parts converted; None if it is none.

    >>> container_of([1, 2], str), container_of(slice(1), str), container_of("a", str)
    (['1', '2'], slice('None', '1', 'None'), None)
    """
    if isinstance(arg, list):
        return Items([convert(part) for part in arg])
    if isinstance(arg, tuple):
        return tuple([convert(part) for part in arg])
    if isinstance(arg, dict):
        return Record(tuple([(convert(key), convert(part)) for key, part in arg.items()]))
    return slice(convert(arg.start), convert(arg.stop), convert(arg.step)) if type(arg) is slice else None


def result_of(node: Node, inputs: Container[str]) -> Ref:
    """Return what stands for the result of a node: that of an in-place operator on an input is the input.

    >>> from purefx.ir.operators import op_of
    >>> import torch
    >>> result_of(Node("y", op_of(torch.ops.aten.add_.Tensor), (Ref("x"), 1)), {"x"})
    Ref(name='x')
    """
    returns = node.do.effects.returns if type(node.do) is Op else ()
    if len(returns) == 1 and returns[0] is not None:
        written = returns[0].find(node.args, node.kwargs)
        if type(written) is Ref and written.name in inputs:
            return written
    return Ref(node.name)
