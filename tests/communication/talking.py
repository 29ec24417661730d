"""``talking_programs``: programs that talk to other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from operator import getitem
from typing import Any

import torch
import torch.fx
from hypothesis import strategies as st
from torch.fx.node import map_arg

from purefx.ir.effects.schema import FUNCTIONAL, RAW
from purefx.ir.importing import import_fx
from purefx.ir.program import Program
from purefx.ir.torch_private import FakeTensorMode, resolve_operator

GROUP_NAMES = ("0", "1", "2")
"""The groups of generated programs; all of them have the same two processes."""

SIZE = 2
"""How many processes a group has."""

LENGTH = 4
"""Of the inputs.  What is gathered is longer, what is scattered shorter."""

REDUCTIONS = ("sum", "sum", "max")


def talk(name: str) -> Any:
    """Return one of torch's functional collectives."""
    import_module("torch.distributed._functional_collectives")  # registers the operators
    return resolve_operator("_c10d_functional", name, "default")


def operators() -> list[Any]:
    """Return all overloads of the namespaces that talk, those that torch registers late too."""
    for name in (
        "_functional_collectives",
        "_symmetric_memory",
        "tensor.experimental._context_parallel._cp_custom_ops",
    ):
        import_module(f"torch.distributed.{name}")
    names = [
        name.replace("::", ".").split(".") for name in sorted(torch._C._dispatch_get_all_op_names())
    ]
    found = [
        resolve_operator(space, name, (*rest, "default")[0])
        for space, name, *rest in names
        if space in FUNCTIONAL | RAW
    ]
    return [each for each in found if each is not None]


@st.composite
def talking_programs(draw: st.DrawFn, *, rank: int | None = None, steps: int = 18) -> Any:
    """Return programs that talk; without a rank a function that gives the program of each."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=4, max_size=steps))
    numbers = [draw(st.lists(st.integers(0, 1 << 10), min_size=5, max_size=5)) for _ in kinds]

    def program(of: int) -> Program:
        build = _Build(of)
        for kind, those in zip(kinds, numbers, strict=True):
            getattr(build, kind)(those)
        return build.program()

    return program if rank is None else program(rank)


COLLECTIVES = (
    "all_reduce",
    "all_reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "all_reduce_",
    "coalesced",
)
KINDS = (
    *COLLECTIVES, *COLLECTIVES, "burst", "burst", "burst", "exchange",
    "compute", "compute", "compute", "look", "write", "write", *["wait"] * 6,
)  # fmt: skip


class _Build:
    """A program as it grows."""

    def __init__(self, rank: int) -> None:
        self.aten: Any = torch.ops.aten
        self.peer = SIZE - 1 - rank
        self.graph = torch.fx.Graph()
        self.fake = FakeTensorMode()
        self.ready: list[Any] = []
        """What can be read."""
        self.sent: list[Any] = []
        """What is under way."""
        for name in ("x", "y", "z"):
            node = self.graph.placeholder(name)
            with self.fake:
                node.meta["val"] = torch.empty(LENGTH)
            self.ready.append(node)

    def call(self, target: Callable[..., Any], *args: Any) -> Any:
        """Add a node, with what it gives on fake tensors."""
        node = self.graph.call_function(target, args)
        with self.fake:
            node.meta["val"] = target(*map_arg(args, lambda one: one.meta["val"]))
        return node

    def value(self, number: int, *, least: int = 1, most: int = 8) -> Any:
        """Return something that can be read, of a length between two; the newest ones are drawn more often."""
        fit = [one for one in self.ready if least <= one.meta["val"].shape[0] <= most]
        return fit[-1 - (number * number // 7) % len(fit)]

    def compute(self, numbers: Sequence[int]) -> None:
        """Add two values of one length, or scale one."""
        a = self.value(numbers[0])
        length = a.meta["val"].shape[0]
        b = self.value(numbers[1], least=length, most=length)
        self.ready.append(
            self.call(self.aten.add.Tensor, a, b)
            if numbers[2] % 2
            else self.call(self.aten.mul.Tensor, a, b)
        )

    def look(self, numbers: Sequence[int]) -> None:
        """View a part of something, which may be under way."""
        if self.sent and numbers[0] % 2:
            under_way = self.sent[numbers[1] % len(self.sent)]
            under_way.meta["seen"] = [
                *under_way.meta.get("seen", ()),
                self._part_of(under_way, numbers[2]),
            ]
        else:
            self.ready.append(self._part_of(self.value(numbers[1], least=2), numbers[2]))

    def _part_of(self, value: Any, number: int) -> Any:
        # The beginning, or every second one.
        length = value.meta["val"].shape[0]
        return self.call(
            self.aten.slice.Tensor,
            value,
            0,
            0,
            *((length, 2) if number % 3 == 0 else (1 + length // 2, 1)),
        )

    def write(self, numbers: Sequence[int]) -> None:
        """Write into something."""
        a = self.value(numbers[0])
        if numbers[1] % 2:
            self.call(self.aten.mul_.Tensor, a, 0.5)
        else:
            self.call(self.aten.add_.Tensor, a, 1 + numbers[2] % 3)

    def wait(self, numbers: Sequence[int]) -> None:
        """Wait for something that is under way; what it is can be read then, also through views of before."""
        if self.sent:
            under_way = self.sent.pop(numbers[0] % len(self.sent))
            there = self.call(talk("wait_tensor"), under_way)
            self.ready += [
                under_way if numbers[1] % 4 == 0 else there,
                *under_way.meta.get("seen", ()),
            ]

    def _group(self, number: int) -> str:
        return GROUP_NAMES[
            max(0, number % (2 * len(GROUP_NAMES)) - len(GROUP_NAMES))
        ]  # more often the first

    def all_reduce(self, numbers: Sequence[int]) -> None:
        """Reduce something."""
        reduction = REDUCTIONS[numbers[1] % len(REDUCTIONS)]
        self.sent.append(
            self.call(
                talk("all_reduce"), self.value(numbers[0]), reduction, self._group(numbers[2])
            )
        )

    def all_gather(self, numbers: Sequence[int]) -> None:
        """Gather something that is not long."""
        # A copy, as what is scattered: a write to what is still being read would have no one meaning.
        value = self.call(self.aten.clone.default, self.value(numbers[0], most=LENGTH))
        self.sent.append(
            self.call(talk("all_gather_into_tensor"), value, SIZE, self._group(numbers[2]))
        )

    def reduce_scatter(self, numbers: Sequence[int]) -> None:
        """Reduce something and give each process a part."""
        value = self.call(
            self.aten.clone.default, self.value(numbers[0], least=LENGTH, most=LENGTH)
        )
        self.sent.append(
            self.call(talk("reduce_scatter_tensor"), value, "sum", SIZE, self._group(numbers[2]))
        )

    def broadcast(self, numbers: Sequence[int]) -> None:
        """Give everyone what one process has."""
        value = self.value(numbers[0])
        self.sent.append(
            self.call(talk("broadcast"), value, numbers[1] % SIZE, self._group(numbers[2]))
        )

    def all_reduce_(self, numbers: Sequence[int]) -> None:
        """Reduce in place; what is waited for is the buffer, or what the operator gives."""
        buffer = self.call(self.aten.clone.default, self.value(numbers[0]))
        given = self.call(talk("all_reduce_"), buffer, "sum", self._group(numbers[2]))
        self.sent.append(buffer if numbers[3] % 2 else given)

    def coalesced(self, numbers: Sequence[int]) -> None:
        """Reduce two things at once."""
        values = [self.value(numbers[0]), self.value(numbers[1])]
        given = self.call(talk("all_reduce_coalesced"), values, "sum", self._group(numbers[2]))
        whole = numbers[3] % 2 and talk("wait_tensors")  # since torch 2.15
        there = self.call(whole, given) if whole else given
        for number in range(len(values)):
            item = self.graph.call_function(getitem, (there if numbers[4] % 2 else given, number))
            item.meta["val"] = given.meta["val"][number]
            (self.ready if whole else self.sent).append(item)

    def burst(self, numbers: Sequence[int]) -> None:
        """Say several things of one kind to one group, as one does with gradients; some are waited for at once."""
        kind = (self.all_reduce, self.all_reduce, self.all_gather, self.reduce_scatter)[
            numbers[0] % 4
        ]
        for number in range(2 + numbers[1] % 3):
            if number % 2:
                self.compute((numbers[2] + number, numbers[3], number))
            kind((numbers[4] + 3 * number, numbers[1], numbers[2]))
            if numbers[3] % 2:
                self.wait((len(self.sent) - 1, 1))

    def exchange(self, numbers: Sequence[int]) -> None:
        """Send something to the other process, and receive what it sends."""
        value, group = self.value(numbers[0]), self._group(numbers[2])
        length, tag = value.meta["val"].shape[0], 0
        room = self.call(self.aten.zeros.default, [length])
        gone = self.call(talk("isend"), value, self.peer, tag, group)
        comes = self.call(talk("irecv"), room, self.peer, tag, group)
        self.call(talk("wait_tensor"), gone)
        self.sent.append(room if numbers[3] % 2 else comes)

    def program(self) -> Program:
        """Return the program: all that is under way is waited for, and what can be read is returned."""
        while self.sent:
            self.wait((0, 1))
        self.graph.output(tuple(self.ready))
        for node in self.graph.nodes:
            node.meta.pop("seen", None)
        return import_fx(torch.fx.GraphModule({}, self.graph))
