"""Steps in torch's structured trace: the text of the program after each, as an artifact that ``tlparse`` lists.

Nothing is printed or written where nobody reads the trace, and no handler is installed.  ``transform`` traces its steps; what a
transformation calls inside, and what is called by itself, is not traced.
"""

from __future__ import annotations

from ..ir.program import Program
from ..ir.torch_private import write_artifact

__all__ = ["trace_program"]

LONGEST = 60
"""Characters of the name of a step; it becomes the name of a file."""


def trace_program(step: str, number: int, program: Program, before: Program | None = None) -> None:
    """Write a program to the structured trace, if somebody reads it.

    Args:
        step: what made the program.
        number: which step that was, counted from 1; 0 for the program at the beginning.
        program: after the step.
        before: the program before it, where there was one.
    """
    write_artifact(artifact_name(step, number), lambda: "nothing to do\n" if program is before else program.text())


def artifact_name(step: str, number: int) -> str:
    """Return the name of an artifact: a word, whatever the step is called.

    >>> artifact_name("outline", 5), artifact_name("../<lambda>", 1)
    ('purefx_5_outline', 'purefx_1_____lambda_')
    """
    return f"purefx_{number}_{''.join([char if char.isascii() and char.isalnum() else '_' for char in step[:LONGEST]])}"
