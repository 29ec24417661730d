"""``Search``: the program as far as it is reduced, and the questions that were asked about smaller ones.

A candidate is asked about if it is valid, smaller, and none that was asked before; who proposes it does not check that.  The
search knows nothing of how candidates are made.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ...ir.errors import MinimizeError, PurefxError
from ...ir.program import Program
from ...ir.verify import verify
from ..cleanup import infer
from .weight import weight

__all__ = ["Search", "TimeIsUp"]

Predicate = Callable[[Program], bool]

Change = Callable[[Program], Program | None]
"""Makes a candidate of the program as it is; None, or an error of ours, says that there is none."""


class TimeIsUp(Exception):
    """No more questions."""


class Search:
    """A reduction that is under way.

    Args:
        program: where it starts; valid.
        is_wrong: the question.
        seconds: after these no more questions are asked.

    >>> from purefx.ir import Graph, Node, Op
    >>> nodes = tuple(Node(name, Op("toy.neg"), (1,)) for name in "ab")
    >>> search = Search(Program.of({"": Graph((), nodes)}), lambda program: bool(program.main.nodes), seconds=9)
    >>> search.offer("all but one", lambda program: program.with_main(Graph((), nodes[:1])))
    True
    >>> search.tried, len(search.program.main.nodes)
    (1, 1)
    """

    def __init__(self, program: Program, is_wrong: Predicate, *, seconds: float) -> None:
        self.program = program
        self.best = program
        """The smallest one that is wrong."""
        self.steps: list[str] = []
        self.tried = 0
        self._is_wrong = is_wrong
        self._met: set[Program] = {program}
        """Programs that it was at, or that are not wrong."""
        self._began = time.monotonic()
        self._ends = self._began + seconds

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._began

    def begin(self) -> None:
        """Ask about the program itself.

        Raises:
            MinimizeError: it is not wrong, or the question fails on it.
        """
        self.tried += 1
        advice = "is_wrong(program) has to be true of the program that is given, before anything is cut away"
        try:
            wrong = bool(self._is_wrong(self.program))
        except Exception as error:
            said = f"is_wrong raised {type(error).__name__} for the given program: {error}"
            raise MinimizeError(f"{said}; {advice}. Where raising is what is wrong, catch it and return True") from error
        if not wrong:
            raise MinimizeError(f"there is nothing to reduce: {advice}; make its arguments from the program that it is given")

    def offer(self, told: str, change: Change, *, larger: bool = False) -> bool:
        """Go on with a candidate if it is wrong as well.

        Args:
            told: what was done, for the list of steps.
            change: makes the candidate.
            larger: whether it may be larger, because others that it leads to are not.

        Raises:
            TimeIsUp: there is no time to ask.
        """
        if time.monotonic() > self._ends:
            raise TimeIsUp
        try:
            made = change(self.program)
            candidate = None if made is None or made is self.program else self._valid(made, larger=larger)
        except PurefxError:
            return False
        if candidate is None or not self._asked(candidate):
            return False
        self.program = candidate
        self.steps.append(told)
        if weight(candidate) < weight(self.best):
            self.best = candidate
        return True

    def _valid(self, made: Program, *, larger: bool) -> Program | None:
        # Types of values that a change took away are worked out last: only of a valid program can they be.
        if not larger and weight(made) >= weight(self.program):
            return None
        if made in self._met or verify(made):
            return None
        candidate = infer(made)
        return candidate.evolve(trail=()) if candidate is made or not verify(candidate) else None

    def _asked(self, candidate: Program) -> bool:
        self.tried += 1
        try:
            wrong = bool(self._is_wrong(candidate))
        except Exception:  # noqa: BLE001  whatever it says, it is another fault than the one that is searched for
            wrong = False
        self._met.add(candidate)
        return wrong
