"""``Corruptor``: a way to break one invariant of a program, and who must notice.

One idea: a corruptor takes any valid program and a seed, which chooses the place, and gives back a program that is wrong
in one respect; None where there is nothing of that kind to break.  It says itself who refuses the result: a rule of
``verify``, or, where a wrong program is as well-formed as a right one, only its meaning.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen

from ...ir.program import Program

__all__ = ["MEANING", "Corruption", "Corruptor"]

MEANING = "meaning"
"""Refused by nothing but the oracle: the program is valid, and computes something else."""

VERIFY = "verify:"


@frozen
class Corruptor:
    """A way to break a program.

    >>> Corruptor("no root", "verify:root", "the root names no graph", lambda program, seed: program.evolve(root="?")).rule
    'root'
    """

    name: str
    refused_by: str
    """``"verify:<rule>"``, or ``"meaning"``."""
    statement: str
    """What is done to the program, in one sentence."""
    apply: Callable[[Program, int], Program | None] = field(repr=False)
    """Gives the corrupted program, or None where this program has nothing of the kind; equal seeds give equal programs."""

    @property
    def rule(self) -> str | None:
        """The name of the rule that must refuse the result; None where only the meaning tells."""
        return self.refused_by.removeprefix(VERIFY) if self.refused_by.startswith(VERIFY) else None

    def __str__(self) -> str:
        return self.name


@frozen
class Corruption:
    """A corrupted program, what was done to it, and what it was.

    >>> program = Program.of({})
    >>> idle = Corruptor("nothing", MEANING, "nothing is done", lambda program, seed: program)
    >>> Corruption(idle, program, program).program is program
    True
    """

    corruptor: Corruptor
    program: Program
    original: Program
