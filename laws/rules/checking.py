"""``check_rule``: the laws for a rewrite rule, on programs that are drawn around what it looks for.

The operands of a pattern are found by trying it; programs have it in all the places where a rewrite goes wrong: other users,
writes in between, views, state, shared bodies, branches.  A rule that matches in few of them was not checked, and that is an
error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import hypothesis.strategies as st
from attrs import evolve, frozen

from ...ir.graph import Graph
from ...ir.names import escaped
from ...ir.program import Program
from ...transforms import Fuel
from ..asking import LawBroken, assert_law, smallest
from ..checking import NothingChecked, WrongQuestion, cases_of, check_question, seed_of
from ..evaluate import Tolerance
from ..law import Case, Law, Transform
from ..tiers import case_with_calls, examples_of, share
from ..values import false_values
from .build import Drawn, Recipe, build, recipes
from .found import WANTED, Found, did, found_of, is_drawable
from .instances import Instance
from .laws import BY_RESULT, RULE_LAWS, for_rule, on_meaning, on_state_of_both, remembering

__all__ = ["RuleReport", "case_of_drawn", "check_rule"]

EXAMPLES = 50
"""How many programs are drawn by default."""

LONGEST = 100
"""How many programs one run of hypothesis draws: the first of a run have nothing that a rule looks for."""

LEAST = 30
"""Fewer programs do not tell whether a rule matches in half of them."""

NEAR = 5
"""For so many programs there is one more in which the patterns have another literal."""

ASKED_ALL = 8
"""On how many programs the laws are asked that apply a rule many times."""

NOTHING = Program.of({"": Graph((), (), ())})

SECONDS = 10.0
"""How long smaller programs are looked for."""


@frozen
class RuleReport:
    """What the laws were asked on, where all of them hold.

    >>> print(RuleReport("fused", 20, drawn=50, matched=45, matches=80, near=10, near_matched=1))
    fused keeps 20 laws: it matched in 45 of 50 programs that were drawn around it (80 matches), and in 1 of 10 near misses
    """

    name: str
    """Of the rule."""
    laws: int
    drawn: int
    """How many programs were drawn around the pattern."""
    matched: int
    """In how many of those it was applied."""
    matches: int
    """How often in all."""
    near: int = 0
    """How many programs have a pattern in which one literal is another."""
    near_matched: int = 0
    given: int = 0
    """How many programs of the user's there are."""
    given_matched: int = 0
    by_rule: Mapping[str, int] = {}
    """How often each rule of a set was applied in drawn programs."""

    def __str__(self) -> str:
        drawn = (
            f"{self.matched} of {self.drawn} programs that were drawn around it ({self.matches} matches)" if self.drawn else ""
        )
        near = f"{self.near_matched} of {self.near} near misses" if self.near else ""
        given = f"{self.given_matched} of {self.given} given" if self.given else ""
        return escaped(
            f"{self.name} keeps {self.laws} laws: it matched in {', and in '.join(filter(None, (drawn, near, given)))}"
        )


def check_rule(
    rule: Any,
    *,
    laws: Iterable[Law] = RULE_LAWS,
    examples: int | None = None,
    seed: int | None = None,
    operands: Any = None,
    programs: Iterable[Any] = (),
    rtol: float = 0.0,
    atol: float = 0.0,
    finite: bool = False,
    changes_state: bool = False,
) -> RuleReport:
    """Raise unless laws hold for a rule, on programs that are drawn around what it looks for, and on those given.

    Args:
        rule: a ``Rule`` or a ``RuleSet``; one without a pattern, which is a function of nodes, needs ``programs``.
        laws: what should hold; see ``purefx.laws.rules.RULE_LAWS``.
        examples: how many programs are drawn; by default 50, times the factor of the hypothesis profile.  With ``programs`` it
            may be 0.
        seed: draws other programs; by default always the same ones, or others each time where the profile says so.
        operands: what the variables of the pattern may be, where it is not found or too much is: a hypothesis strategy of tuples,
            or a function that is given ``draw`` and returns one; tensors and arguments as they stand, in the order of the
            variables.  For a set a dict of these by the name of the rule.
        programs: your own, asked first: ``(program, args)`` or ``(program, args, kwargs)``, where a program is a ``Program``, an
            ``ExportedProgram`` or a ``torch.nn.Module``.
        rtol: how far floating point numbers may be from those before, relative to them; by default to the last bit.
        atol: how far they may be apart in any case.
        finite: whether numbers that are infinite, or none, are left out; of computed values that a pattern is applied to also
            those whose square is infinite.
        changes_state: whether the rule may bring state and drop some; then only the state counts that is there before and after.

    Returns:
        In how many programs the rule matched, where all laws hold.

    Raises:
        LawBroken: a law does not hold; the message shows the smallest program found, as text that ``purefx.parse`` reads, what it
            was called with, what came out and what should have.
        NothingChecked: the rule matched in fewer than half of the programs that were drawn around it; give ``operands``.
        WrongQuestion: an argument is none that a law can be asked with.

    >>> import torch, purefx as px
    >>> doubled = px.rule(lambda x: x + x, where=lambda m: m.dtype("x") == torch.float32).becomes(lambda m, x: x * 2)
    >>> print(check_rule(doubled, examples=5))  # doctest: +ELLIPSIS
    <lambda> keeps ... laws: it matched in 5 of 5 programs that were drawn around it (... matches), and in 0 of 1 near misses
    """
    __tracebackhide__ = True
    limits = Tolerance(rtol, atol)
    asked, own, rules = _checked(rule, laws, examples, programs, operands, limits)
    once = any(getattr(each, "once", False) for each in getattr(rule, "rules", (rule,)))
    asked = for_rule(asked, once=once, changes_state=changes_state)
    count = share(EXAMPLES) if examples is None else examples
    number = seed_of(seed)
    transform = getattr(rule, "transformation", rule)
    wanted = min(WANTED, 4 + count // 3)
    pools = _pools(rules, operands, number, wanted=wanted, finite=finite, exact=not limits) if count else []
    question = _Question(transform, _name(rule), pools, number, limits, changes_state)
    yours = [question.prepared(evolve(case, tolerance=limits)) for case in own]
    for group in (yours, question.plain()):
        question.ask(asked, group)
    drawn = question.enough(count) if pools else []
    question.ask(asked, drawn, changed=False)
    near = question.cases(-(-count // NEAR), changed=True) if pools else []
    question.ask(asked, near, changed=True)
    report = question.report(asked, drawn, near, yours)
    _check_enough(report, rules, pools)
    return report


def _checked(
    rule: Any, laws: Any, examples: Any, programs: Any, operands: Any, limits: Tolerance
) -> tuple[tuple[Law, ...], list[Case], list[Any]]:
    if not callable(rule):
        raise WrongQuestion(f"check_rule takes a rule, px.rule(...), and not a {type(rule).__name__}")
    ways = operands.values() if isinstance(operands, Mapping) else (operands,)
    if not all(each is None or callable(each) or isinstance(each, st.SearchStrategy) for each in ways):
        raise WrongQuestion("operands is a strategy of tuples, or a function that is given `draw`; or a dict of these by rule")
    transform, numbers = getattr(rule, "transformation", rule), (limits.rtol, limits.atol)
    own = cases_of(programs)
    asked = check_question(transform, laws, "flat", "aten", examples, given=bool(own), tolerances=numbers)
    transform(NOTHING)  # a rule without a replacement says so
    rules = [each for each in getattr(rule, "rules", (rule,)) if is_drawable(each)]
    if not rules and not own:
        raise WrongQuestion(
            f"{_name(rule)} has no pattern to draw programs around; give some that it rewrites, as programs=[(program, args)]"
        )
    return asked, own, rules


def _name(rule: Any) -> str:
    return getattr(rule, "name", None) or getattr(rule, "__name__", repr(rule))


def _pools(rules: Sequence[Any], operands: Any, number: int, **options: Any) -> list[Found]:
    by_name = operands if isinstance(operands, Mapping) else {each.name: operands for each in rules}
    found = [found_of(each, number=number, operands=by_name.get(each.name), **options) for each in rules]
    nothing = [each for each in found if not each.hits]
    if nothing:
        raise NothingChecked("\n".join([each.explained() for each in nothing]) + f"\nso the laws would say nothing. {ADVICE}")
    return found


ADVICE = (
    "Say what its variables may be, as operands=lambda draw: (torch.ones(2, 3), ...), or give programs that it rewrites,\n"
    "as programs=[(program, args)]; numbers of a tensor are kept, and change places from call to call."
)


@frozen(eq=False)
class _Question:
    """One rule, and the programs that it is asked on."""

    transform: Transform
    name: str
    pools: Sequence[Found]
    number: int
    tolerance: Tolerance
    changes_state: bool = False

    def prepared(self, case: Case) -> Case:
        """Return a case that runs each program once, and knows which state counts."""
        return on_meaning(on_state_of_both(case, self.transform) if self.changes_state else case)

    @property
    def pool(self) -> list[Instance]:
        """The patterns that programs are made of: those of several rules take turns."""
        pools = [each.pool for each in self.pools]
        longest = max(map(len, pools), default=0)
        return [pool[place] for place in range(longest) for pool in pools if place < len(pool)]

    def plain(self) -> list[Case]:
        """Return the cases of the patterns by themselves, the simplest first: what breaks there need not be made smaller."""
        found = [each for pool in self.pools for each in pool.plain]
        drawn = [each for _, each in sorted(found, key=lambda pair: pair[0].size)]
        return [self.prepared(case) for each in drawn if (case := case_of_drawn(each, 0, self.tolerance)) is not None]

    def made(self, *, changed: bool) -> st.SearchStrategy[Case | None]:
        """Return a strategy of cases."""
        made = recipes(changed=changed).map(partial(_case, pool=self.pool, tolerance=self.tolerance))
        return made.map(lambda case: None if case is None else self.prepared(case))

    def cases(self, count: int, *, changed: bool = False, run: int = 0) -> list[Case]:
        """Return drawn cases, the same ones whenever it is asked; those of another run are others."""
        drawn: list[Case | None] = examples_of(self.made(changed=changed), count, self.number + run, longest=LONGEST)
        return [case for case in drawn if case is not None]

    def enough(self, count: int) -> list[Case]:
        """Return drawn cases; more than asked for where those do not say whether the rule matches in half of them.

        Programs of one run of hypothesis are near each other, so a second run is asked before it is said that few match.
        """
        found = self.cases(count)
        if 2 * sum(did(self.transform, case.program) > 0 for case in found) >= len(found):
            return found
        return self.cases(LEAST) if count < LEAST else [*found, *self.cases(count, run=1)]

    def ask(self, laws: Sequence[Law], cases: Sequence[Case], *, changed: bool | None = None) -> None:
        """Raise the first law that does not hold, with the smallest program."""
        __tracebackhide__ = True
        once = remembering(self.transform, self.name)
        few = ASKED_ALL if changed is False else ASKED_ALL // 4
        most = sorted(cases, key=lambda case: -did(self.transform, case.program))[:few]
        for law in laws:
            is_quick = law in BY_RESULT
            for case in cases if is_quick else most:
                try:
                    assert_law(once if is_quick else self.transform, law, case)
                except LawBroken as error:
                    raise self._shown(error, law, len(cases), changed).with_traceback(None) from None

    def _shown(self, error: LawBroken, law: Law, count: int, changed: bool | None) -> LawBroken:  # noqa: FBT001
        if changed is None:
            return error  # small already, or the user's own
        named = self.transform if law not in BY_RESULT else _plain(self.transform, self.name)
        found = smallest(
            named, law, self.made(changed=changed), examples=count, number=self.number, seconds=SECONDS, tolerance=self.tolerance,
            longest=LONGEST,
        )  # fmt: skip
        shown = found or error
        shown.add_note(f"The programs: examples={count}, seed={self.number}; check_rule draws them again.")
        return shown

    def report(self, laws: Sequence[Law], drawn: Sequence[Case], near: Sequence[Case], given: Sequence[Case]) -> RuleReport:
        """Return what was asked."""
        counts = [[did(self.transform, case.program) for case in group] for group in (drawn, near, given)]
        by_rule = Counter[str]()
        for case in drawn:
            by_rule.update(_labels(self.transform, case))
        matched = [sum(map(bool, group)) for group in counts]
        return RuleReport(
            self.name, len(laws), len(drawn), matched[0], sum(counts[0]), len(near), matched[1], len(given), matched[2], by_rule
        )


def _plain(transform: Transform, name: str) -> Transform:
    def applied(program: Any) -> Any:
        return transform(program)

    applied.__name__ = name
    return applied


def _labels(transform: Any, case: Case) -> list[str]:
    fuel = Fuel(1 << 30)
    transform.spend(case.program, fuel)
    return [label.removeprefix("apply ").rpartition(" at ")[0] for label in fuel.labels]


def _case(recipe: Recipe, *, pool: Sequence[Instance], tolerance: Tolerance) -> Case | None:
    drawn = build(recipe, pool)
    return None if drawn is None else case_of_drawn(drawn, recipe.variant, tolerance)


def case_of_drawn(drawn: Drawn, variant: int, tolerance: Tolerance) -> Case | None:
    """Return the case of a program that was drawn around patterns; None where it cannot be run, or does not keep its sizes.

    Args:
        drawn: the program and its arguments.
        variant: a seed.
        tolerance: how far numbers may be apart.
    """
    case = evolve(case_with_calls(drawn.program, drawn.calls, seed=variant), tolerance=tolerance)
    try:
        case.meaning(case.program)
    except Exception:  # noqa: BLE001  what a program computes in a later call may be refused
        return None
    # How many parts a chunk of a growing size has differs from call to call: the exporter would not give such a program.
    grows = bool(drawn.program.constraints.ranges)
    return None if grows and false_values(case.program, case.calls) else case


def _check_enough(report: RuleReport, rules: Sequence[Any], pools: Sequence[Found]) -> None:
    if report.given_matched and not report.drawn:
        return
    if not report.drawn and not report.given_matched:
        raise NothingChecked(f"{report.name} matched in none of {report.given} programs, so nothing was checked. {ADVICE}")
    if 2 * report.matched < report.drawn:
        tried = "; ".join([f"{each.rule.name} on {', '.join(map(repr, each.pool[:4]))}" for each in pools])
        raise NothingChecked(
            f"{report.name} matched in {report.matched} of {report.drawn} programs that were drawn around it, less than half, so "
            f"little was checked.\nTried were {tried} ...\n{ADVICE}"
        )
    never = [each.name for each in rules if not report.by_rule.get(each.name)]
    if never:
        raise NothingChecked(
            f"{', '.join(never)} never matched beside the other rules of {report.name}: they take what it looks for. {ADVICE}"
        )
