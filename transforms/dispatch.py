"""``dispatch``: route the calls of a module with one preserved signature to one callable; the nodes of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from attrs import evolve

from ..ir.arguments import Ref
from ..ir.calls.call_graph import plain_calls
from ..ir.graph import Call, Frame, Graph, Node
from ..ir.meta import Meta
from ..ir.names import Names, word_of
from ..ir.operators import GETITEM
from ..ir.persistent import grouped
from ..ir.program import CallSignature, Program
from .shared_bodies import value_only
from .transformation import UNLIMITED, Fuel, transformation


def call_nodes(
    call: Call,
    inputs: Iterable[str],
    outputs: Sequence[str],
    names: Names,
    metas: Mapping[str, Meta],
) -> tuple[Node, ...]:
    """Return the nodes of a caller that call a body and select its results.

    Args:
        call: which body, as which module call.
        inputs: the arguments.
        outputs: the results, in the order of the output of the body.
        names: makes the name of the tuple if there are several results.
        metas: of the values by name.

    >>> from purefx.ir import Frame
    >>> [node.name for node in call_nodes(Call(Frame("m"), "m"), "x", "ab", Names("xab"), {"a": {}, "b": {}})]
    ['m', 'a', 'b']
    """
    name = outputs[0] if len(outputs) == 1 else names.fresh(word_of(call.instance.path))
    return with_results(Node(name, call, tuple(map(Ref, inputs))), outputs, metas)


def with_results(call: Node, results: Sequence[str], metas: Mapping[str, Meta]) -> tuple[Node, ...]:
    """Return a call that gives some results by name, and the projections of these if there are several.

    >>> [node.name for node in with_results(Node("m", Call(Frame("m"), "m")), ("a",), {"a": {}})]
    ['a']
    """
    if len(results) == 1:
        return (call.evolve(name=results[0], meta=value_only(metas[results[0]])),)
    values = MappingProxyType({"val": tuple([metas[result].get("val") for result in results])})
    projections = [
        Node(result, GETITEM, (Ref(call.name), index), (), (), value_only(metas[result]))
        for index, result in enumerate(results)
    ]
    return (call.evolve(meta=values), *projections)


HARMLESS = frozenset({"aten._assert_tensor_metadata.default"})
"""Ordered operators that may be reordered: each cast of a decoder has one."""


def is_check(node: Node) -> bool:
    """Return whether a node only asserts the type of a value.

    >>> from purefx.ir import Op
    >>> is_check(Node("y", Op("toy.neg")))
    False
    """
    return node.op_name in HARMLESS


def with_true_checks(program: Program) -> Program:
    """Return a program whose assertions of types name the types of its values, and no type of unknown values.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), ())})
    >>> with_true_checks(program) is program
    True
    """
    checked = {
        name: [_true_check(node, graph) for node in graph.nodes]
        for name, graph in program.graphs.items()
    }
    return program.with_graphs(
        {name: program.graphs[name].with_nodes(nodes) for name, nodes in checked.items()}
    )


def _true_check(node: Node, graph: Graph) -> Node:
    if not is_check(node):
        return node
    val = graph.metas[node.refs()[0]].get("val")
    args = (*node.args[:3], getattr(val, "dtype", None)) if len(node.args) > 3 else node.args
    kwargs = [
        (key, getattr(val, key, None) if key in ("dtype", "device", "layout") else arg)
        for key, arg in node.kwargs
    ]
    made = node.evolve(args=args, kwargs=tuple(kwargs))
    return node if made == node else made


@transformation(
    proven=True,
    establishes={"dispatched"},
    laws=[
        "the calls of a module with one preserved signature go to one callable",
        "every call of that module has the signature",
        "no graph changes",
    ],
)
def dispatch(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Route all calls of a module with a preserved signature to one callable.

    Before::

        y = call foo(x) as foo           # the module foo
        z = call foo@1(y) as foo@1       # another module, foo@1

    After::

        shared signature foo, foo@1      # both calls go to the module foo, which runs the body of each

    Then ``module.foo = other`` replaces the callee of all of them.

    Args:
        program: a program at any stage.
        fuel: a rewrite is one module whose calls are marked as shared, in the order of paths.

    Returns:
        The program with its call signatures marked as shared.

    >>> import purefx as px
    >>> calls = {px.Frame("foo", number): px.ir.CallSignature(None, None) for number in range(2)}
    >>> program = px.Program.of({"": px.Graph((), (), ())}, call_signatures=px.ir.pmap(calls))
    >>> px.dispatch(program).call_signatures[px.Frame("foo", 1)].shared
    True
    """
    signatures = program.call_signatures
    calls = grouped([(frame.path, frame) for frame in signatures])
    plain = {frame.path for frame in plain_calls(program, calls)}
    shared: dict[Frame, CallSignature] = {}
    for path in sorted(calls):
        mine = {frame: signatures[frame] for frame in calls[path]}
        apart = not all(signature.shared for signature in mine.values())
        if apart and path not in plain and _agree(list(mine.values())) and fuel.burn("share", path):
            shared.update(
                (frame, evolve(signature, shared=True)) for frame, signature in mine.items()
            )
    return program.evolve(call_signatures=signatures.update(shared)) if shared else program


def _agree(signatures: list[CallSignature]) -> bool:
    first = signatures[0]
    return all(
        other.in_spec == first.in_spec
        and other.out_spec == first.out_spec
        and other.arg_names == first.arg_names
        for other in signatures
    )
