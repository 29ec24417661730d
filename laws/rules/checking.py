"""``check_rule``: test a rewrite rule against laws, on programs that are built around its pattern.

Operands of a pattern are found by running it.  The programs contain it in difficult places: with other users, intervening
writes, views, state, shared bodies, branches.  If a rule matches in few of them, the check fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import islice, zip_longest
from typing import Any

import hypothesis.strategies as st
from attrs import define, evolve, field, frozen

from ...ir.graph import Op
from ...ir.inference import ASSUMED
from ...ir.program import Program
from ...ir.verify import verify
from ...transforms import Fuel, Transformation
from ...transforms.rules.rule import Rule, RuleSet
from ..asking import Source, name_of, unwarned
from ..checking import (
    NothingChecked,
    Report,
    WrongQuestion,
    broken,
    cases_of,
    check_question,
    seed_of,
)
from ..evaluate import Tolerance
from ..law import FUEL, GENERIC, Case, Law, Transform, law, memory
from ..provenance import provenance
from ..tiers import share
from ..values import recorded_values
from .build import KEPT, drawn_around, is_cast, simplest
from .instances import Instance, instances

EXAMPLES = 50
"""The default number of drawn programs."""

LONGEST = 100
"""The number of programs in one run of hypothesis: the first of a run rarely match."""

LEAST = 30
"""The minimum number of programs for estimating the share of matches."""

NEAR = 5
"""The number of programs per program with changed literals in its patterns."""

ASKED_ALL = 8
"""The number of programs for the laws that apply a rule many times."""

WANTED = 20
"""The maximum number of matching operands to search for."""

TRACED = 90
"""The maximum number of operands to try."""

VARIED: tuple[dict[str, Any], ...] = (
    {"feed": "transposed"},
    {"dynamic": True},
    {"feed": "part"},
    {"feed": "expanded"},
    {"end": 1, "dynamic": True},
    {"end": 1},
    {"feed": "transposed", "end": 1},
    {"feed": "buffer", "end": 3},
    {"end": 2},
    {"feed": "tied", "end": 4},
)
"""Alternating choices for a second small program of each pattern."""

SECONDS = 10.0
"""The time for shrinking."""


def further(hit: Instance, number: int) -> list[dict[str, Any]]:
    """Return choices for further small programs: with kept inner values, and with the assertions of torch.export.

    Args:
        hit: a pattern on operands.
        number: selects the inner value.
    """
    found: list[dict[str, Any]] = []
    inner = len(hit.nodes) - len(hit.results)
    if hit.keeps_inner and inner > 0:
        kinds = list(filter(None, KEPT))
        found.append({"kept": kinds[number % len(kinds)], "inner": number // len(kinds) % inner})
    if any(map(is_cast, hit.nodes)):
        found.append({"asserted": True})
    return found


SMALL = 4
"""The number of patterns whose open sizes may be 0 or 1."""


def at_small_sizes(hits: Iterable[Instance]) -> list[Case]:
    """Return small programs with an open size, whose range starts at 0 or 1.

    Args:
        hits: patterns on operands.
    """
    cases: list[Case] = []
    for number, hit in enumerate(islice(filter(has_size_to_open, hits), SMALL)):
        place, least = divmod(number, ASSUMED)
        case = simplest(hit, dynamic=True, least=least, open=place)
        if case is not None and case.program.constraints.ranges:
            cases.append(case)
    return cases


def has_size_to_open(hit: Instance) -> bool:
    """Return whether an operand has a size that a symbol can replace.

    Args:
        hit: a pattern on operands.
    """
    return any(size > 1 for _, operand in hit.leaves for size in operand.value.shape)


ADVICE = (
    "Pass operands for its variables, operands=lambda draw: (torch.ones(2, 3), ...), or programs that it rewrites,\n"
    "programs=[(program, args)]; numbers of a tensor are kept and permuted between calls."
)


# -- laws ------------------------------------------------------------------------------------------------------------------------


@law("the fake values are those that the operators compute")
def inferred(transform: Transform, case: Case) -> list[str]:
    """List the fake values that differ from the inferred ones."""
    if verify(case.program, infer=True):
        return []
    return [str(violation) for violation in verify(transform(case.program), infer=True)]


OF_RULES = (memory, inferred, recorded_values, provenance)

RULE_LAWS: tuple[Law, ...] = (*GENERIC, *OF_RULES, *FUEL)
"""The laws of every rule: the generic laws, unchanged shared memory, right fake values."""

QUICK = {
    "valid",
    "meaning",
    "effects",
    "idempotent",
    "no-op",
    "frame",
    "state",
    "text",
    *(each.name for each in OF_RULES),
}
"""Laws about the results of one and two applications; the others are tested on fewer programs."""

STATE, REPEATED = frozenset({"state", "written results"}), frozenset({"idempotent", "unfinished"})
"""Laws that do not apply to rules that change the state, and to rules that match once."""


@frozen
class Once:
    """Applies a rule once to each program, and remembers the result and the rule of each match.

    >>> import torch, purefx as px
    >>> once = Once(px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x)).transformation)
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> once(program) is once(program), once.matches(program)
    (True, ['<lambda>'])
    """

    transform: Transformation
    known: dict[int, tuple[Program, Program, list[str]]] = field(
        factory=dict, init=False, repr=False
    )

    @property
    def name(self) -> str:
        """The name of the rule."""
        return self.transform.name

    def __call__(self, program: Program) -> Program:
        """Return the program with all matches replaced."""
        if id(program) not in self.known:
            fuel = Fuel(1 << 30)
            result = self.transform.spend(program, fuel)
            labels = [label.removeprefix("apply ").rpartition(" at ")[0] for label in fuel.labels]
            self.known[id(program)] = program, result, labels
        return self.known[id(program)][1]

    def matches(self, program: Program) -> list[str]:
        """Return the rule of each match; one without a name if it raises, so that the laws are tested."""
        with suppress(Exception):  # rules raise any exceptions
            self(program)
        return self.known.get(id(program), (program, program, [""]))[2]


# -- check_rule ------------------------------------------------------------------------------------------------------------------


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
) -> Report:
    """Raise unless a rule keeps the laws, on programs drawn around its pattern and on the user's own.

    Args:
        rule: a ``Rule`` or a ``RuleSet``; one without a pattern (``at=``) needs ``programs``.
        laws: the laws to test; see ``purefx.laws.rules.RULE_LAWS``.
        examples: the number of programs to draw; by default 50, times the factor of the hypothesis profile.  With ``programs`` it
            may be 0.
        seed: selects the programs; by default always the same ones, unless the profile draws new ones each time.
        operands: values for the variables of the pattern, if the search finds none or too many: a hypothesis strategy of tuples,
            or a function of ``draw`` that returns one; tensors and literals in the order of the variables.  For a set, a dict of
            these by the name of the rule.
        programs: your own, tested first: ``(program, args)`` or ``(program, args, kwargs)``, where a program is a ``Program``, an
            ``ExportedProgram`` or a ``torch.nn.Module``.
        rtol: relative tolerance of floating point numbers; by default they are compared bit by bit.
        atol: absolute tolerance.
        finite: leave out infinities and NaN, computed operands whose square is infinite, and programs in which a value of the
            pattern overflows that does not on the drawn operands.
        changes_state: whether the rule may add and drop state; then only common state is compared.

    Returns:
        The number of programs that were tested, and how many of them the rule changed.

    Raises:
        LawBroken: a law does not hold; the message shows the smallest program found, as text that ``purefx.parse`` reads, its
            arguments, the results and the expected results.
        NothingChecked: the rule matched in fewer than half of the programs that were drawn around it; pass ``operands``.
        WrongQuestion: an argument is invalid.

    >>> import torch, purefx as px
    >>> doubled = px.rule(lambda x: x + x, where=lambda m: m.dtype("x") == torch.float32).becomes(lambda m, x: x * 2)
    >>> print(check_rule(doubled, examples=5))  # doctest: +ELLIPSIS
    <lambda> keeps ... laws: it changed 5 of 5 programs that were drawn
    """
    __tracebackhide__ = True
    limits = Tolerance(rtol, atol)
    asked, own, rules = _checked(rule, laws, examples, programs, operands, limits)
    # A rule that is applied once matches its own results in the next call only.
    without = (STATE if changes_state else frozenset()) | (
        REPEATED if any(each.once for each in rule.rules) else frozenset()
    )
    asked = [each for each in asked if each.name not in without]
    count, number = share(EXAMPLES) if examples is None else examples, seed_of(seed)
    once = Once(rule.transformation)

    def prepared(case: Case | None) -> Case | None:
        return case and evolve(case, tolerance=limits, common_state=changes_state)

    def test(cases: Sequence[Case], most: int, source: Source | None = None) -> None:
        # Test laws of one application on all cases, the others on the cases with the most matches.
        __tracebackhide__ = True
        with nullcontext() if cases is given else unwarned():
            error = broken(once, [law for law in asked if law.name in QUICK], cases, source)
            if error is None:
                chosen = sorted(cases, key=lambda case: -len(once.matches(case.program)))[:most]
                error = broken(
                    rule.transformation,
                    [law for law in asked if law.name not in QUICK],
                    chosen,
                    source,
                )
        if error is not None:
            raise error.with_traceback(None) from None

    by_name = operands if isinstance(operands, Mapping) else {each.name: operands for each in rules}
    found = [Found(each) for each in rules if count]
    for each in found:
        options = {"number": number, "finite": finite, "exact": not limits}
        each.search(min(WANTED, 4 + count // 3), operands=by_name.get(each.rule.name), **options)
    if any(not each.hits for each in found):
        reasons = "\n".join([each.explained() for each in found if not each.hits])
        raise NothingChecked(f"{reasons}\nso the laws would not be tested. {ADVICE}")
    given = [case for each in own if (case := prepared(each))]
    test(given, ASKED_ALL)
    hits = sorted([hit for each in found for hit in each.hits], key=lambda hit: hit.size)
    small = [
        simplest(hit, **choices)
        for number, hit in enumerate(hits)
        for choices in ({}, VARIED[number % len(VARIED)], *further(hit, number))
    ]
    small += at_small_sizes(hits)
    test([case for each in small if (case := prepared(each))], ASKED_ALL // 4)
    cases: list[Case] = []
    if found:
        pool = [
            one
            for several in zip_longest(*[each.pool for each in found])
            for one in several
            if one is not None
        ]
        made, missed, pure = (
            drawn_around(pool, **each).map(prepared)
            for each in ({}, {"near": True}, {"barred": ("writes",)})
        )
        source = Source(made, count, number, limits, LONGEST, seconds=SECONDS)
        cases = source.cases()
        with unwarned():
            count_of_matches = sum(bool(once.matches(case.program)) for case in cases)
        if 2 * count_of_matches < len(cases):
            # Programs of one run are similar, and a write bars results that alias operands: draw a run without writes before
            # the rule counts as not matching.
            cases += evolve(
                source, strategy=pure, count=max(count, LEAST), number=number + 1
            ).cases()
        test(cases, ASKED_ALL, source)
        source = evolve(source, strategy=missed, count=-(-count // NEAR))
        test(source.cases(), ASKED_ALL // 4, source)
    changed, mine = (
        [case for case in each if once.matches(case.program)] for each in (cases, given)
    )
    report = Report(once.name, len(asked), len(cases), len(changed), 0, len(given), len(mine))
    if not cases and not mine:
        raise NothingChecked(
            f"{once.name} matched in none of {len(given)} programs, so nothing was checked. {ADVICE}"
        )
    if 2 * len(changed) < len(cases):
        tried = "; ".join(
            [f"{each.rule.name} on {', '.join(map(repr, each.pool[:4]))}" for each in found]
        )
        raise NothingChecked(
            f"{once.name} matched in {len(changed)} of {len(cases)} programs that were drawn around it, less than half, so "
            f"little was checked.\nTried: {tried} ...\n{ADVICE}"
        )
    names = {name for case in changed for name in once.matches(case.program)}
    if never := [each.name for each in rules if cases and each.name not in names]:
        raise NothingChecked(
            f"{', '.join(never)} never matched because other rules of {once.name} match first. {ADVICE}"
        )
    return report


def _checked(
    rule: Any, laws: Any, examples: Any, programs: Any, operands: Any, limits: Tolerance
) -> tuple[Sequence[Law], list[Case], list[Rule]]:
    if not isinstance(rule, RuleSet):
        raise WrongQuestion(f"check_rule takes a rule, px.rule(...), not a {type(rule).__name__}")
    ways = operands.values() if isinstance(operands, Mapping) else (operands,)
    if not all(
        each is None or callable(each) or isinstance(each, st.SearchStrategy) for each in ways
    ):
        raise WrongQuestion(
            "operands is a strategy of tuples or a function of `draw` that returns one, or a dict of these by rule"
        )
    own, numbers = cases_of(programs), (limits.rtol, limits.atol)
    asked = check_question(
        rule.transformation, laws, "flat", "aten", examples, given=bool(own), tolerances=numbers
    )
    _ = rule.index  # raises if a rule has no replacement
    rules = [each for each in rule.rules if each.variables]
    if not rules and not own:
        raise WrongQuestion(
            f"{name_of(rule)} has no pattern to draw programs around; pass some that it matches, as programs=[(program, args)]"
        )
    return asked, own, rules


# -- operands --------------------------------------------------------------------------------------------------------------------


@define
class Found:
    """The matching and other instances of the pattern of a rule."""

    rule: Rule
    hits: list[Instance] = field(factory=list)
    misses: list[Instance] = field(factory=list)

    @unwarned()
    def search(self, wanted: int, **options: Any) -> None:
        """Search until the rule matches on enough instances."""
        for instance in islice(filter(None, instances(self.rule, **options)), TRACED):
            hit = self._hit(instance)
            if hit is not None:
                self.hits.append(hit)
            elif simplest(instance) is not None:
                self.misses.append(instance)
            if len(self.hits) >= wanted:
                return

    def _hit(self, instance: Instance) -> Instance | None:
        # The instance with as few operands from the state, or constant ones, as the rule needs; None if it does not match.
        if self._matches(instance):
            return instance
        for source in ("read", "constant") if not self.hits or self.hits[0].sources else ():
            names = [name for name, _ in instance.leaves]
            hit = evolve(instance, sources={**dict.fromkeys(names, source), **instance.sources})
            if self._matches(hit):
                for name in names:
                    fewer = evolve(
                        hit, sources={one: kind for one, kind in hit.sources.items() if one != name}
                    )
                    hit = fewer if self._matches(fewer) else hit
                return hit
        return None

    def _matches(self, instance: Instance) -> bool:
        case = simplest(instance)
        return case is not None and bool(Once(self.rule.transformation).matches(case.program))

    @property
    def pool(self) -> list[Instance]:
        """The instances to draw from, the simplest first; most of them match."""
        hits, misses = (sorted(each, key=lambda one: one.size) for each in (self.hits, self.misses))
        return [*hits, *misses[: len(hits) // 5]]

    def explained(self) -> str:
        """Return why the rule does not match on any operands."""
        name = self.rule.name
        if not self.misses:
            return f"{name}: the pattern raised on all operands that were tried"
        first = min(self.misses, key=lambda one: one.size)
        operators = ", ".join([node.do.name for node in first.nodes if type(node.do) is Op])
        why = (
            "its condition (where=) was false for all"
            if self.rule.where
            else f"it looks for {self.rule.pattern!r}"
        )
        return (
            f"{name} ran on {len(self.misses)} operands and did not match; {why}. "
            f"On {first!r} torch traces the pattern to {operators}"
        )
