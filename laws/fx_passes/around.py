"""``seeds_of``: generate programs around example graphs and patterns.

Random programs rarely contain the pattern of a pass.  Programs around an example contain it on operands of other types
and sizes, with writes in between, other users, views, and sometimes a changed literal; see ``laws/rules/build.py``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import evolve

from ...ir.program import Program
from ...ir.torch_private import pytree
from ...lowering import lower
from ...transforms.rules.rule import Rule
from ..checking import WrongQuestion, example_of
from ..law import Case
from ..rules.build import drawn_around
from ..rules.instances import Assignment, Instance, Operand, instance_of, instances

HOW = "around takes rules, and pairs of a pattern (a function, module, exported program or program) and a tuple of arguments"

DRAWN = 20
"""The number of times that the operands of the pattern of a rule are drawn."""

DTYPES = (torch.float64, torch.int64)
"""The dtypes of operands besides those of the example."""


def seeds_of(around: Iterable[Any]) -> tuple[Instance, ...]:
    """Return the patterns to draw programs around, the simplest first.

    Args:
        around: rules, for whose patterns arguments are drawn; pairs of a function, a module, an exported program or a program,
            and the tuple of its example arguments; a dict of keyword arguments may follow.

    Raises:
        WrongQuestion: an element is of another type, or cannot be traced.

    >>> [[node.do.name for node in seed.nodes] for seed in seeds_of([(lambda x: x + 0, (torch.ones(2, 3),))])][:1]
    [['aten.add.Tensor']]
    """
    if isinstance(around, str | Program | torch.nn.Module) or not isinstance(around, Iterable):
        raise WrongQuestion(f"around must be a list, not a {type(around).__name__}; {HOW}")
    found = [seed for number, example in enumerate(around) for seed in _of_example(number, example)]
    return tuple(sorted(found, key=lambda one: one.size))


def _of_example(number: int, example: Any) -> list[Instance]:
    where = f"around[{number}]"
    if isinstance(example, Rule):
        drawn = [
            one
            for one in islice(instances(example, number=0, finite=True), DRAWN)
            if one is not None
        ]
        if not drawn:
            raise WrongQuestion(
                f"{where}: no arguments were found for the pattern of {example.name}; pass (function, args)"
            )
        return drawn
    source, args, kwargs = example_of(where, example, HOW)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    function, name = _callable(where, source), getattr(source, "__name__", type(source).__name__)

    def computed(*leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        return function(*args, **kwargs)

    operands = [Operand(_plain(leaf), _style(leaf), finite=True) for leaf in leaves]
    first = instance_of(computed, operands)
    if first is None:
        raise WrongQuestion(
            f"{where}, {name}, cannot be traced with its arguments by torch's make_fx, or returns no tensor"
        )
    others = (instance_of(computed, other) for other in _others(operands))
    return [first, *[one for one in others if one is not None]]


def _callable(where: str, source: Any) -> Callable[..., Any]:
    if isinstance(source, Program):
        return lower(source)
    if isinstance(source, torch.export.ExportedProgram):
        return copy.deepcopy(source).module()
    if not callable(source):
        raise WrongQuestion(f"{where} begins with a {type(source).__name__}; {HOW}")
    return copy.deepcopy(source) if isinstance(source, torch.nn.Module) else source


def _plain(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _style(leaf: Any) -> str:
    # Keep positions; other numbers may vary.
    return "signed" if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else "given"


def _others(operands: Assignment) -> Iterator[Assignment]:
    # Another dtype or other sizes for all tensors together, and for each tensor alone, which promotes and broadcasts.
    tensors = [
        number
        for number, one in enumerate(operands)
        if one.is_tensor and one.value.is_floating_point()
    ]
    for places in [tensors, *([place] for place in tensors if len(tensors) > 1)]:
        for dtype in DTYPES:
            yield _with(operands, places, lambda value, dtype=dtype: value.to(dtype))
        for size in sorted(
            {size for place in places for size in operands[place].value.shape if size > 1}
        ):
            for other in (size + 1, 1):
                yield _with(operands, places, partial(_resized, size=size, other=other))


def _resized(value: torch.Tensor, *, size: int, other: int) -> torch.Tensor:
    return value.new_ones([other if one == size else one for one in value.shape])


def _with(
    operands: Assignment, places: Sequence[int], change: Callable[[torch.Tensor], torch.Tensor]
) -> Assignment:
    return [
        evolve(one, value=change(one.value)) if place in places else one
        for place, one in enumerate(operands)
    ]


# -- programs around them --------------------------------------------------------------------------------------------------------


def cases_around(
    seeds: Sequence[Instance], barred: frozenset[str]
) -> st.SearchStrategy[Case | None]:
    """Return the strategy of cases around patterns, most of them within a contract; None if no valid program was built.

    Args:
        seeds: the patterns.
        barred: excluded features; see ``Contract.barred``.

    >>> from ..tiers import examples_of
    >>> seeds = seeds_of([(lambda x: x + 0, (torch.ones(2, 3),))])
    >>> found = examples_of(cases_around(seeds, frozenset({"views"})), 3, 0)
    >>> any("aten.add.Tensor" in case.program.text() for case in found if case is not None)
    True
    """
    same, near = (
        drawn_around(seeds, near=near, is_flat=True, barred=barred) for near in (False, True)
    )
    return st.one_of(same, same, same, near)
