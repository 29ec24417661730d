"""``CORRUPTORS``: ways to break each invariant of a program, each with the rule that must refuse the result.

A checker is judged by what it refuses.  The table has a corruptor for every rule of ``verify``, and those that no rule can find:
only the semantic laws do.
"""

from __future__ import annotations

import operator
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
from attrs import evolve, field, frozen

from purefx.ir.arguments import Arg, Body, Items, Ref, bodies_in, map_leaves
from purefx.ir.calls.parts import Part, parts
from purefx.ir.expression import Apply, InputDim
from purefx.ir.graph import Call, Frame, Get, Graph, Node, Op
from purefx.ir.names import Names
from purefx.ir.operators import BODIES, op_of
from purefx.ir.own_operators import CALL_MODULE, PACK, is_boundary
from purefx.ir.persistent import pmap
from purefx.ir.program import Module, Program
from purefx.ir.signature import (
    InputGradient,
    InputMutation,
    NumberType,
    StateInput,
    StateMutation,
    SunkInput,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from purefx.ir.torch_private import OpOverload, pytree

MEANING = "meaning"
"""The law that must refuse what no rule does: the program is valid, and computes something else."""


Choice = TypeVar("Choice")


@frozen
class Corruptor:
    """A way to break a program."""

    name: str
    rule: str | None
    """The name of the rule that must reject the result; None if only the semantic laws detect it."""
    statement: str
    """What is done to the program, in one sentence."""
    at: Callable[[Program], Sequence[Any]] = field(repr=False)
    """The places of a valid program that can be broken."""
    change: Callable[[Program, Any], Program] = field(repr=False)
    """Breaks one of them."""

    def apply(self, program: Program, seed: int) -> Program | None:
        """Return the program with one place broken, the same for equal seeds; None where it has no such place."""
        options = self.at(program)
        return self.change(program, random.Random(seed).choice(options)) if options else None

    def __str__(self) -> str:
        return self.name


@frozen
class Place:
    """A node and where it stands."""

    graph: str
    index: int
    node: Node

    @property
    def do(self) -> Any:
        """What the node does; which kind of thing that is, those who chose the place know."""
        return self.node.do


def places(
    program: Program, wanted: Callable[[Node], bool] | None = None, *, graph: str | None = None
) -> list[Place]:
    """Return all nodes of a kind, in program order."""
    names = program.order if graph is None else (graph,)
    found = [
        Place(name, index, node)
        for name in names
        for index, node in enumerate(program.graphs[name].nodes)
    ]
    return [place for place in found if wanted is None or wanted(place.node)]


def nodes(
    wanted: Callable[[Node], bool] | None = None, *, in_root: bool = False
) -> Callable[[Program], list[Place]]:
    """Return a function that finds the nodes of a kind."""
    return lambda program: places(program, wanted, graph=program.root if in_root else None)


def with_graph(program: Program, name: str, **changes: Any) -> Program:
    """Return a program with some fields of one graph replaced."""
    return program.evolve(graphs=program.graphs.set(name, evolve(program.graphs[name], **changes)))


def replaced(program: Program, place: Place, *new: Node) -> Program:
    """Return a program with other nodes in one place."""
    old = program.graphs[place.graph].nodes
    return with_graph(
        program, place.graph, nodes=(*old[: place.index], *new, *old[place.index + 1 :])
    )


def changed(program: Program, place: Place, **changes: Any) -> Program:
    """Return a program with some fields of one node replaced."""
    return replaced(program, place, evolve(place.node, **changes))


def with_specs(program: Program, **changes: Any) -> Program:
    """Return a program with some fields of the signature replaced."""
    return program.evolve(signature=evolve(program.signature, **changes))


def with_slot(program: Program, name: str, **changes: Any) -> Program:
    """Return a program with some fields of one slot replaced."""
    state = program.state
    return program.evolve(
        state=evolve(state, slots=state.slots.set(name, evolve(state[name], **changes)))
    )


def with_item(values: Sequence[Any], index: int, *new: Any) -> tuple[Any, ...]:
    """Return values with others in the place of one."""
    return (*values[:index], *new, *values[index + 1 :])


def swapped(values: Sequence[Any], left: int, right: int) -> tuple[Any, ...]:
    """Return values with two of them in each other's place."""
    return with_item(with_item(values, left, values[right]), right, values[left])


def fresh_name(graph: Graph) -> str:
    """Return a name that no value of a graph has."""
    return graph.names().fresh("corrupted")


def is_call(node: Node) -> bool:
    """Return whether a node calls a module."""
    return type(node.do) is Call


def is_op(node: Node) -> bool:
    """Return whether a node calls an operator; the boundaries of preserved calls have a rule of their own, and do not count."""
    return type(node.do) is Op and not is_boundary(node)


def geometry(value: Any) -> tuple[object, ...] | None:
    """Return dtype and sizes of a tensor, symbols left open; None for what is not a tensor."""
    if not isinstance(value, torch.Tensor):
        return None
    # A symbolic size is never compared: that would install a guard.
    return (value.dtype, *(size if type(size) is int else None for size in value.shape))


Spec = TypeVar("Spec")


def inputs_of(program: Program, kind: type[Spec]) -> list[tuple[int, Spec]]:
    """Return the inputs of the root that are of a kind, each with its number."""
    return [
        (index, spec) for index, spec in enumerate(program.signature.inputs) if type(spec) is kind
    ]


def outputs_of(program: Program, *kinds: type) -> list[int]:
    """Return which outputs of the root are of some kinds."""
    return [index for index, spec in enumerate(program.signature.outputs) if type(spec) in kinds]


def mutations(program: Program) -> list[int]:
    """Return which outputs of the root are new contents of state or of an input."""
    return outputs_of(program, StateMutation, InputMutation)


def _differ(left: tuple[object, ...] | None, right: tuple[object, ...] | None) -> bool:
    # An open size may be any number, so only plain ones can differ.
    if left is None or right is None:
        return False
    return len(left) != len(right) or any(
        a != b for a, b in zip(left, right, strict=True) if a is not None and b is not None
    )


def _naming_slots(program: Program) -> list[tuple[str, int]]:
    # Where a signature names state: in its inputs and outputs, or else in what it remembers of sunk inputs.
    found = [("inputs", index) for index, _ in inputs_of(program, StateInput)]
    found += [("outputs", index) for index in outputs_of(program, StateMutation)]
    return found or [("lifted", 0)]


def _unknown_slot(program: Program, at: tuple[str, int]) -> Program:
    what, index = at
    if what == "lifted":
        return with_specs(program, lifted=(*program.signature.lifted, SunkInput("nowhere")))
    specs = getattr(program.signature, what)
    return with_specs(
        program, **{what: with_item(specs, index, evolve(specs[index], slot="nowhere"))}
    )


def _mutation_of_nothing(program: Program, index: int) -> Program:
    nothing = InputMutation(len(program.signature.inputs))
    return with_specs(program, outputs=with_item(program.signature.outputs, index, nothing))


def _mutated_twice(program: Program, index: int) -> Program:
    specs, output = program.signature.outputs, program.main.output
    twice = with_graph(program, program.root, output=(output[index], *output))
    return with_specs(twice, outputs=(specs[index], *specs))


def _counts_with_outputs(program: Program) -> tuple[int, ...]:
    # A program that gives gradients first is a backward, and takes other arguments than those that its gradients are to.
    return (1, 2, 3) if any(type(spec) is UserOutput for spec in program.signature.outputs) else ()


def _gradient_of_nothing(program: Program, count: int) -> Program:
    gradients = [InputGradient(len(program.signature.inputs) + number) for number in range(count)]
    more = with_graph(
        program, program.root, output=(*program.main.output, *[None for _ in gradients])
    )
    return with_specs(more, outputs=(*program.signature.outputs, *gradients))


def _unlike_users(program: Program) -> list[tuple[int, int]]:
    known = [geometry(formal.meta.get("val")) for formal in program.main.inputs]
    users = [
        index for index, spec in inputs_of(program, UserInput) if type(spec.type) is TensorType
    ]
    return [(i, j) for i in users for j in users if i < j and _differ(known[i], known[j])]


def _leaf_more(program: Program, name: str) -> Program:
    count = len(
        inputs_of(program, UserInput) if name == "in_spec" else outputs_of(program, UserOutput)
    )
    more = (0,) * (count + 1)
    return with_specs(
        program, **{name: pytree.tree_structure((more, {}) if name == "in_spec" else more)}
    )


def _arguments_without_keywords(program: Program, around: type) -> Program:
    leaves = (0,) * len(inputs_of(program, UserInput))
    return with_specs(
        program, in_spec=pytree.tree_structure(leaves if around is tuple else [leaves])
    )


def _boundary_twice(program: Program, place: Place) -> Program:
    return replaced(
        program, place, place.node, evolve(place.node, name=fresh_name(program.graphs[place.graph]))
    )


def _called_alike(program: Program) -> list[Frame]:
    calls = Counter(frame.path for frame in program.call_signatures)
    return sorted([frame for frame in program.call_signatures if calls[frame.path] > 1], key=str)


def _sharing_halved(program: Program, frame: Frame) -> Program:
    signatures = program.call_signatures
    return program.evolve(
        call_signatures=signatures.set(
            frame, evolve(signatures[frame], shared=not signatures[frame].shared)
        )
    )


def _guard_of_nothing(program: Program, beyond: int) -> Program:
    guard = Apply("==", (InputDim(len(program.signature.inputs) + beyond, 0), 3))
    return program.evolve(
        constraints=evolve(program.constraints, guards=(*program.constraints.guards, guard))
    )


def _false_facts(program: Program) -> list[str]:
    specs = {type(spec) for spec in (*program.signature.inputs, *program.signature.outputs)}
    false = {
        "flat": any(type(node.do) is Call for _, node in program.nodes()),
        "state as inputs": any(type(node.do) is Get for node in program.main.nodes),
        "state sunk": StateInput in specs,
        "mutations in place": bool(specs & {StateMutation, InputMutation}),
        "token free": Token in specs,
    }
    return [fact for fact, is_false in false.items() if is_false]


def _tangent_of_nothing(program: Program, index: int) -> Program:
    specs = program.signature.inputs
    nothing = evolve(specs[index], tangent_of=len(outputs_of(program, UserOutput)))
    return with_specs(program, inputs=with_item(specs, index, nothing))


def _circle(program: Program, name: str) -> Program:
    graph = program.graphs[name]
    again = Node(
        fresh_name(graph),
        Call(Frame("again"), name),
        tuple(Ref(formal.name) for formal in graph.inputs),
    )
    return with_graph(program, name, nodes=(*graph.nodes, again))


def _object_used(program: Program, name: str) -> Program:
    graph = program.graphs[name]
    names = graph.names()
    spec = pytree.TreeSpec(deque, None, [pytree.tree_structure(0)])
    packed = Node(names.fresh("packed"), PACK, (Items([Ref(graph.inputs[0].name)]), spec))
    item = Node(names.fresh("item"), op_of(operator.getitem), (Ref(packed.name), 0))
    return with_graph(program, name, nodes=(*graph.nodes, packed, item))


def _giving_tuples(program: Program) -> list[Place]:
    return [
        place
        for place in places(program, is_call)
        if type(program.graphs[place.do.graph].output) is tuple
    ]


def _body_replaced(program: Program, place: Place) -> Program:
    def number(leaf: Arg) -> Arg:
        return 3 if type(leaf) is Body else leaf

    args = tuple(map_leaves(arg, number) for arg in place.node.args)
    kwargs = tuple((name, map_leaves(arg, number)) for name, arg in place.node.kwargs)
    return changed(program, place, args=args, kwargs=kwargs)


def _has_known_bodies(node: Node) -> bool:
    name = node.do.name if isinstance(node.do, Op) else ""
    return name.removeprefix("higher_order.") in BODIES


def _result_beyond(program: Program, place: Place) -> Program:
    count = len(program.graphs[place.do.graph].output)
    name = fresh_name(program.graphs[place.graph])
    return replaced(
        program,
        place,
        place.node,
        Node(name, op_of(operator.getitem), (Ref(place.node.name), count)),
    )


def _bodies_of_operators(program: Program) -> list[str]:
    return sorted(
        {
            name
            for _, node in program.nodes()
            if is_op(node)
            for name in bodies_in(node.args, node.kwargs)
        }
    )


def _scope_entered_again(program: Program, place: Place) -> Program:
    path = next((module.path for module in program.modules if module.path), "a")
    stack = place.node.stack or (Frame(path),)
    return changed(program, place, stack=(*stack, stack[-1]))


def _deep(program: Program) -> list[Place]:
    stacks = [node.stack for node in program.main.nodes]
    return places(
        program,
        lambda node: len(node.stack) > 1 and stacks.count(node.stack) > 1,
        graph=program.root,
    )


def _scope_divided(program: Program, place: Place) -> Program:
    *above, outer, inner = place.node.stack
    highest = max(frame.call for node in program.main.nodes for frame in node.stack)
    return changed(program, place, stack=(*above, evolve(outer, call=highest + 1), inner))


def _part_called_again(program: Program, part: Part) -> Program:
    again = evolve(
        part.node, name=fresh_name(program.main), do=Call(Frame(part.name, 1), part.graph)
    )
    return with_graph(program, program.root, nodes=(*program.main.nodes, again))


def _neighbours(program: Program) -> list[tuple[Place, Frame]]:
    return [
        (second, first.do.instance)
        for name in program.order
        for first, second in pairwise(places(program, is_call, graph=name))
        if first.do.graph != second.do.graph
    ]


def reads(node: Node) -> bool:
    """Return whether a node reads state."""
    return type(node.do) is Get


def _order_lost(program: Program, name: str) -> Program:
    order = tuple([other for other in program.state.order if other != name])
    return program.evolve(state=evolve(program.state, order=order))


def _apart(program: Program) -> list[tuple[str, int]]:
    pairs = program.state.pairs
    earlier = [
        (name, slot, other)
        for number, (name, slot) in enumerate(pairs)
        for _, other in pairs[:number]
    ]
    return [(name, other.cell) for name, slot, other in earlier if slot.storage != other.storage]


def _is_tensor(program: Program, name: str) -> bool:
    value = program.state[name].value
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _sharing(program: Program) -> list[str]:
    counts = Counter(slot.storage for _, slot in program.state.pairs)
    return [
        name
        for name, slot in program.state.pairs
        if counts[slot.storage] > 1 and _is_tensor(program, name)
    ]


def _with_copy(program: Program, name: str) -> Program:
    tensor: Any = program.state[name].value
    copy = tensor.detach().clone()
    if isinstance(tensor, torch.nn.Parameter):
        copy = torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
    return with_slot(program, name, value=copy)


def _of_two_memories(program: Program) -> list[tuple[str, int]]:
    # A tie would be another rule's: both slots of the pair are alone in their cells.
    tensors = [(name, slot) for name, slot in program.state.pairs if _is_tensor(program, name)]
    return [
        (name, other.storage)
        for name, slot in tensors
        for _, other in tensors
        if slot.storage != other.storage
    ]


def _unlike_parameters(program: Program) -> list[tuple[int, int]]:
    known = [geometry(formal.meta.get("val")) or (None,) for formal in program.main.inputs]
    plain = [index for index, _ in inputs_of(program, StateInput) if None not in known[index]]
    return [
        (i, j) for number, i in enumerate(plain) for j in plain[:number] if known[i] != known[j]
    ]


COPY = "aten.copy_.default"


RELU = op_of(torch.ops.aten.relu.default)


def _used(graph: Graph) -> set[str]:
    return {name for node in graph.nodes for name in node.refs()} | set(graph.output_refs())


def _used_nodes(program: Program) -> list[Place]:
    used = {name: _used(program.graphs[name]) for name in program.order}
    return [place for place in places(program) if place.node.name in used[place.graph]]


def _behind(program: Program) -> list[tuple[Place, int]]:
    # Nodes that use another, each with the place of that.
    makers = {
        name: {node.name: index for index, node in enumerate(program.graphs[name].nodes)}
        for name in program.order
    }
    uses = [
        (place, makers[place.graph].get(name))
        for place in places(program)
        for name in place.node.refs()
    ]
    return [(place, index) for place, index in uses if index is not None]


def _node_moved_up(program: Program, at: tuple[Place, int]) -> Program:
    place, index = at
    rest = [node for node in program.graphs[place.graph].nodes if node is not place.node]
    return with_graph(program, place.graph, nodes=(*rest[:index], place.node, *rest[index:]))


def _other_effects(program: Program, place: Place) -> Program:
    effects = place.do.effects
    effects = (
        evolve(effects, writes=(), returns=())
        if effects.writes
        else evolve(effects, random=not effects.random)
    )
    return changed(program, place, do=evolve(place.do, effects=effects))


def _is_overload(node: Node) -> bool:
    return type(node.do) is Op and isinstance(node.do.target, OpOverload)


def _is_getitem(node: Node) -> bool:
    return type(node.do) is Op and node.do.target is operator.getitem


def _is_known(node: Node) -> bool:
    return _is_overload(node) or _is_getitem(node)


def _projections_of_calls(program: Program) -> list[Place]:
    calls = {(place.graph, place.node.name) for place in places(program, is_call)}
    found = places(program, lambda node: _is_getitem(node) and type(node.args[0]) is Ref)
    return [place for place in found if (place.graph, place.node.args[0].name) in calls]


def _is_looked_up(node: Node) -> bool:
    # Operators that touch the outside are looked up for nobody.
    return _is_known(node) and type(node.do) is Op and not node.do.effects.ordered


def _traced(program: Program) -> list[Place]:
    # Nodes whose value follows from their arguments alone, and is known; bodies of operators may run under autocast.
    known = {
        value.name: value.meta.get("val") for value in (*program.main.inputs, *program.main.nodes)
    }

    def is_known(node: Node) -> bool:
        if (
            not _is_overload(node)
            or type(node.do) is not Op
            or not node.do.name.startswith("aten.")
            or node.do.effects.ordered
        ):
            return False
        return all(_is_fixed(known.get(name)) for name in (node.name, *node.refs()))

    return places(program, is_known, graph=program.root)


def _is_fixed(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and all(type(size) is int for size in value.shape)


def _wrong_shape_in_meta(program: Program, place: Place) -> Program:
    with torch.no_grad():
        value = place.node.meta["val"].unsqueeze(0)
    return changed(program, place, meta={**place.node.meta, "val": value})


def _mutation_dropped(program: Program, index: int) -> Program:
    # The node that makes the new contents stays.
    fewer = with_graph(program, program.root, output=with_item(program.main.output, index))
    return with_specs(fewer, outputs=with_item(program.signature.outputs, index))


def _unused_copies(program: Program) -> list[Place]:
    used = _used(program.main)
    found = places(
        program, lambda node: type(node.do) is Op and node.do.name == COPY, graph=program.root
    )
    return [place for place in found if place.node.name not in used]


def _equal_outputs(program: Program) -> list[tuple[int, int]]:
    output = program.main.output
    known = {
        value.name: geometry(value.meta.get("val"))
        for value in (*program.main.inputs, *program.main.nodes)
    }
    specs = zip(output, program.signature.outputs, strict=True)
    users = [
        index
        for index, (value, spec) in enumerate(specs)
        if type(spec) is UserOutput and type(value) is Ref
    ]
    pairs = [(i, j) for i in users for j in users if i < j and output[i] != output[j]]
    return [(i, j) for i, j in pairs if known[output[i].name] == known[output[j].name]]


def _equal_parameters(program: Program) -> list[tuple[int, int]]:
    slots = {index: program.state[spec.slot] for index, spec in inputs_of(program, StateInput)}
    return [(i, j) for i in slots for j in slots if i < j and _are_equal(slots[i], slots[j])]


def _are_equal(one: Any, other: Any) -> bool:
    return one.cell != other.cell and geometry(one.value) == geometry(other.value) is not None


def _equal_slots(program: Program) -> list[tuple[Place, str]]:
    found = places(program, reads, graph=program.root)
    pairs = [(place, name, slot) for place in found for name, slot in program.state.pairs]
    return [
        (place, name)
        for place, name, slot in pairs
        if _are_equal(slot, program.state[place.do.slot])
    ]


CORRUPTORS: tuple[Corruptor, ...] = (
    Corruptor("raw arguments", "well-formed", "the arguments of a node are a list, not a tuple",
              nodes(lambda node: not reads(node)), lambda program, place: changed(program, place, args=list(place.node.args))),
    Corruptor("node repeated", "unique-names", "a node stands there twice",
              nodes(lambda node: is_op(node) or type(node.do) is not Op),
              lambda program, place: replaced(program, place, place.node, place.node)),
    Corruptor("node lost", "defined-values", "a node is gone although its value is used",
              _used_nodes, lambda program, place: replaced(program, place)),
    Corruptor("unknown value", "defined-values", "a node uses a value that nothing makes", nodes(is_op),
              lambda program, place: changed(program, place, args=(Ref("nothing makes this"), *place.node.args[1:]))),
    Corruptor("node moved up", "earlier-values", "a node stands before one that makes its argument", _behind, _node_moved_up),
    Corruptor("tensor argument", "argument-kinds", "a tensor is among the arguments of a node",
              nodes(is_op), lambda program, place: changed(program, place, args=(torch.ones(1), *place.node.args[1:]))),
    Corruptor("keyword twice", "well-formed", "a node has one keyword twice",
              nodes(is_op), lambda program, place: changed(program, place, kwargs=(*place.node.kwargs, ("k", 1), ("k", 2)))),
    Corruptor("absurd value", "meta", "meta says that the value of a node is a function",
              nodes(), lambda program, place: changed(program, place, meta={**place.node.meta, "val": print})),
    Corruptor("other effects", "effects", "an operator is said not to write although it does, or to draw random numbers or not",
              nodes(lambda node: type(node.do) is Op and node.do.target is not None), _other_effects),
    Corruptor("too many operands", "operands", "an operator is given more arguments than it takes",
              nodes(_is_overload), lambda program, place: changed(program, place, args=(*place.node.args, *[None] * 40))),
    Corruptor("all results", "results", "an operator is given all results of a call as one value", _projections_of_calls,
              lambda program, place: changed(program, place, do=RELU, args=place.node.args[:1], kwargs=())),
    Corruptor("no target", "operator-names", "an operator of the registry has nothing to run",
              nodes(_is_looked_up), lambda program, place: changed(program, place, do=evolve(place.do, target=None))),
    Corruptor("wrong shape in meta", "inferred-meta", "meta says another shape than the operator returns",
              _traced, _wrong_shape_in_meta),
    Corruptor("mutation dropped", None, "new contents are computed and not written back", mutations, _mutation_dropped),
    Corruptor("copy dropped", None, "a write of new contents is gone",
              _unused_copies, lambda program, place: replaced(program, place)),
    Corruptor("equal outputs swapped", None, "two outputs of one shape and dtype change places", _equal_outputs,
              lambda program, pair: with_graph(program, program.root, output=swapped(program.main.output, *pair))),
    Corruptor("equal parameters swapped", None, "two pieces of state of one shape and dtype change places in the signature",
              _equal_parameters, lambda program, pair: with_specs(program, inputs=swapped(program.signature.inputs, *pair))),
    Corruptor("other slot read", None, "a read comes to another slot of the same shape and dtype",
              _equal_slots, lambda program, at: changed(program, at[0], do=Get(at[1]))),
    Corruptor("number changed", None, "an operator gets another number",
              nodes(lambda node: type(node.do) is Op and node.do.name in ("toy.mul", "toy.add_") and type(node.args[-1]) is int),
              lambda program, place: changed(program, place, args=(*place.node.args[:-1], place.node.args[-1] + 1))),
    Corruptor("no root", "root", "the root names no graph",
              lambda _: (None,), lambda program, _: program.evolve(root=Names(program.graphs).fresh("root"))),
    Corruptor("subgraph missing", "known-callees", "a graph that is called or given to an operator is gone",
              lambda program: program.order[1:], lambda program, name:
              program.evolve(graphs=pmap({key: graph for key, graph in program.graphs.items() if key != name}))),
    Corruptor("orphan", "reachable-graphs", "there is a graph that nothing calls",
              lambda program: program.order, lambda program, name:
              program.evolve(graphs=program.graphs.set(Names(program.graphs).fresh("orphan"), program.graphs[name]))),
    Corruptor("circle", "acyclic-calls", "a graph calls itself", lambda program: program.order, _circle),
    Corruptor("argument more", "call-arguments", "a call passes a value more than its body takes",
              nodes(is_call), lambda program, place: changed(program, place, args=(*place.node.args, 1))),
    Corruptor("argument less", "call-arguments", "a call passes a value less than its body takes",
              nodes(lambda node: is_call(node) and bool(node.args)),
              lambda program, place: changed(program, place, args=place.node.args[:-1])),
    Corruptor("object used", "packed-values", "an operator takes what pack made of a registered type",
              lambda program: [name for name in program.order if program.graphs[name].inputs], _object_used),
    Corruptor("result beyond", "results", "a result is taken that the called body does not have", _giving_tuples, _result_beyond),
    Corruptor("body hidden", "argument-kinds", "the effects of an operator that takes graphs do not go through them",
              nodes(lambda node: is_op(node) and bool(bodies_in(node.args, node.kwargs))), lambda program, place:
              changed(program, place, do=evolve(place.do, effects=evolve(place.do.effects, through_bodies=False)))),
    Corruptor("body gives number", "operator-bodies", "a graph that an operator takes returns a number",
              _bodies_of_operators, lambda program, name: with_graph(program, name, output=3)),
    Corruptor("body replaced", "operator-bodies", "an operator takes a number where it runs a graph",
              nodes(_has_known_bodies), _body_replaced),
    Corruptor("body returned", "argument-kinds", "the root returns a graph",
              lambda program: program.order[1:] if program.main.output else (),
              lambda program, name: with_graph(program, program.root, output=(*program.main.output[:-1], Body(name)))),
    Corruptor("scope entered again", "stacks", "a module call is entered while it runs",
              nodes(in_root=True), _scope_entered_again),
    Corruptor("scope divided", "scopes", "one module call is made in two other calls", _deep, _scope_divided),
    Corruptor("module twice", "module-paths", "a module is listed twice", lambda program: program.modules or (Module(""),),
              lambda program, module: program.evolve(modules=(*(program.modules or (module,)), module))),
    Corruptor("module in itself", "module-paths", "a module and one inside it are one object",
              lambda _: (None,), lambda program, _:
              program.evolve(modules=(*program.modules, Module("itself", cell=0), Module("itself.inside", cell=0)))),
    Corruptor("module without parent", "module-paths", "a module is listed whose parent is not",
              lambda _: (None,), lambda program, _: program.evolve(modules=(*program.modules, Module("nowhere.inside")))),
    Corruptor("unknown module path", "known-modules", "a node is inside a module that is not listed",
              lambda program: places(program, lambda node: not is_call(node), graph=program.root) if program.modules else [],
              lambda program, place: changed(program, place, stack=(Frame("nowhere"),))),
    Corruptor("part called again", "parts", "the root calls a part for the second time", parts, _part_called_again),
    Corruptor("one label for two", "call-labels", "two calls with different bodies get one path, number and part",
              _neighbours, lambda program, at: changed(program, at[0], do=evolve(at[0].do, instance=at[1]))),
    Corruptor("no module called", "opaque-modules", "a value is called as if it were a module",
              nodes(lambda node: is_op(node) and not node.callees and bool(node.args) and type(node.args[0]) is Ref),
              lambda program, place: changed(program, place, do=CALL_MODULE)),
    Corruptor("input lost", "signature-inputs", "the signature has an input less than the root",
              lambda p: range(len(p.signature.inputs)),
              lambda program, index: with_specs(program, inputs=with_item(program.signature.inputs, index))),
    Corruptor("output lost", "signature-outputs", "the root returns a value less than the signature says",
              lambda p: range(len(p.main.output)),
              lambda program, index: with_graph(program, program.root, output=with_item(program.main.output, index))),
    Corruptor("unknown slot", "signature-slots", "the signature refers to state that does not exist",
              _naming_slots, _unknown_slot),
    Corruptor("mutation of nothing", "mutations", "an output is the new contents of an input that does not exist",
              lambda program: range(len(program.signature.outputs)), _mutation_of_nothing),
    Corruptor("mutated twice", "mutations", "one piece of state or one input gets new contents twice", mutations, _mutated_twice),
    Corruptor("gradient of nothing", "gradients", "an output is the gradient to an argument that does not exist",
              _counts_with_outputs, _gradient_of_nothing),
    Corruptor("user inputs swapped", "signature-types", "two user inputs of different shape or dtype change places in signature",
              _unlike_users, lambda program, pair: with_specs(program, inputs=swapped(program.signature.inputs, *pair))),
    Corruptor("argument without type", "signature-arguments", "an argument is a number of no known kind",
              lambda program: inputs_of(program, UserInput), lambda program, at:
              with_specs(program, inputs=with_item(program.signature.inputs, at[0], UserInput(NumberType("complex"), "x")))),
    Corruptor("leaf more", "signature-leaves", "the pytree has a leaf more than there are inputs or outputs",
              lambda _: ("in_spec", "out_spec"), _leaf_more),
    Corruptor("arguments without keywords", "pytrees", "the pytree of the arguments is not that of (args, kwargs)",
              lambda _: (tuple, list), _arguments_without_keywords),
    Corruptor("leaf lost", "boundaries", "a preserved call names a leaf less than its pytree has",
              nodes(is_boundary), lambda program, place: changed(program, place, args=place.node.args[:-1])),
    Corruptor("boundary twice", "boundaries", "a preserved call says twice what it takes or gives",
              nodes(is_boundary), _boundary_twice),
    Corruptor("sharing halved", "shared-signatures", "one call of a module shares a callable, or one of them does not",
              _called_alike, _sharing_halved),
    Corruptor("guard of nothing", "constraints", "a guard refers to an input that does not exist",
              lambda _: range(7), _guard_of_nothing),
    Corruptor("fact unnamed", "well-formed", "a fact is not a word",
              lambda _: ("",), lambda program, fact: program.evolve(facts=program.facts | {fact})),
    Corruptor("tangent of nothing", "tangents", "an argument is the tangent of an output that does not exist",
              lambda program: [index for index, _ in inputs_of(program, UserInput)], _tangent_of_nothing),
    Corruptor("fact invented", "facts", "a fact is claimed that does not hold",
              _false_facts, lambda program, fact: program.evolve(facts=program.facts | {fact})),
    Corruptor("order lost", "well-formed", "a slot has no place in the order of state", lambda program: program.state.order,
              _order_lost),
    Corruptor("value lost", "state-values", "a slot holds nothing",
              lambda program: program.state.order, lambda program, name: with_slot(program, name, value=None)),
    Corruptor("tie invented", "state-memory", "two slots are said to be one tensor, and are not",
              _apart, lambda program, at: with_slot(program, at[0], cell=at[1])),
    Corruptor("alias broken", "state-memory", "a tensor that shares memory with another is replaced by a copy",
              _sharing, lambda program, name: _with_copy(program, name)),
    Corruptor("alias undeclared", "state-memory", "slots share memory and are not said to", _sharing,
              lambda program, name: with_slot(program, name, storage=1 + max(slot.storage for _, slot in program.state.pairs))),
    Corruptor("alias invented", "state-memory", "slots are said to share memory and do not",
              _of_two_memories, lambda program, at: with_slot(program, at[0], storage=at[1])),
    Corruptor("parameters swapped", "state-geometry", "two parameters of different shape or dtype change places in the signature",
              _unlike_parameters, lambda program, pair: with_specs(program, inputs=swapped(program.signature.inputs, *pair))),
    Corruptor("read of nothing", "reads", "a body reads state that does not exist",
              nodes(reads), lambda program, place: changed(program, place, do=Get("nowhere"))),
)  # fmt: skip
"""All corruptors: of nodes, of calls, of the contract, of state; those without a rule return another valid program."""
