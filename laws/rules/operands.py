"""Operands: what the variables of a rule may be, found by trying its operators on small tensors.

The operators of a pattern are run one after the other, innermost first; a variable gets its value where the first of them takes
it.  What fails is tried again with something else.  Whether the rule matches is not looked at here.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from attrs import evolve

from ...transforms.rules.amounts import Amount, Computed, Known, Rest, Sizes
from ...transforms.rules.overloads import converted, numbers_as_tensors
from ...transforms.rules.terms import AnyOf, Applied, Item, Var, parts_of, subterms, written
from ...transforms.rules.through import Through
from ..purity import seeded
from .candidates import candidate, kinds_of, operators_in
from .chains import Passed, chains_of, name_of
from .contents import Operand

__all__ = ["Assignment", "assignments", "patterns_of", "quiet"]

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
