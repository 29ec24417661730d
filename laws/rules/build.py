"""``build``: a recipe becomes a program around patterns, with the tensors to run it with.

It is built node by node and has no graph of torch; its values are inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import torch
from attrs import evolve, frozen

from ...ir.arguments import Arg, Body, Items, Ref
from ...ir.errors import PurefxError
from ...ir.expression import Sym
from ...ir.graph import Call, Frame, Graph, Input, Node
from ...ir.operators import op_of
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.signature import Constraints, InputSpec, Range, Signature, StateInput, TensorType, UserInput, UserOutput
from ...ir.state import State
from ...ir.verify import verify
from ...transforms import infer
from ..evaluate import evaluate
from ..purity import seeded
from ..toy import GETITEM, TensorMachine
from .contents import CALLS
from .flow import CONSTANT, READING, Flow, step, supplied
from .instances import Instance, changed
from .operands import quiet
from .recipe import Hit, Recipe

__all__ = ["Drawn", "build"]

aten: Any = torch.ops.aten

FLAT, TREE = frozenset({"mutations in place", "token free"}), frozenset({"state sunk", "mutations in place", "token free"})

SIZE = Sym("s0")

ROOT, SHARED, TWICE, BRANCH = range(4)


@frozen(eq=False)
class Drawn:
    """A program, and the tensors that it is called with."""

    program: Program
    calls: tuple[tuple[Any, ...], ...]


def build(recipe: Recipe, pool: Sequence[Instance]) -> Drawn | None:
    """Return the program of a recipe; None if nothing came of it that is valid and runs.

    Args:
        recipe: what was drawn.
        pool: the patterns that it chooses from, the simplest first.
    """
    flow = Flow(is_pure=recipe.place == BRANCH, is_dynamic=recipe.place == ROOT and recipe.dynamic > 1)
    results: list[str] = []
    finite: set[str] = set()
    with quiet():
        for each in recipe.before:
            step(flow, each.kind, each.value)
        for hit in recipe.hits:
            results += _hit(flow, hit, pool, finite)
        for each in recipe.after:
            step(flow, each.kind, each.value)
        drawn = [flow.value(number) for number in recipe.outputs] if results else []
    outputs = [*results, *[name for name in drawn if name is not None]]
    if not outputs:
        return None
    if recipe.place == BRANCH:  # results of branches lie in memory alike, and are no operands
        with quiet():
            outputs = [flow.copied(name) for name in outputs]
    size = _growing(flow)
    program = _with_symbol(_placed(flow, recipe, outputs), size)
    try:
        program = infer(program)
    except PurefxError:
        return None
    if verify(program):
        return None
    drawn_calls = tuple([_leaves(flow, recipe, call, size) for call in range(CALLS)])
    if finite and not _are_finite(program, drawn_calls, finite):
        return None
    return Drawn(program, drawn_calls)


def _are_finite(program: Program, calls: Sequence[Sequence[Any]], names: Collection[str]) -> bool:
    # Operands that are computed, as an inner value of another match, may be infinite where those that are given are not, or so
    # large that a product is.
    found: list[str] = []

    def seen(_: str, part: Any, value: Any) -> None:
        is_real = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
        if part.name in names and is_real and not bool((value.abs() <= torch.finfo(value.dtype).max ** 0.5).all()):
            found.append(part.name)

    with seeded(0), torch.no_grad(), suppress(Exception):  # what does not run is left out by those who run it
        evaluate(program, calls, TensorMachine(), seen=seen)
    return not found


def _hit(flow: Flow, hit: Hit, pool: Sequence[Instance], finite: set[str]) -> list[str]:
    # The values that are returned for it: nothing if it does not run on what it got.  Notes operands that have to be finite.
    instance = pool[hit.instance % len(pool)]
    found = changed(instance, hit.changed - 1) if hit.changed else instance
    if found is None:
        return []
    instance = found
    feeds = zip(instance.leaves, (*hit.feeds, *[0] * len(instance.leaves)), strict=False)
    renamed = {name: supplied(flow, operand, _feed(instance, name, feed)) for (name, operand), feed in feeds}
    finite.update([renamed[name] for name, operand in instance.leaves if operand.is_finite])
    first: str | None = None
    for number, node in enumerate(instance.nodes):
        name = flow.put(node, renamed)
        if name is None:
            return []
        first = first or name
        for place, each in hit.between:
            if number == place % len(instance.nodes) and number < len(instance.nodes) - 1:
                step(flow, each.kind, each.value)
    return [used for result in instance.results for used in _ended(flow, hit.end, renamed[result], first)]


def _feed(instance: Instance, name: str, feed: int) -> int:
    if name in instance.constants:
        return CONSTANT
    return feed if name not in instance.from_state or feed in READING else READING[0]


def _ended(flow: Flow, end: int, result: str, first: str | None) -> list[str]:
    match end:
        case 1:
            found = [result]
        case 2:
            found = [flow.add(aten.transpose.int, result, 0, -1) or result]
        case 3:
            if not flow.is_pure:
                flow.add(aten.add_.Tensor, result, 1)
            found = [flow.add(aten.mul.Tensor, result, 2)]
        case 4:
            found = [flow.add(aten.mul.Tensor, result, 2), flow.add(aten.add.Tensor, result, result)]
        case 5:
            found = [flow.add(aten.mul.Tensor, result, 2), None if first is None else flow.add(aten.mul.Tensor, first, 2)]
        case _:
            found = [flow.add(aten.mul.Tensor, result, 2)]
    return [name for name in found if name is not None]


def _growing(flow: Flow) -> int:
    # The size that is a symbol: the one that most inputs have; 0 for none.
    sizes = Counter([size for given in flow.inputs for size in given.operand.value.shape if size > 1])
    is_said = any(given.operand.style == "given" for given in flow.inputs)  # the user says which sizes there may be
    return max(sizes, key=lambda size: (sizes[size], size), default=0) if flow.is_dynamic and not is_said else 0


def _with_symbol(program: Program, size: int) -> Program:
    if not size:
        return program
    specs = [
        evolve(spec, type=evolve(spec.type, shape=tuple([SIZE if one == size else one for one in spec.type.shape])))
        if type(spec) is UserInput and type(spec.type) is TensorType
        else spec
        for spec in program.signature.inputs
    ]
    signature = evolve(program.signature, inputs=tuple(specs))
    return program.evolve(signature=signature, constraints=Constraints((Range(SIZE, 2, None),)))


def _leaves(flow: Flow, recipe: Recipe, call: int, size: int) -> tuple[Any, ...]:
    condition = [torch.tensor(call % 2 == 0)] if recipe.place == BRANCH else []
    return (*condition, *[given.at(call, size=size) for given in flow.inputs])


def _placed(flow: Flow, recipe: Recipe, outputs: list[str]) -> Program:
    match recipe.place:
        case 0:
            return _flat(flow, outputs, sunk=recipe.sunk)
        case 3:
            return _branched(flow, outputs)
        case _:
            return _called(flow, outputs, twice=recipe.place == TWICE)


def _flat(flow: Flow, outputs: list[str], *, sunk: bool) -> Program:
    users = [Input(given.name) for given in flow.inputs]
    specs = _specs(flow)
    result = tuple(map(Ref, outputs))
    if sunk:
        graph = Graph(tuple(users), (*flow.get_nodes(), *flow.nodes), result)
        return _program({"": graph}, flow.state, specs, len(outputs), TREE if flow.slots else FLAT)
    lifted = [Input(name) for name in flow.reads.values()]
    graph = Graph((*lifted, *users), tuple(flow.nodes), result)
    return _program({"": graph}, flow.state, [*map(StateInput, flow.reads), *specs], len(outputs), FLAT)


def _specs(flow: Flow) -> list[InputSpec]:
    found: list[InputSpec] = []
    for given in flow.inputs:
        value = given.at(0)
        found.append(UserInput(TensorType(value.dtype, tuple(value.shape)), given.name))
    return found


def _program(graphs: dict[str, Graph], state: State, specs: Sequence[InputSpec], outputs: int, facts: frozenset[str]) -> Program:
    signature = Signature(tuple(specs), tuple([UserOutput()] * outputs))
    return Program.of(graphs, state=state, signature=signature, facts=facts)


def _called(flow: Flow, outputs: list[str], *, twice: bool) -> Program:
    # Two calls of one body: of one module, or of two with state of their own.
    body = Graph(tuple([Input(given.name) for given in flow.inputs]), (*flow.get_nodes(), *flow.nodes), tuple(map(Ref, outputs)))
    frames = [Frame("a", 0), Frame("a", 1)] if twice else [Frame("a"), Frame("b")]
    args: tuple[Arg, ...] = tuple([Ref(given.name) for given in flow.inputs])
    nodes: list[Node] = []
    for number, frame in enumerate(frames):
        nodes.append(Node(f"call_{number}", Call(frame, "body"), args))
        nodes += _items(f"call_{number}", len(outputs))
    results = tuple([Ref(node.name) for node in nodes if node.do == GETITEM])
    root = Graph(body.inputs, tuple(nodes), results)
    state = _in_modules(flow.state, list(dict.fromkeys(frame.path for frame in frames)))
    return _program({"": root, "body": body}, state, _specs(flow), len(results), TREE | {"outlined"})


def _items(name: str, count: int) -> list[Node]:
    return [Node(f"{name}_{number}", GETITEM, (Ref(name), number)) for number in range(count)]


def _in_modules(state: State, paths: list[str]) -> State:
    slots = {}
    for number, path in enumerate(paths):
        shift = number * len(state)
        for name, slot in state.pairs:
            value = slot.value.detach() + number if number and slot.value.is_floating_point() else slot.value.detach().clone()
            known = slots.get(f"{path}.{_first(state, name)}")
            value = torch.nn.Parameter(value) if isinstance(slot.value, torch.nn.Parameter) else value
            slots[f"{path}.{name}"] = known or evolve(slot, value=value, cell=slot.cell + shift, storage=slot.storage + shift)
    return State(tuple(slots), pmap(slots))


def _first(state: State, name: str) -> str:
    return state.by_cell[state[name].cell][0]


def _branched(flow: Flow, outputs: list[str]) -> Program:
    formals = tuple([Input(given.name) for given in flow.inputs])
    yes = Graph(formals, tuple(flow.nodes), tuple(map(Ref, outputs)))
    constants = [
        Node(
            f"other_{number}", op_of(aten.full.default), (Items(flow.known[name].shape), 1), (("dtype", flow.known[name].dtype),)
        )
        for number, name in enumerate(outputs)
    ]
    no = Graph(formals, tuple(constants), tuple([Ref(node.name) for node in constants]))
    condition = Input("condition")
    args = (Ref("condition"), Body("yes"), Body("no"), tuple([Ref(formal.name) for formal in formals]))
    nodes = [Node("cond", op_of(torch.ops.higher_order.cond), args), *_items("cond", len(outputs))]
    root = Graph((condition, *formals), tuple(nodes), tuple([Ref(node.name) for node in nodes[1:]]))
    specs = [UserInput(TensorType(torch.bool, ()), "condition"), *_specs(flow)]
    return _program({"": root, "yes": yes, "no": no}, State(), specs, len(outputs), TREE)


def simplest(instance: Instance, *, feed: int = 0, end: int = 0, dynamic: int = 0) -> Drawn | None:
    """Return the program that computes a pattern on inputs, and something of its result.

    Args:
        instance: the pattern.
        feed: how to come by all of its operands.
        end: what becomes of its result.
        dynamic: above 1 one of the sizes is known only when it runs.
    """
    hit = Hit(0, (feed,) * len(instance.leaves), (), end, 0)
    return build(Recipe((), (hit,), (), (), ROOT, False, dynamic, 0), [instance])  # noqa: FBT003
