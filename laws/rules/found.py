"""``Found``: the operands on which a pattern runs, those where the rule matches apart from those where it does not.

They are looked for until there are some where it does: a condition that holds for few is met as well.  Where there is none, what
was tried says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import Any

import hypothesis.strategies as st
import torch
from attrs import define, evolve, field

from ...ir.graph import Op
from ...ir.program import Program
from ...transforms import Fuel
from ...transforms.rules.pattern import role
from ..tiers import examples_of
from .build import Drawn, simplest
from .instances import Instance, instance_of
from .operands import Assignment, Operand, assignments, leaves_of, only_finite, quiet, ways_of

__all__ = ["Found", "found_of", "is_drawable", "searched"]

COARSE = (torch.float16, torch.bfloat16)

WANTED = 20
"""How many operands are looked for at most on which a rule matches."""

ATTEMPTS = 2500
"""How many beginnings are tried."""

TRACED = 90
"""How many operands are run under torch's tracer, and given to the rule."""

VARIED = ((7, 0, 0), (0, 0, 3), (8, 0, 0), (9, 0, 0), (0, 1, 3), (0, 1, 0), (7, 1, 0), (5, 3, 0), (0, 2, 0), (6, 5, 0))
"""Where operands come from, what becomes of results, and whether a size is a symbol, in turn: one more program for each pattern,
as small."""

OTHERS = 5
"""One in so many programs has operands on which the rule does not match."""


@define
class Found:
    """What was found for one rule."""

    rule: Any
    hits: list[Instance] = field(factory=list)
    misses: list[Instance] = field(factory=list)
    plain: list[tuple[Instance, Drawn]] = field(factory=list)
    """The programs that compute a pattern and something of its result, where the rule matches."""
    fails: bool = False
    """Whether the rule raised something on the last of them; the laws will say what."""
    tried: int = 0
    """How many operands the pattern did not run on."""

    @property
    def pool(self) -> list[Instance]:
        """What programs are drawn from, the simplest first; mostly operands on which the rule matches.

        The first is drawn most often, so where a pattern looks through views, it is one that has some.
        """
        hits, misses = (sorted(each, key=lambda one: one.size) for each in (self.hits, self.misses))
        if any(role(each) == "through" for each in self.rule.pattern.parts):
            least = min([len(one.nodes) for one in hits], default=0)
            hits.sort(key=lambda one: len(one.nodes) == least)
        return [*hits, *misses[: len(hits) // OTHERS]]

    def explained(self) -> str:
        """Return why there are no operands on which the rule matches, as far as they tell."""
        name = self.rule.name
        if not self.misses:
            return f"{name}: none of {self.tried} ways to choose its variables ran"
        first = min(self.misses, key=lambda one: one.size)
        operators = ", ".join([node.do.name for node in first.nodes if type(node.do) is Op])
        why = "its condition (where=) held for none of them" if self.rule.conditions else f"it looks for {self.rule.pattern!r}"
        return (
            f"{name} ran on {len(self.misses)} operands and matched on none; {why}. "
            f"On {first!r} torch makes {operators} of the pattern"
        )


def is_drawable(rule: Any) -> bool:
    """Return whether a rule has a pattern that programs can be drawn around.

    >>> import purefx as px
    >>> is_drawable(px.rule(lambda x: torch.relu(x))), is_drawable(px.sink_state)
    (True, False)
    """
    # What is called with each match of an operator (`at=`) has no variables, and says nothing about what is around it.
    return bool(getattr(rule, "variables", ())) and not getattr(rule, "may_leave", False)


def found_of(
    rule: Any, *, number: int, operands: Any = None, wanted: int = WANTED, finite: bool = False, exact: bool = True
) -> Found:
    """Return operands for the variables of a rule.

    Args:
        rule: one rule.
        number: chooses.
        operands: of the user's: a strategy of tuples, or a function that draws one; by default they are looked for.
        wanted: how many are enough on which the rule matches.
        finite: whether nothing that is infinite or not a number may be among their numbers.
        exact: whether numbers are compared bit by bit; a tolerance is for single precision, and no coarser type is looked for.
    """
    found = Found(rule)
    drawn = searched(rule, number) if operands is None else _given(rule, operands, number)
    traced = 0
    seen: set[tuple[int, str]] = set()
    with quiet():
        for pattern, assignment in drawn:
            if (
                assignment is None
                or (id(pattern), repr(assignment)) in seen
                or (not exact and operands is None and any(one.value.dtype in COARSE for one in leaves_of(assignment)))
            ):
                found.tried += assignment is None
                continue
            seen.add((id(pattern), repr(assignment)))
            assignment = only_finite(assignment) if finite else assignment
            instance = instance_of(pattern, assignment, rule=rule.name, variables=rule.variables)
            traced += 1
            if instance is None:
                found.tried += 1
            else:
                _sort(found, instance)
            if found.fails or len(found.hits) >= wanted or traced >= TRACED:
                break
    return found


def _sort(found: Found, instance: Instance) -> None:
    drawn = simplest(instance)
    if drawn is None:
        found.tried += 1
        return
    count = _tried(found, drawn)
    if not count and (reading := _from_state(found, instance)) is not None:
        instance, count = reading, 1
        drawn = simplest(instance) or drawn
    if count:
        found.hits.append(instance)
        feed, end, dynamic = VARIED[len(found.hits) % len(VARIED)]
        varied = None if found.fails else simplest(instance, feed=feed, end=end, dynamic=dynamic)
        found.plain += [(instance, each) for each in (drawn, varied) if each is not None]
    else:
        found.misses.append(instance)


def _from_state(found: Found, instance: Instance) -> Instance | None:
    # Where the rule matches if operands are read from the state, or are constants: as few of them as it takes.
    names = [name for name, _ in instance.leaves]
    for some in (lambda wanted: evolve(instance, from_state=wanted), lambda wanted: evolve(instance, constants=wanted)):
        wanted = frozenset(names)
        if _matches(found, some(wanted)):
            for name in names:
                wanted = wanted - {name} if _matches(found, some(wanted - {name})) else wanted
            return some(wanted)
    return None


def _matches(found: Found, instance: Instance) -> bool:
    drawn = simplest(instance)
    return drawn is not None and bool(_tried(found, drawn))


def _tried(found: Found, drawn: Drawn) -> int:
    try:
        return matches_of(found.rule.transformation, drawn.program)
    except Exception:  # noqa: BLE001  whatever the rule raises: one such program is enough
        found.fails = True
        return 1


def did(transform: Any, program: Program) -> int:
    """Return how often a rule was applied to a program; 1 where that fails, for then the laws are asked."""
    try:
        return matches_of(transform, program)
    except Exception:  # noqa: BLE001  whatever the rule raises
        return 1


def matches_of(transform: Any, program: Program) -> int:
    """Return how often a rule is applied to a program; it raises what the rule raises."""
    if not hasattr(transform, "spend"):
        return int(transform(program) is not program)
    fuel = Fuel(1 << 30)
    transform.spend(program, fuel)
    return fuel.burnt


def searched(rule: Any, number: int) -> Iterator[tuple[Callable[..., Any], Assignment | None]]:
    """Iterate over the patterns of a rule with operands that they may run on; None in place of some that they do not.

    Args:
        rule: one with a pattern.
        number: chooses.

    >>> import purefx as px
    >>> len(list(searched(px.rule(lambda x: torch.relu(x)), 0))) == ATTEMPTS
    True
    """
    # The alternatives of a pattern take turns.
    sources = [(function, assignments(way, number=number + place)) for place, (way, function) in enumerate(ways_of(rule))]
    for _, (pattern, source) in zip(range(ATTEMPTS), cycle(sources), strict=False):
        yield pattern, next(source)


def _given(rule: Any, operands: Any, number: int) -> Iterator[tuple[Callable[..., Any], Assignment | None]]:
    strategy = operands if isinstance(operands, st.SearchStrategy) else _composite(operands)
    drawn = examples_of(strategy, 2 * WANTED, number, longest=2 * WANTED)
    patterns = [function for _, function in ways_of(rule)]
    for start in range(len(patterns)):  # each pattern in turn, and in the end each on all that was drawn
        yield from ((patterns[(start + place) % len(patterns)], _assignment(rule, values)) for place, values in enumerate(drawn))


def _composite(function: Callable[..., Any]) -> st.SearchStrategy[Any]:
    @st.composite
    def values(draw: Any) -> Any:
        return function(draw)

    return values()


def _assignment(rule: Any, values: Any) -> Assignment:
    def operand(value: Any) -> Operand:
        return Operand(value.detach(), "given") if isinstance(value, torch.Tensor) else Operand(value)

    def is_list(value: Any) -> bool:
        return isinstance(value, list) and any(isinstance(one, torch.Tensor) for one in value)

    named = [values[name] for name in rule.variables] if isinstance(values, Mapping) else values
    named = named if isinstance(named, tuple | list) else (named,)
    return [[operand(one) for one in each] if is_list(each) else operand(each) for each in named]
