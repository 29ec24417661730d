"""``rule_machine``: random transformations, inverses, renamings and legal orders, one after the other.

What single laws cannot see is how transformations act on what others left behind.  A hypothesis state machine
starts from a generated program, takes up to twenty steps in any order that their requirements allow, and after each asks what
must hold after any number of them.  It knows no transformation: those that it is given may be yours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from purefx.ir.analysis.digest import digest
from purefx.ir.errors import PipelineError, UnsupportedProgram
from purefx.ir.program import Program
from purefx.ir.verify import verify
from purefx.laws.evaluate import Meaning, meaning_differences
from purefx.laws.law import Transform, made_anew
from purefx.laws.purity import changes_in_program
from purefx.laws.strategies import Stage, programs
from purefx.laws.toy import toy_meaning
from purefx.laws.variants import renamed, reordered
from purefx.transforms import Transformation
from purefx.transforms.transformation import observed

__all__ = ["STEPS", "Walk", "rule_machine"]

STEPS = 20
"""How many steps are taken from one program."""

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
"""What drawing a program does, and should."""

NUMBERS = st.integers(0, 1 << 16)


class Walk:
    """A program on its way through transformations, and what it meant at the start."""

    def __init__(self, program: Program, meaning: Callable[[Program], Meaning] = toy_meaning) -> None:
        self.start = program
        self.program = program
        self.meaning = meaning
        self.expected = meaning(program)
        self.steps: list[str] = []

    def transform(self, step: Transform) -> None:
        """Take the step of a transformation; one that refuses the program leaves it as it is."""
        before = self.program
        given: list[Program] = []

        def run() -> None:
            try:
                given.append(step(before))
            except (UnsupportedProgram, PipelineError):
                given.append(before)

        wrong = changes_in_program(before, run)
        self._arrive(_name(step), given[0])
        trail = given[0].trail
        if isinstance(step, Transformation) and given[0] is not before:
            grown = len(trail) == len(before.trail) + 1 and trail[-1].name == step.name and trail[-1].before is before
            wrong += [] if grown else ["the trail did not grow by this step"]
        self._expect([*wrong, *made_anew(before, given[0])])

    def rename(self, seed: int) -> None:
        """Give values and graphs other names."""
        before = self.program
        self._arrive(f"renamed(seed={seed})", renamed(before, seed=seed))
        self._expect([] if digest(before) == digest(self.program) else ["other names give another digest"])

    def reorder(self, seed: int) -> None:
        """Put the nodes of the root in another legal order."""
        self._arrive(f"reordered(seed={seed})", reordered(self.program, seed=seed))
        self._expect([])

    def _arrive(self, step: str, program: Program) -> None:
        self.steps.append(step)
        self.program = program

    def _expect(self, wrong: list[str]) -> None:
        wrong = [*wrong, *map(str, verify(self.program))]
        if not wrong:
            wrong = meaning_differences(self.meaning(self.program), self.expected)
        if wrong:
            raise AssertionError("\n".join([f"after {', '.join(self.steps)}:", *wrong, "from the program", self.start.text()]))


class _Drawn:
    """A program that hypothesis does not print: its pretty printer takes minutes, and the message has the text."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __repr__(self) -> str:
        return "program"


@st.composite
def _drawn(draw: st.DrawFn, stage: Stage) -> _Drawn:
    # What `map` and `builds` make is printed by the calls that made it, whatever its repr says.
    return _Drawn(draw(programs(stage)))


def _name(step: Transform) -> str:
    return step.name if isinstance(step, Transformation) else getattr(step, "__name__", None) or repr(step)


def allowed(program: Program, steps: tuple[Transform, ...]) -> list[Transform]:
    """Return the steps whose requirements a program meets; a function without requirements can always run."""
    facts = program.facts | observed(program)
    return [step for step in steps if not isinstance(step, Transformation) or step.lacks(facts) is None]


def rule_machine(*transformations: Transform, stage: Stage = "flat") -> type[RuleBasedStateMachine]:
    """Return a state machine that takes random steps through transformations.

    ``run_state_machine_as_test(rule_machine(...))`` runs it, and ``rule_machine(...).TestCase`` is a unittest for pytest to find.
    """
    if not transformations or not all(callable(step) for step in transformations):
        raise TypeError("rule_machine takes functions from programs to programs, at least one")

    class Steps(RuleBasedStateMachine):
        """One walk; its rules are the kinds of steps."""

        walk: Walk

        @initialize(drawn=_drawn(stage))
        def start(self, drawn: _Drawn) -> None:
            self.walk = Walk(drawn.program)

        @rule(number=NUMBERS)
        def transform(self, number: int) -> None:
            steps = allowed(self.walk.program, transformations)
            if steps:
                self.walk.transform(steps[number % len(steps)])

        @rule(seed=NUMBERS)
        def rename(self, seed: int) -> None:
            self.walk.rename(seed)

        @rule(seed=NUMBERS)
        def reorder(self, seed: int) -> None:
            self.walk.reorder(seed)

    case: Any = Steps.TestCase
    case.settings = settings(stateful_step_count=STEPS, deadline=None, suppress_health_check=SLOW)
    return Steps
