"""Operands: values for the variables of a rule, found by trying its operators on small tensors.

The operators of a pattern are run one after the other, innermost first; a variable gets its value where the first of them takes
it.  What fails is tried again with something else.  Numbers of an ``Operand`` depend on the dtype, the sizes and the call alone;
in the last call some are infinite, not a number, or the limits of whole numbers.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from attrs import evolve, frozen
from torch import fx

from ...ir.torch_private import schema_of
from ...transforms.rules.pattern import Part, Pattern, inner, operator_of, role
from ..purity import seeded

__all__ = ["CALLS", "Assignment", "Operand", "Way", "assignments", "leaves_of", "only_finite", "quiet", "ways_of", "with_leaves"]

CALLS = 3
"""How often in a row each program runs, with other numbers each time."""

ORDINARY = (1.0, -2.0, 0.0, 0.5, -1.0, 3.0, -0.25, 2.0, -3.0)
SPECIAL = (float("inf"), -0.0, -1.0, float("nan"), 4096.0, float("-inf"), 0.5, 0.0, -2.0)
WHOLE = (1, -2, 0, 3, -1, 2, 5, -7)
FEW = (0, 1, 1, 0, 0, 1, 0)
"""Numbers that can be positions in whatever has two of something."""
BETWEEN = (0.5, 0.25, 1.0, 0.0, 0.75)
"""Numbers that can be probabilities."""


@frozen(eq=False)
class Operand:
    """A tensor that a program is given, or an argument as it stands.

    >>> Operand(torch.zeros(2)), Operand(-1), Operand(torch.zeros(1, dtype=torch.int64), "few").at(0)
    (float32[2], -1, tensor([0]))
    """

    value: Any
    style: str = "signed"
    """What the numbers of a tensor are: ``"signed"``, ``"few"`` or ``"between"``; ``"given"``, those that it has, which change
    places from call to call; ``"held"``, always those that it has."""
    finite: bool = False
    """Whether nothing that is infinite or not a number may be among them."""

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self.value, torch.Tensor)

    @property
    def is_finite(self) -> bool:
        """Whether its numbers have to be finite in all calls; those that somebody gave may be what they are."""
        is_own = self.style in ("given", "held") and self.is_tensor
        return self.finite and not (is_own and not bool(self.value.isfinite().all()))

    def at(self, call: int, index: int = 0) -> torch.Tensor:
        """Return the tensor that is passed in a call.

        Args:
            call: the number of the call; numbers of the last are unusual.
            index: of the operand, so that two of them have other numbers.
        """
        like = self.value
        if self.style == "held":
            return like.clone()
        if self.style == "given":
            return like.reshape(-1).roll(call).reshape(like.shape).clone()
        start = 2 * index + 3 * call
        if like.dtype.is_floating_point or like.dtype.is_complex:
            numbers: Sequence[Any] = self._fractions(call)
        elif self.style == "few" or like.dtype is torch.bool:
            numbers = FEW
        else:
            limits = torch.iinfo(like.dtype)
            numbers = (*WHOLE, limits.min, limits.max) if call == CALLS - 1 and not self.finite else WHOLE
        count = like.numel()
        found = [numbers[(start + number) % len(numbers)] for number in range(count)]
        if like.dtype.is_complex:
            found = [complex(one, other) for one, other in zip(found, reversed(found), strict=True)]
        if not like.dtype.is_signed and like.dtype is not torch.bool:
            found = [abs(number) for number in found]
        return torch.tensor(found, dtype=like.dtype).reshape(like.shape)

    def grown(self, size: int, by: int) -> Operand:
        """Return an operand in which each size that is one number is larger.

        >>> Operand(torch.zeros(2, 3)).grown(3, 1)
        float32[2, 4]
        """
        value = self.value.new_empty([one + by if one == size else one for one in self.value.shape])
        return evolve(self, value=value) if by else self

    def _fractions(self, call: int) -> Sequence[float]:
        if self.style == "between":
            return BETWEEN
        if call == 1:
            return [round(3 * number / 7 + 0.1, 4) for number in range(-7, 8, 2)]
        return SPECIAL if call == CALLS - 1 and not self.finite else ORDINARY

    def __repr__(self) -> str:
        if not self.is_tensor:
            return repr(self.value)
        return f"{str(self.value.dtype).removeprefix('torch.')}{list(self.value.shape)}"


def leaves_of(operands: Sequence[Any]) -> Iterator[Operand]:
    """Iterate over the tensors among what variables are; a variable may be a list of some.

    >>> list(leaves_of([Operand(1), [Operand(torch.zeros(2))]]))
    [float32[2]]
    """
    for each in operands:
        yield from ([one for one in each if one.is_tensor] if isinstance(each, list) else [each] if each.is_tensor else [])


def with_leaves(operands: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """Return what variables are as a pattern is called with it: the tensors in their places, other arguments as they stand.

    >>> with_leaves([Operand(1), [Operand(torch.zeros(2))]], ["here"])
    [1, ['here']]
    """
    rest = iter(tensors)

    def one(operand: Operand) -> Any:
        return next(rest) if operand.is_tensor else operand.value

    return [[one(part) for part in each] if isinstance(each, list) else one(each) for each in operands]


def only_finite(operands: Sequence[Any]) -> list[Any]:
    """Return the same operands without what is infinite or not a number.

    >>> bool(only_finite([Operand(torch.zeros(9))])[0].at(CALLS - 1).isfinite().all())
    True
    """
    return [
        [evolve(one, finite=True) for one in each] if isinstance(each, list) else evolve(each, finite=True) for each in operands
    ]


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
    """A pattern with one choice for each of its alternatives, and for each chain of views and casts that it looks through.

    >>> way = Way(Pattern.of(lambda x: torch.relu(x + 1)))
    >>> way(torch.ones(2)), len(way.operators)
    (tensor([2., 2.]), 2)
    """

    pattern: Pattern
    chosen: Mapping[Any, Any] = {}
    """The number of an alternative by its part, the steps of a chain by the name of its variable or by its part."""

    def __call__(self, *values: Any) -> Any:
        """Return what the pattern computes of values."""
        named, known = dict(zip(self.pattern.variables, values, strict=True)), dict[Any, Any]()
        for part in self.operators:
            known[part] = self.run(part, known, named)
        found = tuple([self.value(part, known, named) for part in self.pattern.results])
        return found if self.pattern.is_tuple else found[0]

    @property
    def operators(self) -> list[fx.Node]:
        """What it computes in order, without the alternatives that are not chosen."""
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

    def value(self, part: Part, known: Mapping[Any, Any], values: Mapping[str, Any]) -> Any:
        """Return the value of a part; those of operators are known."""
        part = self.settled(part)
        match role(part):
            case "variable":
                return values[part.target]
            case "tensor":
                return part.meta["tensor"]
            case "rest":
                return self.value(part.args[0], known, values)
            case "list":
                found = [(self.value(each, known, values), role(each) == "rest") for each in part]
                return type(part)([one for value, is_rest in found for one in (value if is_rest else [value])])
            case "literal" if isinstance(part, slice):
                return slice(*[self.value(each, known, values) for each in inner(part)])
            case "literal":
                return part
            case _:
                return known[part]

    def run(self, part: fx.Node, known: Mapping[Any, Any], values: Mapping[str, Any]) -> Any:
        """Return what one operator computes; raises what torch raises."""
        if role(part) == "through":
            value = self.value(part.args[0], known, values)
            for step in self.chosen.get(chain_of(part), ()):
                value = STEPS[step](value)
            return value
        args = [self.value(each, known, values) for each in part.args]
        kwargs = {key: self.value(each, known, values) for key, each in part.kwargs.items()}
        target: Any = getattr(type(args[0]), part.target) if part.op == "call_method" else part.target  # type: ignore[arg-type]
        return target(*args, **kwargs)


def chain_of(part: fx.Node) -> Any:
    """Return what names a chain: chains of one name are the same one."""
    chain: Any = part.args[1]
    return part if chain is None else chain.target


def chains_of(part: fx.Node) -> list[tuple[str, ...]]:
    """Return the chains that are drawn where a pattern looks through some: of no step, of one, of two, of three."""
    _, _, views, casts = part.args
    return [tuple(each.split()) for each in (BOTH if views and casts else VIEWS if views else CASTS)]


SHAPES: tuple[tuple[int, ...], ...] = (
    (3, 4), (4,), (2, 3, 4), (4, 4), (), (1, 4), (1,), (0, 4), (2, 1), (2, 3, 4, 4), (3, 0), (1, 3, 6, 6),
    (2, 2, 4, 6), (2, 4, 6),
)  # fmt: skip
"""Sizes of the first tensor."""

DTYPES = (
    (torch.float32,) * 8 + (torch.float64,) * 2 + (torch.int64,) * 3
    + (torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.uint8, torch.bool)
)  # fmt: skip
"""Types of the first tensor.  Complex ones are for ``operands``: the sign that a zero of theirs gets depends on how it lies in
memory, so hardly a rule is right of them to the last bit."""

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
"""Names of parameters that take tensors of truth values, or of positions."""

OPTIONAL = 0.25
"""How often an argument that may be left out is None."""


LIKE_THE_LAST = 0.35
"""How often a tensor is like the one before it, as scale, shift, mean and variance are."""


def kinds_of(way: Way, part: fx.Node, variable: fx.Node) -> list[str]:
    """Return what an operator of a pattern takes where it is given a variable.

    >>> way = Way(Pattern.of(lambda x, y: torch.add(x, y)))
    >>> kinds_of(way, way.operators[0], [*way.pattern.graph.nodes][1])
    ['Tensor', 'number']
    """
    found: dict[str, None] = {}  # in order
    if role(part) != "operator":
        return ["Tensor"]
    for overload, given in operator_of(part).overloads.items():
        types = {one.name: str(one.real_type) for one in schema_of(overload).arguments}
        for name, value in given.items():
            if way.settled(value) is variable:
                found.update(dict.fromkeys(_simple(types[name])))
                found.update({HINTS[name]: None} if name in HINTS else {})
            for each in value if isinstance(value, list | tuple) else ():
                if way.settled(each) is variable:
                    found[types[name].removeprefix("List[").removesuffix("]")] = None
                elif role(each) == "rest" and each.args[0] is variable:
                    found[_simple(types[name])[0]] = None
    return sorted(found, key=lambda kind: (kind != "Tensor", kind))


def _simple(kind: str) -> list[str]:
    optional = kind.startswith("Optional[")
    plain = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
    plain = "List[int]" if plain.startswith(("List[int", "List[SymInt")) else plain.replace("SymInt", "int")
    return [plain, "None"] if optional else [plain]


def candidate(draw: random.Random, kinds: Sequence[str], near: Sequence[torch.Tensor], *, tensors: float = 0.7) -> Any:
    """Return something that a variable may be.

    Args:
        draw: chooses.
        kinds: what its operators take.
        near: the other operands of the operator that are known already.
        tensors: how often it is a tensor where it may be something else; operators take either for all that limits them.

    >>> candidate(random.Random(0), ["bool"], [])
    False
    """
    known = [kind for kind in kinds if kind in LITERALS or kind in ("Tensor", "List[Tensor]", "List[int]")]
    plain = [kind for kind in known if kind != "None"]
    if not plain or ("None" in known and draw.random() < OPTIONAL):
        return Operand(None)
    kind = plain[0] if draw.random() < tensors else draw.choice(plain[1:] or plain)
    match kind:
        case "Tensor":
            hint = next((one for one in kinds if one in HINTS.values() and draw.random() < 0.8), "")
            return _tensor(draw, near, hint)
        case "List[Tensor]":
            first = _tensor(draw, near)
            return [first, *[first if draw.random() < 0.7 else _tensor(draw, [first.value]) for _ in range(draw.randint(0, 2))]]
        case "List[int]":
            return Operand(_sizes(draw, near))
        case _:
            return Operand(draw.choice(LITERALS[kind]))


def _tensor(draw: random.Random, near: Sequence[torch.Tensor], hint: str = "") -> Operand:
    other = draw.choice(near) if near else None
    if near and draw.random() < LIKE_THE_LAST:
        shape, dtype = tuple(near[-1].shape), near[-1].dtype
    elif other is None:
        shape, dtype = draw.choice(SHAPES) if draw.random() < 0.6 else draw.choice(SHAPES[:3]), draw.choice(DTYPES)
    else:
        shape = draw.choice(_related(tuple(other.shape), draw))
        dtype = other.dtype if draw.random() < 0.85 else draw.choice((*DTYPES, torch.bool, torch.bool, torch.int64))
    dtype = {"mask": torch.bool, "index": torch.int64}.get(hint, dtype)
    style = "signed" if draw.random() < (0.85 if dtype.is_floating_point else 0.5) and hint != "index" else "few"
    style = "between" if style == "few" and dtype.is_floating_point else style
    found = Operand(torch.empty(shape, dtype=dtype), style)
    return Operand(found.at(0), style, finite=dtype is torch.bfloat16)  # how it lies in memory decides about the sign of NaN


def _related(shape: torch.Size | tuple[int, ...], draw: random.Random) -> list[tuple[int, ...]]:
    # Sizes that something beside a tensor of these sizes often has: the same, a row, a column, one that broadcasts, a weight.
    number = draw.choice((1, 2, 3, 4, 5))
    found: list[tuple[int, ...]] = [shape, shape, shape, (), draw.choice(SHAPES)]
    if len(shape) > 0:
        channels = shape[1] if len(shape) > 1 else shape[0]
        place = draw.randrange(len(shape))
        found += [shape[-1:], (number, shape[-1]), (shape[-1], number), (channels,), shape[:1], shape[1:], (number, *shape)]
        found += [(*shape[:place], 1, *shape[place + 1 :]), (*shape[:-1], number), (*shape[:-2], number, *shape[-1:])]
        found += [(*shape[:-2], *shape[:-3:-1]), (*shape[:-2], shape[-1], number)]
    if len(shape) > 2:
        kernel = draw.choice((1, 3))
        found += [(number, shape[1], *([kernel] * (len(shape) - 2)))] * 2
    return found


def _sizes(draw: random.Random, near: Sequence[torch.Tensor]) -> list[int]:
    # Sizes to reshape or expand to, dimensions, permutations of them, strides and kernels.
    shape = list(draw.choice(near).shape) if near else [2, 2]
    count, axes = len(shape), list(range(len(shape)))
    number = 1
    for size in shape:
        number *= size
    found = [
        shape,
        [-1],
        [number],
        shape[::-1],
        [1, *shape],
        [2, *shape],
        shape[-1:],
        shape[-1:],
        shape[-2:],
        axes[::-1],
        axes[:1],
        [-1],
        [-1, -2],
        [1],
        [2],
        [0],
    ]
    found += [[*shape[:-2], -1], [*shape[:-1], 1, *shape[-1:]], [1] * count, [2] * count, [0] * max(count - 2, 1), [1, 1], [2, 2]]
    return draw.choice(found)


Assignment = list[Any]
"""What each variable is, in order: an ``Operand``, or a list of them."""

TRIES = 24
"""How many candidates are tried at one operator before another beginning is."""

ALTERNATIVES = 12
"""How many ways to choose among the alternatives of a pattern are looked at."""

ROUNDS = 4
"""How often as many choices are made: those that differ where nothing is chosen are the same term."""

TENSORS = (0.7, 0.7, 0.1)
"""How often the variables of one beginning are tensors where they may be numbers: mostly, or hardly."""


class quiet:  # noqa: N801  it is used like a function
    """Run operators without gradients and warnings, and leave torch's random numbers as they are.

    >>> with quiet():
    ...     torch.rand(2).requires_grad
    False
    """

    def __enter__(self) -> None:
        self._inner = (seeded(0), torch.no_grad(), warnings.catch_warnings())
        for each in self._inner:
            each.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *error: object) -> None:
        for each in reversed(self._inner):
            each.__exit__(None, None, None)


def ways_of(rule: Any) -> list[tuple[Way, Callable[..., Any]]]:
    """Return the ways to choose among the alternatives of a rule, each with a function that computes it on tensors.

    Of many alternatives each is chosen at least once, rather than each with each other; where a pattern looks through views and
    casts, those are the alternatives.

    Args:
        rule: one rule.

    >>> import purefx as px
    >>> rule = px.rule(lambda x: px.any_of(torch.relu(x), torch.clamp_min(x, 0)))
    >>> [way.operators[0].name for way, _ in ways_of(rule)]
    ['relu', 'clamp_min']
    """
    several: dict[Any, int] = {}
    for part in rule.pattern.parts:
        if role(part) in ("any_of", "through"):
            several |= {part: len(part.args)} if role(part) == "any_of" else {chain_of(part): len(chains_of(part))}
    if not several:
        return [(Way(rule.pattern), rule.written)]
    chains = {chain_of(part): chains_of(part) for part in rule.pattern.parts if role(part) == "through"}
    found: dict[Any, Way] = {}
    for choice in _choices([*several.values()]):
        chosen = {key: chains[key][number] if key in chains else number for key, number in zip(several, choice, strict=True)}
        way = Way(rule.pattern, chosen)
        steps = [chosen[chain_of(part)] for part in way.operators if role(part) == "through"]
        found.setdefault((*way.operators, *steps), way)
        if len(found) == ALTERNATIVES:
            break
    return [(way, way) for way in found.values()]


def _choices(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    # All of them in order where they are few; else the first alternatives, then each in turn, in an order of its own.
    if math.prod(counts) <= ALTERNATIVES:
        yield from product(*map(range, counts))
        return
    draw = random.Random(0)  # noqa: S311  no secret
    yield (0,) * len(counts)
    orders = [draw.sample(range(count), count) for count in counts]
    for turn in range(ROUNDS * ALTERNATIVES):
        yield tuple([order[turn % len(order)] for order in orders])
        if turn % max(counts) == max(counts) - 1:
            orders = [draw.sample(range(count), count) for count in counts]


def assignments(way: Way, *, number: int = 0) -> Iterator[Assignment | None]:
    """Iterate over what the variables may be, without an end; None where a beginning led to nothing.

    Args:
        way: a pattern.
        number: chooses.

    >>> found = assignments(Way(Pattern.of(lambda x, w: torch.nn.functional.linear(x, w))))
    >>> len(next(each for each in found if each is not None))
    2
    """
    draw = random.Random(number)  # noqa: S311  no secret
    seen, news = set[fx.Node](), list[list[tuple[fx.Node, list[str]]]]()
    operators = way.operators
    for part in operators:  # the variables that no earlier operator takes
        new = [variable for variable in _variables(way, part) if variable not in seen]
        news.append([(variable, kinds_of(way, part, variable)) for variable in new])
        seen.update(new)
    while True:
        yield _attempt(draw, way, operators, news)


def _variables(way: Way, part: fx.Node) -> list[fx.Node]:
    todo, found = [*reversed(inner(part))], dict[fx.Node, None]()
    while todo:
        each = way.settled(todo.pop())
        if role(each) == "variable":
            found[each] = None
        elif role(each) in ("list", "rest") or isinstance(each, slice):
            todo += reversed(inner(each))
    return list(found)


def _attempt(
    draw: random.Random, way: Way, operators: Sequence[fx.Node], news: Sequence[list[tuple[fx.Node, list[str]]]]
) -> Assignment | None:
    chosen: dict[str, Any] = {}
    known: dict[Any, Any] = {}
    tensors = draw.choice(TENSORS)
    for part, new in zip(operators, news, strict=True):
        for _ in range(TRIES * len(new) or 1):
            near = [
                known[each]
                for each in map(way.settled, inner(part))
                if isinstance(each, fx.Node) and isinstance(known.get(each), torch.Tensor)
            ]
            given = [chosen[str(each.target)] for each in _variables(way, part) if each.target in chosen]
            near += [one.value for one in given if isinstance(one, Operand) and one.is_tensor]
            trial = dict(chosen)
            for variable, kinds in new:
                trial[variable.target] = one = candidate(draw, kinds, near, tensors=tensors)  # type: ignore[index]
                first = one[0] if isinstance(one, list) else one
                near += [first.value] if first.is_tensor else []
            try:
                known[part] = way.run(part, known, {name: _plain(value) for name, value in trial.items()})
            except Exception:  # noqa: BLE001, S112  whatever an operator has against what it is given
                continue
            chosen = trial
            break
        else:
            return None
    return [chosen.get(name, Operand(None)) for name in way.pattern.variables]  # in an alternative that is not there


def _plain(value: Any) -> Any:
    return [one.value for one in value] if isinstance(value, list) else value.value
