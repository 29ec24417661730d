"""``make vacuity``: how often each law tells something: on how many drawn cases its premise holds.

A law that speaks of hardly any program would hold of anything.  A law tells something on a case where its premise holds
(``where=``, for laws that speak of some programs only) and the transformation does something to one of the programs that the law
gives it, which need not be the drawn one: many laws put in first what should go.  Nothing is checked here but that.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence

from attrs import define

from purefx.laws.arguments import check_fits
from purefx.laws.law import Case
from purefx.laws.tiers import TIERS, Tier, drawn_cases
from tests.laws.aimed import as_aimed
from tests.laws.deep import Question, questions
from tests.laws.telling import Listening

__all__ = ["ENOUGH", "Share", "main", "scarce", "shares"]

AT_ONCE: dict[Tier, int] = {"toy": 12, "aten": 8, "modules": 3}

ENOUGH = 0.3
"""Of so many of the cases that it is asked on a law has to tell something, in the tier that suits it best."""


@define
class Share:
    """On how many cases a law was asked, and on how many of them its premise held."""

    asked: int = 0
    held: int = 0

    @property
    def share(self) -> float:
        """The part of the cases."""
        return self.held / max(self.asked, 1)


def shares(
    draws: int, *, tiers: Sequence[Tier] = TIERS, names: Sequence[str] = (), laws: Sequence[str] = ()
) -> dict[tuple[str, Tier], Share]:
    """Return for each law and tier how often its premise held.

    Args:
        draws: how often programs are drawn for each transformation and stage.
        tiers: where they come from.
        names: of transformations; empty for all.
        laws: names of laws; empty for all.
    """
    found: defaultdict[tuple[str, Tier], Share] = defaultdict(Share)
    for one in questions(tiers, names, laws):
        for draw in range(draws):
            _add(found[one.law.name, one.tier], one, _fitting(one, drawn_cases(one.tier, one.stage, AT_ONCE[one.tier], draw)))
    return dict(found)


def _fitting(one: Question, cases: Sequence[Case]) -> Sequence[Case]:
    return check_fits(one.transform, one.stage, one.tier, cases).cases


def _add(share: Share, one: Question, cases: Iterable[Case]) -> None:
    heard = Listening(one.transform)
    for case in cases:
        share.asked += 1
        if as_aimed(one.law).premise(heard.transform, case):
            heard.acted = False
            one.law.check(heard.transform, case)
            share.held += heard.told(one.law, case)


def scarce(found: dict[tuple[str, Tier], Share]) -> dict[str, float]:
    """Return the laws that tell too little in every tier, with their best share."""
    best: dict[str, float] = {}
    for (law, _), share in found.items():
        best[law] = max(best.get(law, 0.0), share.share)
    return {law: share for law, share in best.items() if share < ENOUGH}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; status 1 where a law tells too little."""
    parser = argparse.ArgumentParser("python -m tests.laws.vacuity", description=__doc__)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=TIERS)
    parser.add_argument("--laws", nargs="+", default=(), help="their names; all without")
    given = parser.parse_args(arguments)
    found = shares(given.draws, tiers=given.tiers, laws=given.laws)
    names = sorted(
        {law for law, _ in found}, key=lambda law: max(found[law, tier].share for tier in TIERS if (law, tier) in found)
    )
    for law in names:
        told = [f"{tier} {found[law, tier].share:4.0%} of {found[law, tier].asked}" for tier in TIERS if (law, tier) in found]
        sys.stdout.write(f"{law:<36} {'   '.join(told)}\n")
    few = scarce(found)
    for law, share in few.items():
        sys.stdout.write(f"{law} tells something of {share:.0%} of its cases alone\n")
    return int(bool(few))


if __name__ == "__main__":
    sys.exit(main())
