"""Other forms of module calls: ``invoke_subgraph`` operators, and dispatch to one callable.

``regions`` is for torch's compilers, which compile a repeated region once; ``dispatch`` is for modules with a preserved
signature.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import torch
from attrs import evolve, frozen

from ..ir.arguments import Arg, Body, Ref
from ..ir.calls.call_graph import plain_calls
from ..ir.effects.resolved import node_effects, storages
from ..ir.graph import Call, Frame, Get, Graph, Input, Node, Op
from ..ir.inference import values_of
from ..ir.inference.results import alters, depends_on_contents
from ..ir.meta import Meta
from ..ir.names import FROM_ROOT, Names, join, nested, word_of
from ..ir.operators import GETITEM, op_of
from ..ir.origins import handed_on, made_of
from ..ir.own_operators import is_boundary
from ..ir.program import CallSignature, Program
from ..ir.rewriter import Rewriter
from ..ir.signature import ObjectType, Signature, UserInput
from ..ir.state import describe_tensor
from .inline import inline
from .shared_bodies import alike, value_only, without_values
from .transformation import UNLIMITED, Fuel, transformation

__all__ = ["call_nodes", "dispatch", "is_check", "with_regions"]


def call_nodes(
    call: Call, inputs: Iterable[str], outputs: Sequence[str], names: Names, metas: Mapping[str, Meta]
) -> tuple[Node, ...]:
    """Return the nodes of a caller that give a body its inputs and take its results.

    Args:
        call: which body, as which module call.
        inputs: the values that it is given.
        outputs: the values that it returns, in the order of the output of the body.
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


INVOKE = op_of(torch.ops.higher_order.invoke_subgraph)


HARMLESS = frozenset({"aten._assert_tensor_metadata.default"})
"""Ordered operators that say the same wherever they stand: each cast of a decoder has one."""


def is_check(node: Node) -> bool:
    """Return whether a node does nothing but assert what type a value has.

    >>> is_check(Node("y", Op("toy.neg")))
    False
    """
    return type(node.do) is Op and node.do.name in HARMLESS


@frozen
class CallSite:
    """A call: the graph that it stands in, its node, and the module that it calls, from the root."""

    caller: str
    node: Node
    path: str


@frozen
class Region:
    """A body that several calls share, flat, with its state as inputs."""

    name: str
    graph: Graph
    slots: tuple[str, ...]
    """What its last inputs are, relative to the module of a call."""
    is_one: bool
    """Whether a call gives one value and not a tuple."""


def with_regions(program: Program) -> Program:
    """Return a program in which calls of repeated bodies are operators; the same object if there is none.

    Args:
        program: an outlined and deduplicated program.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> with_regions(program) is program
    True
    """
    counts = _counts(program)
    calls = _repeated_calls(program, counts)
    bare = _without_values(program, counts)
    regions: dict[str, Region | None] = {}
    for body, mine in calls.items():
        regions[body] = _region(program, bare, body, mine, len(regions)) if len(mine) == counts[body] else None
    bodies = {region.name: region.graph for region in regions.values() if region is not None}
    if not bodies:
        return program
    callers = dict.fromkeys(call.caller for mine in calls.values() for call in mine)
    changed = {name: _rewritten(bare.graphs[name], regions) for name in callers}
    facts = program.facts - {"outlined", "deduplicated", "dispatched"}
    return bare.with_graphs(changed | bodies).pruned().evolve(facts=facts)


def _counts(program: Program) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in program.order:
        for callee in program.graphs[name].callees:
            counts[callee] = counts.get(callee, 0) + 1
    return counts


def _repeated_calls(program: Program, counts: dict[str, int]) -> dict[str, list[CallSite]]:
    # A call under vmap or autocast is not one of them: torch runs no region there.
    found: dict[str, list[CallSite]] = {}
    todo = [(program.root, "", 0)]
    while todo:
        name, path, depth = todo.pop()
        below_it: list[tuple[str, str, int]] = []
        for node in program.graphs[name].nodes:
            depth += alters(node)
            if type(node.do) is not Call:
                continue
            if counts[node.do.graph] == 1:  # it is inlined
                below_it.append((node.do.graph, join(path, node.do.instance.path), depth))
            elif not depth:
                found.setdefault(node.do.graph, []).append(CallSite(name, node, join(path, node.do.instance.path)))
        todo += reversed(below_it)
    return found


def _without_values(program: Program, counts: dict[str, int]) -> Program:
    # The fake values in a shared body are those of its first call, which may be one that becomes part of a region.
    shared: set[str] = set()
    for name in program.order:
        if name in shared or counts.get(name, 0) > 1:
            shared.add(name)
            shared.update(program.graphs[name].callees)
    bare: dict[str, Graph] = {}
    for name in shared:
        graph = program.graphs[name]
        inputs = tuple([evolve(formal, meta=without_values(formal.meta)) for formal in graph.inputs])
        bare[name] = graph.with_nodes([node.evolve(meta=without_values(node.meta)) for node in graph.nodes], inputs=inputs)
    return program.with_graphs(bare)


def _region(program: Program, bare: Program, body: str, calls: list[CallSite], number: int) -> Region | None:
    own = program.graphs[body]
    if (
        not all(_takes_alike(program, site, own) for site in calls)
        or _leaves_its_module(program, body)
        or _differs(program, body)
    ):
        return None
    takes = tuple([UserInput(ObjectType(), formal.name) for formal in own.inputs])
    alone = bare.evolve(root=body, graphs=bare.graphs.set(body, own), signature=Signature(takes, ()))
    flat = inline(alone)
    slots = tuple(dict.fromkeys(node.do.slot for node in flat.main.nodes if type(node.do) is Get))
    if not _is_contained(flat) or not _alike(program, slots, [site.path for site in calls]):
        return None
    return _as_region(flat.main, slots, number)


def _takes_alike(program: Program, site: CallSite, body: Graph) -> bool:
    values = values_of(program.graphs[site.caller])
    pairs = zip(site.node.args, body.inputs, strict=True)
    return all(type(arg) is Ref and alike(values.get(arg.name), formal.meta.get("val")) for arg, formal in pairs)


def _as_region(graph: Graph, slots: tuple[str, ...], number: int) -> Region:
    names = graph.names()
    first: dict[str, Node] = {}
    for node in graph.nodes:
        if type(node.do) is Get:
            first.setdefault(node.do.slot, node)
    formals = {slot: Input(names.fresh(read.name), handed_on(read.meta)) for slot, read in first.items()}
    edit = Rewriter(graph)
    for node in graph.nodes:
        if type(node.do) is Get:
            edit.drop(node.name, Ref(formals[node.do.slot].name))
    is_one = type(graph.output) is Ref
    made = edit.graph(inputs=(*graph.inputs, *formals.values()), output=(graph.output,) if is_one else graph.output)
    return Region(f"$repeated_{number}", made, slots, is_one)


def _leaves_its_module(program: Program, body: str) -> bool:
    # A path from the root is another one for each call.
    for name in program.evolve(root=body).order:
        for node in program.graphs[name].nodes:
            do = node.do
            paths = [frame.path for frame in node.stack]
            paths.append(do.slot if type(do) is Get else do.instance.path if type(do) is Call else "")
            if any(path.startswith(FROM_ROOT) for path in paths):
                return True
    return False


def _differs(program: Program, body: str) -> bool:
    # A size that only a run knows is another one in each call: a region has one name for it.
    nodes = [node for name in program.evolve(root=body).order for node in program.graphs[name].nodes]
    return any("val" not in node.meta and depends_on_contents(node) for node in nodes)


def _is_contained(flat: Program) -> bool:
    # It only computes, and what it gives is new: distinct results of its own nodes, no view of what it was given.
    graph = flat.main
    done = node_effects(flat, graph)
    if any(node_effect.writes or node_effect.writes_slots for node_effect in done):
        return False
    for node in graph.nodes:
        do = node.do
        if is_boundary(node) or (type(do) is Op and do.name not in HARMLESS and _does_more(do)):
            return False
    parts: tuple[Arg, ...] = graph.output if type(graph.output) is tuple else (graph.output,)
    names = [part.name for part in parts if type(part) is Ref]
    memory = storages(flat, graph, done)
    given = {memory.find(formal.name) for formal in graph.inputs}
    given.update(memory.find(node.name) for node in graph.nodes if type(node.do) is Get)
    results = {memory.find(name) for name in names}
    return len(names) == len(parts) > 0 and len(results) == len(names) and results.isdisjoint(given)


def _does_more(op: Op) -> bool:
    effects = op.effects
    return effects.ordered or effects.unknown or effects.through_bodies or bool(effects.scope)


def _alike(program: Program, slots: tuple[str, ...], paths: list[str]) -> bool:
    found = [
        [
            describe_tensor(value) if isinstance(value := program.state[join(path, slot)].value, torch.Tensor) else None
            for slot in slots
        ]
        for path in paths
    ]
    return all(None not in facts and facts == found[0] for facts in found)


def _rewritten(graph: Graph, regions: dict[str, Region | None]) -> Graph:
    edit = Rewriter(graph)
    for number, node in enumerate(graph.nodes):
        region = regions.get(node.do.graph) if type(node.do) is Call else None
        if region is None or type(node.do) is not Call:
            continue
        stack = (*node.stack, node.do.instance)
        reads = [Node(edit.names.fresh(word_of(slot)), Get(nested(node.do.instance.path, slot))) for slot in region.slots]
        operands = (*node.args, *[Ref(read.name) for read in reads])
        name = edit.names.fresh("invoke_subgraph") if region.is_one else node.name
        said = {} if region.is_one or "val" not in node.meta else node.meta
        meta = MappingProxyType({**said, **made_of([inner.meta for inner in region.graph.nodes])})
        called = Node(name, INVOKE, (Body(region.name), region.name[1:], *operands), (), stack, meta)
        edit.before(number, *reads)
        if region.is_one:
            edit.before(number, called)
            called = Node(node.name, GETITEM, (Ref(name), 0), (), stack, node.meta)
        edit.put(number, called)
    return edit.graph()


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
    """Dispatch all calls of a module with a preserved signature to one callable.

    Before::

        y = call foo(x) as foo           # the module foo
        z = call foo@1(y) as foo@1       # another module, foo@1

    After::

        shared signature foo, foo@1      # both calls go to the module foo, which runs the body of each

    So ``module.foo = other`` replaces what all of them call.

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
    calls: dict[str, list[Frame]] = {}
    for frame in signatures:
        calls.setdefault(frame.path, []).append(frame)
    plain = {frame.path for frame in plain_calls(program, calls)}
    shared: dict[Frame, CallSignature] = {}
    for path in sorted(calls):
        mine = {frame: signatures[frame] for frame in calls[path]}
        apart = not all(signature.shared for signature in mine.values())
        if apart and path not in plain and _agree(list(mine.values())) and fuel.burn("share", path):
            shared.update((frame, evolve(signature, shared=True)) for frame, signature in mine.items())
    return program.evolve(call_signatures=signatures.update(shared)) if shared else program


def _agree(signatures: list[CallSignature]) -> bool:
    first = signatures[0]
    return all(
        other.in_spec == first.in_spec and other.out_spec == first.out_spec and other.arg_names == first.arg_names
        for other in signatures
    )
