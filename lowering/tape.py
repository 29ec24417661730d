"""The tape of a body: one small function for each node, so that each operator is run by itself.

One idea: they are the lines of the generated code with a list in the place of local variables, so both ways of running a body
compute the same; what failed is known by its number.  A tape is made when a body first runs step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from .compiled import FILE, Body
from .source import write_body

__all__ = ["Tape", "tape_of"]

Step = Callable[[Any, list[Any]], Any]


@frozen
class Tape:
    """What runs a body step by step; every step takes the module whose state is read and the registers."""

    steps: tuple[Step, ...]
    """One for each node that the body runs."""
    result: Step
    registers: int
    """How many there are; the first hold the inputs."""


def tape_of(body: Body) -> Tape:
    """Return the tape of a body, made the first time."""
    if body.tape is None:
        body.tape = _made(body)
    return body.tape


def _made(body: Body) -> Tape:
    table = body.new_table()
    source = write_body(body.runs, table, body.sites, register="r[{}]".format)
    lines = [line for number, step in enumerate(source.lines) for line in (f"def step_{number}(self, r):", f"    {step}")]
    made: dict[str, Any] = {}
    exec(compile("\n".join(lines), FILE, "exec"), table.values, made)  # noqa: S102 - the text is ours, see source.py
    *steps, result = made.values()
    return Tape(tuple(steps), result, source.registers)
