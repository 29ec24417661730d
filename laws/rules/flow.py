"""``Flow``: one graph that is written node by node and run meanwhile, so that what comes next fits what is there.

It knows where its values come from: user inputs, state, or views of them.  What an operator refuses is not added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen

from ...ir.arguments import Arg, Items, Ref, replace_refs
from ...ir.graph import Get, Node
from ...ir.names import Names
from ...ir.operators import op_of
from ...ir.persistent import pmap
from ...ir.state import Slot, SlotKind, State
from ..toy import PRINT
from .contents import Operand
from .instances import run_node

__all__ = ["CONSTANT", "READING", "Flow", "Given", "step", "supplied"]

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
