"""``walk``: random transformations, renamings and legal orders, one after the other.

What single laws cannot see is how transformations act on what others left behind.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from purefx.ir.analysis.digest import digest
from purefx.ir.errors import PipelineError, UnsupportedProgram
from purefx.ir.program import Program
from purefx.ir.verify import verify
from purefx.laws.asking import name_of
from purefx.laws.evaluate import meaning_differences
from purefx.laws.law import Transform, made_anew
from purefx.laws.purity import changes_in_program
from purefx.laws.toy import toy_meaning
from purefx.laws.variants import renamed, reordered
from purefx.transforms import Transformation
from purefx.transforms.transformation import observed

STEPS = 20
"""How many steps are taken from one program."""


def walk(program: Program, steps: Sequence[Transform], seed: int, count: int = STEPS) -> list[str]:
    """Take random steps from a program; return what is wrong after the first step that breaks something."""
    draw, start, expected, taken = random.Random(seed), program, toy_meaning(program), list[str]()
    for number in range(count):
        before, wrong = program, list[str]()
        kind, possible = draw.randrange(5), allowed(program, steps)
        if kind == 0:
            taken.append(f"renamed(seed={number})")
            program = renamed(program, seed=number)
            wrong += (
                [] if digest(before) == digest(program) else ["other names give another digest"]
            )
        elif kind == 1 or not possible:
            taken.append(f"reordered(seed={number})")
            program = reordered(program, seed=number)
        else:
            step = draw.choice(possible)
            taken.append(name_of(step))
            program, wrong = _stepped(step, before)
        wrong = [*wrong, *map(str, verify(program))] or meaning_differences(
            toy_meaning(program), expected
        )
        if wrong:
            return [f"after {', '.join(taken)}:", *wrong, "from the program", start.text()]
    return []


def _stepped(step: Transform, before: Program) -> tuple[Program, list[str]]:
    # A transformation that refuses the program leaves it as it is.
    given: list[Program] = []

    def run() -> None:
        try:
            given.append(step(before))
        except (UnsupportedProgram, PipelineError):
            given.append(before)

    wrong = changes_in_program(before, run)
    trail = given[0].trail
    if isinstance(step, Transformation) and given[0] is not before:
        grown = (
            len(trail) == len(before.trail) + 1
            and trail[-1].name == step.name
            and trail[-1].before is before
        )
        wrong += [] if grown else ["the trail did not grow by this step"]
    return given[0], [*wrong, *made_anew(before, given[0])]


def allowed(program: Program, steps: Sequence[Transform]) -> list[Transform]:
    """Return the steps whose requirements a program meets; a function without requirements can always run."""
    facts = program.facts | observed(program)
    return [
        step for step in steps if not isinstance(step, Transformation) or step.lacks(facts) is None
    ]
