"""``check_fx_pass`` and ``survey_pass``: test a pass over fx graphs on generated programs within its contract.

``check_fx_pass`` raises at the first broken law, for tests; ``survey_pass`` counts and returns one small program for each broken
law, for tables.  Exceptions of the pass are counted and shown, but break no law.  If a pass raises on most programs, or changes
none, it counts as untested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import hypothesis.strategies as st
from attrs import Factory, evolve, field, frozen

from ...ir.names import escaped
from ...ir.program import Program
from ...lowering.fx import FxPass, Over
from ..asking import LawBroken, Source, unwarned
from ..checking import (
    NothingChecked,
    WrongQuestion,
    ask,
    by_law,
    cases_of,
    check_examples,
    require_changes,
    seed_of,
    shrunk,
)
from ..evaluate import Tolerance
from ..law import Case
from ..tiers import Tier, attempts, share
from .around import cases_around, seeds_of
from .contract import ANYTHING, Contract
from .judge import Judge

EXAMPLES: Mapping[Tier, int] = {"aten": 100, "modules": 20}

MORE = 4
"""The factor on the number of programs if few are within the contract."""

SECONDS = 10.0
"""The time to search smaller programs, for each law."""

ADVICE = "pass programs=[(program, args)] that it rewrites, or around=[(function, args)] with an example of its pattern"


@frozen
class Finding:
    """A broken law, with the smallest program that was found.

    >>> import torch
    >>> report = survey_pass(lambda module: torch.fx.symbolic_trace(lambda: ()), examples=5, seconds=0.0)
    >>> [(found.law, found.count) for found in report.findings]
    [('graph', 5)]
    """

    law: str
    count: int
    """The number of programs on which this was the first broken law."""
    error: LawBroken = field(repr=False)
    """The exception of ``check_fx_pass``: the message, the smallest case, and its faults."""

    @property
    def program(self) -> Program:
        """The smallest program."""
        return self.error.case.program


@frozen
class PassReport:
    """The outcome of a pass over fx graphs on the tested programs.

    >>> print(PassReport("cse", drawn=50, changed=20, right=47, raised={"KeyError": 3}, outside=9))
    cse was right on 47 of 50 programs, of which it changed 20, raised 3 (KeyError 3); 9 outside its contract
    """

    name: str
    drawn: int
    """The number of tested programs."""
    changed: int
    """The number of programs that it changed."""
    right: int
    raised: Mapping[str, int] = Factory(dict)
    """Exceptions of the pass, by type."""
    refused: Mapping[str, int] = Factory(dict)
    """Results that cannot be judged, by type of the reason: valid for some sizes only, or not representable as programs."""
    outside: int = 0
    """Drawn programs that are not within the contract."""
    findings: tuple[Finding, ...] = ()
    first_raised: str = field(default="", repr=False)
    """The traceback of its first exception, and the program."""

    @property
    def wrong(self) -> int:
        """The number of programs on which a law is broken."""
        return sum(found.count for found in self.findings)

    def __str__(self) -> str:
        text = f"{self.name} was right on {self.right} of {self.drawn} programs, of which it changed {self.changed}"
        laws = {found.law: found.count for found in self.findings}
        for word, counts in (
            ("wrong on", laws),
            ("raised", self.raised),
            ("refused", self.refused),
        ):
            if counts:
                several = ", ".join([f"{name} {count}" for name, count in sorted(counts.items())])
                text += f", {word} {sum(counts.values())} ({several})"
        return escaped(text + (f"; {self.outside} outside its contract" if self.outside else ""))


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
    """Raise unless a pass over fx graphs is right on generated programs within its contract, and on yours.

    The result must be a graph that runs.  Outputs, mutated inputs and state are compared over several calls, bit by bit.  Random
    numbers must be drawn independently, and the order of effects, shared memory, ``meta["val"]`` and the claims of the contract
    must hold.  Equal programs must have equal results.  The pass gets copies.

    Args:
        a_pass: a function, a ``PassBase`` or a ``PassManager``; it may edit its argument, or return a module or a
            ``PassResult``.
        over: the type of its argument: ``"graph_module"``, ``"graph"`` or ``"exported_program"``.
        contract: the assumptions and claims of the pass; see ``purefx.laws.Contract``.
        tier: ``"aten"`` are programs of real operators, ``"modules"`` generated modules that ``torch.export`` exported.
        examples: the number of programs to draw; by default 100 of operators and 20 of modules, times the factor of the
            hypothesis profile.  With ``programs`` it may be 0.
        seed: selects other programs; by default always the same, or others each time if the profile is so configured.
        programs: your own, tested first: ``(program, args)`` or ``(program, args, kwargs)``, where a program is a flat
            ``Program``, an ``ExportedProgram`` or a ``torch.nn.Module``.
        around: examples of the pattern of the pass, to draw programs around: a rule, ``(function, args)`` or ``(function,
            args, kwargs)``, where modules and programs count as functions.

    Returns:
        The report, if the pass was wrong on no program.

    Raises:
        LawBroken: a law does not hold; the message shows the smallest program found, as text that ``purefx.parse`` reads.
        NothingChecked: the pass changed none of the programs, or raised on most of them; the message has its first traceback.
        WrongQuestion: an argument is invalid.
        FxPassError: ``a_pass`` is not a pass.

    Warns ``FewChanges`` if the pass changed fewer than a tenth of the programs.

    >>> import torch
    >>> from purefx.laws.fx_passes import INFERENCE, check_fx_pass
    >>> def dead_code(module: torch.fx.GraphModule) -> None:
    ...     module.graph.eliminate_dead_code()
    >>> print(check_fx_pass(dead_code, contract=INFERENCE, examples=10))  # doctest: +ELLIPSIS
    dead_code was right on 10 of 10 programs, of which it changed ...
    """
    __tracebackhide__ = True
    report = survey_pass(
        a_pass,
        over=over,
        contract=contract,
        tier=tier,
        examples=examples,
        seed=seed,
        programs=programs,
        around=around,
        first_only=True,
    )
    for found in report.findings:
        raise found.error.with_traceback(None) from None
    failed = sum(report.raised.values()) + sum(report.refused.values())
    shown = f"{report}\n{report.first_raised}" if report.raised else f"{report}"
    if not report.drawn or 2 * failed > report.drawn:
        raise NothingChecked(
            f"{shown}\nThe pass was hardly tested: pass its assumptions as contract="
        )
    counts = f"{shown}\n{report.name} changed {report.changed or 'none'} of {report.drawn} programs"
    require_changes(report.changed / report.drawn, counts, ADVICE, report)
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
    first_only: bool = False,
) -> PassReport:
    """Test a pass over fx graphs on programs within its contract, and find a small program for each broken law.

    Args:
        a_pass: see ``check_fx_pass``, also for the others.
        over: the type of its argument.
        contract: its assumptions and claims.
        tier: the kind of programs.
        examples: the number of programs to draw.
        seed: selects other programs.
        programs: the user's own.
        around: examples to draw programs around.
        seconds: the time to look for smaller programs, for each law.
        first_only: whether to stop at the first broken law.

    >>> survey_pass(lambda module: None, examples=5).right
    5
    """
    if not isinstance(contract, Contract):
        raise WrongQuestion(
            f"contract must be a purefx.laws.Contract, not a {type(contract).__name__}"
        )
    if tier not in EXAMPLES:
        raise WrongQuestion(f"tier={tier!r}: pass {' or '.join(map(repr, EXAMPLES))}")
    judge, own, seeds = (
        Judge(FxPass.of(a_pass, over), contract),
        cases_of(programs),
        seeds_of(around),
    )
    check_examples(examples, given=bool(own))
    count, number = share(EXAMPLES[tier]) if examples is None else examples, seed_of(seed)
    strategy = (
        cases_around(seeds, contract.barred) if seeds else attempts(tier, "flat", contract.barred)
    )
    origin = f"{'around the examples' if seeds else f'tier={tier!r}'}, within the contract, "
    tolerance = Tolerance(contract.rtol, contract.atol)
    source = Source(
        _within(strategy, contract), count, number, tolerance, origin=origin, seconds=seconds
    )
    drawn, tried = source.cases(), count
    if 5 * len(drawn) < 4 * count:
        drawn, tried = evolve(source, count=MORE * count).cases(), MORE * count
    mine = [
        evolve(one, tolerance=tolerance)
        for case in own
        if (one := contract.admitted(case)) is not None
    ]
    cases = mine + drawn[:count]
    with unwarned():
        outcome = ask(judge, judge.laws, cases, first_only=first_only)
    raised, refused = dict(judge.raised), dict(judge.refused)
    findings = [
        Finding(errors[0].law.name, len(errors), shrunk(errors, judge, source if seconds else None))
        for errors in by_law(outcome.broken, judge.laws)
    ]
    return PassReport(
        judge.name,
        len(cases),
        outcome.changed,
        outcome.right,
        raised,
        refused,
        len(own) + tried - len(mine) - len(drawn),
        tuple(findings),
        judge.first_raised,
    )


@cache
def _within(
    strategy: st.SearchStrategy[Case | None], contract: Contract
) -> st.SearchStrategy[Case | None]:
    # Cached, because many passes are tested on the same programs.
    return strategy.map(contract.admitted)
