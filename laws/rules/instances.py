"""``Instance``: a pattern traced by torch on some operands; the search for operands, and near misses.

The operators of a pattern run in order on small tensors.  A variable is drawn at the first operator that uses it, and drawn again
if the operator raises.  The contents of an ``Operand`` depend only on its dtype, sizes and the call number; one call has
infinities, NaN and the limits of integers.  torch's tracer runs the user's function, as the exporter does, independently of the
matcher.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from types import MappingProxyType
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import define, evolve, field, frozen
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from ...ir.arguments import Arg, Items, Ref, replace_refs, thawed
from ...ir.forks import cached_property
from ...ir.graph import Get, Node, Op
from ...ir.importing import import_fx
from ...ir.torch_private import OpOverload, Parameter, parameters_of, pytree, schema_of
from ...transforms.rules.pattern import Part, Pattern, operator_of, role
from ..purity import seeded
from ..tiers import examples_of

CALLS = 3
"""The number of consecutive calls of each program, each with different contents; open sizes that may be small have more."""

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

    def at(
        self, call: int, index: int = 0, sizes: Mapping[int, int] = MappingProxyType({})
    ) -> torch.Tensor:
        """Return the tensor for a call.

        Args:
            call: the number of the call; ``CALLS - 1`` has special numbers.
            index: of the operand, so that operands differ.
            sizes: other sizes for the dimensions of some sizes.

        >>> Operand(torch.zeros(2, 3)).at(1, sizes={3: 4}).shape
        torch.Size([2, 4])
        """
        like = self.value
        if self.style in ("given", "held"):
            return like.reshape(-1).roll(call * (self.style == "given")).reshape(like.shape).clone()
        shape = [sizes.get(one, one) for one in like.shape]
        numbers, start = self._numbers(call), 2 * index + 3 * call
        found = [numbers[(start + number) % len(numbers)] for number in range(math.prod(shape))]
        return torch.tensor(found).to(like.dtype).reshape(shape)

    def _numbers(self, call: int) -> Sequence[float]:
        dtype, is_unusual = self.value.dtype, call == CALLS - 1 and not self.finite
        if dtype.is_floating_point:
            return (
                BETWEEN
                if self.style == "between"
                else FRACTIONS
                if call == 1
                else SPECIAL
                if is_unusual
                else ORDINARY
            )
        if self.style == "few" or dtype is torch.bool:
            return FEW
        return (*WHOLE, torch.iinfo(dtype).min, torch.iinfo(dtype).max) if is_unusual else WHOLE

    def __repr__(self) -> str:
        if not self.is_tensor:
            return repr(self.value)
        return f"{str(self.value.dtype).removeprefix('torch.')}{list(self.value.shape)}"


Assignment = list[Any]
"""The operand of each variable, in order; a list of operands if the variable is a list."""


def leaves_of(operands: Assignment) -> list[Operand]:
    """Return the tensors among the operands.

    >>> leaves_of([Operand(1), [Operand(torch.zeros(2))]])
    [float32[2]]
    """
    return [one for one in pytree.tree_leaves(operands) if one.is_tensor]


# -- patterns without alternatives -----------------------------------------------------------------------------------------------

aten: Any = torch.ops.aten

VIEWS: Sequence[Callable[[Any], Any]] = (
    lambda x: x,
    lambda x: aten.unsqueeze.default(x, 0),
    lambda x: aten.reshape.default(x, [-1]),
    lambda x: aten.transpose.int(aten.unsqueeze.default(x, 0), 0, -1),
    lambda x: aten.clone.default(aten.unsqueeze.default(aten.reshape.default(x, [-1]), 1)),
)

CASTS: Sequence[Callable[[Any], Any]] = (
    lambda x: aten.to.dtype(x, torch.float64),
    lambda x: aten.to.dtype(aten.to.dtype(x, torch.float64), torch.float32),
)

BOTH = (*VIEWS, *CASTS, lambda x: CASTS[0](VIEWS[3](x)))


@define(eq=False)
class Way:
    """A pattern with one alternative chosen for each ``any_of``, and a chain of views and casts for each ``through``.

    >>> Way(Pattern.of(lambda x: torch.relu(x + 1)))(torch.ones(2))
    tensor([2., 2.])
    """

    pattern: Pattern
    chosen: Mapping[Any, Any] = {}
    """The number of the alternative of each ``any_of``, and the function of each chain."""
    draw: random.Random = field(factory=lambda: random.Random(0))  # noqa: S311  not secret
    known: dict[fx.Node, Any] = field(factory=dict, init=False)
    drawn: dict[fx.Node, Any] = field(factory=dict, init=False)
    tensors: float = field(default=0.7, init=False)
    """The share of tensors if an operator accepts other types too."""

    def __call__(self, *values: Any) -> Any:
        """Run the pattern on values of its variables; a missing one is drawn at the first operator that uses it."""
        self.known, self.drawn = dict(zip(self.variables, values, strict=False)), {}
        found = self._value(self.pattern.results)
        return found if self.pattern.is_tuple else found[0]

    @property
    def variables(self) -> list[fx.Node]:
        """The variables of the pattern, in order."""
        return [*self.pattern.graph.find_nodes(op="placeholder")]

    def operands(self) -> Assignment | None:
        """Draw operands for the variables; return None if an operator raised on all that were tried.

        >>> way = Way(Pattern.of(lambda x, w: torch.nn.functional.linear(x, w)))
        >>> len(next(found for _ in range(99) if (found := way.operands())))
        2
        """
        self.tensors = self.draw.choice((0.7, 0.7, 0.1))
        with suppress(Exception):  # operators raise any exceptions
            self()
            # Some variables are not in a chosen alternative.
            return [self.drawn.get(variable, Operand(None)) for variable in self.variables]
        return None

    def _value(self, part: Part) -> Any:
        part = self._settled(part)
        if isinstance(part, slice):
            return slice(self._value(part.start), self._value(part.stop), self._value(part.step))
        if isinstance(part, list | tuple):
            several = [
                self._value(each) if role(each) == "rest" else [self._value(each)] for each in part
            ]
            return (list if isinstance(part, list) else tuple)(
                [item for each in several for item in each]
            )
        if not isinstance(part, fx.Node):
            return part
        if part not in self.known:
            self.known[part] = (
                part.meta["tensor"] if role(part) == "tensor" else self._computed(part)
            )
        return self.known[part]

    def _settled(self, part: Part) -> Part:
        # The part that is chosen for another.
        while role(part) in ("any_of", "rest"):
            part = part.args[self.chosen.get(part, 0)]
        return part

    def _computed(self, part: fx.Node) -> Any:
        operands: Any = part.args[:1] if role(part) == "through" else part.all_input_nodes
        pairs = [(operand, self._settled(operand)) for operand in operands]
        new = {
            one: operand
            for operand, one in pairs
            if role(one) == "variable" and one not in self.known
        }
        values = [self._value(one) for _, one in pairs if one not in new]
        for _ in range(TRIES * len(new)):
            near = [value for value in values if isinstance(value, torch.Tensor)]
            for variable, operand in new.items():
                self.drawn[variable] = found = _candidate(
                    self.draw, kinds_of(part, operand), near, self.tensors
                )
                near += [one.value for one in leaves_of([found])[:1]]
                self.known[variable] = pytree.tree_map(lambda one: one.value, found)
            with suppress(Exception):  # operators raise any exceptions
                return self._result(part)
        return self._result(part)

    def _result(self, part: fx.Node) -> Any:
        if role(part) == "through":
            return self.chosen[chain_of(part)](self._value(part.args[0]))
        (*args,), kwargs = (
            self._value(part.args),
            {key: self._value(each) for key, each in part.kwargs.items()},
        )
        target: Any = part.target
        return (
            getattr(args.pop(0), target)(*args, **kwargs)
            if part.op == "call_method"
            else target(*args, **kwargs)
        )


def kinds_of(part: fx.Node, operand: fx.Node) -> list[str]:
    """Return the types that the overloads of an operator accept for an operand.

    >>> pattern = Pattern.of(lambda x, y: torch.add(x, y))
    >>> kinds_of(pattern.results[0], pattern.results[0].args[1])
    ['Tensor', 'number']
    >>> normed = Pattern.of(lambda x: torch.nn.functional.layer_norm(x, [2]))  # with a parameter that patterns ignore
    >>> kinds_of(normed.results[0], normed.results[0].args[0])
    ['Tensor']
    """
    if role(part) not in ("operator", "arithmetic"):
        return ["Tensor"]
    found = set[str]()
    for overload, (given, *_) in operator_of(part).overloads.items():
        for one in schema_of(overload).arguments:
            value, kind = given.get(one.name), str(one.real_type).replace("SymInt", "int")
            kinds = (
                [kind.removeprefix("Optional[").removesuffix("]"), "None"]
                if kind.startswith("Optional[")
                else [kind]
            )
            if value is operand:
                found.update(kinds, {HINTS[one.name]} if one.name in HINTS else ())
            elif isinstance(value, list | tuple) and operand in value:
                found.add(
                    kinds[0]
                    if role(operand) == "rest"
                    else kinds[0].removeprefix("List[").removesuffix("]")
                )
    return sorted(found, key=lambda kind: (kind != "Tensor", kind))


def chain_of(part: fx.Node) -> Any:
    """Return the key of a chain: chains with the same variable are equal."""
    chain: Any = part.args[1]
    return part if chain is None else chain.target


def ways_of(pattern: Pattern, draw: random.Random) -> Iterator[Way]:
    """Iterate endlessly over choices among the alternatives of a pattern: first each alternative, then any combination.

    Args:
        pattern: any pattern.
        draw: the source of random numbers.

    >>> import purefx as px
    >>> ways = ways_of(Pattern.of(lambda x: px.any_of(torch.relu(x), torch.neg(x))), random.Random(0))
    >>> [next(ways)(torch.ones(1)) for _ in range(2)]
    [tensor([1.]), tensor([-1.])]
    """
    several: dict[Any, Sequence[Any]] = {}
    for part in pattern.parts:
        if role(part) == "any_of":
            several[part] = range(len(part.args))
        elif role(part) == "through":
            _, _, views, casts = part.args
            several[chain_of(part)] = (
                BOTH if views and casts else VIEWS if views else (VIEWS[0], *CASTS)
            )
    for turn in count():
        chosen = {
            key: each[turn] if turn < len(each) else draw.choice(each)
            for key, each in several.items()
        }
        yield Way(pattern, chosen, draw)


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
    "ScalarType": (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int64,
        torch.bool,
        torch.int32,
    ),
    "None": (None,),
}

HINTS = {
    "mask": "mask",
    "attn_mask": "mask",
    "condition": "mask",
    "indices": "index",
    "index": "index",
    "target": "index",
}
"""Names of parameters that accept boolean tensors, or indices."""

TRIES = 24
"""The number of candidates for the variables of one operator in an attempt."""


def _candidate(
    draw: random.Random, kinds: Sequence[str], near: Sequence[torch.Tensor], tensors: float
) -> Any:
    known = [
        kind
        for kind in kinds
        if kind in LITERALS or kind in ("Tensor", "List[Tensor]", "List[int]")
    ]
    plain = [kind for kind in known if kind != "None"]
    if not plain or ("None" in known and draw.random() < 0.25):
        return Operand(None)
    kind = plain[0] if draw.random() < tensors else draw.choice(plain[1:] or plain)
    match kind:
        case "Tensor":
            return _tensor(
                draw,
                near,
                next((one for one in kinds if one in HINTS.values() and draw.random() < 0.8), ""),
            )
        case "List[Tensor]":
            first = _tensor(draw, near)
            return [
                first,
                *[
                    first if draw.random() < 0.7 else _tensor(draw, [first.value])
                    for _ in range(draw.randint(0, 2))
                ],
            ]
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
        dtype = (
            other.dtype
            if draw.random() < 0.85
            else draw.choice((*DTYPES, torch.bool, torch.bool, torch.int64))
        )
    else:
        shape, dtype = (
            draw.choice(SHAPES) if draw.random() < 0.6 else draw.choice(SHAPES[:3]),
            draw.choice(DTYPES),
        )
    dtype = {"mask": torch.bool, "index": torch.int64}.get(hint, dtype)
    is_signed = draw.random() < (0.85 if dtype.is_floating_point else 0.5) and hint != "index"
    style = "signed" if is_signed else "between" if dtype.is_floating_point else "few"
    found = Operand(torch.empty(shape, dtype=dtype), style)
    return Operand(
        found.at(0), style, finite=dtype is torch.bfloat16
    )  # the sign of NaN depends on strides


def _related(shape: tuple[int, ...], draw: random.Random) -> list[tuple[int, ...]]:
    # Common shapes beside a tensor: the same, a row, a column, a broadcastable one, a weight.
    number = draw.randint(1, 5)
    found: list[tuple[int, ...]] = [shape, shape, shape, (), draw.choice(SHAPES)]
    if shape:
        channels, place = shape[min(1, len(shape) - 1)], draw.randrange(len(shape))
        found += [
            shape[-1:],
            (number, shape[-1]),
            (shape[-1], number),
            (channels,),
            shape[:1],
            shape[1:],
            (number, *shape),
        ]
        found += [
            (*shape[:place], 1, *shape[place + 1 :]),
            (*shape[:-1], number),
            (*shape[:-2], number, *shape[-1:]),
        ]
        found += [(*shape[:-2], *shape[:-3:-1]), (*shape[:-2], shape[-1], number)]
    if len(shape) > 2:
        found += [(number, shape[1], *([draw.choice((1, 3))] * (len(shape) - 2)))] * 2
    return found


def _sizes(draw: random.Random, shape: list[int]) -> list[int]:
    # Sizes for reshape and expand, dimensions, permutations, strides and kernels.
    count, axes = len(shape), list(range(len(shape)))
    found = [
        shape,
        [-1],
        [math.prod(shape)],
        shape[::-1],
        [1, *shape],
        [2, *shape],
        shape[-1:],
        shape[-1:],
        shape[-2:],
    ]
    found += [
        axes[::-1],
        axes[:1],
        [-1],
        [-1, -2],
        [1],
        [2],
        [0],
        [*shape[:-2], -1],
        [*shape[:-1], 1, *shape[-1:]],
    ]
    return draw.choice([*found, [1] * count, [2] * count, [0] * max(count - 2, 1), [1, 1], [2, 2]])


@contextmanager
def quiet() -> Generator[None]:
    """Run operators without gradients and warnings, and keep torch's random state.

    >>> with quiet():
    ...     torch.rand(2).requires_grad
    False
    """
    with seeded(0), torch.no_grad(), warnings.catch_warnings(action="ignore"):
        yield


# -- instances -------------------------------------------------------------------------------------------------------------------

ATTEMPTS = 2500
"""Attempts to draw operands for a rule."""

GIVEN = 40
"""Operands that are drawn from the user's strategy."""

COARSE = (torch.float16, torch.bfloat16)

IRRELEVANT = (
    "device",
    "layout",
    "memory_format",
    "pin_memory",
    "generator",
    "non_blocking",
    "copy",
    "requires_grad",
)
"""Parameters that patterns ignore."""

OF_NONE: Mapping[str, Any] = {
    "Optional[int]": 0,
    "Optional[float]": 0.5,
    "Optional[number]": 0.5,
    "Optional[str]": "floor",
}
"""The value that replaces None, by the type of the parameter."""

WORDS = (
    ("none", "tanh"),
    ("floor", "trunc"),
    ("mean", "sum"),
    ("reflect", "constant", "replicate"),
)
"""Alternatives of string arguments."""


@frozen(eq=False)
class Instance:
    """A pattern on operands.

    >>> found = instance_of(lambda x: torch.relu(x), [Operand(torch.ones(2))])
    >>> [node.do.name for node in found.nodes], found
    (['aten.relu.default'], (float32[2]))
    """

    operands: Assignment
    leaves: tuple[tuple[str, Operand], ...]
    """The tensors among the operands, each with the name that the nodes use."""
    nodes: tuple[Node, ...] = field(repr=False)
    results: tuple[str, ...]
    variables: tuple[str, ...] = ()
    sources: Mapping[str, str] = {}
    """Tensors that must be constants ("constant"), of the pattern or for the rule, or be read from the state ("read")."""
    keeps_inner: bool = False
    """Whether the rule keeps inner values for their other users."""

    def __repr__(self) -> str:
        shown = [
            f"{name}={one!r}" for name, one in zip(self.variables, self.operands, strict=False)
        ]
        return f"({', '.join(shown or map(repr, self.operands))})"

    @cached_property
    def finite(self) -> Collection[str]:
        """The values that are finite in all calls, if all operands are: not those of ``log`` or of a literal infinity."""
        found = {node.name for node in self.nodes if all(one.is_finite for _, one in self.leaves)}
        for call in range(CALLS if found else 0):
            known: dict[str, Any] = {
                name: one.at(call, number) for number, (name, one) in enumerate(self.leaves)
            }
            with quiet(), suppress(Exception):  # operators raise any exceptions
                for node in self.nodes:
                    do: Any = node.do
                    args, kwargs = thawed(replace_refs((node.args, node.kwargs), known))
                    known[node.name] = do.target(*args, **dict(kwargs))
            found -= {
                name
                for name, one in known.items()
                if isinstance(one, torch.Tensor) and not one.isfinite().all()
            }
        return found

    @property
    def size(self) -> tuple[int, int, int]:
        """The sort key; the simplest instance has the smallest."""
        floats = all(one.value.dtype is torch.float32 for _, one in self.leaves)
        return (
            not floats,
            sum(one.value.numel() for _, one in self.leaves),
            sum(one.value.dim() for _, one in self.leaves),
        )


def instance_of(
    pattern: Callable[..., Any], operands: Assignment, variables: tuple[str, ...] = ()
) -> Instance | None:
    """Trace a pattern on operands; return None if it raises or does not return tensors.

    Args:
        pattern: the function of the rule.
        operands: the values of its variables.
        variables: their names.
    """
    leaves = leaves_of(operands)

    def computed(*tensors: Any) -> Any:
        rest = iter(tensors)
        return pattern(
            *pytree.tree_map(lambda one: next(rest) if one.is_tensor else one.value, operands)
        )

    try:
        with quiet():
            program = import_fx(
                make_fx(computed, pre_dispatch=True)(*[one.at(0) for one in leaves])
            )
    except Exception:  # noqa: BLE001  torch and its tracer raise any exceptions
        return None
    names, results = (
        [formal.name for formal in program.main.inputs],
        tuple(program.main.output_refs()),
    )
    held = {
        node.name: program.state[node.do.slot].value
        for node in program.main.nodes
        if type(node.do) is Get
    }
    is_usable = len(names) == len(leaves) and all(
        isinstance(value, torch.Tensor) for value in held.values()
    )
    if not results or not is_usable or not all(name in program.main.by_name for name in results):
        return None
    nodes = tuple([node for node in program.main.nodes if node.name not in held])
    constants = [(name, Operand(value.detach(), "held")) for name, value in held.items()]
    named = (*zip(names, leaves, strict=True), *constants)
    return Instance(operands, named, nodes, results, variables, dict.fromkeys(held, "constant"))


def instances(
    rule: Any, *, number: int, operands: Any = None, finite: bool = False, exact: bool = True
) -> Iterator[Instance | None]:
    """Iterate over distinct instances of the pattern of a rule; None for each failed attempt.

    Args:
        rule: a rule with a pattern.
        number: the seed.
        operands: a strategy of tuples, or a function of ``draw`` that returns one; by default they are searched.
        finite: whether to leave out infinities and NaN.
        exact: whether results are compared bit by bit; otherwise types coarser than single precision are left out.

    >>> import purefx as px
    >>> found = [each for each, _ in zip(instances(px.rule(lambda x: torch.relu(x)), number=0), range(150)) if each]
    >>> found[0]
    (x=int32[2, 1])
    >>> several = [x for each in found for _, x in each.leaves if x.value.dtype is torch.bfloat16]
    >>> len(several) > 3 and all(x.at(CALLS - 1).isfinite().all() for x in several)
    True
    """
    draw, seen = random.Random(number), set[str]()  # noqa: S311  not secret
    given = [] if operands is None else _given(rule, operands, number)
    for turn, way in zip(range(ATTEMPTS), ways_of(rule.pattern, draw), strict=False):
        with quiet():
            # Each turn of the given operands begins with another one, so that alternatives meet all of them.
            found = given[(turn + turn // len(given)) % len(given)] if given else way.operands()
        if found is None:
            yield None
            continue
        is_coarse = (
            not exact
            and operands is None
            and any(one.value.dtype in COARSE for one in leaves_of(found))
        )
        if (key := f"{[*way.chosen.values()]} {found}") not in seen and not is_coarse:
            seen.add(key)
            assignment = pytree.tree_map(
                lambda one: evolve(one, finite=finite or one.finite), found
            )
            pattern = way if way.chosen else rule.written
            made = instance_of(pattern, assignment, rule.variables)
            yield made and evolve(made, keeps_inner=rule.keeps_inner)


def _given(rule: Any, operands: Any, number: int) -> list[Assignment]:
    if not isinstance(operands, st.SearchStrategy):
        operands = st.composite(lambda draw, function: function(draw))(operands)
    with quiet():
        return [
            _assignment(rule, values)
            for values in examples_of(operands, GIVEN, number, longest=GIVEN)
        ]


def _assignment(rule: Any, values: Any) -> Assignment:
    def operand(value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(one, torch.Tensor) for one in value):
            return [operand(one) for one in value]
        return (
            Operand(value.detach(), "given") if isinstance(value, torch.Tensor) else Operand(value)
        )

    named = [values[name] for name in rule.variables] if isinstance(values, Mapping) else values
    return [operand(each) for each in (named if isinstance(named, tuple | list) else (named,))]


# -- near misses -----------------------------------------------------------------------------------------------------------------


def changed(instance: Instance, place: int) -> Instance:
    """Change one literal, or one of several uses of a tensor; return the instance itself if it has neither.

    Arguments at their defaults are literals too.

    Args:
        instance: a pattern on operands.
        place: selects the change.

    >>> found = instance_of(lambda x: x.transpose(0, 1), [Operand(torch.ones(2, 2))])
    >>> [changed(found, place).nodes[0].args[1:] for place in range(2)]
    [(1, 1), (0, 2)]
    >>> found = instance_of(lambda x: x + x, [Operand(torch.ones(2, 2))])
    >>> changed(found, 0).nodes[0].kwargs, len(changed(found, 1).leaves)
    ((('alpha', 2),), 2)
    >>> found = instance_of(lambda x: x.to(torch.float64), [Operand(torch.ones(2, 2))])
    >>> changed(found, 0).nodes[0].args[1:]
    (torch.float32,)
    """
    ways = [*_with_other_literals(instance), *_with_other_operands(instance)]
    return ways[place % len(ways)] if ways else instance


def _with_other_literals(instance: Instance) -> Iterator[Instance]:
    for number, node in enumerate(instance.nodes):
        assert type(node.do) is Op
        named, target = dict(node.kwargs), node.do.target
        parameters = (
            parameters_of(target) if isinstance(target, OpOverload) else [PLAIN] * len(node.args)
        )
        # Change omitted arguments too: a pass that ignores one is only right for the default.
        for place, one in enumerate(parameters):
            value = node.args[place] if place < len(node.args) else named.get(one.name, one.default)
            yield from [
                _with_arg(instance, number, place, other, one.name)
                for other in _others(value, one.name, one.kind)
            ]


PLAIN = Parameter(
    "", "", kwarg_only=False, has_default=False, default=None, size=None, is_written=False
)
"""The parameters of functions without a schema, such as those that select a result."""


def _others(value: Any, name: str, kind: str) -> list[Arg]:
    # Other values for a literal argument.
    match value:
        case _ if name in IRRELEVANT:
            return []
        case _ if name == "dtype":
            return [torch.float32 if value is torch.float64 else torch.float64]
        case None:
            return [OF_NONE[kind]] if kind in OF_NONE else []
        case bool():
            return [not value]
        case int() | float():
            return [value + 1]
        case str():
            return [other for group in WORDS if value in group for other in group if other != value]
        case Items() if value and all(type(one) is int for one in value):
            return [Items([*value[:-1], value[-1] + 1])]  # type: ignore[operator]
        case _:
            return []


def _with_other_operands(instance: Instance) -> Iterator[Instance]:
    # Replace the last of several uses of a tensor by another tensor with the same type.
    args = [
        (number, place, arg)
        for number, node in enumerate(instance.nodes)
        for place, arg in enumerate(node.args)
    ]
    for name, operand in instance.leaves:
        uses = [(number, place) for number, place, arg in args if arg == Ref(name)]
        if len(uses) > 1:
            found = _with_arg(instance, *uses[-1], Ref(f"{name}_other"))
            yield evolve(found, leaves=(*instance.leaves, (f"{name}_other", operand)))


def _with_arg(instance: Instance, number: int, place: int, arg: Arg, name: str = "") -> Instance:
    node = instance.nodes[number]
    if place < len(node.args):
        node = evolve(node, args=(*node.args[:place], arg, *node.args[place + 1 :]))
    else:
        node = evolve(node, kwargs=tuple({**dict(node.kwargs), name: arg}.items()))
    return evolve(instance, nodes=(*instance.nodes[:number], node, *instance.nodes[number + 1 :]))
