"""``check_fx_pass`` and ``survey_pass``: ask a pass over fx graphs on programs that are drawn within its contract.

The one raises at the first law that is broken, for tests; the other counts and shows one small program for each law, for
tables.  An exception of the pass is counted and shown, and breaks no law; a pass that raises on most programs, or changes none,
was not checked.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import hypothesis.strategies as st
from attrs import evolve, field, frozen

from ...ir.errors import MinimizeError, UnsupportedProgram
from ...ir.importing import import_ep
from ...ir.names import escaped
from ...ir.program import Program
from ...lowering.fx import FxPass, Over
from ...transforms import minimize
from ..asking import LawBroken, assert_law, size_of
from ..checking import FEW, FewChanges, NothingChecked, WrongQuestion, cases_of
from ..evaluate import Tolerance
from ..example_args import example_args
from ..law import Case, Law, changes_what_is_live
from ..rules.instances import Instance
from ..strategies.exported import Exported, Narrow, exported_programs
from ..tiers import VARIANTS, Source, Tier, active, case_of, case_with_calls, drawn_cases, examples_of, share
from .around import cases_around, seeds_of
from .contract import ANYTHING, Contract, lifted
from .judge import Judge
from .laws import laws_of

__all__ = ["Finding", "PassReport", "check_fx_pass", "survey_pass"]

EXAMPLES: Mapping[Tier, int] = {"aten": 100, "modules": 20}

MORE = 4
"""How many times as many are drawn where few are within the contract."""

CALLS = 3
"""How often in a row a part of a program is run."""

SECONDS = 10.0
"""How long smaller programs are looked for, for each law."""


@frozen
class Finding:
    """A law that a pass breaks, with the smallest program that was found.

    >>> Finding("meaning", "outputs stay", 3, ("outputs: got 1, expected 2",), None).count
    3
    """

    law: str
    statement: str
    count: int
    """On how many programs this was the first law that did not hold."""
    wrong: tuple[str, ...]
    case: Case | None = field(repr=False)
    message: str = field(default="", repr=False)
    """All of it as text."""

    @property
    def program(self) -> Program | None:
        """The smallest program."""
        return self.case.program if self.case else None


@frozen
class PassReport:
    """What a pass over fx graphs did to the programs that it was asked on.

    >>> print(PassReport("cse", drawn=50, changed=20, right=47, raised={"KeyError": 3}, outside=9))
    cse was right on 47 of 50 programs, of which it changed 20, raised 3 (KeyError 3); 9 outside its contract
    """

    name: str
    drawn: int
    """How many programs within the contract it was asked on."""
    changed: int
    """Of how many of those it made another program, in more than dead code."""
    right: int
    raised: Mapping[str, int] = field(factory=dict)
    """How often it raised what."""
    refused: Mapping[str, int] = field(factory=dict)
    """How often nothing can be said: the result holds for some sizes only, or runs and is no program."""
    outside: int = 0
    """How many programs were drawn that are not within the contract."""
    findings: tuple[Finding, ...] = ()
    seed: int = 0
    first_raised: str = field(default="", repr=False)
    """The traceback of its first exception, and the program."""

    @property
    def wrong(self) -> int:
        """On how many programs a law does not hold."""
        return sum(found.count for found in self.findings)

    def __str__(self) -> str:
        laws = {found.law: found.count for found in self.findings}
        counted = [("wrong on", laws), ("raised", self.raised), ("refused", self.refused)]
        shown = [
            f", {word} {sum(counts.values())} ({', '.join([f'{name} {count}' for name, count in sorted(counts.items())])})"
            for word, counts in counted
            if counts
        ]
        outside = f"; {self.outside} outside its contract" if self.outside else ""
        told = f"{self.name} was right on {self.right} of {self.drawn} programs, of which it changed {self.changed}"
        return escaped(f"{told}{''.join(shown)}{outside}")


def check_fx_pass(
    a_pass: Any,
    *,
    over: Over = "graph_module",
    contract: Contract = ANYTHING,
    tier: Tier = "aten",
    examples: int | None = None,
    seed: int | None = None,
    programs: Iterable[Any] = (),
    around: Iterable[Any] = (),
) -> PassReport:
    """Raise unless a pass over fx graphs is right on programs that are drawn within its contract, and on those given.

    It is asked for a graph that runs; for outputs, mutated inputs and state over several calls, bit by bit; for random numbers
    that are drawn independently; for the order of effects; for memory that is shared; for ``meta["val"]``; for equal results
    from equal programs; and for what its contract claims.  The pass is given copies; right is what the program itself does.

    Args:
        a_pass: a function, a ``PassBase`` or a ``PassManager``; it may edit what it is given, or return a module or a
            ``PassResult``.
        over: what it takes: ``"graph_module"``, ``"graph"`` or ``"exported_program"``.
        contract: what it may assume, and what it claims; see ``purefx.laws.Contract``.
        tier: ``"aten"`` are programs of real operators, ``"modules"`` generated modules that ``torch.export`` exported.
        examples: how many programs are drawn; by default 100 of operators and 20 of modules, times the factor of the hypothesis
            profile.  With ``programs`` it may be 0.
        seed: draws other programs; by default always the same ones, or others each time where the profile says so.
        programs: your own, asked first: ``(program, args)`` or ``(program, args, kwargs)``, where a program is a flat
            ``Program``, an ``ExportedProgram`` or a ``torch.nn.Module``.
        around: what the pass looks for: programs are drawn around it instead.  Rules, ``px.rule(pattern)``, whose operands are
            found, and examples, ``(function, args)`` or ``(function, args, kwargs)``, where modules and programs count as well.

    Returns:
        On how many programs it was right, where it was wrong on none.

    Raises:
        LawBroken: a law does not hold; the message shows the smallest program found, as text that ``purefx.parse`` reads.
        NothingChecked: the pass changed none of the programs, or raised on most of them; the message has its first traceback.
        WrongQuestion: an argument is none that a law can be asked with.
        FxPassError: it is no pass.

    Warns ``FewChanges`` where less than a tenth of the programs was changed.

    >>> import torch
    >>> from purefx.laws.fx_passes import check_fx_pass
    >>> def dead_code(module: torch.fx.GraphModule) -> None:
    ...     module.graph.eliminate_dead_code()
    >>> print(check_fx_pass(dead_code, examples=10))  # doctest: +ELLIPSIS
    dead_code was right on 10 of 10 programs, of which it changed ...
    """
    __tracebackhide__ = True
    asking = _Asking.of(a_pass, over, contract, tier, examples, seed, programs, around)
    report = asking.report(first_only=True)
    if report.findings:
        found = report.findings[0]
        raise LawBroken(found.message, asking.law(found.law), found.case, found.wrong)
    failed = sum(report.raised.values()) + sum(report.refused.values())
    shown = f"{report}\n{report.first_raised}" if report.raised else f"{report}"
    if not report.drawn or 2 * failed > report.drawn:
        raise NothingChecked(f"{shown}\nLittle was checked: say what the pass may assume, as contract=")
    if not report.changed:
        raise NothingChecked(f"{shown}\nIt changed none of them, so this says nothing: {ADVICE}")
    if report.changed < FEW * report.drawn:
        warnings.warn(f"{report}; so little was checked: {ADVICE}", FewChanges, stacklevel=2)
    return report


ADVICE = "give programs=[(program, args)] that it rewrites, or around=[(function, args)] with what it looks for"


def survey_pass(
    a_pass: Any,
    *,
    over: Over = "graph_module",
    contract: Contract = ANYTHING,
    tier: Tier = "aten",
    examples: int | None = None,
    seed: int | None = None,
    programs: Iterable[Any] = (),
    around: Iterable[Any] = (),
    seconds: float = SECONDS,
) -> PassReport:
    """Return how a pass over fx graphs did on programs that are drawn within its contract, with a small one for each broken law.

    Args:
        a_pass: see ``check_fx_pass``, as for the others.
        over: what it takes.
        contract: what it may assume.
        tier: where programs come from.
        examples: how many are drawn.
        seed: draws others.
        programs: the user's own.
        around: what programs are drawn around.
        seconds: how long smaller programs are looked for, for each law.

    >>> survey_pass(lambda module: None, examples=5).right
    5
    """
    asking = _Asking.of(a_pass, over, contract, tier, examples, seed, programs, around)
    return asking.report(seconds=seconds)


@frozen(eq=False)
class _Asking:
    """A pass, what it is asked, and on what."""

    judge: Judge
    contract: Contract
    laws: tuple[Law, ...]
    tier: Tier
    count: int
    number: int
    given: tuple[Case, ...]
    seeds: tuple[Instance, ...] = ()
    """What programs are drawn around; empty for programs of any kind."""

    @classmethod
    def of(
        cls, a_pass: Any, over: Over, contract: Any, tier: Any, examples: Any, seed: Any, programs: Any, around: Any = ()
    ) -> _Asking:
        if not isinstance(contract, Contract):
            raise WrongQuestion(f"contract is a purefx.laws.Contract, not a {type(contract).__name__}")
        if tier not in EXAMPLES:
            raise WrongQuestion(f"tier={tier!r}: programs over fx graphs are of {' or '.join(map(repr, EXAMPLES))}")
        given, seeds = tuple(cases_of(programs)), seeds_of(around)
        if examples is not None and (type(examples) is not int or examples < (0 if given else 1)):
            raise WrongQuestion(f"examples is how many programs are drawn, a whole number above 0, not {examples!r}")
        judge = Judge(FxPass.of(a_pass, over))
        count = share(EXAMPLES[tier]) if examples is None else examples
        number = (0 if active().always_the_same else secrets.randbits(32)) if seed is None else seed
        return cls(judge, contract, laws_of(judge, contract), tier, count, number, given, seeds)

    def law(self, name: str) -> Law:
        """Return a law by its name."""
        return next(law for law in self.laws if law.name == name)

    def admitted(self, case: Case | None) -> Case | None:
        """Return a case with the tolerance of the contract; None where its program is not within the contract."""
        if case is None or self.contract.broken_by(case.program):
            return None
        case = lifted(case) if self.contract.state == "inputs" else case
        if case is None:
            return None
        return evolve(case, tolerance=Tolerance(self.contract.rtol, self.contract.atol))

    def cases(self) -> tuple[list[Case], int]:
        """Return the cases within the contract, the user's first, and how many are not."""
        given = [one for case in self.given if (one := self.admitted(case)) is not None]
        drawn = self.drawn(self.count)
        admitted = [one for case in drawn if (one := self.admitted(case)) is not None]
        if 5 * len(admitted) < 4 * self.count:
            drawn = self.drawn(MORE * self.count)
            admitted = [one for case in drawn if (one := self.admitted(case)) is not None]
        outside = len(self.given) - len(given) + len(drawn) - len(admitted)
        return given + admitted[: self.count], outside

    def drawn(self, count: int) -> Sequence[Case]:
        """Return drawn cases, the same ones whenever it is asked, most of them within the contract."""
        if self.seeds:
            found = examples_of(cases_around(self.seeds, self.contract), count, self.number)
            return [case for case in found if case is not None]
        if self.tier == "aten":
            return _narrow(self.contract.narrow, count, self.number)
        return drawn_cases(self.tier, "flat", count, self.number) if count else ()

    def report(self, *, first_only: bool = False, seconds: float = SECONDS) -> PassReport:
        """Ask all laws of all programs; with ``first_only`` until one does not hold."""
        cases, outside = self.cases()
        broken: dict[str, list[LawBroken]] = {}
        changed = right = 0
        for case in cases:
            error, has_changed, is_right = self.asked(case)
            changed, right = changed + has_changed, right + is_right
            if error is not None and error.law is not None:
                broken.setdefault(error.law.name, []).append(error)
                if first_only:
                    break
        findings = tuple([self.finding(self.law(name), errors, seconds) for name, errors in broken.items()])
        judge = self.judge
        return PassReport(
            judge.name, len(cases), changed, right, dict(judge.raised), dict(judge.refused), outside, findings, self.number,
            judge.first_raised,
        )  # fmt: skip

    def asked(self, case: Case) -> tuple[LawBroken | None, bool, bool]:
        """Return the first law that does not hold on a case, whether the pass changed it, and whether it is right."""
        outcome = self.judge.outcome(case.program)
        if outcome.error is not None:
            return None, False, False
        result = outcome.result
        has_changed = result is not None and result is not case.program and changes_what_is_live(result, case.program)
        for law in self.laws:
            try:
                assert_law(self.judge, law, case)
            except LawBroken as error:
                return error, has_changed, False
        return None, has_changed, True

    def finding(self, law: Law, errors: Sequence[LawBroken], seconds: float) -> Finding:
        """Return what is said of a broken law, with the smallest program that was found in some time."""
        shown = min(errors, key=size_of)
        shown = min(shown, self.reduced(law, shown, seconds) or shown, key=size_of)
        kind = "around what was given" if self.seeds else f"of tier={self.tier!r}"
        drawn = f"Found among programs {kind}, examples={self.count}, seed={self.number}, within the contract."
        return Finding(law.name, law.statement, len(errors), shown.wrong, shown.case, f"{shown}\n{drawn}")

    def reduced(self, law: Law, error: LawBroken, seconds: float) -> LawBroken | None:
        """Return the same mistake on a part of the program, called with other arguments; None where those do not show it."""
        assert error.case is not None
        judge = Judge(self.judge.called)
        asked = next(one for one in laws_of(judge, self.contract) if one.name == law.name)

        def case_of_part(program: Program) -> Case | None:
            calls = [example_args(program, seed=number) for number in range(CALLS)]
            return self.admitted(case_with_calls(program, calls))

        def is_wrong(program: Program) -> bool:
            case = case_of_part(program)
            return case is not None and judge.outcome(program).error is None and bool(asked.check(judge, case))

        with suppress(MinimizeError, UnsupportedProgram):
            part = minimize(error.case.program, is_wrong, seconds=seconds).program
            try:
                assert_law(judge, asked, case_of_part(part) or error.case)
            except LawBroken as found:
                return found
        return None


@cache
def _narrow(narrow: Narrow, examples: int, number: int) -> tuple[Case, ...]:
    # Remembered while one pass after the other is asked.
    drawn = examples_of(st.builds(_case, exported_programs(narrow), VARIANTS), examples, number)
    return tuple([case for case in drawn if case is not None])


def _case(made: Exported, variant: int) -> Case | None:
    return case_of(Source(import_ep(made.ep), variant, made.calls), tier="aten", stage="flat")
