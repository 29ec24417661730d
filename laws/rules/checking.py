"""``check_rule``: test a rewrite rule against laws, on programs that are built around its pattern.

Operands of a pattern are found by running it.  The programs contain it in difficult places: with other users, intervening
writes, views, state, shared bodies, branches.  If a rule matches in few of them, the check fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from itertools import zip_longest
from typing import Any

import hypothesis.strategies as st
from attrs import define, evolve, field

from ...ir.graph import Graph, Op
from ...ir.program import Program
from ...ir.verify import verify
from ...transforms import Fuel, Transformation
from ...transforms.rules.rule import Rule, RuleSet
from ..asking import Source, name_of
from ..checking import NothingChecked, Report, WrongQuestion, broken, cases_of, check_question, seed_of
from ..evaluate import Tolerance
from ..law import FUEL, GENERIC, Case, Law, Transform, law, memory
from ..provenance import provenance
from ..tiers import share
from ..values import false_values, recorded_values
from .build import Drawn, drawn_around, simplest
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
    {"feed": "transposed"}, {"dynamic": True}, {"feed": "part"}, {"feed": "expanded"}, {"end": 1, "dynamic": True}, {"end": 1},
    {"feed": "transposed", "end": 1}, {"feed": "buffer", "end": 3}, {"end": 2}, {"feed": "tied", "end": 5},
)  # fmt: skip
"""Alternating choices for a second small program of each pattern."""

NOTHING = Program.of({"": Graph((), (), ())})

SECONDS = 10.0
"""The time for shrinking."""

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


_GENERIC: Mapping[str, Law] = {each.name: each for each in GENERIC}

BY_RESULT: tuple[Law, ...] = (
    _GENERIC["valid"], _GENERIC["meaning"], memory, _GENERIC["effects"], _GENERIC["idempotent"], inferred, recorded_values,
    _GENERIC["no-op"], _GENERIC["frame"], _GENERIC["state"], _GENERIC["text"], provenance,
)  # fmt: skip
"""Laws about the results of one and two applications."""

RULE_LAWS: tuple[Law, ...] = tuple(dict.fromkeys((*BY_RESULT, *GENERIC, *FUEL)))
"""The laws of every rule: the generic laws, unchanged shared memory, right fake values."""


STATE, REPEATED = frozenset({"state", "written results"}), frozenset({"idempotent", "unfinished"})
"""Laws that do not apply to rules that change the state, and to rules that match once."""


def remembering(transform: Transform) -> Transform:
    """Return a function that applies a transformation once to each program.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> once = remembering(lambda program: program.evolve())
    >>> once(program) is once(program)
    True
    """
    known: dict[int, tuple[Program, Program]] = {}

    @wraps(transform)
    def once(program: Program) -> Program:
        if id(program) not in known:
            known[id(program)] = (program, transform(program))
        return known[id(program)][1]

    return once


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
        finite: leave out infinities and NaN, and computed operands whose square is infinite.
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
    asked, yours, rules = _checked(rule, laws, examples, programs, operands, limits)
    # A rule that is applied once matches its own results in the next call only.
    without = (STATE if changes_state else frozenset()) | (REPEATED if any(each.once for each in rule.rules) else frozenset())
    asked = tuple([each for each in asked if each.name not in without])
    count, number = share(EXAMPLES) if examples is None else examples, seed_of(seed)
    transform = rule.transformation

    def case(drawn: Drawn | None) -> Case | None:
        found = drawn and case_of_drawn(drawn)
        return found and prepared(found)

    def prepared(case: Case) -> Case:
        return evolve(case, tolerance=limits, common_state=changes_state)

    def test(cases: Sequence[Case], most: int, source: Source | None = None) -> list[list[str]]:
        # Test laws of one application on all cases, the others on the cases with the most matches; return the matches.
        __tracebackhide__ = True
        quick = [law for law in asked if law in BY_RESULT]
        error = broken(remembering(transform), quick, cases, source)
        matches = [applied(transform, case.program) for case in cases]
        if error is None:
            order = sorted(range(len(cases)), key=lambda place: -len(matches[place]))
            others = [law for law in asked if law not in BY_RESULT]
            error = broken(transform, others, [cases[place] for place in order[:most]], source)
        if error is not None:
            raise error.with_traceback(None) from None
        return matches

    by_name = operands if isinstance(operands, Mapping) else {each.name: operands for each in rules}
    found = [Found(each) for each in rules if count]
    for each in found:
        options = {"number": number, "finite": finite, "exact": not limits}
        each.search(min(WANTED, 4 + count // 3), operands=by_name.get(each.rule.name), **options)
    if any(not each.hits for each in found):
        reasons = "\n".join([each.explained() for each in found if not each.hits])
        raise NothingChecked(f"{reasons}\nso the laws would not be tested. {ADVICE}")
    given = test([prepared(each) for each in yours], ASKED_ALL)
    plain = sorted([pair for each in found for pair in each.plain], key=lambda pair: pair[0].size)
    test([one for _, drawn in plain if (one := case(drawn)) is not None], ASKED_ALL // 4)
    matches: list[list[str]] = []
    if found:
        pool = [one for several in zip_longest(*[each.pool for each in found]) for one in several if one is not None]
        made, missed = (drawn_around(pool, near=near).map(case) for near in (False, True))
        source = Source(made, count, number, limits, LONGEST, seconds=SECONDS)
        cases = source.cases()
        if 2 * sum(bool(applied(transform, one.program)) for one in cases) < len(cases):
            # Programs of one run are similar, so draw a second one before the rule counts as not matching.
            cases += evolve(source, count=max(count, LEAST), number=number + 1).cases()
        matches = test(cases, ASKED_ALL, source)
        source = evolve(source, strategy=missed, count=-(-count // NEAR))
        test(source.cases(), ASKED_ALL // 4, source)
    names = {name for one in matches for name in one}
    sizes = len(matches), sum(map(bool, matches)), 0, len(given), sum(map(bool, given))
    report = Report(name_of(transform), len(asked), *sizes)
    _check_enough(report, found, [each.name for each in rules if matches and each.name not in names])
    return report


def _checked(
    rule: Any, laws: Any, examples: Any, programs: Any, operands: Any, limits: Tolerance
) -> tuple[tuple[Law, ...], list[Case], list[Rule]]:
    if not isinstance(rule, RuleSet):
        raise WrongQuestion(f"check_rule takes a rule, px.rule(...), not a {type(rule).__name__}")
    ways = operands.values() if isinstance(operands, Mapping) else (operands,)
    if not all(each is None or callable(each) or isinstance(each, st.SearchStrategy) for each in ways):
        raise WrongQuestion(
            "operands is a strategy of tuples or a function of `draw` that returns one, or a dict of these by rule"
        )
    own = cases_of(programs)
    numbers = (limits.rtol, limits.atol)
    asked = check_question(rule.transformation, laws, "flat", "aten", examples, given=bool(own), tolerances=numbers)
    rule(NOTHING)  # raises if a rule has no replacement
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
    plain: list[tuple[Instance, Drawn]] = field(factory=list)
    """The smallest programs of each matching instance."""

    def search(self, wanted: int, **options: Any) -> None:
        """Search until the rule matches on enough instances."""
        traced = 0
        for instance in instances(self.rule, **options):
            traced += instance is not None
            drawn = instance and simplest(instance)
            if instance is None or drawn is None:
                continue
            if self._matches(drawn):
                self._add(instance, drawn)
            elif (found := self._with_state(instance)) is not None:
                self._add(found, simplest(found))
            else:
                self.misses.append(instance)
            if len(self.hits) >= wanted or traced >= TRACED:
                return

    def _add(self, instance: Instance, drawn: Drawn | None) -> None:
        self.hits.append(instance)
        varied = simplest(instance, **VARIED[len(self.hits) % len(VARIED)])
        self.plain += [(instance, each) for each in (drawn, varied) if each is not None]

    def _with_state(self, instance: Instance) -> Instance | None:
        # The instance with as few operands from the state, or constant ones, as the rule needs.
        if self.hits and not (self.hits[0].from_state or self.hits[0].constants):
            return None
        for kind in ("from_state", "constants"):
            names = frozenset([name for name, _ in instance.leaves])
            if self._matches(simplest(evolve(instance, **{kind: names}))):
                for name in sorted(names):
                    fewer = names - {name}
                    names = fewer if self._matches(simplest(evolve(instance, **{kind: fewer}))) else names
                return evolve(instance, **{kind: names})
        return None

    def _matches(self, drawn: Drawn | None) -> bool:
        return drawn is not None and bool(applied(self.rule.transformation, drawn.program))

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
        why = "its condition (where=) was false for all" if self.rule.where else f"it looks for {self.rule.pattern!r}"
        return (
            f"{name} ran on {len(self.misses)} operands and did not match; {why}. "
            f"On {first!r} torch traces the pattern to {operators}"
        )


# -- cases -----------------------------------------------------------------------------------------------------------------------


def case_of_drawn(drawn: Drawn) -> Case | None:
    """Return the case of a program around patterns; None if it does not run, or its sizes are wrong."""
    case = Case(drawn.program, drawn.variant, drawn.calls)
    try:
        case.meaning(case.program)
    except Exception:  # noqa: BLE001  a later call may fail
        return None
    # The number of chunks of a growing size varies between calls: exporters do not write such programs.
    grows = bool(drawn.program.constraints.ranges)
    return None if grows and false_values(case.program, drawn.calls) else case


def applied(transform: Transformation, program: Program) -> list[str]:
    """Return the rule of each application to a program; one without a name if it raises, so that the laws are tested."""
    fuel = Fuel(1 << 30)
    try:
        transform.spend(program, fuel)
    except Exception:  # noqa: BLE001  rules raise any exceptions
        return [""]
    return [label.removeprefix("apply ").rpartition(" at ")[0] for label in fuel.labels]


def _check_enough(report: Report, found: Sequence[Found], never: Sequence[str]) -> None:
    if not report.drawn and not report.given_changed:
        raise NothingChecked(f"{report.name} matched in none of {report.given} programs, so nothing was checked. {ADVICE}")
    if 2 * report.changed < report.drawn:
        tried = "; ".join([f"{each.rule.name} on {', '.join(map(repr, each.pool[:4]))}" for each in found])
        raise NothingChecked(
            f"{report.name} matched in {report.changed} of {report.drawn} programs that were drawn around it, less than half, so "
            f"little was checked.\nTried: {tried} ...\n{ADVICE}"
        )
    if never:
        raise NothingChecked(f"{', '.join(never)} never matched because other rules of {report.name} match first. {ADVICE}")
