"""``check_rule``: test a rewrite rule against laws, on programs that are built around its pattern.

Operands of a pattern are found by running it.  The programs contain it in difficult places: with other users, intervening
writes, views, state, shared bodies, branches.  If a rule matches in few of them, the check fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from itertools import zip_longest
from typing import Any

import hypothesis.strategies as st
from attrs import define, evolve, field, frozen

from ...ir.graph import Graph, Op
from ...ir.names import escaped
from ...ir.program import Program
from ...ir.verify import verify
from ...transforms import Fuel
from ...transforms.rules.pattern import role
from ..asking import Source, name_of
from ..checking import NothingChecked, WrongQuestion, broken, cases_of, check_question, seed_of
from ..evaluate import Tolerance
from ..law import FUEL, GENERIC, Case, Law, Transform, law, memory
from ..provenance import provenance
from ..tiers import share
from ..values import false_values, recorded_values
from .build import Drawn, drawn_around, simplest
from .instances import Instance, instances, is_drawable

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


@frozen
class RuleReport:
    """The programs that were tested, if all laws hold.

    >>> print(RuleReport("fused", 20, drawn=50, matched=45, matches=80, near=10, near_matched=1))
    fused keeps 20 laws: it matched in 45 of 50 programs that were drawn around it (80 matches), and in 1 of 10 near misses
    """

    name: str
    laws: int
    drawn: int
    """Programs drawn around the pattern."""
    matched: int
    """Programs in which the rule was applied."""
    matches: int
    """Applications in all programs."""
    near: int = 0
    """Programs with one other literal in each pattern."""
    near_matched: int = 0
    given: int = 0
    """Programs of the user."""
    given_matched: int = 0
    by_rule: Mapping[str, int] = {}
    """Applications of each rule of a set in drawn programs."""

    def __str__(self) -> str:
        drawn = f"{self.matched} of {self.drawn} programs that were drawn around it ({self.matches} matches)"
        near = f"{self.near_matched} of {self.near} near misses" if self.near else ""
        given = f"{self.given_matched} of {self.given} given" if self.given else ""
        counts = ", and in ".join(filter(None, (drawn if self.drawn else "", near, given)))
        return escaped(f"{self.name} keeps {self.laws} laws: it matched in {counts}")


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
        The number of programs in which the rule matched, if all laws hold.

    Raises:
        LawBroken: a law does not hold; the message shows the smallest program found, as text that ``purefx.parse`` reads, its
            arguments, the results and the expected results.
        NothingChecked: the rule matched in fewer than half of the programs that were drawn around it; pass ``operands``.
        WrongQuestion: an argument is invalid.

    >>> import torch, purefx as px
    >>> doubled = px.rule(lambda x: x + x, where=lambda m: m.dtype("x") == torch.float32).becomes(lambda m, x: x * 2)
    >>> print(check_rule(doubled, examples=5))  # doctest: +ELLIPSIS
    <lambda> keeps ... laws: it matched in 5 of 5 programs that were drawn around it (... matches), and in ... of 1 near misses
    """
    __tracebackhide__ = True
    limits = Tolerance(rtol, atol)
    asked, own, rules = _checked(rule, laws, examples, programs, operands, limits)
    without = STATE if changes_state else frozenset[str]()
    if any(getattr(each, "once", False) for each in getattr(rule, "rules", (rule,))):
        without |= REPEATED  # it matches its own results in the next call only
    asked = tuple([each for each in asked if each.name not in without])
    count, number = share(EXAMPLES) if examples is None else examples, seed_of(seed)
    transform = getattr(rule, "transformation", rule)

    def prepared(case: Case) -> Case:
        return evolve(case, tolerance=limits, common_state=changes_state)

    def test(cases: Sequence[Case], most: int, source: Source | None = None) -> None:
        __tracebackhide__ = True
        # Test laws of one application on all cases, the others on the cases with the most matches.
        quick = [law for law in asked if law in BY_RESULT]
        error = broken(remembering(transform), quick, cases, source)
        if error is None:
            matched = sorted(cases, key=lambda case: -len(applied(transform, case.program)))[:most]
            error = broken(transform, [law for law in asked if law not in BY_RESULT], matched, source)
        if error is not None:
            raise error.with_traceback(None) from None

    by_name = operands if isinstance(operands, Mapping) else {each.name: operands for each in rules}
    found = [Found(each) for each in rules if count]
    options = {"number": number, "finite": finite, "exact": not limits}
    for each in found:
        each.search(min(WANTED, 4 + count // 3), operands=by_name.get(each.rule.name), **options)
    if any(not each.hits for each in found):
        reasons = "\n".join([each.explained() for each in found if not each.hits])
        raise NothingChecked(f"{reasons}\nso the laws would not be tested. {ADVICE}")
    yours = [prepared(case) for case in own]
    test(yours, ASKED_ALL)
    plain = sorted([pair for each in found for pair in each.plain], key=lambda pair: pair[0].size)
    test([prepared(case) for _, each in plain if (case := case_of_drawn(each)) is not None], ASKED_ALL // 4)
    drawn, near = list[Case](), list[Case]()
    if found:
        pool = [one for several in zip_longest(*[each.pool for each in found]) for one in several if one is not None]

        def attempt(one: Drawn | None) -> Case | None:
            case = None if one is None else case_of_drawn(one)
            return None if case is None else prepared(case)

        made, missed = (drawn_around(pool, near=near).map(attempt) for near in (False, True))
        source = Source(made, count, number, limits, LONGEST, seconds=SECONDS)
        drawn = source.cases()
        if 2 * sum(bool(applied(transform, case.program)) for case in drawn) < len(drawn):
            # Programs of one run are similar, so draw a second one before the rule counts as not matching.
            drawn += evolve(source, count=max(count, LEAST), number=number + 1).cases()
        test(drawn, ASKED_ALL, source)
        source = evolve(source, strategy=missed, count=-(-count // NEAR))
        near = source.cases()
        test(near, ASKED_ALL // 4, source)
    counts = [[applied(transform, case.program) for case in group] for group in (drawn, near, yours)]
    matched, of_near, of_given = (sum(map(bool, group)) for group in counts)
    by_rule = Counter([rule for rules in counts[0] for rule in rules])
    sizes = len(drawn), matched, by_rule.total(), len(near), of_near, len(yours), of_given
    report = RuleReport(name_of(transform), len(asked), *sizes, by_rule)
    _check_enough(report, rules, found)
    return report


def _checked(
    rule: Any, laws: Any, examples: Any, programs: Any, operands: Any, limits: Tolerance
) -> tuple[tuple[Law, ...], list[Case], list[Any]]:
    if not callable(rule):
        raise WrongQuestion(f"check_rule takes a rule, px.rule(...), not a {type(rule).__name__}")
    ways = operands.values() if isinstance(operands, Mapping) else (operands,)
    if not all(each is None or callable(each) or isinstance(each, st.SearchStrategy) for each in ways):
        raise WrongQuestion(
            "operands is a strategy of tuples or a function of `draw` that returns one, or a dict of these by rule"
        )
    transform, numbers = getattr(rule, "transformation", rule), (limits.rtol, limits.atol)
    own = cases_of(programs)
    asked = check_question(transform, laws, "flat", "aten", examples, given=bool(own), tolerances=numbers)
    transform(NOTHING)  # raises if a rule has no replacement
    rules = [each for each in getattr(rule, "rules", (rule,)) if is_drawable(each)]
    if not rules and not own:
        raise WrongQuestion(
            f"{name_of(rule)} has no pattern to draw programs around; pass some that it matches, as programs=[(program, args)]"
        )
    return asked, own, rules


# -- operands --------------------------------------------------------------------------------------------------------------------


@define
class Found:
    """The matching and other instances of the pattern of a rule."""

    rule: Any
    hits: list[Instance] = field(factory=list)
    misses: list[Instance] = field(factory=list)
    plain: list[tuple[Instance, Drawn]] = field(factory=list)
    """The smallest programs in which the rule matches."""
    tried: int = 0
    """Attempts in which the pattern did not run."""

    def search(self, wanted: int, **options: Any) -> None:
        """Search until the rule matches on enough instances."""
        traced = 0
        for instance in instances(self.rule, **options):
            traced += instance is not None
            if instance is None or simplest(instance) is None:
                self.tried += 1
            elif (found := self._matching(instance)) is None:
                self.misses.append(instance)
            else:
                self.hits.append(found)
                drawn = (simplest(found), simplest(found, **VARIED[len(self.hits) % len(VARIED)]))
                self.plain += [(found, each) for each in drawn if each is not None]
            if len(self.hits) >= wanted or traced >= TRACED:
                return

    def _matching(self, instance: Instance) -> Instance | None:
        # The instance with as few state or constant operands as the rule needs.
        if self._matches(instance):
            return instance
        for kind in ("from_state", "constants"):
            names = frozenset([name for name, _ in instance.leaves])
            if self._matches(evolve(instance, **{kind: names})):
                for name in sorted(names):
                    names = names - {name} if self._matches(evolve(instance, **{kind: names - {name}})) else names
                return evolve(instance, **{kind: names})
        return None

    def _matches(self, instance: Instance) -> bool:
        drawn = simplest(instance)
        return drawn is not None and bool(applied(self.rule.transformation, drawn.program))

    @property
    def pool(self) -> list[Instance]:
        """The instances to draw from, the simplest first; most of them match."""
        hits, misses = (sorted(each, key=lambda one: one.size) for each in (self.hits, self.misses))
        if any(role(each) == "through" for each in self.rule.pattern.parts):
            # The first is drawn most often, so prefer one with a view or a cast.
            least = min([len(one.nodes) for one in hits], default=0)
            hits.sort(key=lambda one: len(one.nodes) == least)
        return [*hits, *misses[: len(hits) // 5]]

    def explained(self) -> str:
        """Return why the rule does not match on any operands."""
        name = self.rule.name
        if not self.misses:
            return f"{name}: the pattern raised on all {self.tried} operands that were tried"
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


def applied(transform: Any, program: Program) -> list[str]:
    """Return the rule of each application to a program; one without a name if it raises, so that the laws are tested."""
    fuel = Fuel(1 << 30)
    try:
        if not hasattr(transform, "spend"):
            return [""] * (transform(program) is not program)
        transform.spend(program, fuel)
    except Exception:  # noqa: BLE001  rules raise any exceptions
        return [""]
    return [label.removeprefix("apply ").rpartition(" at ")[0] for label in fuel.labels]


def _check_enough(report: RuleReport, rules: Sequence[Any], found: Sequence[Found]) -> None:
    if not report.drawn and not report.given_matched:
        raise NothingChecked(f"{report.name} matched in none of {report.given} programs, so nothing was checked. {ADVICE}")
    if 2 * report.matched < report.drawn:
        tried = "; ".join([f"{each.rule.name} on {', '.join(map(repr, each.pool[:4]))}" for each in found])
        raise NothingChecked(
            f"{report.name} matched in {report.matched} of {report.drawn} programs that were drawn around it, less than half, so "
            f"little was checked.\nTried: {tried} ...\n{ADVICE}"
        )
    never = [each.name for each in rules if report.drawn and not report.by_rule.get(each.name)]
    if never:
        raise NothingChecked(f"{', '.join(never)} never matched because other rules of {report.name} match first. {ADVICE}")
