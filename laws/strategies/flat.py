"""``build``: the flat program that a recipe of a toy program becomes.

Building draws nothing: the numbers of the recipe choose among what exists, and each kind of node has its place here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import hypothesis.strategies as st
import torch
from attrs import frozen

from ...ir.arguments import Arg, Body, Ref
from ...ir.graph import Frame, Graph, Input, Node, Op, Stack
from ...ir.names import is_below, join
from ...ir.own_operators import GIVES, TAKES, is_boundary
from ...ir.persistent import pmap
from ...ir.program import CallSignature, Module, Program
from ...ir.signature import InputMutation, OutputSpec, Signature, StateInput, StateMutation, TensorType, UserInput, UserOutput
from ...ir.state import Slot, SlotKind, State
from ...ir.torch_private import pytree
from .. import toy
from ..variants import reordered

__all__ = [
    "CallRecipe",
    "ItemRecipe",
    "NodeRecipe",
    "OutputRecipe",
    "PrintedWhole",
    "Recipe",
    "SlotRecipe",
    "build",
    "filled",
    "nested",
    "recipes",
]

Drawn = TypeVar("Drawn")


class PrintedWhole:
    """Prints as its ``repr`` says.

    Hypothesis shows a value by the calls that built it, each of which prints its operands four times to choose a layout: what is
    nested eight deep would take hours, after the test has failed.
    """

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  the name and the operands are IPython's
        printer.text("..." if cycle else repr(self))


@frozen
class NodeRecipe:
    """A node: which operator, and numbers that choose its operands."""

    kind: int
    first: int
    second: int


@frozen
class CallRecipe(PrintedWhole):
    """A module call: which module below the one at hand; a new call, or one that was left and is entered again."""

    module: int
    again: bool
    twice: bool
    """Whether another call does the same: of the same module, or of the next."""
    kept: bool
    """Whether its call signature is preserved; such a call is never entered again."""
    elsewhere: bool
    """Whether the module may be any, and not only one below the one at hand."""
    items: tuple[ItemRecipe, ...]


ItemRecipe = NodeRecipe | CallRecipe


@frozen
class SlotRecipe:
    """A piece of state: whose it is, its kind, whether it is tied to or shares memory with an earlier one, whether read."""

    module: int
    kind: int
    sharing: int
    other: int
    is_input: bool = True


@frozen
class OutputRecipe:
    """An output of the root: a value, a constant, the new contents of state or of an input."""

    kind: int
    value: int
    target: int = 0


@frozen
class Recipe(PrintedWhole):
    """All that is drawn for a flat program."""

    slots: tuple[SlotRecipe, ...]
    inputs: int
    items: tuple[ItemRecipe, ...]
    outputs: tuple[OutputRecipe, ...]
    order: int
    """0 leaves the nodes of each call side by side; others seed a legal reordering."""
    swarm: int = 0
    """Which kinds of nodes it may have; 0 is all of them."""


SMALL = st.integers(0, 7)

KINDS = st.integers(0, 15)

# Hypothesis drops at most five numbers at a time (its `node_program("X" * 5)`), and the list and the choice of an item take
# two of them: what takes more is never dropped whole, and the smallest program found is not small.  So flags share a number.
NODES = st.builds(NodeRecipe, KINDS, st.integers(0, 11), SMALL)

FLAGS = st.integers(0, 4**4 - 1)
"""Four flags, each rare."""

SLOTS = st.builds(
    lambda module, kind, sharing, other: SlotRecipe(module, kind % 3, sharing, other, is_input=kind // 3 != 3),
    SMALL, st.integers(0, 11), st.integers(0, 4), SMALL,
)  # fmt: skip

SWARMS = st.integers(0, 119).map(lambda drawn: drawn - 104 if drawn > 104 else 0)
"""Which kinds of nodes a program may have: 0, in seven of eight, is all of them; what three divides leaves out what acts.

Programs that have everything seldom have two of anything near each other, and where all may act a pass has nothing to do."""

OUTPUTS = st.builds(OutputRecipe, st.integers(0, 6), st.integers(0, 11), SMALL)


def _call(module: int, flags: int, items: tuple[ItemRecipe, ...]) -> CallRecipe:
    again, twice, kept, elsewhere = (flags // 4**place % 4 == 3 for place in range(4))
    return CallRecipe(module, again, twice, kept, elsewhere, items)


def nested(
    nodes: st.SearchStrategy[NodeRecipe],
    calls: Callable[[st.SearchStrategy[tuple[ItemRecipe, ...]]], st.SearchStrategy[CallRecipe]],
    sizes: Sequence[int],
) -> st.SearchStrategy[tuple[ItemRecipe, ...]]:
    """Return a strategy of nodes and calls in any order, at the root twice as many calls.

    Args:
        nodes: what stands in a call.
        calls: makes the strategy of calls of that of the items inside.
        sizes: the largest number of items at each depth of calls; at the last there are nodes only.

    >>> from hypothesis import find
    >>> find(nested(NODES, lambda inside: st.builds(_call, SMALL, FLAGS, inside), (2, 1)), lambda items: len(items) > 0)
    (NodeRecipe(kind=0, first=0, second=0),)
    """
    found = st.lists(nodes, max_size=sizes[-1]).map(tuple)
    for depth in reversed(range(1, len(sizes) - 1)):
        found = st.lists(st.one_of(nodes, calls(found)), max_size=sizes[depth]).map(tuple)
    call = calls(found)
    return filled(st.one_of(nodes, call, call), sizes[0]).map(tuple)


def filled(parts: st.SearchStrategy[Drawn], size: int) -> st.SearchStrategy[list[Drawn]]:
    """Return a strategy of lists that are at least half full as often as not: by itself one in three has an element or none.

    Args:
        parts: the elements.
        size: the most of them.

    >>> from hypothesis import find
    >>> find(filled(st.just(1), 4), lambda found: len(found) > 2), find(filled(st.just(1), 4), lambda found: True)
    ([1, 1, 1], [])
    """
    return st.one_of(st.lists(parts, max_size=size), st.lists(parts, min_size=size // 2, max_size=size))


ITEMS = nested(NODES, lambda inside: st.builds(_call, SMALL, FLAGS, inside), (10, 8, 5, 3))


@cache
def recipes() -> st.SearchStrategy[Recipe]:
    """Return the strategy of recipes.

    >>> from hypothesis import find
    >>> find(recipes(), lambda recipe: len(recipe.items) > 0).items
    (NodeRecipe(kind=0, first=0, second=0),)
    """
    return st.builds(
        Recipe,
        st.lists(SLOTS, max_size=4).map(tuple),
        st.integers(1, 2),
        ITEMS,
        filled(OUTPUTS, 6).map(tuple),
        st.one_of(st.just(0), st.integers(1, 1 << 16)),
        SWARMS,
    )


# -- building --------------------------------------------------------------------------------------------------------------------


PATHS = ("a", "a.c", "a.c.e", "b", "b.c", "d", "a@1", "a_1")
"""Modules that can be called; the call of ``a.c`` from the root leaves out ``a``.  The last two are named as a second call of
``a`` is shown, and as names are made of it."""

SLOT_KINDS = (SlotKind.BUFFER, SlotKind.PARAMETER, SlotKind.CONSTANT)

CONSTANTS: tuple[Arg, ...] = (1, None, 0.5, True)

TREES = tuple(
    (pytree.tree_structure(args), pytree.tree_structure(result))
    for args, result in ((((1, 2), {}), (1, 2)), (((1,), {"k": 2}), [1, 2]), (((1, [2, 3]), {}), {"a": 1, "b": (2, 3)}))
)
"""The pytrees of preserved calls; the last leaf is a constant."""

SCALAR = TensorType(torch.int64, ())

ACTING = frozenset({3, 4, 5, 8, 9, 10, 13, 14, 15})
"""The kinds of nodes that do anything besides computing a result, or may."""


def kind_of(kind: int, swarm: int) -> int:
    """Return the kind of a node in a program that may have some kinds only: the next that it may have, below all others 0.

    >>> kind_of(9, 0), kind_of(9, 3), {kind_of(kind, 3) for kind in range(16)} & ACTING
    (9, 7, set())
    """
    if not swarm:
        return kind
    while kind and ((swarm % 3 == 0 and kind in ACTING) or (kind * 7 + swarm * 5) % 11 < 3):
        kind -= 1
    return kind


def build(recipe: Recipe) -> Program:
    """Return the flat program of a recipe.

    >>> build(Recipe((), 1, (CallRecipe(0, False, False, False, False, (NodeRecipe(0, 0, 0),)),), (), 0)).main.nodes[0].stack
    (Frame(path='a', call=0),)
    """
    return _Builder(recipe).program()


@cache
def _memory(storage: int, cell: int, *, is_parameter: bool) -> torch.Tensor:
    # Programs share these: nothing ever writes to a tensor of a program.
    if is_parameter:
        return torch.nn.Parameter(_memory(storage, cell, is_parameter=False), requires_grad=False)
    return torch.tensor(1 + 2 * storage) if cell == storage else _memory(storage, storage, is_parameter=False).view(())


class _Builder:
    """What exists so far while a recipe is walked."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.slots: dict[str, Slot] = {}
        self.given: list[str] = []
        """The inputs, state and user's."""
        self.state_of: dict[str, str] = {}
        self.values: list[str] = []
        """Results that are cells, the latest last."""
        self.tuples: list[tuple[str, int]] = []
        self.nodes: list[Node] = []
        self.bodies: dict[str, Graph] = {}
        self.calls: dict[str, int] = {}
        self.left: dict[tuple[Stack, str], Frame] = {}
        self.again: set[Frame] = set()
        self.kept: dict[Frame, CallSignature] = {}
        self.sent: list[str] = []
        """What was sent and not waited for yet."""
        for index, slot in enumerate(recipe.slots):
            self._slot(index, slot)
        self.given += [f"x{index}" for index in range(recipe.inputs)]

    def program(self) -> Program:
        self._items(self.recipe.items, ())
        outputs = self._outputs()
        inputs = [StateInput(self.state_of[name]) if name in self.state_of else UserInput(SCALAR, name) for name in self.given]
        main = Graph(tuple(map(Input, self.given)), tuple(self.nodes), tuple(arg for arg, _ in outputs))
        program = Program.of(
            {"": main, **self.bodies},
            state=State(tuple(self.slots), pmap(self.slots)),
            signature=Signature(tuple(inputs), tuple(spec for _, spec in outputs)),
            modules=tuple(Module(path, "toy.Module") for path in ("", *PATHS)),
            call_signatures=pmap(self.kept),
            facts=frozenset({"flat"}),
        )
        return reordered(program, seed=self.recipe.order) if self.recipe.order else program

    def _slot(self, index: int, drawn: SlotRecipe) -> None:
        path = ("", *PATHS)[drawn.module % (len(PATHS) + 1)]
        name = join(path, f"s{index}")
        kind = SLOT_KINDS[drawn.kind]
        cell = storage = index
        is_parameter = kind is SlotKind.PARAMETER
        if drawn.sharing > 2 and self.slots:
            other = list(self.slots.values())[drawn.other % len(self.slots)]
            storage = other.storage
            if drawn.sharing == 3:
                cell, kind = other.cell, other.kind
                is_parameter = isinstance(other.value, torch.nn.Parameter)
        value = _memory(storage, cell, is_parameter=is_parameter)
        if cell != index:
            value = next(slot.value for slot in self.slots.values() if slot.cell == cell)
        self.slots[name] = Slot(kind, value, cell, storage, kind is not SlotKind.CONSTANT)
        if drawn.is_input:
            self.given.append(f"s{index}")
            self.state_of[f"s{index}"] = name

    def _items(self, items: tuple[ItemRecipe, ...], stack: Stack) -> None:
        for item in items:
            if type(item) is NodeRecipe:
                self._node(item, stack)
            elif type(item) is CallRecipe:
                self._call(item, self._entered(item, stack, 0), stack)
                if item.twice:
                    self._call(item, self._entered(item, stack, item.module % 2), stack)

    def _call(self, call: CallRecipe, stack: Stack, outside: Stack) -> None:
        frame = stack[-1] if len(stack) > len(outside) else None
        if frame is None or not call.kept or frame in self.again or frame in self.kept:
            self._items(call.items, stack)
            return
        # What a call takes is there before it, what it gives is there at its end.
        args_spec, result_spec = TREES[call.module % len(TREES)]
        self.kept[frame] = CallSignature(args_spec, result_spec)
        self._boundary(TAKES, args_spec.num_leaves, stack)
        self._items(call.items, stack)
        self._boundary(GIVES, result_spec.num_leaves, stack)

    def _boundary(self, op: Op, count: int, stack: Stack) -> None:
        leaves = tuple(Ref(self._value(3 * number)) for number in range(count - 1))
        self.nodes.append(Node(f"{op.name.split('.')[1]}{len(self.nodes)}", op, (*leaves, 2), (), stack))

    def _entered(self, call: CallRecipe, stack: Stack, shift: int) -> Stack:
        outer = "" if call.elsewhere or not stack else stack[-1].path
        below = [path for path in PATHS if is_below(path, outer)]
        if not below:
            return stack
        path = below[(call.module + shift) % len(below)]
        frame = self.left.get((stack, path)) if call.again else None
        frame = None if frame in self.kept else frame
        if frame is not None:
            self.again.add(frame)
        if frame is None:
            frame = Frame(path, self.calls.get(path, 0))
            self.calls[path] = frame.call + 1
        self.left[stack, path] = frame
        return (*stack, frame)

    def _value(self, number: int) -> str:
        # Below 6: one of the latest results; from 6 on: one of the inputs, however many results there are.  0 is the
        # latest of either, so that a value keeps its number while what is not needed is dropped.
        if number < 6 and self.values:
            return self.values[-1 - number % len(self.values)]
        return self.given[-1 - number % 6 % len(self.given)]

    def _node(self, node: NodeRecipe, stack: Stack) -> None:
        kind = kind_of(node.kind, self.recipe.swarm)
        a, b = Ref(self._value(node.first)), Ref(self._value(node.second + 2))
        tag = f"t{node.second}"
        match kind:
            case 0:
                self._add(toy.NEG, (a,), stack)
            case 1:
                self._add(toy.ADD, (a, b), stack)
            case 2:
                self._add(toy.MUL, (a, node.second + 2), stack)
            case 3:
                self._add(toy.ADD_, (a, node.second + 1), stack)
            case 4:
                self._add(toy.ADD_, (self._just_read(), 1), stack, length=0)
            case 5:
                self._add(toy.COPY_, (a, b), stack)
            case 6:
                self._add(toy.VIEW, (a,), stack)
            case 7:
                self._add(toy.CLONE, (a,), stack)
            case 8:
                self._add(toy.RAND, (a, tag, *((False,) if node.second == 7 else ())), stack)
            case 9:
                self._add(toy.EMIT, (a, tag), stack, length=0)
            case 10:
                self._add(toy.PRINT, (tag,), stack, length=0)
            case 11:
                self._add(toy.PAIR, (a, b), stack, length=2)
            case 12 if self.tuples:
                name, length = self.tuples[-1 - node.first % len(self.tuples)]
                self._add(toy.GETITEM, (Ref(name), node.second % length), stack)
            case 15:
                self._beyond(node.second, a, stack)
            case 14:
                self._add(toy.LEAVE if node.second % 3 == 2 else toy.ENTER, (), stack, length=0)
            case _:
                bodies = tuple(Body(self._body(number)) for number in (node.second, node.first))
                self._add(toy.COND, (a, *bodies, (a, b)), stack, length=1)

    def _just_read(self) -> Ref:
        # A write to what was read just now: what reads it may not move behind.
        refs = self.nodes[-1].refs() if self.nodes and not is_boundary(self.nodes[-1]) else ()
        return next((Ref(name) for name in refs if name in self.values or name in self.given), Ref(self._value(0)))

    def _beyond(self, second: int, a: Arg, stack: Stack) -> None:
        # What other processes and other libraries see.
        if second > 5:
            self._add(toy.COUNT, (a,), stack)
            return
        if second > 2 and self.sent:
            self._add(toy.WAIT, (Ref(self.sent.pop(0)),), stack)
            return
        self._add(toy.SEND, (a, toy.GROUPS[second % len(toy.GROUPS)]), stack)
        self.sent.append(self.values[-1])

    def _add(self, op: Op, args: tuple[Arg, ...], stack: Stack, *, length: int | None = None) -> None:
        name = f"{op.name.split('.')[1]}{len(self.nodes)}"
        self.nodes.append(Node(name, op, args, (), stack))
        if length is None:
            self.values.append(name)
        elif length:
            self.tuples.append((name, length))

    def _body(self, number: int) -> str:
        p, q = Ref("p"), Ref("q")
        menu: tuple[tuple[Op, tuple[Arg, ...]], ...] = (
            (toy.NEG, (p,)), (toy.ADD, (p, q)), (toy.ADD_, (p, 1)), (toy.RAND, (q, "body")), (toy.COPY_, (p, q)),
        )  # fmt: skip
        op, args = menu[number % len(menu)]
        nodes = (Node("r", op, args),)
        if number % 8 > len(menu):
            nodes = (Node("seen", toy.EMIT, (q, "body")), *nodes)
        name = f"$body_{len(self.bodies)}"
        self.bodies[name] = Graph((Input("p"), Input("q")), nodes, (Ref("r"),))
        return name

    def _outputs(self) -> list[tuple[Arg, OutputSpec]]:
        found: list[tuple[Arg, OutputSpec]] = []
        mutated: set[object] = set()
        for drawn in self.recipe.outputs:
            found.append(self._output(drawn, mutated))
        # An exporter gives new contents before what the user gets back; the order means nothing to us.
        return found

    def _output(self, drawn: OutputRecipe, mutated: set[object]) -> tuple[Arg, OutputSpec]:
        value: Arg = Ref(self._value(drawn.value))
        if drawn.kind == 6:
            return CONSTANTS[drawn.value % len(CONSTANTS)], UserOutput()
        target = self.given[drawn.target % len(self.given)]
        slot = self.state_of.get(target)
        # Two new contents of one memory would leave open which is the last.
        memory = self.slots[slot].storage if slot is not None else target
        if drawn.kind < 3 or memory in mutated:
            return value, UserOutput()
        mutated.add(memory)
        return value, InputMutation(self.given.index(target)) if slot is None else StateMutation(slot)
