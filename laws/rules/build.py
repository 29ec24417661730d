"""``build``: a drawn recipe becomes a program around patterns, with the tensors to run it with.

It is built node by node and run meanwhile, so that each node fits; small numbers of a recipe choose what is simple, so that a
program that breaks a law shrinks to one operator after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import evolve, frozen

from ...ir.arguments import Arg, Body, Items, Ref, replace_refs
from ...ir.errors import PurefxError
from ...ir.expression import Sym
from ...ir.graph import Call, Frame, Get, Graph, Input, Node
from ...ir.names import Names
from ...ir.operators import op_of
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.signature import Constraints, InputSpec, Range, Signature, StateInput, TensorType, UserInput, UserOutput
from ...ir.state import Slot, SlotKind, State
from ...ir.verify import verify
from ...transforms import infer
from ..evaluate import evaluate
from ..purity import seeded
from ..toy import GETITEM, PRINT, TensorMachine
from .instances import Instance, changed, run_node
from .operands import CALLS, Operand, quiet

__all__ = ["Drawn", "Hit", "Recipe", "Step", "build", "recipes"]

FEEDS = 12
"""How many ways there are to come by an operand (``build.py``)."""

STEPS = 12
"""How many kinds of other nodes there are."""

ENDS = 6
"""How many ways there are to use what a pattern gives."""


@frozen
class Step:
    """A node beside the patterns: what it does, and to which value."""

    kind: int
    value: int


@frozen
class Hit:
    """A pattern: on which operands, where those come from, what stands between its nodes, and what becomes of its result."""

    instance: int
    feeds: tuple[int, ...]
    between: tuple[tuple[int, Step], ...]
    """After which of its nodes another node stands."""
    end: int
    changed: int
    """Which literal is another; 0 for none."""


@frozen
class Recipe:
    """All that is drawn for a program."""

    before: tuple[Step, ...]
    hits: tuple[Hit, ...]
    after: tuple[Step, ...]
    outputs: tuple[int, ...]
    place: int
    """In the root, in a body that two modules share, in a body that is called twice, in a branch."""
    sunk: bool
    dynamic: int
    """Above 1 one of the sizes of the inputs is known only when it runs: in the root alone."""
    variant: int


def _often(usual: int, others: st.SearchStrategy[int], *, of: int) -> st.SearchStrategy[int]:
    # The usual number most of the time.
    return st.integers(0, of).flatmap(lambda drawn: others if drawn == of else st.just(usual))


STEP = st.builds(Step, st.integers(0, STEPS - 1), st.integers(0, 7))

FEED = st.one_of(st.just(0), st.integers(0, FEEDS - 1), st.integers(0, FEEDS - 1))

BETWEEN = st.one_of(
    st.just(()), st.just(()), st.just(()), st.lists(st.tuples(st.integers(0, 3), STEP), min_size=1, max_size=2).map(tuple)
)


def _hits(*, changed: bool) -> st.SearchStrategy[Hit]:
    return st.builds(
        Hit,
        st.integers(0, 1 << 10),
        st.tuples(FEED, FEED, FEED, FEED),
        BETWEEN,
        _often(0, st.integers(0, ENDS - 1), of=2),
        st.integers(1, 24) if changed else st.just(0),
    )


OUTPUTS = st.one_of(st.just(()), st.lists(st.integers(0, 9), max_size=2).map(tuple))
"""Half of the time nothing else is returned: of a large pattern nearly every value is an inner one, and stays for its users."""

PLACES = st.sampled_from((0, 0, 0, 0, 0, 1, 1, 2, 3))


@cache
def recipes(*, changed: bool = False) -> st.SearchStrategy[Recipe]:
    """Return the strategy of recipes.

    Args:
        changed: whether a literal of each pattern is another.

    >>> from hypothesis import find
    >>> found = find(recipes(), lambda recipe: True)
    >>> len(found.hits), found.hits[0].feeds, found.place
    (1, (0, 0, 0, 0), 0)
    """
    return st.builds(
        Recipe,
        st.one_of(st.just(()), st.lists(STEP, max_size=2).map(tuple)),
        st.lists(_hits(changed=changed), min_size=1, max_size=3).map(tuple),
        st.one_of(st.just(()), st.lists(STEP, max_size=3).map(tuple)),
        OUTPUTS,
        PLACES,
        st.booleans(),
        st.integers(0, 3),
        st.integers(0, 1 << 16),
    )


aten: Any = torch.ops.aten


@frozen(eq=False)
class Given:
    """A user input: what it is like, and the tensor that is made of it."""

    name: str
    operand: Operand
    index: int
    change: Callable[[torch.Tensor], torch.Tensor]

    def at(self, call: int, *, size: int = 0) -> torch.Tensor:
        """Return its tensor in a call.

        Args:
            call: the number of the call.
            size: grows with each call, wherever it is one of the sizes; by default none does.
        """
        operand = self.operand.grown(size, call) if size else self.operand
        return self.change(operand.at(call, self.index)).contiguous()


class Flow:
    """A graph while it is written.

    Args:
        is_pure: whether all is passed in and nothing is written, as in the branches of ``cond``.
        is_dynamic: whether sizes of inputs may be others in other calls, so that none is written down or in the state.

    >>> flow = Flow()
    >>> x = flow.given(Operand(torch.ones(2)))
    >>> flow.add(aten.neg.default, x), flow.add(aten.select.int, x, 5, 5), [node.name for node in flow.nodes]
    ('neg', None, ['neg'])
    """

    def __init__(self, *, is_pure: bool = False, is_dynamic: bool = False) -> None:
        self.is_pure = is_pure
        self.is_dynamic = is_dynamic
        self.names = Names([])
        self.inputs: list[Given] = []
        self.nodes: list[Node] = []
        self.known: dict[str, torch.Tensor] = {}
        """The tensors of the first call, in order."""
        self.slots: dict[str, Slot] = {}
        self.reads: dict[str, str] = {}
        """The name of the read of each slot."""

    # -- where values come from -------------------------------------------------------------------------------------------------

    def given(self, operand: Operand, change: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.clone) -> str:
        """Add a user input, and return its name.

        Args:
            operand: what it is like.
            change: makes another tensor of it, of which it is a view.
        """
        name = self.names.fresh("x")
        self.inputs.append(Given(name, operand, len(self.inputs), change))
        self.known[name] = self.inputs[-1].at(0)
        return name

    def read(self, operand: Operand, kind: SlotKind, *, tied: bool = False) -> str:
        """Add a read of state, and return its name.

        Args:
            operand: what it is like.
            kind: of the state; what cannot be trained is a buffer in place of a parameter.
            tied: whether it is the tensor of another slot, where one is like it.
        """
        like = operand.value
        others = [slot for slot in self.slots.values() if slot.value.dtype is like.dtype and slot.value.shape == like.shape]
        number = len(self.slots)
        slot = self.names.fresh(WORDS[kind])
        value: Any = operand.at(0, number + 1)
        if kind is SlotKind.PARAMETER and (like.dtype.is_floating_point or like.dtype.is_complex):
            value = torch.nn.Parameter(value)
        elif kind is SlotKind.PARAMETER:
            kind = SlotKind.BUFFER
        new = Slot(kind, value, number, number, persistent=kind is not SlotKind.CONSTANT)
        self.slots[slot] = others[0] if tied and others else new
        name = self.reads[slot] = self.names.fresh(f"{slot}_read")
        shared = next((self.known[self.reads[other]] for other in self.reads if other != slot and self._ties(slot, other)), None)
        self.known[name] = value.detach().clone() if shared is None else shared
        return name

    def _ties(self, one: str, other: str) -> bool:
        return self.slots[one].cell == self.slots[other].cell

    @property
    def state(self) -> State:
        """What it reads."""
        return State(tuple(self.slots), pmap(self.slots))

    def get_nodes(self) -> list[Node]:
        """Return its reads of state as nodes."""
        return [Node(name, Get(slot)) for slot, name in self.reads.items()]

    # -- nodes ------------------------------------------------------------------------------------------------------------------

    def add(self, target: Any, *args: Any) -> str | None:
        """Add a node, and return its name; None if the operator refuses its operands.

        Args:
            target: the operator.
            args: names of values, and arguments as they stand.
        """
        given = tuple([Ref(arg) if isinstance(arg, str) and arg in self.known else arg for arg in args])
        word = str(target).split(".")[1]
        return self.put(Node(word, op_of(target), given), {})

    def put(self, node: Node, renamed: dict[str, str]) -> str | None:
        """Add a node of a pattern, and return its name; None if the operator refuses its operands.

        Args:
            node: as it stands in the pattern.
            renamed: what values of the pattern are called here; the new one is added.
        """
        known: dict[str, Arg] = {name: Ref(now) for name, now in renamed.items()}
        args, kwargs = replace_refs(node.args, known), replace_refs(node.kwargs, known)
        there = Node("", node.do, args, kwargs)
        try:
            value = run_node(there, self.known)
        except Exception:  # noqa: BLE001  whatever an operator has against its operands
            return None
        name = renamed[node.name] = self.names.fresh(node.name)
        self.nodes.append(Node(name, node.do, args, kwargs))
        self.known[name] = value
        return name

    def copied(self, name: str) -> str:
        """Add a copy of a value, contiguous and with memory of its own, and return its name."""
        node = Node("clone", op_of(aten.clone.default), (Ref(name),), (("memory_format", torch.contiguous_format),))
        return self.put(node, {name: name}) or name

    def tensors(self) -> list[str]:
        """Return the names of its values that are tensors, the latest first."""
        return [name for name in reversed(self.known) if isinstance(self.known[name], torch.Tensor)]

    def like(self, operand: Operand) -> list[str]:
        """Return the names of its values that have the type and the sizes of an operand, the latest first."""
        like = operand.value
        return [n for n in self.tensors() if self.known[n].dtype is like.dtype and self.known[n].shape == like.shape]

    def value(self, number: int) -> str | None:
        """Return the name of a tensor, 0 for the latest; None if there is none."""
        found = self.tensors()
        return found[number % len(found)] if found else None


def supplied(flow: Flow, operand: Operand, feed: int) -> str:
    """Return the name of a value that is like an operand.

    Args:
        flow: where it is wanted.
        operand: what is wanted.
        feed: how to come by it; where that cannot be, it is a new input.

    >>> flow = Flow()
    >>> supplied(flow, Operand(torch.ones(2, 3)), 7), flow.known["x"].shape
    ('transpose', torch.Size([3, 2]))
    """
    like, there = operand.value, flow.like(operand)
    sized = like.dim() > 0
    found: str | None = None
    if flow.is_dynamic and feed not in SIZELESS:
        return flow.given(operand)
    match feed:
        case 2 | 3 if there:
            found = there[(feed - 2) % len(there)]
        case 4 | 5 | 6 if not flow.is_pure:
            found = flow.read(operand, SlotKind.PARAMETER if feed == 4 else SlotKind.BUFFER, tied=feed == 6)
        case 12 if not flow.is_pure:
            found = flow.read(operand, SlotKind.CONSTANT)
        case 7 if like.dim() > 1:
            found = flow.add(aten.transpose.int, flow.given(operand, lambda it: it.transpose(0, -1)), 0, -1)
        case 8 if sized:
            longer = flow.given(operand, lambda it: torch.cat([torch.zeros_like(it[:1]), it]) if len(it) else it)
            found = flow.add(aten.slice.Tensor, longer, 0, 1 if len(like) else 0, len(like) + 1)
        case 9 if sized and len(like) > 1:
            found = flow.add(aten.expand.default, flow.given(operand, lambda it: it[:1]), Items(like.shape))
        case 10:
            found = flow.add(aten.clone.default, flow.given(operand))
        case 11 if there and sized:
            found = flow.add(aten.slice.Tensor, there[0], 0, 0, len(like))
        case _:
            pass
    return flow.given(operand) if found is None else found


def step(flow: Flow, kind: int, number: int) -> str | None:
    """Add a node beside the patterns, and return the name of its value; None where none was added.

    Args:
        flow: where.
        kind: what it does.
        number: to which value, 0 for the latest.

    >>> flow = Flow()
    >>> x = flow.given(Operand(torch.ones(2, 3)))
    >>> [step(flow, kind, 0) for kind in (0, 2, 5)]
    ['mul', 'add_', 'transpose']
    """
    value = flow.value(number)
    if value is None or (flow.is_pure and kind in WRITING):
        return None
    other = next((name for name in flow.tensors()[number:] if flow.known[name].shape == flow.known[value].shape), value)
    match kind:
        case 2:
            return flow.add(aten.add_.Tensor, value, 1)
        case 4:
            part = flow.add(aten.select.int, value, 0, 0)
            return None if part is None else flow.add(aten.mul_.Tensor, part, 2)
        case 5:
            return flow.add(aten.transpose.int, value, 0, -1)
        case 6:
            return flow.add(aten.copy_.default, value, other)
        case 7:
            return flow.add(aten.rand_like.default, value)
        case 8:
            return flow.add(aten.add.Tensor, value, other)
        case 9:
            flow.nodes.append(Node(flow.names.fresh("print_"), PRINT, (f"here {len(flow.nodes)}",)))
            return None
        case 11:
            return flow.add(aten.slice.Tensor, value, 0, 0, 1)
        case _:
            simple = SIMPLE.get(kind, (aten.neg.default,))
            return flow.add(simple[0], value, *simple[1:])


SIMPLE: dict[int, tuple[Any, ...]] = {0: (aten.mul.Tensor, 2), 1: (aten.clone.default,), 3: (aten.mul_.Tensor, 2)}
"""Kinds of nodes that are one operator on one value; others negate it."""

READING = (4, 5, 6)
"""Ways to come by an operand that read it from the state: a parameter, a buffer, a tied one."""

CONSTANT = 12
"""The way that reads a constant, where nothing else would do."""

WORDS = {SlotKind.PARAMETER: "w", SlotKind.BUFFER: "b", SlotKind.CONSTANT: "c"}
"""What slots are called."""

SIZELESS = frozenset({0, 1, 2, 3, 7, 10})
"""Ways to come by an operand in which no size is written down."""

WRITING = frozenset({2, 3, 4, 6, 7, 9})
"""Kinds of nodes that do more than compute."""


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
