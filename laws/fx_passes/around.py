"""``seeds_of``: example graphs and patterns as what programs are drawn around.

A pass that looks for one pattern finds it in no program that is drawn by chance.  Given the pattern on example arguments, the
programs hold it, on operands of other types and sizes as well, with writes in between, other users, views of operands and of
results, and sometimes with one literal changed.  How a program is built around patterns is in ``laws/rules``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import evolve

from ...ir.program import Program
from ...ir.torch_private import pytree
from ...lowering import lower
from ...transforms import Rule, RuleSet
from ..checking import WrongQuestion
from ..evaluate import Tolerance
from ..law import Case
from ..rules.build import BRANCH, ROOT, Hit, Recipe, Step, build, recipes
from ..rules.checking import case_of_drawn
from ..rules.found import is_drawable, searched
from ..rules.instances import Instance, instance_of
from ..rules.operands import Assignment, Operand, only_finite, quiet
from .contract import Contract

__all__ = ["cases_around", "seeds_of"]

HOW = (
    "around takes rules, px.rule(pattern), and pairs of what computes a pattern (a function, a module, an exported program or a "
    "program) and the tuple of its example arguments"
)

EXACT = Tolerance(0.0, 0.0)

OF_A_RULE = 12
"""On how many operands the pattern of a rule is drawn."""

FLAT = frozenset({"flat", "mutations in place", "token free"})

DTYPES = (torch.float64, torch.int64)
"""Of other operands than the example's."""

WRITES, DRAWS, PRINTS, SHARES = frozenset({2, 3, 4, 6}), frozenset({7}), frozenset({9}), frozenset({5, 11})
"""Kinds of nodes beside a pattern (``laws/rules/build.py``) that a contract may rule out."""

WRITING = (2, 3, 6)

OFTEN = 3
"""In one of so many programs something is written between the nodes of a pattern that would have nothing there."""

VIEWED = frozenset({7, 8, 9, 11})
"""Ways to come by an operand as a view of something."""


def seeds_of(around: Iterable[Any]) -> tuple[Instance, ...]:
    """Return the patterns that programs are drawn around, the simplest first.

    Args:
        around: ``px.rule(pattern)``, with a replacement or without; and pairs of a function, a module, an exported program or a
            program, and the tuple of its example arguments; a dict of keyword arguments may follow.

    Raises:
        WrongQuestion: something in it is none of that, or cannot be traced.

    >>> [[node.do.name for node in seed.nodes] for seed in seeds_of([(lambda x: x + 0, (torch.ones(2, 3),))])][:1]
    [['aten.add.Tensor']]
    """
    if isinstance(around, str | Program | torch.nn.Module | Rule | RuleSet) or not isinstance(around, Iterable):
        raise WrongQuestion(f"around is a {type(around).__name__} and not a list; {HOW}")
    found: list[Instance] = []
    for number, each in enumerate(around):
        rules = each.rules if isinstance(each, RuleSet) else [each] if isinstance(each, Rule) else None
        seeds = _of_example(number, each) if rules is None else [one for rule in rules for one in _of_rule(number, rule)]
        if not seeds:
            raise WrongQuestion(f"around[{number}] runs on none of the operands that were tried, so nothing is drawn around it")
        found += seeds
    return tuple(sorted(found, key=lambda one: one.size))


def _of_rule(number: int, rule: Rule) -> list[Instance]:
    if not is_drawable(rule):
        raise WrongQuestion(f"around[{number}], {rule.name}, has no pattern: it is called with each node; {HOW}")
    found: list[Instance] = []
    with quiet():
        for pattern, operands in searched(rule, 0):
            finite = None if operands is None else only_finite(operands)
            made = None if finite is None else instance_of(pattern, finite, rule=rule.name, variables=rule.variables)
            found += [] if made is None else [made]
            if len(found) >= OF_A_RULE:
                break
    return found


def _of_example(number: int, given: Any) -> list[Instance]:
    what = f"around[{number}]"
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise WrongQuestion(f"{what} is a {type(given).__name__}; {HOW}")
    source, args, kwargs = (*given, {})[:3]
    if not isinstance(args, tuple | list) or not isinstance(kwargs, Mapping):
        raise WrongQuestion(f"the arguments of {what} are a {type(args).__name__} and a {type(kwargs).__name__}; {HOW}")
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    function, name = _callable(what, source), getattr(source, "__name__", type(source).__name__)

    def computed(*leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        return function(*args, **kwargs)

    operands = [Operand(_plain(leaf), _style(leaf), finite=True) for leaf in leaves]
    first = instance_of(computed, operands, rule=name)
    if first is None:
        raise WrongQuestion(f"{what}, {name}, cannot be traced with its arguments by torch's make_fx, or gives no tensor")
    others = (instance_of(computed, other, rule=name) for other in _others(operands))
    return [first, *[one for one in others if one is not None]]


def _callable(what: str, source: Any) -> Callable[..., Any]:
    match source:
        case Program():
            return lower(source)
        case torch.export.ExportedProgram():
            return copy.deepcopy(source).module()
        case torch.nn.Module():
            return copy.deepcopy(source)
        case _ if callable(source):
            return source
        case _:
            raise WrongQuestion(f"{what} begins with a {type(source).__name__}; {HOW}")


def _plain(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _style(leaf: Any) -> str:
    # Positions have to be what they are; other numbers may be any.
    return "signed" if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else "given"


def _others(operands: Assignment) -> Iterator[Assignment]:
    # Of another type or of other sizes: all tensors, and each by itself, which promotes and broadcasts.
    tensors = [number for number, one in enumerate(operands) if one.is_tensor and one.value.is_floating_point()]
    for places in [tensors, *([place] for place in tensors if len(tensors) > 1)]:
        for dtype in DTYPES:
            yield _with(operands, places, lambda value, dtype=dtype: value.to(dtype))
        for size in sorted({size for place in places for size in operands[place].value.shape if size > 1}):
            for other in (size + 1, 1):
                yield _with(operands, places, partial(_resized, size=size, other=other))


def _resized(value: torch.Tensor, *, size: int, other: int) -> torch.Tensor:
    return value.new_ones([other if one == size else one for one in value.shape])


def _with(operands: Assignment, places: Sequence[int], change: Callable[[torch.Tensor], torch.Tensor]) -> Assignment:
    return [evolve(one, value=change(one.value)) if place in places else one for place, one in enumerate(operands)]


# -- programs around them --------------------------------------------------------------------------------------------------------


def cases_around(seeds: Sequence[Instance], contract: Contract) -> st.SearchStrategy[Case | None]:
    """Return the strategy of cases around patterns, most of them within a contract; None for what nothing came of.

    Args:
        seeds: the patterns.
        contract: what programs may do.

    >>> from ..tiers import examples_of
    >>> seeds = seeds_of([(lambda x: x + 0, (torch.ones(2, 3),))])
    >>> found = examples_of(cases_around(seeds, Contract(views=False)), 3, 0)
    >>> any("aten.add.Tensor" in case.program.text() for case in found if case is not None)
    True
    """
    drawn = st.one_of(recipes(), recipes(), recipes(), recipes(changed=True))
    return drawn.map(lambda recipe: _case(_within(recipe, contract), seeds))


def _case(recipe: Recipe, seeds: Sequence[Instance]) -> Case | None:
    drawn = build(recipe, seeds)
    if drawn is None:
        return None
    return case_of_drawn(evolve(drawn, program=drawn.program.evolve(facts=FLAT)), recipe.variant, EXACT)


def _within(recipe: Recipe, contract: Contract) -> Recipe:
    barred: frozenset[int] = frozenset()
    for allowed, kinds in (
        (contract.writes == "anywhere", WRITES),
        (contract.random, DRAWS),
        (contract.effects, PRINTS),
        (contract.views, SHARES),
    ):
        barred |= frozenset() if allowed else kinds

    def steps(given: Iterable[Step]) -> tuple[Step, ...]:
        return tuple([evolve(one, kind=0) if one.kind in barred else one for one in given])

    def hit(one: Hit) -> Hit:
        if contract.writes == "anywhere" and not one.between and recipe.variant % OFTEN == 1:
            place, kind, value = recipe.variant // 12 % 4, WRITING[recipe.variant // 48 % 3], recipe.variant // 3 % 4
            one = evolve(one, between=((place, Step(kind, value)),))
        between = tuple([(place, *steps([step])) for place, step in one.between])
        ends_badly = (one.end == 3 and contract.writes != "anywhere") or (one.end == 2 and not contract.views)
        feeds = one.feeds if contract.views else tuple([0 if feed in VIEWED else feed for feed in one.feeds])
        return evolve(one, between=between, feeds=feeds, end=0 if ends_badly else one.end)

    return evolve(
        recipe,
        before=steps(recipe.before),
        hits=tuple(map(hit, recipe.hits)),
        after=steps(recipe.after),
        place=BRANCH if recipe.place == BRANCH and contract.regions else ROOT,
        sunk=False,
        dynamic=recipe.dynamic if contract.dynamic else 0,
    )
