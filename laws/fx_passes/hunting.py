"""``hunt``: ask a pass on ever new programs for some time, and tell its mistakes apart.

Two mistakes are one where the same law is broken on programs of the same operators.  Whether results depend on the seed of
Python's hashes shows only in other processes: ``texts`` is what those print, to be compared.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from attrs import evolve, field, frozen

from ...ir.analysis.digest import digest
from ...ir.graph import Op
from ...lowering.fx import FxPass, Over
from ..strategies.nnsmith import nnsmith_programs
from ..tiers import Tier, forget
from .checking import Finding, PassReport, cases_within, survey_pass
from .contract import ANYTHING, Contract
from .drawing import forget_drawn
from .judge import Judge, Outcome

__all__ = ["Hunt", "hunt", "texts"]

AT_ONCE = 40
"""How many programs are drawn in a round."""


@frozen
class Hunt:
    """What a search found: one report for all of its rounds, whose findings are the mistakes that differ.

    >>> Hunt(PassReport("cse", 1, 1, 1, {}, 0), 1).rounds
    1
    """

    report: PassReport
    rounds: int
    counts: Counter[str] = field(factory=Counter)
    """On how many programs each law was the first that did not hold."""


def hunt(
    a_pass: Any,
    *,
    seconds: float,
    over: Over = "graph_module",
    contract: Contract = ANYTHING,
    tier: Tier | Literal["nnsmith"] = "aten",
    seed: int = 0,
    around: Sequence[Any] = (),
    reducing: float = 10.0,
    progress: Callable[[float, PassReport], object] | None = None,
) -> Hunt:
    """Ask a pass on ever new programs until the time is up; at least one round is done.

    Args:
        a_pass: see ``check_fx_pass``.
        seconds: how long.
        over: what the pass takes.
        contract: what it may assume.
        tier: where programs come from; ``"nnsmith"`` are those of another generator, the optional extra of that name.
        seed: of the first round; the next ones have the numbers behind it.
        around: what programs are drawn around.
        reducing: how long a mistake is made smaller, in seconds.
        progress: is called after each round with the seconds gone and what was found so far.

    >>> hunt(lambda module: None, seconds=0, seed=3).report.wrong
    0
    """
    begun, found, known = time.monotonic(), None, dict[tuple[str, ...], Finding]()
    counts, rounds = Counter[str](), 0
    while found is None or time.monotonic() - begun < seconds:
        drawn: dict[str, Any] = {"tier": tier, "examples": AT_ONCE, "seed": seed + rounds, "around": around}
        if tier == "nnsmith":
            drawn = {"examples": 0, "programs": nnsmith_programs(AT_ONCE, seed=seed + rounds)}
        report = survey_pass(a_pass, over=over, contract=contract, seconds=reducing, **drawn)
        forget_drawn()  # programs of one round are of no use to the next
        forget()
        rounds += 1
        for each in report.findings:
            counts[each.law] += each.count
            known.setdefault(_kind(each), each)
        found = _added(found, report, tuple(known.values()))
        if progress is not None:
            progress(time.monotonic() - begun, found)
    return Hunt(found, rounds, counts)


def _kind(found: Finding) -> tuple[str, ...]:
    nodes = found.program.nodes() if found.program is not None else ()
    return (found.law, *sorted(node.do.name for _, node in nodes if type(node.do) is Op))


def _added(before: PassReport | None, report: PassReport, findings: tuple[Finding, ...]) -> PassReport:
    if before is None:
        return report
    return evolve(
        report,
        drawn=before.drawn + report.drawn,
        changed=before.changed + report.changed,
        right=before.right + report.right,
        outside=before.outside + report.outside,
        refused=dict(Counter(before.refused) + Counter(report.refused)),
        findings=findings,
        seed=before.seed,
    )


def texts(
    a_pass: Any,
    *,
    over: Over = "graph_module",
    contract: Contract = ANYTHING,
    examples: int = 10,
    seed: int = 0,
    around: Sequence[Any] = (),
) -> list[str]:
    """Return what identifies the results of a pass on some programs, for comparing processes; refused ones say so.

    Args:
        a_pass: see ``check_fx_pass``.
        over: what the pass takes.
        contract: what it may assume.
        examples: how many programs.
        seed: of the programs.
        around: what programs are drawn around.

    >>> len(texts(lambda module: None, examples=3))
    3
    """
    judge = Judge(FxPass.of(a_pass, over))
    outcomes = [judge.outcome(case.program) for case in cases_within(contract, examples, seed, around)]
    return [_text(one) for one in outcomes]


def _text(outcome: Outcome) -> str:
    if outcome.raised is not None:
        return type(outcome.raised).__name__
    return "no program" if outcome.result is None else digest(outcome.result)
