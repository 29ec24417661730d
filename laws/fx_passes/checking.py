"""``check_fx_pass`` and ``survey_pass``: ask a pass over fx graphs on programs that are drawn within its contract.

The one raises at the first law that is broken, for tests; the other counts and shows one small program for each law, for
tables.  What a pass raises is a refusal, no mistake; one that refuses most programs, or changes none, was not checked.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
from attrs import evolve, field, frozen

from ...ir.errors import MinimizeError, UnsupportedProgram
from ...ir.names import escaped
from ...ir.program import Program
from ...lowering.fx import FxPass, Over
from ...transforms import minimize
from ..arguments import WrongQuestion, cases_of
from ..asking import LawBroken, assert_law, smallest
from ..checking import NothingChecked
from ..evaluate import Tolerance
from ..example_args import example_args
from ..law import Case, Law
from ..live import changes_what_is_live
from ..rules.instances import Instance
from ..tiers import Tier, active, attempts, case_with_calls, drawn_cases, share
from .around import cases_around, seeds_of
from .contract import ANYTHING, Contract
from .drawing import cases_narrow, cases_of_strategy, within
from .judge import Judge
from .laws import laws_of
from .lifted import lifted

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

    >>> print(PassReport("cse", drawn=50, changed=20, right=47, refused={"KeyError": 3}, outside=9))
    cse was right on 47 of 50 programs, of which it changed 20, refused 3 (KeyError 3); 9 outside its contract
    """

    name: str
    drawn: int
    """How many programs within the contract it was asked on."""
    changed: int
    """Of how many of those it made another program, in more than dead code."""
    right: int
    refused: Mapping[str, int]
    """How often it raised what."""
    outside: int
    """How many programs were drawn that are not within the contract."""
    findings: tuple[Finding, ...] = ()
    seed: int = 0

    @property
    def wrong(self) -> int:
        """On how many programs a law does not hold."""
        return sum(found.count for found in self.findings)

    def __str__(self) -> str:
        laws = ", ".join([f"{found.law} {found.count}" for found in self.findings])
        raised = ", ".join([f"{name} {count}" for name, count in sorted(self.refused.items())])
        wrong = f", wrong on {self.wrong} ({laws})" if self.findings else ""
        refused = f", refused {sum(self.refused.values())} ({raised})" if self.refused else ""
        outside = f"; {self.outside} outside its contract" if self.outside else ""
        told = f"{self.name} was right on {self.right} of {self.drawn} programs, of which it changed {self.changed}"
        return escaped(f"{told}{wrong}{refused}{outside}")


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
        NothingChecked: the pass changed none of the programs, or refused most of them.
        WrongQuestion: an argument is none that a law can be asked with.
        FxPassError: it is no pass.

    >>> import torch
    >>> from purefx.laws.fx_passes import check_fx_pass
    >>> def dead_code(module: torch.fx.GraphModule) -> None:
    ...     module.graph.eliminate_dead_code()
    >>> print(check_fx_pass(dead_code, examples=10))  # doctest: +ELLIPSIS
    dead_code was right on 10 of 10 programs, of which it changed ...
    """
    asking = _Asking.of(a_pass, over, contract, tier, examples, seed, programs, around)
    report = asking.report(first_only=True)
    if report.findings:
        found = report.findings[0]
        raise LawBroken(found.message, asking.law(found.law), found.case, found.wrong)
    refused = sum(report.refused.values())
    if not report.drawn or 2 * refused > report.drawn:
        raise NothingChecked(f"{report}; it refused most programs, or was given none: say what it may assume, as contract=")
    if not report.changed:
        raise NothingChecked(
            f"{report}; it changed none of them, so this says nothing: give programs=[(program, args)] that it rewrites"
        )
    return report


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

    def made(self) -> st.SearchStrategy[Case | None]:
        """Return the strategy of cases, None where a program is not within the contract."""
        if self.seeds:
            return cases_around(self.seeds, self.contract).map(self.admitted)
        made = attempts(self.tier, "flat") if self.tier != "aten" else within(self.contract.narrow)
        return made.map(self.admitted)

    def admitted(self, case: Case | None) -> Case | None:
        """Return a case with the tolerance of the contract; None where its program is not within the contract."""
        if case is None or self.contract.broken_by(case.program):
            return None
        case = lifted(case) if self.contract.state == "inputs" else case
        if case is None:
            return None
        limit = self.contract.tolerance
        return evolve(case, tolerance=Tolerance(limit, limit)) if limit else case

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
            return cases_of_strategy(cases_around(self.seeds, self.contract), count, self.number)
        if self.tier == "aten":
            return cases_narrow(self.contract.narrow, count, self.number)
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
        refused = dict(self.judge.refusals)
        return PassReport(self.judge.name, len(cases), changed, right, refused, outside, findings, self.number)

    def asked(self, case: Case) -> tuple[LawBroken | None, bool, bool]:
        """Return the first law that does not hold on a case, whether the pass changed it, and whether it is right."""
        outcome = self.judge.outcome(case.program)
        if outcome.raised is not None:
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
        shown = min(errors, key=_size)
        found = self.reduced(law, shown, seconds) or self.redrawn(law, seconds, given=shown.case in self.given)
        shown = min(shown, found or shown, key=_size)
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
            return case is not None and judge.outcome(program).raised is None and bool(asked.check(judge, case))

        with suppress(MinimizeError, UnsupportedProgram):
            part = minimize(error.case.program, is_wrong, seconds=seconds).program
            try:
                assert_law(judge, asked, case_of_part(part) or error.case)
            except LawBroken as found:
                return found
        return None

    def redrawn(self, law: Law, seconds: float, *, given: bool) -> LawBroken | None:
        """Return the same mistake on the smallest program that can be drawn."""
        if given or not self.count:
            return None
        judge, tolerance = Judge(self.judge.called), Tolerance(self.contract.tolerance, self.contract.tolerance)
        asked = next(one for one in laws_of(judge, self.contract) if one.name == law.name)
        made = self.made()
        return smallest(judge, asked, made, examples=self.count, number=self.number, seconds=seconds, tolerance=tolerance)


def _size(error: LawBroken) -> tuple[int, int]:
    program = error.case.program if error.case else None
    return (sum(1 for _ in program.nodes()), len(program.text())) if program else (0, 0)
