"""``module_trees``: a strategy of modules that run what was drawn, with the arguments to call and to export them with.

Module calls are drawn first, the steps inside them next.  A ``Block`` runs its ``Body`` step by step, so the exporter writes the
graph while it runs; the ``repr`` of a ``ModuleTree`` builds the same module again.  Nothing here compares anything.
"""

# ruff: noqa: ARG005, PLW0108  tables of functions

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import define, evolve, field, frozen
from torch import nn
from torch.export import ExportedProgram

from ..oracles import Calls
from ..purity import seeded
from .flat import PrintedWhole

__all__ = ["Again", "Body", "Call", "ModuleTree", "Output", "Region", "Slot", "Step", "module_trees"]


# -- what is drawn ---------------------------------------------------------------------------------------------------------------


@frozen
class Step:
    """One operation: which, and numbers that choose its operands."""

    kind: int
    first: int = 0
    second: int = 0


@frozen
class Region(PrintedWhole):
    """Steps under a flag (below 6), in ``no_grad`` (below 10), or in the branches of a ``cond``."""

    kind: int
    first: int
    items: tuple[Item, ...]
    others: tuple[Step, ...] = ()


@frozen
class Again:
    """A call of something that exists: a module called before, a new instance of its class, a module of elsewhere."""

    kind: int
    module: int
    first: int = 0
    flag: int = 0


@frozen
class Call(PrintedWhole):
    """The first call of a new module: how its parent holds it, what it is given, and all that is in it."""

    holder: int
    first: int
    second: int
    flag: int
    module: Body | int
    """A number is a module of ``torch.nn``."""


@frozen
class _Run:
    """A call of a module that is there: its path below the block, or its number among the modules that the block holds."""

    at: str | int
    first: int
    second: int
    flag: int


Item = Step | Region | Again | Call | _Run


@frozen
class Slot:
    """A piece of state: its kind, and whether it is tied to, or shares memory with, an earlier one."""

    kind: int
    sharing: int = 0
    other: int = 0


@frozen
class Body(PrintedWhole):
    """What a block has and does."""

    slots: tuple[Slot, ...]
    items: tuple[Item, ...]
    result: int = 0
    extra: int = 0
    """What it takes as a second argument."""


@frozen
class Output:
    """An output of the root: its container or constant, and the numbers of the values in it."""

    kind: int
    first: int = 0
    second: int = 0


SMALL = st.integers(0, 7)

STEPS = st.builds(Step, st.integers(0, 23), SMALL, SMALL)

SIZES = (9, 6, 4, 3)
"""The largest number of items at each depth of calls."""


@cache
def _items(depth: int, *, region: bool = False) -> st.SearchStrategy[tuple[Item, ...]]:
    kinds: list[st.SearchStrategy[Item]] = [STEPS, STEPS]
    if depth < 3:
        calls = st.builds(Call, SMALL, SMALL, SMALL, SMALL, st.one_of(_bodies(depth + 1), _bodies(depth + 1), st.integers(0, 11)))
        again = st.builds(Again, st.integers(0, 5), SMALL, SMALL, SMALL)
        kinds += [calls, calls, again] if depth == 0 else [calls, again]
    if not region:
        others = st.lists(STEPS, max_size=2).map(tuple)
        kinds.append(st.builds(Region, st.integers(0, 11), SMALL, _items(min(depth + 1, 3), region=True), others))
    return st.lists(st.one_of(kinds), max_size=4 if region else SIZES[depth]).map(tuple)


@cache
def _bodies(depth: int) -> st.SearchStrategy[Body]:
    slots = st.lists(st.builds(Slot, st.integers(0, 9), st.integers(0, 5), SMALL), max_size=4 if depth else 6).map(tuple)
    return st.builds(Body, slots, _items(depth), *((SMALL, st.integers(0, 4)) if depth else (st.just(0), st.just(0))))


# -- arguments -------------------------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    """A dataclass that torch's pytrees know, as an input and as an output.

    >>> torch.utils._pytree.tree_leaves(Pair(1, None))
    [1]
    """

    left: Any
    right: Any


torch.export.register_dataclass(Pair)


@frozen
class InputKind:
    """A kind of argument of the root, after ``x``."""

    make: Callable[[Callable[..., torch.Tensor]], Any]
    reads: Callable[[Any], Sequence[torch.Tensor]] = lambda _: ()
    """The tensors of three columns in it."""
    shapes: Callable[[Any], Any] = lambda _: None
    """What ``dynamic_shapes`` has for it, given what it has for one tensor."""
    is_keyword: bool = False


KINDS = (
    InputKind(lambda fill: fill(), lambda x: [x], lambda rows: rows),
    InputKind(
        lambda fill: {"a": fill(), "none": None, "k": 2}, lambda x: [x["a"]], lambda rows: {"a": rows, "none": None, "k": None}
    ),
    InputKind(lambda fill: (fill(), [fill(), True]), lambda x: [x[0], x[1][0]], lambda rows: (rows, [rows, None])),
    # The exporter knows a dataclass by the list of its fields that are not None.
    InputKind(lambda fill: Pair(fill(), None), lambda x: [x.left], lambda rows: [rows]),
    InputKind(lambda _: 2.5),
    InputKind(lambda _: None),
    InputKind(lambda fill: fill(), lambda x: [x], lambda rows: rows, is_keyword=True),
    InputKind(
        lambda fill: {"z": fill(), "a": Pair("text", fill())},
        lambda x: [x["z"], x["a"].right],
        lambda rows: {"z": rows, "a": [None, rows]},
        is_keyword=True,
    ),
    InputKind(lambda fill: fill(3)),
)


def _named(inputs: Sequence[int]) -> list[tuple[str, InputKind]]:
    named = [(f"i{index}", KINDS[kind]) for index, kind in enumerate(inputs)]
    return sorted(named, key=lambda pair: pair[1].is_keyword)


def _arguments(inputs: Sequence[int], *, seed: int, rows: int, grads: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    source = torch.Generator().manual_seed(seed)

    def fill(*shape: int) -> torch.Tensor:
        return torch.randn(shape or (rows, 3), generator=source).requires_grad_(grads)

    named = _named(inputs)
    positional = (fill(), *[kind.make(fill) for _, kind in named if not kind.is_keyword])
    return positional, {name: kind.make(fill) for name, kind in named if kind.is_keyword}


# -- state -----------------------------------------------------------------------------------------------------------------------


@frozen
class Place:
    """A piece of state of three numbers, or of two rows of them, by its path below a block."""

    path: str
    is_buffer: bool
    rows: bool = False
    alone: bool = False
    """Whether nothing else may share its memory."""
    tied: bool = True
    """Whether it may be one tensor with another; the exporter forgets where the second name of an unsaved buffer stood."""


@frozen
class SlotKind:
    """A kind of state: how it is made, and how it may be used."""

    make: Callable[[nn.Module, str], None]
    place: Place


def _buffer(make: Callable[[], torch.Tensor], *, saved: bool = True) -> Callable[[nn.Module, str], None]:
    return lambda module, name: module.register_buffer(name, make(), persistent=saved)


SLOTS = (
    SlotKind(lambda module, name: setattr(module, name, nn.Parameter(torch.randn(3))), Place("", is_buffer=False)),
    SlotKind(_buffer(lambda: torch.randn(3)), Place("", is_buffer=True)),
    SlotKind(_buffer(lambda: torch.randn(2, 3)), Place("", is_buffer=True, rows=True)),
    SlotKind(_buffer(lambda: torch.zeros(3), saved=False), Place("", is_buffer=True, tied=False)),
    SlotKind(lambda module, name: setattr(module, name, torch.randn(3)), Place("", is_buffer=False, alone=True)),
    SlotKind(
        lambda module, name: setattr(module, name, nn.ParameterList([torch.randn(3), torch.ones(3)])),
        Place(".1", is_buffer=False, alone=True),
    ),
    SlotKind(_buffer(lambda: torch.ones(2, 3), saved=False), Place("", is_buffer=True, rows=True, tied=False)),
    SlotKind(
        lambda module, name: setattr(module, name, nn.Parameter(torch.randn(3), requires_grad=False)), Place("", is_buffer=False)
    ),
    SlotKind(
        lambda module, name: setattr(module, name, nn.ParameterDict({"a": torch.randn(3)})),
        Place(".a", is_buffer=False, alone=True),
    ),
    SlotKind(_buffer(lambda: torch.ones(3)), Place("", is_buffer=True, alone=True)),
)

BUILTINS: tuple[Callable[[], nn.Module], ...] = (
    lambda: nn.Linear(3, 3),
    lambda: nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False)),  # equal bodies of other sizes
    lambda: nn.LayerNorm(3),
    lambda: nn.BatchNorm1d(3),
    lambda: nn.Dropout(0.5),
    lambda: nn.Identity(),
    lambda: nn.Linear(3, 3, bias=False),
    lambda: nn.Embedding(4, 3),
    lambda: nn.ReLU(),
    lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    lambda: nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3), nn.ReLU()),
    lambda: nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(1), nn.Linear(6, 3)),
)
"""Modules of torch whose calls take and give three columns."""


class Holder(nn.Module):
    """Holds a module and is never called itself."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


HOLDERS: dict[int, tuple[Callable[[Callable[[], nn.Module]], nn.Module], str]] = {
    2: (lambda make: nn.ModuleList([make(), make(), make()]), ".0"),
    3: (lambda make: nn.ModuleList([nn.Identity(), make()]), ".1"),
    4: (lambda make: nn.ModuleDict({"a": make()}), ".a"),
    5: (lambda make: Holder(make()), ".inner"),
    7: (lambda make: nn.Sequential(make(), nn.Tanh()), ".0"),
}
"""How a module is held, and where it is below that; by name alone where nothing is said."""

ELSEWHERE = 6


# -- steps -----------------------------------------------------------------------------------------------------------------------

Tensor = torch.Tensor

PURE = (0, 1, 2, 3, 4, 16, 18, 20, 21)
"""Kinds that a branch of a ``cond`` may have: no writes, no random draws, no literals."""

UNARY: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda a: a.tanh(), lambda a: a.sin(), lambda a: a * 0.5, lambda a: -a, lambda a: a.sigmoid(), torch.relu,
    lambda a: a.clone(), lambda a: a + 1,
)  # fmt: skip

ALIASES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda a: a.view(-1, 3), lambda a: a[:], lambda a: a.detach(), lambda a: a.t().t(), lambda a: a.unsqueeze(0)[0],
    lambda a: a.contiguous(), lambda a: a.view_as(a), lambda a: a.to(torch.float32),
)  # fmt: skip

OF_SIZES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda a: a * a.shape[0],
    lambda a: a.reshape(a.shape[0] * 3).view(a.shape[0], 3),
    lambda a: a + a.size(0) // 2,
    lambda a: a.new_ones(a.shape) + a,
)

MIXED: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: torch.cat([a, b], 1)[:, 1:4], lambda a, b: torch.stack([a, b]).sum(0), lambda a, b: torch.where(a > b, a, b),
    lambda a, b: torch.addcmul(a, a, b, value=0.5), lambda a, b: (a @ b.t()).tanh() @ a, lambda a, b: a.softmax(1) + b,
    lambda a, b: a - b.mean(0), lambda a, b: torch.maximum(a, b).cumsum(1),
)  # fmt: skip

RANDOM: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda a: torch.rand_like(a) + a, lambda a: nn.functional.dropout(a, 0.5), lambda a: torch.randn(3) * a,
)  # fmt: skip

WRITES: tuple[Callable[[Tensor, Tensor], Any], ...] = (
    lambda a, b: a.add_(1), lambda a, b: a.mul_(b.detach()), lambda a, b: a.tanh_(), lambda a, b: a.zero_(),
    lambda a, b: a[0].add_(1), lambda a, b: a[:, 1].mul_(0.5), lambda a, b: a.t()[0].neg_(), lambda a, b: a[:, 0].copy_(b[:, 2]),
)  # fmt: skip
"""Of values; the first four of all of one, the others through a view."""

VIEWS: tuple[Callable[[Tensor, float], Any], ...] = (
    lambda b, n: b[0].add_(1), lambda b, n: b.view(-1)[1:].mul_(0.5), lambda b, n: b[..., 1].fill_(n),
    lambda b, n: b.t()[0].sub_(1),
)  # fmt: skip
"""Writes into a part of a buffer."""


def _cond(condition: Any, yes: Callable[..., Any], no: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    # Outside of an exporter `torch.cond` compiles both branches first, which takes longer than all the rest of a case.
    if torch.compiler.is_exporting():
        return torch.cond(condition, yes, no, operands)
    return yes(*operands) if bool(condition) else no(*operands)


class _Scope:
    # What exists so far in one call of a block; dynamo traces it in the branches of a `cond`.

    def __init__(self, values: list[Tensor], state: list[Any], *, test: bool = False, is_pure: bool = False) -> None:
        self.values, self.state, self.test, self.is_pure = values, state, test, is_pure
        self.vectors: list[Tensor] = []
        self.used: set[int] = set()
        # By number: whether two values are one object differs between the exporter and eager.

    def value(self, number: int) -> Tensor:
        """Return one of the latest values."""
        index = len(self.values) - 1 - number % len(self.values)
        self.used.add(index)
        return self.values[index]

    def unused(self, since: int = 0) -> list[Tensor]:
        """Return the values that nothing uses, the latest not among them."""
        return [self.values[index] for index in range(since, len(self.values) - 1) if index not in self.used]

    def replace(self, since: int, value: Tensor) -> None:
        """Forget the values from a number on, in favour of one."""
        self.values[since:] = [value]
        self.used = {index for index in self.used if index < since}


@define
class _Tree:
    """What exists so far while a tree is built."""

    writes: bool
    """Whether values may be written in place."""
    keeps_dead: bool
    """Whether what nobody uses is left as it is; otherwise most of it is returned or written to state."""
    root: Any = None
    modules: list[nn.Module] = field(factory=list)
    state: list[tuple[nn.Module, Place]] = field(factory=list)
    has_two_names: bool = False
    has_held: bool = False
    """Whether a module has two names, or is held by one that is not its parent; never both.

    The exporter knows a module with two names by the way in which it was reached; one that is reached through a list it does not
    know.
    """
    views: set[tuple[int, int]] = field(factory=set)
    is_again: bool = False
    """Whether a second instance is being built, in which there are no others."""


class Block(nn.Module):
    """Runs a body: its steps, regions and calls, one after the other.

    Args:
        body: what was drawn.
        tree: what exists already.

    >>> Block(Body((), (Step(0),)), _Tree(writes=True, keeps_dead=False))(torch.zeros(1, 3))
    tensor([[0., 0., 0.]])
    """

    def __init__(self, body: Body, tree: _Tree) -> None:
        super().__init__()
        self.is_root = tree.root is None
        tree.root = tree.root or self
        self.body, self.writes, self.keeps_dead = body, tree.writes, tree.keeps_dead
        self.places: list[Place] = []
        self.reached: list[str | int] = []
        self.held: list[nn.Module] = []
        self.count = 0
        for drawn in body.slots:
            self._slot(drawn, tree)
        self.items = self._built(body.items, tree)

    def forward(self, x: Tensor, y: Any = None, flag: bool = False, mode: str = "plain") -> Any:  # noqa: FBT001, FBT002
        """Run the body; what it takes and gives was drawn."""
        scope = _Scope([x], list(self.places), test=flag or mode == "other")
        if y is not None:
            scope.values.append(x * y if isinstance(y, float) else x + (y["t"] * y["k"] if isinstance(y, dict) else y))
        self.run(scope, self.items)
        return self._given(scope, x)

    # -- building

    def _slot(self, drawn: Slot, tree: _Tree) -> None:
        kind, name = SLOTS[drawn.kind], self._name("s")
        kind.make(self, name)
        place = evolve(kind.place, path=name + kind.place.path)
        if drawn.sharing == 5:
            return  # nobody uses it
        self.places.append(place)
        if place.alone:
            return
        start = drawn.other % (len(tree.state) or 1)
        for owner, other in tree.state[start:] if drawn.sharing > 2 else ():
            if (shared := _shared(place, owner, other, drawn, tree)) is not None:
                setattr(self, name, shared)
                break
        tree.state.append((self, place))

    def _name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count - 1}"

    def _built(self, items: Sequence[Item], tree: _Tree) -> tuple[Item, ...]:
        found: list[Item] = []
        for item in items:
            match item:
                case Call():
                    found += self._new(item, tree)
                case Again():
                    found += self._again(item, tree)
                case Region(kind=kind):
                    within = self._built(item.items, tree)
                    alone = [run for run in within if isinstance(run, _Run)][:1] if 7 < kind < 10 else []
                    # A teacher and a student: nothing but a call stands in the region, and the module is called again outside.
                    found += [evolve(item, items=tuple(alone)), *alone] if alone else [evolve(item, items=within)]
                case _:
                    found.append(item)
        return tuple(found)

    def _new(self, call: Call, tree: _Tree) -> list[Item]:
        def make() -> nn.Module:
            module = BUILTINS[call.module]() if isinstance(call.module, int) else Block(call.module, tree)
            tree.modules.append(module)
            return module

        if call.holder == ELSEWHERE and not tree.has_two_names:
            # A child of the root, which only this block calls, through a list that no parent knows of.
            tree.has_held, name = True, tree.root._name("n")
            tree.root.add_module(name, made := make())
            return [_Run(self._hold(made), call.first, call.second, call.flag)]
        holder, key = HOLDERS.get(call.holder, (lambda make: make(), ""))
        name = self._name("m")
        self.add_module(name, holder(make))
        self._reach(name + key)
        others = (f"{name}.1", f"{name}.2") if call.holder == 2 else ()
        first = name if call.holder == 7 and _is_simple(call.module) else name + key
        return [_Run(at, call.first, call.second, call.flag) for at in (first, *others)]

    def _hold(self, module: nn.Module) -> int:
        self.held.append(module)
        self.reached.append(len(self.held) - 1)
        return len(self.held) - 1

    def _reach(self, at: str) -> None:
        module = self.get_submodule(at)
        if isinstance(module, Block):
            self.places += [evolve(place, path=f"{at}.{place.path}") for place in module.places]
            self.reached += [f"{at}.{inner}" for inner in module.reached if isinstance(inner, str)]
        else:
            buffers = {name for name, _ in module.named_buffers()}
            state = [*module.named_parameters(), *module.named_buffers()]
            self.places += [Place(f"{at}.{name}", name in buffers) for name, value in state if value.shape == (3,)]
        self.reached.append(at)

    def _again(self, again: Again, tree: _Tree) -> list[Item]:
        bodies = [module for module in tree.modules if isinstance(module, Block)]
        mine = set(self.modules())
        others = [module for module in tree.modules if module not in mine]
        named = [at for at in self.reached if isinstance(at, str) and "." not in at]
        at: str | int | None = self.reached[-1 - again.module % len(self.reached)] if self.reached else None
        if again.kind == 2 and bodies and not tree.is_again:
            tree.is_again, at = True, self._name("m")
            self.add_module(at, made := Block(bodies[again.module % len(bodies)].body, tree))
            tree.is_again = False
            tree.modules.append(made)
            self._reach(at)
        elif again.kind == 3 and others and not tree.has_two_names:
            tree.has_held, at = True, self._hold(others[again.module % len(others)])
        elif again.kind == 4 and named and not tree.has_held:
            tree.has_two_names, at, known = True, self._name("m"), named[again.module % len(named)]
            self.add_module(at, self.get_submodule(known))
            self._reach(at)
        return [] if at is None else [_Run(at, again.first, again.module, again.flag)]

    # -- running

    def run(self, scope: _Scope, items: Sequence[Item]) -> None:
        """Do what items say; new values are kept in the scope."""
        for item in items:
            match item:
                case Step():
                    self._step(scope, item)
                case Region():
                    self._region(scope, item)
                case _Run():
                    self._call(scope, item)
                case _:
                    raise AssertionError(item)

    def _tensor(self, place: Tensor | Place) -> Tensor:
        return attrgetter(place.path)(self) if isinstance(place, Place) else place

    def _state(self, scope: _Scope, number: int, *, buffer: bool = False) -> tuple[Tensor, Tensor] | None:
        # A piece of state, and three numbers in it.
        found = [one for one in scope.state if not buffer or not isinstance(one, Place) or one.is_buffer]
        found += [] if buffer else scope.vectors
        if not found:
            return None
        whole = self._tensor(found[-1 - number % len(found)])
        return whole, whole if whole.dim() == 1 else whole[number % 2]

    def _step(self, scope: _Scope, step: Step) -> None:
        kind = step.kind if not scope.is_pure or step.kind in PURE else step.kind % 2
        first, second = step.first, step.second
        if kind in (5, 6, 7, 8, 9, 10, 17, 22, 23) and (found := self._state(scope, second, buffer=True)) is not None:
            self._write(scope, kind, step, *found)
            return
        if kind in (13, 14) and self.writes:
            a = scope.values[-1 - first % len(scope.values)]
            WRITES[second % 4 + 4 * (kind - 13)](a, scope.value(second))
            return
        a = scope.value(first)
        match kind:
            case 0 | 18:
                made = UNARY[second](a)
            case 2:
                made = (UNARY if scope.is_pure else ALIASES)[second](a)
            case 3 | 4 | 20 | 21:
                found = self._state(scope, second)
                made = a.abs() if found is None else a * found[1] if first % 2 else a + found[1]
            case 11:
                made = a + torch.tensor([1.0, float(second), -0.5])
            case 12:
                made = RANDOM[second % 3](a)
            case 15:
                made = OF_SIZES[second % 4](a)
            case 16 | 19:
                made = MIXED[second](a, scope.value(second + 1))
            case _:
                b = scope.value(second + 1)
                made = (a + b, a - b, a * b)[second % 3]
        scope.values.append(made)

    def _write(self, scope: _Scope, kind: int, step: Step, whole: Tensor, vector: Tensor) -> None:
        match kind:
            case 5:
                whole.add_(1)
            case 6:
                whole.mul_(0.5)
            case 7 | 23:
                VIEWS[step.first % 4](whole, float(step.second))
            case 8:
                other = self._state(scope, step.first + step.second + 1, buffer=True) or (whole, vector)
                torch.add(other[1], 1, out=vector)
            case 10 if (place := self._own_alone()) is not None:
                # The exporter loses what a parent assigns: `self.m0.b0 = ...` leaves no trace in the exported program.
                setattr(self, place.path, self._tensor(place) * 0.5 + 1)
            case 17 | 22:
                whole.add_(1)
                whole.mul_(0.5)
            case _:
                vector.copy_(scope.value(step.first).detach().mean(0))

    def _own_alone(self) -> Place | None:
        return next((one for one in self.places if one.is_buffer and one.alone and "." not in one.path), None)

    def _region(self, scope: _Scope, region: Region) -> None:
        start = len(scope.values)
        if scope.is_pure or region.kind < 6:
            scope.values.append(kept := scope.value(region.first))
            if scope.test if not self.is_root else self.training:
                self.run(scope, region.items)
                self._step(scope, Step(0, 0, region.first))
                kept = self._last(scope, start + 1)
            scope.replace(start, kept)
        elif region.kind < 10:
            is_alone = len(region.items) == 1 and isinstance(region.items[0], _Run) and region.kind > 7
            with torch.no_grad():
                self.run(scope, region.items)
                if not is_alone:
                    self._step(scope, Step(0, region.first, region.first))
        else:
            given = scope.value(region.first)
            linear = [at for at in self.reached if type(self._module(at)) is nn.Linear][-1:] if region.first % 2 else []
            steps = tuple([item for item in region.items if isinstance(item, Step)])

            def branch(drawn: tuple[Item, ...]) -> Callable[[Tensor], Tensor]:
                items = (*drawn, Step(0, 0, region.first % 4))  # dynamo traces what is inside, and makes no frozen values

                def inside(a: Tensor) -> Tensor:
                    within = _Scope([self._module(linear[0])(a) if linear else a], list(self.places), is_pure=True)
                    self.run(within, items)
                    return self._last(within)

                return inside

            scope.values.append(_cond(given.sum() > 0, branch(steps), branch(region.others), (given,)))

    def _module(self, at: str | int) -> nn.Module:
        return self.held[at] if isinstance(at, int) else self.get_submodule(at)

    def _call(self, scope: _Scope, run: _Run) -> None:
        module, x = self._module(run.at), scope.value(run.first)
        args: list[Any] = [(x[:, 0] > 0).long() if isinstance(module, nn.Embedding) else x]
        kwargs: dict[str, Any] = {}
        if isinstance(module, Block):
            extra = module.body.extra
            if extra > 1 and (extra == 3 or run.second % 3):
                other = 2.0 if extra == 4 else scope.value(run.second)
                y = {"t": other, "none": None, "k": 2} if extra == 3 else other
                kwargs, args = ({"y": y}, args) if run.flag & 4 else ({}, [*args, y])
            kwargs |= {"flag": True} if run.flag & 1 else {}
            kwargs |= {"mode": "other"} if run.flag & 2 else {}
        result = module(*args, **kwargs)
        for each in result if isinstance(result, tuple) else [result["a"]] if isinstance(result, dict) else [result]:
            if isinstance(each, Tensor):
                (scope.values if each.dim() == 2 else scope.state).append(each)

    def _last(self, scope: _Scope, since: int = 0) -> Tensor:
        # The latest value, with what would have been computed for nothing added to it.
        found = scope.values[-1]
        for each in () if self.keeps_dead else scope.unused(since):
            found = found + each
        return found

    def _given(self, scope: _Scope, x: Tensor) -> Any:
        wanted = ("value", "value", "value", "pair", "dict", "none", "buffer", "input")[self.body.result]
        buffer = self._state(scope, 0, buffer=True)
        if wanted in ("none", "buffer", "input") and (buffer is None or buffer[0].dim() == 2):
            wanted = "value"
        last, older = self._last(scope), scope.values[len(scope.values) // 2]
        if wanted in ("none", "buffer", "input") and buffer is not None:
            if not self.keeps_dead and scope.unused():
                buffer[0].copy_(last.detach().mean(0))
            return {"none": None, "buffer": buffer[0], "input": x}[wanted]
        return {"value": last, "pair": (last, older), "dict": {"a": last, "none": None, "k": 1.5}}[wanted]


def _shared(place: Place, owner: nn.Module, other: Place, drawn: Slot, tree: _Tree) -> Any:
    # The tensor of an earlier piece of state, or a view of it.
    if place.is_buffer != other.is_buffer:
        return None
    value = attrgetter(other.path)(owner)
    if other.rows == place.rows and place.tied and other.tied and (drawn.sharing == 3 or not place.is_buffer):
        return value
    # Two views of one window are one tensor to the exporter's files.
    window = (id(value), drawn.other % 2)
    if not place.is_buffer or place.rows or not other.rows or window in tree.views:
        return None
    tree.views.add(window)
    return value[drawn.other % 2]


def _is_simple(module: Body | int) -> bool:
    # Whether a call takes one value and gives one.
    return module != 7 if isinstance(module, int) else module.result in (0, 1, 2, 7) and module.extra < 2


class Root(Block):
    """A block that takes and returns what was drawn for the root."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe.root, _Tree(writes=not recipe.grads, keeps_dead=recipe.sizes == 2))
        self.recipe = recipe

    def whole(self, x: Tensor, inputs: dict[str, Any]) -> Any:
        """Run the body on the arguments by name, and return the outputs."""
        named = _named(self.recipe.inputs)
        reads = [read for name, kind in named for read in kind.reads(inputs[name])]
        vectors = [value for value in inputs.values() if isinstance(value, Tensor) and value.dim() == 1]
        scope = _Scope([*reversed(reads), x], [*self.places])
        scope.vectors = vectors
        self.run(scope, self.items)
        results = [self._output(scope, drawn, x) for drawn in self.recipe.outputs] or [scope.values[-1]]
        lost = [] if self.keeps_dead else scope.unused(len(reads) + 1)
        lost += [scope.value(0)] if self.recipe.outputs and not self.keeps_dead else []
        results += [sum(lost[1:], lost[0])] if lost else []
        return results[0] if len(results) == 1 else tuple(results)

    def _output(self, scope: _Scope, drawn: Output, x: Tensor) -> Any:
        match drawn.kind:
            case 3:
                return {"a": scope.value(drawn.first), "none": None, "b": [scope.value(drawn.second), 2]}
            case 4:
                return Pair(scope.value(drawn.first), {"k": scope.value(drawn.second)})
            case 5:
                return (1.5, None, "text", True)[drawn.first % 4]
            case 6:
                return x
            case 7 | 8 if (found := self._state(scope, drawn.first)) is not None:
                return found[0]
            case 9:
                return (scope.value(drawn.first), (scope.value(drawn.second),))
            case _:
                return scope.value(drawn.first)


# -- trees -----------------------------------------------------------------------------------------------------------------------


@frozen
class Recipe(PrintedWhole):
    """All that is drawn for a module tree."""

    root: Body
    inputs: tuple[int, ...] = ()
    """Kinds of further arguments, after ``x``."""
    outputs: tuple[Output, ...] = ()
    sizes: int = 0
    """0 to 2: static; 3: the first dimension is dynamic.  2: what nobody uses is left as it is; in the others most of it is
    returned or written."""
    mode: int = 0
    """0: all in training; 1: all in evaluation; 2: only the root's children are in evaluation."""
    grads: bool = False
    """Whether inputs want gradients; then no value is written in place."""


ROWS = (3, 5, 2)
"""The sizes of the first dimension in three calls, when it is dynamic."""

QUIET = (
    (".*LeafSpec", FutureWarning),  # torch copies its own specs
    ("The .grad attribute of a Tensor that is not a leaf", UserWarning),
)


@cache
def _root(inputs: tuple[int, ...]) -> type[Root]:
    # The exporter reads the parameters of `forward`.
    named = _named(inputs)
    names = [name for name, kind in named if not kind.is_keyword]
    keywords = [name for name, kind in named if kind.is_keyword]
    head = ", ".join(["self", "x", *names, *(["*", *keywords] if keywords else [])])
    given = ", ".join([f"{name!r}: {name}" for name in (*names, *keywords)])
    found: dict[str, Any] = {}
    exec(f"def forward({head}):\n    return self.whole(x, {{{given}}})", found)  # noqa: S102  our own text, from fixed parts
    return type("Root", (Root,), {"forward": found["forward"], "__module__": __name__})


@frozen
class ModuleTree(PrintedWhole):
    """A generated module, with the arguments of three calls in a row.

    >>> tree = ModuleTree(Recipe(Body((), (Call(0, 0, 0, 0, 8), Step(7)))))
    >>> [name for name, _ in tree.build().named_modules()], len(tree.calls), tree.dynamic_shapes
    (['', 'm0'], 3, None)
    """

    recipe: Recipe
    preserve: tuple[str, ...] = ()
    """Paths of modules whose call signatures the exporter should preserve."""

    @property
    def calls(self) -> Calls:
        """Return the arguments of three calls, new ones each time it is asked."""
        rows = ROWS if self.recipe.sizes == 3 else (3, 3, 3)
        return [_arguments(self.recipe.inputs, seed=seed, rows=n, grads=self.recipe.grads) for seed, n in enumerate(rows)]

    @property
    def dynamic_shapes(self) -> dict[str, Any] | None:
        """Return what the exporter is told; None when all is static."""
        if self.recipe.sizes != 3:
            return None
        rows = {0: torch.export.Dim("n", min=2, max=16)}
        return {"x": rows, **{name: kind.shapes(rows) for name, kind in _named(self.recipe.inputs)}}

    @property
    def is_random(self) -> bool:
        """Whether random numbers may be drawn; ``run_decompositions`` drops draws that nothing uses, eager does not."""
        return re.search(r"Step\(kind=12,|module=4\)", repr(self.recipe)) is not None

    def build(self) -> nn.Module:
        """Return a new module; all that are built have the same numbers and share nothing."""
        with seeded(0):
            root = _root(self.recipe.inputs)(self.recipe)
        if self.recipe.mode:
            for child in root.children() if self.recipe.mode == 2 else [root]:
                child.eval()
        return root

    def export(self, *, decomposed: bool = False) -> ExportedProgram:
        """Return what the exporter makes of a new module and the first call.

        Args:
            decomposed: in the form that ``run_decompositions({})`` gives: functional.

        Raises:
            Exception: whatever the exporter refuses it with.
        """
        args, kwargs = self.calls[0]
        with warnings.catch_warnings():
            for message, category in QUIET:
                warnings.filterwarnings("ignore", message=message, category=category)
            ep = torch.export.export(
                self.build(), args, kwargs, dynamic_shapes=self.dynamic_shapes, strict=False,
                preserve_module_call_signature=self.preserve,
            )  # fmt: skip
            return ep.run_decompositions({}) if decomposed else ep


def module_trees(*, preserve: bool = False) -> st.SearchStrategy[ModuleTree]:
    """Return a strategy of module trees, which shrink by dropping module calls.

    Args:
        preserve: also draw modules whose call signatures the exporter should preserve.

    >>> from hypothesis import find
    >>> find(module_trees(), lambda tree: bool(tree.recipe.root.items)).recipe.root
    Body(slots=(), items=(Step(kind=0, first=0, second=0),), result=0, extra=0)
    """
    outputs = st.lists(st.builds(Output, st.integers(0, 9), SMALL, SMALL), max_size=3).map(tuple)
    inputs = st.lists(st.integers(0, 8), max_size=3).map(tuple)
    recipes = st.builds(Recipe, _bodies(0), inputs, outputs, st.integers(0, 3), st.integers(0, 2), st.booleans())
    trees = recipes.map(ModuleTree)
    return st.builds(_preserving, trees, st.lists(st.integers(0, 7), min_size=1, max_size=2)) if preserve else trees


def _preserving(tree: ModuleTree, numbers: list[int]) -> ModuleTree:
    names = [name for name, _ in tree.build().named_modules() if name]
    return evolve(tree, preserve=tuple(dict.fromkeys(names[number % len(names)] for number in numbers if names)))
