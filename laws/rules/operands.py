"""Draw operands for the variables of a rule by running its operators on small tensors.

The operators of a pattern run in order. A variable is drawn at the first operator that uses it, and drawn again if the operator
raises. The contents of an ``Operand`` depend only on its dtype, sizes and the call number; the last call has infinities, NaN
and the limits of integers.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import evolve, frozen
from torch import fx

from ...ir.torch_private import schema_of
from ...transforms.rules.pattern import Part, Pattern, inner, operator_of, role
from ..purity import seeded

__all__ = ["CALLS", "Assignment", "Operand", "Way", "assignments", "leaves_of", "only_finite", "quiet", "ways_of", "with_leaves"]

CALLS = 3
"""The number of consecutive calls of each program, each with different contents."""

ORDINARY = (1.0, -2.0, 0.0, 0.5, -1.0, 3.0, -0.25, 2.0, -3.0)
SPECIAL = (float("inf"), -0.0, -1.0, float("nan"), 4096.0, float("-inf"), 0.5, 0.0, -2.0)
FRACTIONS = tuple([round(3 * number / 7 + 0.1, 4) for number in range(-7, 8, 2)])
WHOLE = (1, -2, 0, 3, -1, 2, 5, -7)
FEW = (0, 1, 1, 0, 0, 1, 0)
"""Valid indices of any dimension of size 2."""
BETWEEN = (0.5, 0.25, 1.0, 0.0, 0.75)
"""Valid probabilities."""


@frozen(eq=False)
class Operand:
    """A tensor argument of a program, or a literal.

    >>> Operand(torch.zeros(2)), Operand(-1), Operand(torch.zeros(1, dtype=torch.int64), "few").at(0)
    (float32[2], -1, tensor([0]))
    """

    value: Any
    style: str = "signed"
    """The contents of a tensor: ``"signed"``, ``"few"``, ``"between"``; ``"given"`` rolls its contents between calls,
    ``"held"`` keeps them."""
    finite: bool = False
    """Whether to leave out infinities and NaN."""

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self.value, torch.Tensor)

    @property
    def is_finite(self) -> bool:
        """Whether the contents must be finite in all calls; contents that the user passed may be infinite."""
        is_own = self.style in ("given", "held") and self.is_tensor
        return self.finite and not (is_own and not bool(self.value.isfinite().all()))

    def at(self, call: int, index: int = 0) -> torch.Tensor:
        """Return the tensor for a call.

        Args:
            call: the number of the call; the last one has special numbers.
            index: of the operand, so that operands differ.
        """
        like = self.value
        if self.style == "held":
            return like.clone()
        if self.style == "given":
            return like.reshape(-1).roll(call).reshape(like.shape).clone()
        numbers, start = self._numbers(is_last=call == CALLS - 1, call=call), 2 * index + 3 * call
        found: list[Any] = [numbers[(start + number) % len(numbers)] for number in range(like.numel())]
        if like.dtype.is_complex:
            found = [complex(one, other) for one, other in zip(found, reversed(found), strict=True)]
        if not like.dtype.is_signed and like.dtype is not torch.bool:
            found = [abs(number) for number in found]
        return torch.tensor(found, dtype=like.dtype).reshape(like.shape)

    def _numbers(self, *, is_last: bool, call: int) -> Sequence[float]:
        dtype, is_unusual = self.value.dtype, is_last and not self.finite
        if dtype.is_floating_point or dtype.is_complex:
            return BETWEEN if self.style == "between" else FRACTIONS if call == 1 else SPECIAL if is_unusual else ORDINARY
        if self.style == "few" or dtype is torch.bool:
            return FEW
        return (*WHOLE, torch.iinfo(dtype).min, torch.iinfo(dtype).max) if is_unusual else WHOLE

    def grown(self, size: int, by: int) -> Operand:
        """Return the operand with each dimension of one size enlarged.

        >>> Operand(torch.zeros(2, 3)).grown(3, 1)
        float32[2, 4]
        """
        return evolve(self, value=self.value.new_empty([one + by if one == size else one for one in self.value.shape]))

    def __repr__(self) -> str:
        if not self.is_tensor:
            return repr(self.value)
        return f"{str(self.value.dtype).removeprefix('torch.')}{list(self.value.shape)}"


Assignment = list[Any]
"""The operand of each variable, in order; a list of operands if the variable is a list."""


def leaves_of(operands: Assignment) -> Iterator[Operand]:
    """Iterate over the tensors among the operands.

    >>> list(leaves_of([Operand(1), [Operand(torch.zeros(2))]]))
    [float32[2]]
    """
    for each in operands:
        yield from [one for one in (each if isinstance(each, list) else [each]) if one.is_tensor]


def _mapped(operands: Assignment, function: Callable[[Operand], Any]) -> list[Any]:
    return [[function(one) for one in each] if isinstance(each, list) else function(each) for each in operands]


def with_leaves(operands: Assignment, tensors: Sequence[Any]) -> list[Any]:
    """Return the arguments of a pattern: tensors in the places of the leaves, and the literals.

    >>> with_leaves([Operand(1), [Operand(torch.zeros(2))]], ["here"])
    [1, ['here']]
    """
    rest = iter(tensors)
    return _mapped(operands, lambda one: next(rest) if one.is_tensor else one.value)


def only_finite(operands: Assignment) -> Assignment:
    """Return the operands without infinities and NaN.

    >>> bool(only_finite([Operand(torch.zeros(9))])[0].at(CALLS - 1).isfinite().all())
    True
    """
    return _mapped(operands, lambda one: evolve(one, finite=True))


aten: Any = torch.ops.aten

STEPS: Mapping[str, Callable[[Any], Any]] = {
    "turned": lambda x: aten.transpose.int(x, 0, -1) if x.dim() else aten.unsqueeze.default(x, 0),
    "flat": lambda x: aten.reshape.default(x, [-1]),
    "row": lambda x: aten.unsqueeze.default(x, 0),
    "copied": aten.clone.default,
    "double": lambda x: aten.to.dtype(x, torch.float64),
    "single": lambda x: aten.to.dtype(x, torch.float32),
}

VIEWS = ("", "turned", "flat", "row", "turned flat", "row turned", "turned copied", "turned row flat", "flat row turned")

CASTS = ("", "double", "single", "double single", "single double single")

BOTH = ("", "turned", "double", "turned double", "double flat", "row single", "turned double row", "flat double single")


@frozen(eq=False)
class Way:
    """A pattern with one alternative chosen for each ``any_of``, and a chain of views and casts for each ``through``.

    >>> way = Way(Pattern.of(lambda x: torch.relu(x + 1)))
    >>> way(torch.ones(2)), len(way.operators)
    (tensor([2., 2.]), 2)
    """

    pattern: Pattern
    chosen: Mapping[Any, Any] = {}
    """The number of the alternative of each part; the steps of each chain."""

    def __call__(self, *values: Any) -> Any:
        """Run the pattern."""
        known = self.named(dict(zip(self.pattern.variables, values, strict=True)))
        for part in self.operators:
            known[part] = self.run(part, known)
        found = tuple([self.value(part, known) for part in self.pattern.results])
        return found if self.pattern.is_tuple else found[0]

    def named(self, values: Mapping[str, Any]) -> dict[Any, Any]:
        """Return the values of variables and tensors by their nodes."""
        tensors = {node: node.meta["tensor"] for node in self.pattern.graph.nodes if node.op == "get_attr"}
        return tensors | {node: values[node.target] for node in self.pattern.graph.nodes if node.target in values}

    @property
    def operators(self) -> list[fx.Node]:
        """The operators of the chosen alternatives, in order."""
        todo, found = [self.settled(part) for part in self.pattern.results], set[Any]()
        while todo:
            part = todo.pop()
            if isinstance(part, fx.Node) and part in found:
                continue
            found.update([part] if isinstance(part, fx.Node) else [])
            todo += [self.settled(each) for each in inner(part)]
        return [node for node in self.pattern.graph.nodes if node in found and role(node) not in ("variable", "tensor", "rest")]

    def settled(self, part: Part) -> Part:
        """Return the chosen alternative of a part."""
        while role(part) == "any_of":
            part = part.args[self.chosen.get(part, 0)]
        return part

    def value(self, part: Part, known: Mapping[Any, Any]) -> Any:
        """Return the value of a part; those of nodes are known."""
        part = self.settled(part)
        if isinstance(part, fx.Node):
            return known[part.args[0] if role(part) == "rest" else part]
        if isinstance(part, slice):
            return slice(*[self.value(each, known) for each in inner(part)])
        if not isinstance(part, list | tuple):
            return part
        found: list[Any] = []
        for each in part:
            found += self.value(each, known) if role(each) == "rest" else [self.value(each, known)]
        return type(part)(found)

    def run(self, part: fx.Node, known: Mapping[Any, Any]) -> Any:
        """Run one operator."""
        if role(part) == "through":
            value = self.value(part.args[0], known)
            for step in self.chosen.get(chain_of(part), ()):
                value = STEPS[step](value)
            return value
        args = [self.value(each, known) for each in part.args]
        kwargs = {key: self.value(each, known) for key, each in part.kwargs.items()}
        target: Any = getattr(type(args[0]), part.target) if part.op == "call_method" else part.target  # type: ignore[arg-type]
        return target(*args, **kwargs)

    def variables(self, part: fx.Node) -> list[fx.Node]:
        """Return the variables that an operator uses."""
        todo, found = [*reversed(inner(part))], dict[fx.Node, None]()
        while todo:
            each = self.settled(todo.pop())
            if role(each) == "variable":
                found[each] = None
            elif role(each) in ("list", "rest") or isinstance(each, slice):
                todo += reversed(inner(each))
        return list(found)

    def kinds(self, part: fx.Node, variable: fx.Node) -> list[str]:
        """Return the types that the overloads of an operator accept for a variable.

        >>> way = Way(Pattern.of(lambda x, y: torch.add(x, y)))
        >>> way.kinds(way.operators[0], [*way.pattern.graph.nodes][1])
        ['Tensor', 'number']
        """
        if role(part) != "operator":
            return ["Tensor"]
        found = set[str]()
        for overload, given in operator_of(part).overloads.items():
            types = {one.name: str(one.real_type) for one in schema_of(overload).arguments}
            for name, value in given.items():
                if self.settled(value) is variable:
                    found.update(_plain_types(types[name]), {HINTS[name]} if name in HINTS else ())
                for each in value if isinstance(value, list | tuple) else ():
                    if self.settled(each) is variable:
                        found.add(types[name].removeprefix("List[").removesuffix("]"))
                    elif role(each) == "rest" and each.args[0] is variable:
                        found.add(_plain_types(types[name])[0])
        return sorted(found, key=lambda kind: (kind != "Tensor", kind))


def _plain_types(kind: str) -> list[str]:
    plain = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
    plain = "List[int]" if plain.startswith(("List[int", "List[SymInt")) else plain.replace("SymInt", "int")
    return [plain, "None"] if kind.startswith("Optional[") else [plain]


def chain_of(part: fx.Node) -> Any:
    """Return the key of a chain: chains with the same variable are equal."""
    chain: Any = part.args[1]
    return part if chain is None else chain.target


WAYS = 12
"""The maximum number of combinations of alternatives."""


def ways_of(rule: Any) -> list[tuple[Way, Callable[..., Any]]]:
    """Return the choices among the alternatives of a rule, each with a function that computes it on tensors.

    Args:
        rule: a rule.

    >>> import purefx as px
    >>> rule = px.rule(lambda x: px.any_of(torch.relu(x), torch.clamp_min(x, 0)))
    >>> [way.operators[0].name for way, _ in ways_of(rule)]
    ['relu', 'clamp_min']
    """
    several: dict[Any, Sequence[Any]] = {}
    for part in rule.pattern.parts:
        if role(part) == "any_of":
            several[part] = range(len(part.args))
        elif role(part) == "through":
            _, _, views, casts = part.args
            several[chain_of(part)] = [each.split() for each in (BOTH if views and casts else VIEWS if views else CASTS)]
    if not several:
        return [(Way(rule.pattern), rule.written)]
    # First each alternative once, then any combination of them.
    draw, longest = random.Random(0), max(map(len, several.values()))  # noqa: S311  not secret
    found: dict[Any, Way] = {}
    for turn in range(4 * WAYS):
        is_first = turn < longest
        chosen = {key: each[turn % len(each)] if is_first else draw.choice(each) for key, each in several.items()}
        way = Way(rule.pattern, chosen)
        steps = [tuple(chosen[chain_of(part)]) for part in way.operators if role(part) == "through"]
        found.setdefault((*way.operators, *steps), way)
    return [(way, way) for way in [*found.values()][:WAYS]]


# -- drawing ---------------------------------------------------------------------------------------------------------------------

SHAPES: tuple[tuple[int, ...], ...] = (
    (3, 4), (4,), (2, 3, 4), (4, 4), (), (1, 4), (1,), (0, 4), (2, 1), (2, 3, 4, 4), (3, 0), (1, 3, 6, 6), (2, 2, 4, 6),
    (2, 4, 6),
)  # fmt: skip
"""Sizes of the first tensor."""

DTYPES = (
    (torch.float32,) * 8 + (torch.float64,) * 2 + (torch.int64,) * 3
    + (torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.uint8, torch.bool)
)  # fmt: skip
"""Types of the first tensor. Complex types are left out: the sign of a complex zero depends on strides, so few rules are
bitwise right on them; pass ``operands`` to test them."""

LITERALS: dict[str, tuple[Any, ...]] = {
    "int": (-1, 0, 1, 2, -2, 3, 4),
    "float": (0.5, 2.0, 1.0, -1.0, 0.0, 1e-5, 8.0, -0.0),
    "number": (2, 0.5, 1, -1.5, 0, 3.0, 8.0, 1.0, -0.0),
    "bool": (False, True),
    "str": ("none", "tanh", "floor", "trunc", "mean", "sum"),
    "ScalarType": (torch.float32, torch.float64, torch.float16, torch.int64, torch.bool, torch.int32),
    "None": (None,),
}

HINTS = {"mask": "mask", "attn_mask": "mask", "condition": "mask", "indices": "index", "index": "index", "target": "index"}
"""Names of parameters that accept boolean tensors, or indices."""

TRIES = 24
"""The number of candidates for the variables of one operator in an attempt."""


def _candidate(draw: random.Random, kinds: Sequence[str], near: Sequence[torch.Tensor], tensors: float) -> Any:
    # `tensors` is the share of tensors if an operator accepts other types too.
    known = [kind for kind in kinds if kind in LITERALS or kind in ("Tensor", "List[Tensor]", "List[int]")]
    plain = [kind for kind in known if kind != "None"]
    if not plain or ("None" in known and draw.random() < 0.25):
        return Operand(None)
    kind = plain[0] if draw.random() < tensors else draw.choice(plain[1:] or plain)
    match kind:
        case "Tensor":
            return _tensor(draw, near, next((one for one in kinds if one in HINTS.values() and draw.random() < 0.8), ""))
        case "List[Tensor]":
            first = _tensor(draw, near)
            return [first, *[first if draw.random() < 0.7 else _tensor(draw, [first.value]) for _ in range(draw.randint(0, 2))]]
        case "List[int]":
            return Operand(_sizes(draw, list(draw.choice(near).shape) if near else [2, 2]))
        case _:
            return Operand(draw.choice(LITERALS[kind]))


def _tensor(draw: random.Random, near: Sequence[torch.Tensor], hint: str = "") -> Operand:
    if near and draw.random() < 0.35:  # like the last one, for scale, shift, mean and variance
        shape, dtype = tuple(near[-1].shape), near[-1].dtype
    elif near:
        other = draw.choice(near)
        shape = draw.choice(_related(tuple(other.shape), draw))
        dtype = other.dtype if draw.random() < 0.85 else draw.choice((*DTYPES, torch.bool, torch.bool, torch.int64))
    else:
        shape, dtype = draw.choice(SHAPES) if draw.random() < 0.6 else draw.choice(SHAPES[:3]), draw.choice(DTYPES)
    dtype = {"mask": torch.bool, "index": torch.int64}.get(hint, dtype)
    is_signed = draw.random() < (0.85 if dtype.is_floating_point else 0.5) and hint != "index"
    style = "signed" if is_signed else "between" if dtype.is_floating_point else "few"
    found = Operand(torch.empty(shape, dtype=dtype), style)
    return Operand(found.at(0), style, finite=dtype is torch.bfloat16)  # the sign of NaN depends on strides


def _related(shape: tuple[int, ...], draw: random.Random) -> list[tuple[int, ...]]:
    # Common shapes beside a tensor: the same, a row, a column, a broadcastable one, a weight.
    number = draw.randint(1, 5)
    found: list[tuple[int, ...]] = [shape, shape, shape, (), draw.choice(SHAPES)]
    if shape:
        channels, place = shape[min(1, len(shape) - 1)], draw.randrange(len(shape))
        found += [shape[-1:], (number, shape[-1]), (shape[-1], number), (channels,), shape[:1], shape[1:], (number, *shape)]
        found += [(*shape[:place], 1, *shape[place + 1 :]), (*shape[:-1], number), (*shape[:-2], number, *shape[-1:])]
        found += [(*shape[:-2], *shape[:-3:-1]), (*shape[:-2], shape[-1], number)]
    if len(shape) > 2:
        found += [(number, shape[1], *([draw.choice((1, 3))] * (len(shape) - 2)))] * 2
    return found


def _sizes(draw: random.Random, shape: list[int]) -> list[int]:
    # Sizes for reshape and expand, dimensions, permutations, strides and kernels.
    count, axes = len(shape), list(range(len(shape)))
    found = [shape, [-1], [math.prod(shape)], shape[::-1], [1, *shape], [2, *shape], shape[-1:], shape[-1:], shape[-2:]]
    found += [axes[::-1], axes[:1], [-1], [-1, -2], [1], [2], [0], [*shape[:-2], -1], [*shape[:-1], 1, *shape[-1:]]]
    return draw.choice([*found, [1] * count, [2] * count, [0] * max(count - 2, 1), [1, 1], [2, 2]])


@contextmanager
def quiet() -> Generator[None]:
    """Run operators without gradients and warnings, and keep torch's random state.

    >>> with quiet():
    ...     torch.rand(2).requires_grad
    False
    """
    with seeded(0), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def assignments(way: Way, *, number: int = 0) -> Iterator[Assignment | None]:
    """Iterate endlessly over operands for the variables; None for a failed attempt.

    Args:
        way: a pattern.
        number: the seed.

    >>> found = assignments(Way(Pattern.of(lambda x, w: torch.nn.functional.linear(x, w))))
    >>> len(next(each for each in found if each is not None))
    2
    """
    draw, seen = random.Random(number), set[fx.Node]()  # noqa: S311  not secret
    steps: list[tuple[fx.Node, list[tuple[str, list[str]]]]] = []
    for part in way.operators:
        new = [variable for variable in way.variables(part) if variable not in seen]
        steps.append((part, [(str(variable.target), way.kinds(part, variable)) for variable in new]))
        seen.update(new)
    while True:
        yield _attempt(draw, way, steps)


def _attempt(draw: random.Random, way: Way, steps: Sequence[tuple[fx.Node, list[tuple[str, list[str]]]]]) -> Assignment | None:
    chosen: dict[str, Any] = {}
    known: dict[Any, Any] = {}
    tensors = draw.choice((0.7, 0.7, 0.1))
    for part, new in steps:
        for _ in range(TRIES * len(new) or 1):
            trial = dict(chosen)
            operands = (
                known.get(way.settled(each)) for each in (*inner(part), *way.variables(part)) if isinstance(each, fx.Node)
            )
            near = [value for value in operands if isinstance(value, torch.Tensor)]
            for name, kinds in new:
                trial[name] = _candidate(draw, kinds, near, tensors)
                near += [one.value for one in [*leaves_of([trial[name]])][:1]]
            values = dict(zip(trial, _mapped([*trial.values()], lambda one: one.value), strict=True))
            try:
                result = way.run(part, {**known, **way.named(values)})
            except Exception:  # noqa: BLE001, S112  operators raise any exceptions
                continue
            known |= {**way.named(values), part: result}
            chosen = trial
            break
        else:
            return None
    return [chosen.get(name, Operand(None)) for name in way.pattern.variables]  # some are not in a chosen alternative
