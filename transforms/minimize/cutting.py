"""Smaller programs: without some nodes of the root, with smaller sizes, usual dtypes, default arguments and small numbers.

``without`` removes nodes; their results become inputs, their operands become outputs.  The result is valid, but may compute
something else: an input does not alias another one, even if the value that it replaces did.  The caller tests whether that
matters; ``infer`` rejects candidates with invalid operands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import torch
from attrs import evolve, frozen

from ...ir.analysis.numbers import SYMBOLIC
from ...ir.arguments import Arg, Body, Ref, map_leaves, refs_in
from ...ir.calls.parts import part_names
from ...ir.expression import Apply, Sym, symbols_in
from ...ir.graph import Get, Graph, Input, Node, Op
from ...ir.importing.constraints import tensor_type
from ...ir.inference import FakeValues
from ...ir.meta import without_value
from ...ir.program import Program
from ...ir.signature import (
    ArgumentType,
    Constraints,
    InputMutation,
    InputSpec,
    ObjectType,
    OutputSpec,
    StateMutation,
    TensorType,
    UserInput,
    UserOutput,
)
from ...ir.state import State, is_strided
from ...ir.state_changes import state_uses, without_slots
from ...ir.tensors import tensors_among
from ...ir.torch_private import size_number
from ..transformation import observed
from .search import Search, literals_in

STAYS = (UserOutput, StateMutation, InputMutation)
"""Outputs that keep their kind; gradients and losses become plain values, and tokens order nothing."""


def type_of(value: Any) -> TensorType | None:
    """Return the type of an input for a tensor, fake or not; None for other values.

    >>> type_of(torch.ones(2, 3))
    TensorType(dtype=torch.float32, shape=(2, 3), device='cpu')
    """
    return tensor_type(value) if is_strided(value) else None


def without(program: Program, gone: Collection[str]) -> Program | None:
    """Return a program without some nodes of its root; None if no input can replace one of their results.

    New inputs have types, but no fake values; ``infer`` computes those.

    Args:
        program: any valid program; its root may call modules.
        gone: nodes of the root.  Their projections are removed as well, and reads of state that are then unused.

    >>> from purefx.ir import Op, Signature
    >>> nodes = (Node("y", Op("toy.neg"), (Ref("x"),), meta={"val": torch.ones(2)}), Node("z", Op("toy.exp"), (Ref("y"),)))
    >>> signature = Signature((UserInput(TensorType(torch.float32, (2,))),), (UserOutput(),))
    >>> program = Program.of({"": Graph((Input("x"),), nodes, (Ref("z"),))}, signature=signature)
    >>> print(without(program, ["y"]).main)
    graph @""(y) {
      z = toy.exp(y) ! pure
      return (z,)
    }
    """
    graph, lost = program.main, set(gone)
    for node in graph.nodes:
        if node.projection is not None and node.projection[0] in lost:
            lost.add(node.name)
    nodes = [node for node in graph.nodes if node.name not in lost]
    inputs: dict[str, ArgumentType] = {}
    literals: dict[str, Arg] = {}
    for name in dict.fromkeys([name for node in nodes for name in node.refs() if name in lost]):
        found = _replacement(program, graph.by_name[name])
        if found is None:
            return None
        if isinstance(found, TensorType | ObjectType):
            inputs[name] = found
        else:
            literals[name] = found
    outputs: list[tuple[Arg, OutputSpec]] = [
        (arg, spec if type(spec) in STAYS else UserOutput())
        for arg, spec in program.outputs
        if type(arg) is not Ref or arg.name not in lost
    ]
    # Operands of the removed nodes are returned.
    used = {name for node in graph.nodes if node.name in lost for name in node.refs()}
    for node in nodes:
        is_tensor = "val" not in node.meta or isinstance(node.meta["val"], torch.Tensor)
        if (
            node.name in used
            and type(node.do) is not Get
            and is_tensor
            and Ref(node.name) not in [arg for arg, _ in outputs]
        ):
            outputs.append((Ref(node.name), UserOutput()))
    formals = (*graph.inputs, *[Input(name) for name in inputs])
    specs = [*program.signature.inputs, *[UserInput(kind, name) for name, kind in inputs.items()]]
    main = Graph(
        formals, tuple([node.using(literals) for node in nodes]), tuple([arg for arg, _ in outputs])
    )
    made = with_interface(program, main, specs, [spec for _, spec in outputs])
    return without_unused(made, only=frozenset([*graph.users, *graph.output_refs()]))


def _replacement(program: Program, node: Node) -> TensorType | ObjectType | float | None:
    # The number or the type of the input that can replace a node.
    value: Any = node.val
    if "val" not in node.meta and type(node.do) is Get and node.do.slot in program.state:
        value = program.state[node.do.slot].value
    elif "val" not in node.meta and any(
        type(spec) is UserInput and type(spec.type) is ObjectType
        for spec in program.signature.inputs
    ):
        return ObjectType()  # traced without examples: types of values are unknown
    number = size_number(value) if isinstance(value, SYMBOLIC) else value
    return number if type(number) in (int, float, bool) else type_of(value)


def with_interface(
    program: Program, main: Graph, inputs: Sequence[InputSpec], outputs: Sequence[OutputSpec]
) -> Program:
    """Return a program with another root and signature, called without pytrees; guards count the inputs, so they are dropped.

    Args:
        program: the source of the rest.
        main: the root.
        inputs: the specs of its inputs.
        outputs: the specs of its outputs; mutations count the inputs of the original program.
    """
    users = [
        evolve(spec, default=None) if type(spec) is UserInput and spec.default is not None else spec
        for spec in inputs
    ]
    made = program.with_boundary(
        main, users, outputs, in_spec=None, out_spec=None, arg_names=(), lifted=()
    )
    kinds = [spec.type for spec in made.signature.users.values()]
    names = {
        name
        for kind in kinds
        if type(kind) is TensorType
        for size in kind.shape
        for name in symbols_in(size)
    }
    ranges = tuple(
        [span for span in program.constraints.ranges if names.issuperset(symbols_in(span.expr))]
    )
    return claiming_less(made.evolve(constraints=Constraints(ranges)))


def claiming_less(program: Program) -> Program:
    """Return a program without history, with the facts that can be observed.

    >>> claiming_less(Program.of({"": Graph((), ())}, facts=frozenset({"outlined"}))).facts >= {"outlined"}
    False
    """
    facts = observed(program) | (program.facts & {"split"} if part_names(program) else frozenset())
    return program.evolve(facts=facts, trail=())


def without_unused(program: Program, *, only: Collection[str] | None = None) -> Program:
    """Return a program without unused reads, inputs, state and bodies; the same object if all are used.

    Args:
        program: any valid program.
        only: the inputs that may be dropped; by default all.
    """
    for name in program.order:
        graph = program.graphs[name]
        used = {*graph.users, *graph.output_refs()}
        nodes = [node for node in graph.nodes if type(node.do) is not Get or node.name in used]
        program = program.with_graphs({name: graph.with_nodes(nodes)})
    graph, specs = program.main, program.signature
    used = {*graph.users, *graph.output_refs()}
    mutated = {
        graph.inputs[spec.index].name for spec in specs.outputs if type(spec) is InputMutation
    }
    kept = {
        *used,
        *mutated,
        *([] if only is None else set(graph.input_names) - set(only)),
    }
    pairs = [pair for pair in program.inputs if pair[0].name in kept]
    if len(pairs) < len(graph.inputs):
        main = graph.with_nodes(graph.nodes, inputs=tuple([formal for formal, _ in pairs]))
        program = with_interface(program, main, [spec for _, spec in pairs], specs.outputs)
    left = program.pruned()
    used = {*left.state_inputs.values(), *state_uses(left)}
    return without_slots(left, [name for name in left.state if name not in used])


Map = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


@frozen
class Changes:
    """Maps for all sizes, dtypes and literals of a program.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),)))
    >>> smaller = Changes(size=lambda size: 1 if size == 3 else size).program(program)
    >>> [tuple(slot.value.shape) for _, slot in smaller.state.pairs], tuple(px.infer(smaller).main.nodes[0].meta["val"].shape)
    ([(1, 2), (1,)], (1, 1))
    """

    size: Map = _same
    dtype: Map = _same
    literal: Map = _same

    def program(self, program: Program) -> Program | None:
        """Return a program with the changes, without fake values; None if tensors of the state share memory."""
        state = self._state(program.state)
        if state is None:
            return None
        inputs = tuple([self._input(spec) for spec in program.signature.inputs])
        signature = evolve(program.signature, inputs=inputs)
        graphs = {name: self._graph(program.graphs[name]) for name in program.order}
        return program.evolve(state=state, signature=signature).with_graphs(graphs)

    def _input(self, spec: Any) -> Any:
        if type(spec) is not UserInput or type(spec.type) is not TensorType:
            return spec
        kind = spec.type
        return evolve(
            spec,
            type=TensorType(
                self.dtype(kind.dtype), tuple([self.size(size) for size in kind.shape]), kind.device
            ),
        )

    def _graph(self, graph: Graph) -> Graph:
        inputs = tuple([Input(formal.name, without_value(formal.meta)) for formal in graph.inputs])
        nodes: list[Node] = []
        for node in graph.nodes:
            args, kwargs = mapped((node.args, node.kwargs), self.literal)
            nodes.append(node.evolve(args=args, kwargs=kwargs, meta=without_value(node.meta)))
        return Graph(inputs, tuple(nodes), graph.output)

    def _state(self, state: State) -> State | None:
        cells: dict[int, set[int]] = {}
        for _, slot in state.pairs:
            cells.setdefault(slot.storage, set()).add(slot.cell)
        made = {slot.cell: self._tensor(slot.value) for _, slot in state.pairs}
        changed = {
            name: evolve(slot, value=made[slot.cell])
            for name, slot in state.pairs
            if made[slot.cell] is not slot.value
        }
        if any(len(cells[slot.storage]) > 1 for slot in changed.values()):
            return None
        return State(state.order, state.slots.update(changed))

    def _tensor(self, value: Any) -> Any:
        if not is_strided(value):
            return value
        sizes, dtype = [self.size(size) for size in value.shape], self.dtype(value.dtype)
        if sizes == list(value.shape) and dtype is value.dtype:
            return value
        part = (
            value.detach()[tuple([slice(size) for size in sizes])]
            .to(dtype)
            .clone(memory_format=torch.contiguous_format)
        )
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(part, requires_grad=value.requires_grad)
        return part.requires_grad_(value.requires_grad)


def mapped(arg: Any, leaf: Map) -> Any:
    """Return an argument with its literals mapped.

    >>> mapped((Ref("x"), (1, 2)), lambda literal: literal + 1)
    (Ref(name='x'), (2, 3))
    """
    return map_leaves(arg, lambda part: part if type(part) in (Ref, Body) else leaf(part))


def use_usual_types(search: Search) -> None:
    """Replace symbolic sizes by numbers, and dtypes by float32 and int64."""
    search.offer("replace symbols by numbers", _with_numbers)
    for dtype, usual in USUAL.items():

        def change(value: Any, dtype: torch.dtype = dtype, usual: torch.dtype = usual) -> Any:
            return usual if value is dtype else value

        search.offer(f"replace {dtype} by {usual}", Changes(dtype=change, literal=change).program)


def _with_numbers(program: Program) -> Program | None:
    # The numbers of the export, or the smallest that guards allow.
    values = FakeValues(program)
    made = Changes(
        size=lambda size: values.example_number(size) if isinstance(size, Sym | Apply) else size
    ).program(program)
    if made is None or made.signature == program.signature:
        return None
    return with_interface(made, made.main, made.signature.inputs, made.signature.outputs).evolve(
        constraints=Constraints()
    )


def shrink_sizes(search: Search) -> None:
    """Reduce each size everywhere, the largest first: alone, with equal literals, with its multiples."""
    for size in sorted(_sizes(search.program), reverse=True):
        for less in dict.fromkeys((1, 2, 3, size // 2)):
            if 0 < less < size and any(
                search.offer(f"replace size {size} by {less}", changes.program)
                for changes in _resizing(size, less)
            ):
                break


def _sizes(program: Program) -> set[int]:
    shapes = [
        spec.type.shape
        for spec in program.signature.users.values()
        if type(spec.type) is TensorType
    ]
    values = tensors_among(slot.value for _, slot in program.state.pairs)
    shapes += [tuple(value.shape) for value in values]
    # A literal may be a factor of a size, as in views.
    shapes += [tuple(literals_in(node)) for _, node in program.nodes()]
    return {size for shape in shapes for size in shape if type(size) is int and 1 < size < LARGEST}


LARGEST = 2**31
"""Larger numbers among arguments mean the end of a dimension."""


def _resizing(size: int, less: int) -> Iterator[Changes]:
    def one(number: Any) -> Any:
        return less if type(number) is int and number == size else number

    def multiples(number: Any) -> Any:
        return (
            number // size * less
            if type(number) is int and number >= size and number % size == 0
            else number
        )

    yield Changes(size=one)
    yield Changes(size=one, literal=one)
    yield Changes(size=multiples, literal=multiples)


USUAL: Mapping[Any, torch.dtype] = {
    **dict.fromkeys((torch.float64, torch.bfloat16, torch.float16), torch.float32),
    **dict.fromkeys((torch.int32, torch.int16, torch.int8, torch.uint8), torch.int64),
}


def simplify_literals(search: Search) -> None:
    """Drop arguments that have defaults, and reduce numbers, one by one."""
    for name in search.program.order:
        for at in [node.name for node in search.program.graphs[name].nodes if type(node.do) is Op]:
            # Start again with a node after each success.
            while any(
                search.offer(f"{step} of {at}", partial(_with_node, name=name, made=made))
                for step, made in _simpler(search.program.graphs[name].by_name[at])
            ):
                pass


def _with_node(program: Program, *, name: str, made: Node) -> Program:
    graph, made = program.graphs[name], made.evolve(meta=without_value(made.meta))
    return program.with_graphs(
        {name: graph.with_nodes([made if node.name == made.name else node for node in graph.nodes])}
    )


def _simpler(node: Node) -> Iterator[tuple[str, Node]]:
    for number, (key, _) in enumerate(node.kwargs):
        yield f"drop {key}", node.evolve(kwargs=(*node.kwargs[:number], *node.kwargs[number + 1 :]))
    if node.args and not refs_in(node.args[-1:]):
        yield f"drop argument {len(node.args) - 1}", node.evolve(args=node.args[:-1])
    for place, literal in enumerate(literals_in(node)):
        for simple in SIMPLE.get(type(literal), ()):
            if simple != literal:
                yield f"replace {literal} by {simple}", _with_literal(node, place, simple)


SIMPLE: Mapping[type, tuple[Any, ...]] = {bool: (False,), int: (0, 1, 2), float: (1.0, 2.0, 0.5)}


def _with_literal(node: Node, place: int, simple: Any) -> Node:
    places = count()

    def leaf(literal: Arg) -> Arg:
        return simple if next(places) == place else literal

    return node.evolve(args=mapped(node.args, leaf), kwargs=mapped(node.kwargs, leaf))
