"""``transform`` runs transformations in sequence; ``bisect`` finds the first rewrite that makes a program bad.

The default pipeline is a tuple of transformations.

In torch's structured trace, the program after each step of ``transform`` is an artifact that ``tlparse`` lists.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from attrs import field, frozen

from ..ir.errors import ArgumentError, FuelError, InvalidProgram, PipelineError
from ..ir.forks import collector_paused
from ..ir.names import escaped
from ..ir.program import Program
from ..ir.torch_private import is_traced, write_artifact
from ..ir.validation import a_function, a_program, a_result, is_function, kind_of
from ..ir.verify import check, trust, verify
from .deduplicate import deduplicate
from .dispatch import dispatch
from .effect_tokens import remove_effect_tokens
from .insert_ivals import insert_ivals
from .mutations import inplace_mutations
from .outline import outline
from .outline.merged import outlined_and_deduplicated
from .rules.rule import RuleSet
from .state import sink_state
from .transformation import ADVICE, Fuel, Transformation, observed, without_fuel

LONGEST = 60
"""The maximum length of a step in a file name."""


def trace_program(step: str, number: int, program: Program, before: Program | None = None) -> None:
    """Write a program to the structured trace, if it is enabled.

    Args:
        step: the name of the step.
        number: its number, counted from 1; 0 for the initial program.
        program: after the step.
        before: the program before the step, if any.
    """
    write_artifact(
        artifact_name(step, number),
        lambda: "nothing to do\n" if program is before else program.text(),
    )


def artifact_name(step: str, number: int) -> str:
    """Return the name of an artifact of a step, as one word.

    >>> artifact_name("outline", 5), artifact_name("../<lambda>", 1)
    ('purefx_5_outline', 'purefx_1_____lambda_')
    """
    return f"purefx_{number}_{''.join([char if char.isascii() and char.isalnum() else '_' for char in step[:LONGEST]])}"


Step = Callable[[Program], Program]

DEFAULT: tuple[Transformation, ...] = (
    remove_effect_tokens, inplace_mutations, sink_state, insert_ivals, outline, deduplicate, dispatch,
)  # fmt: skip
"""From the flat program to the module hierarchy.  State is sunk before outlining: one walk over the flat graph then puts each
read into its module, and calls need no arguments for state."""


def transform(program: Program, *transformations: Callable[[Program], Program]) -> Program:
    """Run transformations in order; by default, those that restore the module hierarchy.

    If torch's structured trace is enabled (``TORCH_TRACE=folder``), the program after each step is written to it.

    Args:
        program: the initial program; it is not changed.
        transformations: ``Transformation`` values, rules and sets of them, or any functions from programs to programs.

    Returns:
        The last result; ``program`` itself if no step changed it.

    Raises:
        InvalidProgram: the program, or the result of a step that is not purefx's own, breaks invariants.
        PipelineError: the order cannot work, or a step is not a function; raised before any step runs.
        UnsupportedProgram: a transformation cannot handle the program faithfully.
        ArgumentError: ``program`` is not a Program, or a step returned something else.

    >>> import purefx as px
    >>> program = px.Program.of({"": px.Graph((), (), ())}, facts=frozenset({"flat"}))
    >>> px.transform(program) is program
    True
    """
    step = next((step for step in transformations if isinstance(step, Program)), None)
    a_program(program, "transform", steps=step)
    steps = tuple(map(as_step, transformations)) or DEFAULT
    proven = all(isinstance(step, Transformation) and step.proven for step in steps)
    # One pause for all steps: otherwise the collector would scan the objects of each step after the next.
    with collector_paused() if proven else nullcontext():
        if program.imported and not program.checked and all(step in DEFAULT for step in steps):
            check_order(program, steps)
            return _checked_afterwards(program, steps)
        check_order(check(program), steps)
        return _run(program, steps, check)


def _checked_afterwards(program: Program, steps: Sequence[Step]) -> Program:
    # The default steps drop no operator, so the result of an imported program is verified: its equal bodies are merged, which
    # takes a fifth of the time.  If it is invalid, the program itself is verified, so that the error is about the caller's
    # program.  Only the result is marked: other threads see the program, and an interrupt would leave a mark on it.
    try:
        result = _run(program, steps)
        violations = verify(result)
    except Exception:
        check(program)
        raise
    if violations:
        check(program)
        raise InvalidProgram(violations)
    return trust(result)


def _run(
    program: Program, steps: Sequence[Step], check: Callable[[Program], Program] | None = None
) -> Program:
    trace_program("program", 0, program)
    for number, step in _fused(steps):
        # A result that may be invalid (of a user's function) is verified before the next step gets it.
        before = program
        try:
            program = a_result(step(before), _name(step))
            if check is not None:
                check(program)
        except (InvalidProgram, ArgumentError) as error:
            error.add_note(f"in step {number} of {len(steps)}, {_name(step)}")
            raise
        except AttributeError as error:
            if error.obj is before or error.obj is Program.graph:
                error.add_note(
                    f"{_name(step)} was passed a purefx Program; px.from_fx_pass makes a step of a pass over fx graphs"
                )
            raise
        trace_program(_name(step), number, program, before)
    return program


def _fused(steps: Sequence[Step]) -> list[tuple[int, Step]]:
    # Each step with its number.  Outlining and deduplicating are one walk with the same result and trail, unless a structured
    # trace needs the program after each step.
    found: list[tuple[int, Step]] = []
    number = 0
    while number < len(steps):
        two = steps[number : number + 2]
        plain = all(isinstance(step, Transformation) and not step.options for step in two)
        together = plain and not is_traced() and tuple(two) == (outline, deduplicate)
        found.append((number + 1, outlined_and_deduplicated if together else steps[number]))
        number += 2 if together else 1
    return found


def check_order(program: Program, steps: Sequence[Callable[[Program], Program]]) -> None:
    """Raise ``PipelineError`` if a step is not a function, or requires a fact that does not hold before it.

    >>> import purefx as px
    >>> check_order(px.Program.of({"": px.Graph((), (), ())}), (px.deduplicate,))
    """
    facts = program.facts | observed(program)
    invalidated: dict[str, str] = {}
    for number, step in enumerate(map(as_step, steps), 1):
        _check_step(number, step)
        if not isinstance(step, Transformation):
            continue
        fact = step.lacks(facts)
        if fact is not None:
            why = (
                f"{invalidated[fact]} before it invalidates that"
                if fact in invalidated
                else "no earlier step establishes that"
            )
            raise PipelineError(
                f"step {number}, {step.name}, requires a program that is {fact!r}, but {why}; {ADVICE[fact]}"
            )
        invalidated.update(dict.fromkeys(step.forgets & facts, step.name))
        facts = (facts - step.forgets) | step.establishes


def _check_step(number: int, step: object) -> None:
    if is_function(step):
        return
    raise PipelineError(
        f"step {number} is {kind_of(step)}, and a step is a function of a program, such as px.outline; pass several as in "
        "px.transform(program, *steps)"
    )


def as_step(step: Step) -> Step:
    """Return the transformation of a rule or a set of them; itself for anything else.

    >>> import torch, purefx as px
    >>> soften = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))
    >>> as_step(soften).name, as_step(px.outline) is px.outline
    ('<lambda>', True)
    """
    return step.transformation if isinstance(step, RuleSet) else step


@frozen
class Rewrite:
    """One rewrite of a transformation, with the programs around it.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> print(Rewrite(3, "outline", "cut out layers.0", program, program))
    rewrite 3 (outline): cut out layers.0
    """

    number: int
    """Its number, counted from 1 over the whole pipeline: the least fuel that includes it."""
    transformation: str
    """The name of the transformation that did it."""
    label: str
    """The label of the rewrite."""
    before: Program = field(repr=False)
    after: Program = field(repr=False)

    def __str__(self) -> str:
        return escaped(f"rewrite {self.number} ({self.transformation}): {self.label}")


def bisect(
    program: Program, transformation: Step | Sequence[Step], is_bad: Callable[[Program], bool]
) -> Rewrite | None:
    """Find the first rewrite that makes a program bad, by bisection.

    The transformation is run about twice the logarithm of its number of rewrites, with more and with less fuel, and ``is_bad``
    is called on each result.  A bad program should stay bad under further rewrites: otherwise the returned rewrite still has a
    good program before it and a bad one after it, but there may be an earlier one.

    Args:
        program: the initial program; it must be good.
        transformation: one that takes fuel, a rule or a rule set, or a pipeline of these (``px.DEFAULT``), whose rewrites share
            the fuel: when it is used up, later steps do not run.  A step that takes no fuel is one rewrite.
        is_bad: whether a result is wrong, for instance ``lambda result: not torch.equal(px.lower(result)(x), expected)``.

    Returns:
        The rewrite, which prints as a sentence; None if the result with all rewrites is good.

    Raises:
        FuelError: the transformation takes no fuel, or has fuel bound to it; the program is already bad; or it is made bad by a
            change for which ``fuel.burn`` was not called.
        PipelineError: the order of a pipeline cannot work, or a step is not a function.
        ArgumentError: ``program`` is not a Program, or ``is_bad`` is not a function.

    >>> import purefx as px
    >>> nodes = [px.Node(name, px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame(name),)) for name in "abc"]
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), tuple(nodes), (px.Ref("c"),))})
    >>> print(px.bisect(program, px.outline, lambda result: "b" in result.graphs))
    rewrite 2 (outline): cut out b
    >>> px.bisect(program, px.outline, lambda result: False) is None
    True
    """
    a_program(program, "bisect", transformation=transformation, is_bad=is_bad)
    a_function(
        is_bad, "is_bad of bisect", "a function of a program that returns whether it is wrong"
    )
    argument: Any = transformation
    steps = tuple(
        map(
            as_step,
            argument if isinstance(argument, Iterable) and not callable(argument) else (argument,),
        )
    )
    for number, step in enumerate(steps, 1):
        _check_step(number, step)
    if len(steps) == 1 and not (isinstance(steps[0], Transformation) and steps[0].takes_fuel):
        raise without_fuel(_name(steps[0]))
    for step in steps:
        if isinstance(step, Transformation) and dict(step.options).get("fuel") is not None:
            raise FuelError(
                f"{step.name} has fuel bound to it, but bisect chooses the fuel: pass it without"
            )
    check_order(program, steps)
    if is_bad(program):
        raise FuelError(
            "the program is already bad before any rewrite: start with one for which is_bad returns False"
        )
    whole = _Run(program, steps, sys.maxsize)
    if not is_bad(whole.result):
        return None
    return _search(program, steps, whole, is_bad)


def _search(
    program: Program, steps: Sequence[Step], whole: _Run, is_bad: Callable[[Program], bool]
) -> Rewrite:
    good, bad = _Run(program, steps, 0), whole
    less, enough = 0, len(whole.labels)
    if good.result is not program or not enough:
        names = ", ".join(map(_name, steps))
        raise FuelError(
            f"{names} changes the program without fuel: call `fuel.burn(...)` before each rewrite, and obey its result"
        )
    while enough - less > 1:
        limit = (less + enough) // 2
        middle = _Run(program, steps, limit)
        if is_bad(middle.result):
            enough, bad = limit, middle
        else:
            less, good = limit, middle
    return Rewrite(enough, bad.last, whole.labels[enough - 1], good.result, bad.result)


class _Run:
    """The steps, run on a program with one budget of fuel."""

    def __init__(self, program: Program, steps: Sequence[Step], limit: int) -> None:
        fuel = Fuel(limit)
        self.result = program
        self.last = ""
        """The transformation that did the last rewrite."""
        for step in steps:
            before = fuel.burnt
            self.result = _stepped(self.result, step, fuel)
            if fuel.burnt > before:
                self.last = _name(step)
            if fuel.refused:
                break
        self.labels = fuel.labels


def _stepped(program: Program, step: Step, fuel: Fuel) -> Program:
    if isinstance(step, Transformation) and step.takes_fuel:
        return step.spend(program, fuel, **dict(step.options))
    result = a_result(step(program), _name(step))
    return result if result is program or fuel.burn("all that it does") else program


def _name(step: Step) -> str:
    return getattr(step, "__name__", None) or repr(step)
