"""``check_fx_pass`` and ``survey_pass``: ask a pass over fx graphs on programs that are drawn within its contract.

The one raises at the first law that is broken, for tests; the other counts and shows one small program for each law, for
tables.  An exception of the pass is counted and shown, and breaks no law; a pass that raises on most programs, or changes none,
was not checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import hypothesis.strategies as st
from attrs import evolve, field, frozen

from ...ir.names import escaped
from ...ir.program import Program
from ...lowering.fx import FxPass, Over
from ..asking import LawBroken, size_of, smallest
from ..checking import FEW, FewChanges, NothingChecked, WrongQuestion, ask, cases_of, check_examples, seed_of
from ..evaluate import Tolerance
from ..law import Case
from ..rules.instances import Instance
from ..tiers import Tier, attempts, examples_of, share
from .around import cases_around, seeds_of
from .contract import ANYTHING, Contract, lifted
from .judge import Judge
from .laws import laws_of

__all__ = ["Finding", "PassReport", "check_fx_pass", "survey_pass"]

EXAMPLES: Mapping[Tier, int] = {"aten": 100, "modules": 20}

MORE = 4
"""How many times as many are drawn where few are within the contract."""

SECONDS = 10.0
"""How long smaller programs are looked for, for each law."""


@frozen
class Finding:
    """A law that a pass breaks, with the smallest program that was found.

    >>> Finding("meaning", "outputs stay", 3).count
    3
    """

    law: str
    statement: str
    count: int
    """On how many programs this was the first law that did not hold."""
    error: LawBroken | None = field(default=None, repr=False)
    """What ``check_fx_pass`` raises: the message, the smallest case, and what is wrong there."""

    @property
    def program(self) -> Program | None:
        """The smallest program."""
        return self.error.case.program if self.error and self.error.case else None


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
    report = survey_pass(
        a_pass, over=over, contract=contract, tier=tier, examples=examples, seed=seed, programs=programs, around=around,
        first_only=True,
    )  # fmt: skip
    for found in report.findings:
        assert found.error is not None
        raise found.error.with_traceback(None) from None
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
    first_only: bool = False,
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
        first_only: whether to stop at the first law that is broken.

    >>> survey_pass(lambda module: None, examples=5).right
    5
    """
    if not isinstance(contract, Contract):
        raise WrongQuestion(f"contract is a purefx.laws.Contract, not a {type(contract).__name__}")
    if tier not in EXAMPLES:
        raise WrongQuestion(f"tier={tier!r}: programs over fx graphs are of {' or '.join(map(repr, EXAMPLES))}")
    judge, given, seeds = Judge(FxPass.of(a_pass, over)), cases_of(programs), seeds_of(around)
    check_examples(examples, given=bool(given))
    drawn = Drawn(contract, tier, seeds, share(EXAMPLES[tier]) if examples is None else examples, seed_of(seed))
    cases, outside = drawn.cases(given)
    asked = ask(judge, laws_of(judge, contract), cases, first_only=first_only)
    broken: dict[str, list[LawBroken]] = {}
    for error in asked.broken:
        broken.setdefault(error.law.name if error.law else "", []).append(error)
    findings = tuple([_finding(Judge(judge.called), name, errors, drawn, seconds) for name, errors in broken.items()])
    return PassReport(
        judge.name, len(cases), asked.changed, asked.right, dict(judge.raised), dict(judge.refused), outside, findings,
        drawn.number, judge.first_raised,
    )  # fmt: skip


def _finding(judge: Judge, name: str, errors: Sequence[LawBroken], drawn: Drawn, seconds: float) -> Finding:
    law = next(law for law in laws_of(judge, drawn.contract) if law.name == name)
    shown = min(errors, key=size_of)
    if seconds and drawn.count:
        made = drawn.strategy.map(drawn.admitted)
        smaller = smallest(
            judge, law, made, examples=drawn.count, number=drawn.number, seconds=seconds, tolerance=drawn.tolerance
        )
        shown = min(shown, smaller or shown, key=size_of)
    kind = "around what was given" if drawn.seeds else f"of tier={drawn.tier!r}"
    told = f"{shown}\nFound among programs {kind}, examples={drawn.count}, seed={drawn.number}, within the contract."
    return Finding(law.name, law.statement, len(errors), LawBroken(told, shown.law, shown.case, shown.wrong))


@frozen
class Drawn:
    """Programs that are drawn within a contract.

    >>> Drawn(ANYTHING, "aten", (), 3, 0).cases([])[1]
    0
    """

    contract: Contract
    tier: Tier
    seeds: tuple[Instance, ...]
    """What programs are drawn around; empty for programs of any kind."""
    count: int
    number: int

    @property
    def tolerance(self) -> Tolerance:
        """How far numbers may be apart."""
        return Tolerance(self.contract.rtol, self.contract.atol)

    @property
    def strategy(self) -> st.SearchStrategy[Case | None]:
        """Where the cases come from, most of them within the contract."""
        if self.seeds:
            return cases_around(self.seeds, self.contract)
        return attempts(self.tier, "flat", self.contract.barred)

    def admitted(self, case: Case | None) -> Case | None:
        """Return a case with the tolerance of the contract; None where its program is not within the contract."""
        if case is None or self.contract.broken_by(case.program):
            return None
        case = lifted(case) if self.contract.state == "inputs" else case
        return case and evolve(case, tolerance=self.tolerance)

    def cases(self, given: Sequence[Case]) -> tuple[list[Case], int]:
        """Return the cases within the contract, those given first, and how many are not."""
        mine = [one for case in given if (one := self.admitted(case)) is not None]
        drawn, found = self._drawn(self.count)
        if 5 * len(found) < 4 * self.count:
            drawn, found = self._drawn(MORE * self.count)
        return mine + found[: self.count], len(given) - len(mine) + drawn - len(found)

    def _drawn(self, count: int) -> tuple[int, list[Case]]:
        # Programs of no pattern are remembered while one pass after the other is asked.
        if self.seeds:
            drawn = examples_of(self.strategy, count, self.number)
        else:
            drawn = _examples(self.tier, self.contract.barred, count, self.number)
        made = [case for case in drawn if case is not None]
        return len(made), [one for case in made if (one := self.admitted(case)) is not None]


@cache
def _examples(tier: Tier, barred: frozenset[str], count: int, number: int) -> list[Case | None]:
    return examples_of(attempts(tier, "flat", barred), count, number)
