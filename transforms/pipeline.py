"""``transform``: run transformations one after the other.

One idea: composition is a tuple.  The facts that each one requires, establishes and forgets are checked for the
whole tuple before the first one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from ..ir.collector import collector_paused
from ..ir.errors import InvalidProgram, PipelineError
from ..ir.program import Program
from ..ir.verify import check
from .deduplicate import deduplicate
from .dispatch import dispatch
from .inplace_mutations import inplace_mutations
from .insert_ivals import insert_ivals
from .outline import outline
from .remove_effect_tokens import remove_effect_tokens
from .sink_state import sink_state
from .transformation import ADVICE, Transformation, observed

__all__ = ["DEFAULT", "check_order", "transform"]

DEFAULT: tuple[Transformation, ...] = (
    remove_effect_tokens, inplace_mutations, sink_state, insert_ivals, outline, deduplicate, dispatch,
)  # fmt: skip
"""From the flat program to the module hierarchy.  State is sunk before outlining: one walk over the flat graph puts each
read where it belongs, and no call is ever made that hands state down only to lose those arguments again."""


def transform(program: Program, *transformations: Callable[[Program], Program]) -> Program:
    """Run transformations in order; with none given, the default pipeline that restores the module hierarchy.

    Args:
        program: where to start; it is not changed.
        transformations: ``Transformation`` values, or any functions from programs to programs.

    Returns:
        The last result; ``program`` itself when none had anything to do.

    Raises:
        InvalidProgram: the program, or the result of a step that is not purefx's own, breaks invariants.
        PipelineError: the order can not work; raised before anything runs.
        UnsupportedProgram: a transformation met something that it can not treat faithfully.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())}, facts=frozenset({"flat"}))
    >>> px.transform(program) is program
    True
    """
    steps = transformations or DEFAULT
    check_order(check(program), steps)
    # One pause for all: with one for each step, the collector would walk what they made after every one of them.
    with collector_paused() if all(isinstance(step, Transformation) and step.proven for step in steps) else nullcontext():
        for number, step in enumerate(steps, 1):
            # A result that is not known to be valid (a user's function made it) is looked at before the next step sees it.
            try:
                program = check(step(program))
            except InvalidProgram as error:
                error.add_note(f"in step {number} of {len(steps)}, {getattr(step, '__name__', None) or repr(step)}")
                raise
    return program


def check_order(program: Program, steps: Sequence[Callable[[Program], Program]]) -> None:
    """Raise ``PipelineError`` when a step requires a fact that an earlier one takes away or that never held.

    >>> import purefx as px
    >>> check_order(px.Program.of({"": px.Graph((), (), ())}), (px.deduplicate,))
    """
    facts = program.facts | observed(program)
    taken: dict[str, str] = {}
    for number, step in enumerate(steps, 1):
        if not isinstance(step, Transformation):
            continue
        fact = step.lacks(facts)
        if fact is not None:
            why = f"{taken[fact]} before it takes that away" if fact in taken else "nothing before it establishes that"
            raise PipelineError(f"step {number}, {step.name}, requires a program that is {fact!r}, but {why}; {ADVICE[fact]}")
        taken.update(dict.fromkeys(step.forgets & facts, step.name))
        facts = (facts - step.forgets) | step.establishes
