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

from ...ir.torch_private import schema_of
from ...transforms.rules.amounts import Amount, Computed, Known, Rest, Sizes
from ...transforms.rules.overloads import converted, numbers_as_tensors
from ...transforms.rules.terms import AnyOf, Applied, Item, Term, Through, Var, parts_of, subterms, written
from ..purity import seeded

__all__ = ["CALLS", "Assignment", "Operand", "assignments", "leaves_of", "only_finite", "patterns_of", "quiet", "with_leaves"]

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


@frozen(eq=False, repr=False)
class Passed(Term):
    """A term behind some views and casts.

    >>> import torch
    >>> from ...transforms.rules.terms import Var
    >>> Passed(Var("x"), ("turned", "flat")), Passed(Var("x"), ("turned", "flat")).of(torch.ones(2, 3)).shape
    (x turned flat, torch.Size([6]))
    """

    whole: Any
    steps: tuple[str, ...]

    def _parts(self) -> Sequence[Any]:
        return [self.whole]

    def _text(self, part: Callable[[Any], str]) -> str:
        return " ".join([part(self.whole), *self.steps])

    def of(self, value: Any) -> Any:
        """Return what the steps make of a tensor."""
        for step in self.steps:
            value = STEPS[step](value)
        return value


def name_of(term: Through) -> Any:
    """Return what names a chain: chains of one name are the same one."""
    return id(term) if term.chain is None else term.chain.name


def chains_of(term: Through) -> list[tuple[str, ...]]:
    """Return the chains that are drawn where a term looks through some: of no step, of one, of two, of three.

    >>> import torch, purefx as px
    >>> from ...transforms.rules.terms import Var
    >>> [len(steps) for steps in chains_of(px.through(Var("x"), casts=True, views=False))]
    [0, 1, 1, 2, 3]
    """
    found = BOTH if term.views and term.casts else VIEWS if term.views else CASTS
    return [tuple(each.split()) for each in found]


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


def kinds_of(term: Any, variable: Var) -> list[str]:
    """Return what the operators of a term take where they are given a variable.

    >>> x, y = Var("x"), Var("y")
    >>> kinds_of(torch.add(x, y), y), kinds_of(torch.transpose(x, 0, y), y)
    (['Tensor', 'number'], ['int'])
    """
    found: dict[str, None] = {}  # in order
    if isinstance(term, Passed) and term.whole is variable:
        return ["Tensor"]
    if isinstance(term, Applied):
        for overload, given in term.overloads.items():
            types = {one.name: str(one.real_type) for one in schema_of(overload).arguments}
            for name, value in given.items():
                if value is variable:
                    found.update(dict.fromkeys(_simple(types[name])))
                    found.update({HINTS[name]: None} if name in HINTS else {})
                elif isinstance(value, list | tuple) and any(part is variable for part in value):
                    found[types[name].removeprefix("List[").removesuffix("]")] = None
                else:
                    found.update(dict.fromkeys(_in_amounts(value, variable, types[name])))
    return sorted(found, key=lambda kind: (kind != "Tensor", kind))


def _in_amounts(value: Any, variable: Var, kind: str) -> Iterator[str]:
    # Numbers that are computed of it, sizes that it has, and the rest of a list.
    for each in (one for one in subterms(value) if isinstance(one, Amount | Sizes | Rest)):
        if any(part is variable for part in parts_of(each)):
            yield "int" if isinstance(each, Computed) else _simple(kind)[0] if isinstance(each, Rest) else "Tensor"


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


def operators_in(term: Any, parts: Any) -> list[Any]:
    """Return the operators of a term, each after those that it is applied to.

    Args:
        term: what a rule looks for, without alternatives.
        parts: gives what a term is made of.

    >>> from ...transforms.rules.terms import parts_of
    >>> operators_in(torch.relu(torch.exp(Var("x"))), parts_of)
    [exp(x), relu(exp(x))]
    """
    done: dict[int, Any] = {}
    todo: list[tuple[Any, bool]] = [(term, False)]
    while todo:
        each, closing = todo.pop()
        if id(each) in done:
            continue
        if closing:
            done[id(each)] = each
        else:
            todo += [(each, True)] if isinstance(each, Applied | Item | Passed) else []
            todo += [(part, False) for part in reversed(parts(each))]
    return list(done.values())


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

Pattern = Callable[..., Any]


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


def patterns_of(rule: Any) -> list[tuple[Any, Pattern]]:
    """Return what a rule looks for as terms without alternatives, each with a function that computes it on tensors.

    A pattern without alternatives is the function that it was written as: torch itself says which operators it is. Of many
    alternatives each is chosen at least once, rather than each with each other; where a pattern looks through views and casts,
    those are the alternatives.

    Args:
        rule: one rule.

    >>> import purefx as px
    >>> rule = px.rule(lambda x: px.any_of(torch.relu(x), torch.clamp_min(x, 0)))
    >>> [term for term, _ in patterns_of(rule)]
    [relu(x), clamp_min(x, 0)]
    """
    several = _alternatives_of(rule.term)
    if not several:
        return [(rule.term, rule.written)]
    found: dict[str, Any] = {}
    for choice in _choices([len(each) for each in several.values()]):
        chosen = {name: each[number] for (name, each), number in zip(several.items(), choice, strict=True)}
        term = _with_choice(rule.term, chosen, {})
        found.setdefault(written(term, math.inf), term)
        if len(found) == ALTERNATIVES:
            break
    return [(term, _computing(term, rule.variables)) for term in found.values()]


def _alternatives_of(term: Any) -> dict[Any, Sequence[Any]]:
    # What can be chosen: one of several terms, and what lies between where a pattern looks through views.
    found = {id(each): each.terms for each in subterms(term) if isinstance(each, AnyOf)}
    return {**found, **{name_of(each): chains_of(each) for each in subterms(term) if isinstance(each, Through)}}


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


def _with_choice(term: Any, chosen: Mapping[int, Any], done: dict[int, Any]) -> Any:
    # What stands in several places stays one term, and has one choice.
    if id(term) in done:
        return done[id(term)]
    match term:
        case AnyOf():
            found = _with_choice(chosen[id(term)], chosen, done)
        case Applied(name=name, overloads=overloads, args=args, kwargs=kwargs):
            by_name = {key: _with_choice(part, chosen, done) for key, part in kwargs.items()}
            found = Applied(name, overloads, tuple([_with_choice(part, chosen, done) for part in args]), by_name)
        case Through(whole=whole):
            found = Passed(_with_choice(whole, chosen, done), chosen[name_of(term)])
        case Known(whole=whole):
            found = evolve(term, whole=_with_choice(whole, chosen, done))
        case Sizes(whole=whole, part=part):
            found = Sizes(_with_choice(whole, chosen, done), part)
        case Rest(whole=whole):
            found = Rest(_with_choice(whole, chosen, done))
        case Computed(function, operands):
            found = Computed(function, tuple([_with_choice(part, chosen, done) for part in operands]))
        case Item(whole=whole, index=index):
            found = Item(_with_choice(whole, chosen, done), index)
        case list() | tuple():
            found = type(term)([_with_choice(part, chosen, done) for part in term])
        case _:
            return term
    done[id(term)] = found
    return found


def _computing(term: Any, variables: Sequence[str]) -> Pattern:
    def computed(*values: Any) -> Any:
        known: dict[int, Any] = {}
        named = dict(zip(variables, values, strict=True))
        for each in operators_in(term, parts_of):
            known[id(each)] = _run(each, known, named)
        return tuple([known[id(one)] for one in term]) if isinstance(term, tuple) else known[id(term)]

    return computed


def _run(term: Any, known: Mapping[int, Any], values: Mapping[str, Any]) -> Any:
    # The value of one operator, or one of its results.
    def value(part: Any) -> Any:
        if isinstance(part, Var):
            return values[part.name]
        if isinstance(part, list | tuple):
            return type(part)([one for each in part for one in (value(each.whole) if isinstance(each, Rest) else [value(each)])])
        return part.on(value) if isinstance(part, Amount | Sizes) else known.get(id(part), part)

    if isinstance(term, Item | Passed):
        whole = value(term.whole)
        return whole[term.index] if isinstance(term, Item) else term.of(whole)
    args, kwargs = [*map(value, term.args)], {key: value(part) for key, part in term.kwargs.items()}
    error: Exception = TypeError(f"{term.name} has no overload")
    for overload in sorted(term.overloads, key=lambda one: numbers_as_tensors(one, args, kwargs)):
        given, named = converted(overload, args, kwargs)
        try:
            return overload(*given, **named)
        except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError) as refused:
            error = refused
    raise error


def assignments(term: Any, variables: Sequence[str], *, number: int = 0) -> Iterator[Assignment | None]:
    """Iterate over what the variables may be, without an end; None where a beginning led to nothing.

    Args:
        term: without alternatives.
        variables: their names.
        number: chooses.

    >>> import purefx as px
    >>> rule = px.rule(lambda x, w: torch.nn.functional.linear(x, w))
    >>> found = assignments(rule.term, rule.variables)
    >>> len(next(each for each in found if each is not None))
    2
    """
    draw = random.Random(number)  # noqa: S311  no secret
    operators = operators_in(term, parts_of)
    news = _first_uses(operators)
    while True:
        yield _attempt(draw, operators, news, variables)


def _first_uses(operators: Sequence[Any]) -> list[list[tuple[str, list[str]]]]:
    # For each operator the variables that no earlier one takes, and what kinds they may be.
    seen: set[str] = set()
    found: list[list[tuple[str, list[str]]]] = []
    for each in operators:
        news = [var for var in _variables(each) if var.name not in seen]
        found.append([(var.name, kinds_of(each, var)) for var in news])
        seen.update(var.name for var in news)
    return found


def _variables(term: Any) -> list[Var]:
    todo, found = [*reversed(parts_of(term))], dict[str, Var]()
    while todo:
        each = todo.pop()
        if isinstance(each, Var):
            found.setdefault(each.name, each)
        elif isinstance(each, list | tuple | Amount | Sizes | Rest):
            todo += reversed(parts_of(each))
    return list(found.values())


def _attempt(
    draw: random.Random, operators: Sequence[Any], news: Sequence[list[tuple[str, list[str]]]], variables: Sequence[str]
) -> Assignment | None:
    chosen: dict[str, Any] = {}
    known: dict[int, Any] = {}
    tensors = draw.choice(TENSORS)
    for each, new in zip(operators, news, strict=True):
        for _ in range(TRIES * len(new) or 1):
            trial = _with_candidates(draw, each, new, chosen, known, tensors)
            try:
                known[id(each)] = _run(each, known, {name: _plain(value) for name, value in trial.items()})
            except Exception:  # noqa: BLE001, S112  whatever an operator has against what it is given
                continue
            chosen = trial
            break
        else:
            return None
    return [chosen.get(name, Operand(None)) for name in variables]  # in an alternative that is not there


def _with_candidates(
    draw: random.Random,
    term: Any,
    new: list[tuple[str, list[str]]],
    chosen: Mapping[str, Any],
    known: Mapping[int, Any],
    tensors: float,
) -> dict[str, Any]:
    trial = dict(chosen)
    near = [known[id(part)] for part in parts_of(term) if isinstance(known.get(id(part)), torch.Tensor)]
    near += [one.value for var in _variables(term) if isinstance(one := chosen.get(var.name), Operand) and one.is_tensor]
    for name, kinds in new:
        trial[name] = candidate(draw, kinds, near, tensors=tensors)
        first = trial[name][0] if isinstance(trial[name], list) else trial[name]
        near += [first.value] if first.is_tensor else []
    return trial


def _plain(value: Any) -> Any:
    return [one.value for one in value] if isinstance(value, list) else value.value
