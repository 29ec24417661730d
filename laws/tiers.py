"""``cases``: programs for checking laws, in three tiers from toy to real, and hypothesis profiles, which set their number."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast, get_args
from unittest.mock import patch

from attrs import evolve
from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.strategies import SearchStrategy

from ..ir.errors import UnsupportedProgram
from ..ir.importing import import_ep
from ..ir.program import Program
from ..ir.torch_private import pytree
from ..transforms import remove_effect_tokens
from .law import Case
from .strategies import STAGES, Stage, programs
from .strategies.exported import exported_programs
from .strategies.modules import ModuleTree, module_trees
from .strategies.programs import PASSES, with_tokens

PREFIX = "purefx-"


PROFILES = MappingProxyType({"dev": 0.2, "ci": 1.0, "deep": 8.0})
"""The number of drawn programs relative to ``ci``: ``dev`` for quick checks, ``ci`` for every change, ``deep`` for nightly runs.

``ci`` always draws the same programs.
"""


NO_CHECKS: Any = list(HealthCheck)


def register() -> None:
    """Register ``purefx-dev``, ``purefx-ci`` and ``purefx-deep`` with hypothesis without loading one.

    >>> register()
    >>> settings.get_profile("purefx-ci").derandomize
    True
    """
    for name, factor in PROFILES.items():
        settings.register_profile(
            PREFIX + name,
            max_examples=max(1, round(100 * factor)),
            derandomize=name == "ci",
            # New programs each time, and the failed ones first.
            database=None if name == "ci" else settings.get_profile("default").database,
            deadline=None,
            print_blob=True,
            suppress_health_check=NO_CHECKS,
        )


def active() -> str:
    """Return the name of the loaded profile; ``ci`` if it is not one of ours.

    >>> active() in PROFILES
    True
    """
    name = settings.get_current_profile_name().removeprefix(PREFIX)
    return name if name in PROFILES else "ci"


def share(examples: int) -> int:
    """Return the number of programs to draw in the loaded profile.

    Args:
        examples: the number for ``ci``.

    >>> share(1)
    1
    """
    return max(1, round(examples * PROFILES[active()]))


Tier = Literal["toy", "aten", "modules"]

TIERS: tuple[Tier, ...] = get_args(Tier)

EXAMPLES = MappingProxyType({"toy": 200, "aten": 50, "modules": 10})
"""The default number of programs for a law."""

VARIANTS = st.integers(0, 1 << 16).map(lambda drawn: drawn + 1)
"""Seeds of cases.  0 would be drawn often, and a case with the seed 0 skips the precondition of a law."""


def stages_of(tier: Tier) -> tuple[Stage, ...]:
    """Return the stages of the programs of a tier.

    Args:
        tier: only ``"toy"`` has directly drawn outlined programs.

    >>> set(stages_of("toy")) - set(stages_of("aten"))
    {'tree'}
    """
    return STAGES if tier == "toy" else tuple(stage for stage in STAGES if stage != "tree")


def cases(tier: Tier = "toy", stage: Stage = "flat") -> st.SearchStrategy[Case]:
    """Return a strategy of cases: runnable programs at a stage.

    Args:
        tier: ``"toy"`` are programs of integer operators, ``"aten"`` exported programs of real operators that are built
            by hand, ``"modules"`` generated ``nn.Module`` trees that ``torch.export`` exported.
        stage: the stage of the default pipeline; see ``purefx.laws.strategies.programs``.

    >>> case = examples_of(cases("toy", "sunk"), 1, 0)[0]
    >>> len(case.meaning(case.program).outputs)
    3
    """
    return cast(
        "st.SearchStrategy[Case]", attempts(tier, stage).filter(lambda case: case is not None)
    )


@cache
def attempts(
    tier: Tier, stage: Stage, barred: frozenset[str] = frozenset()
) -> st.SearchStrategy[Case | None]:
    """Return a strategy of cases; None if a pass before the stage refuses the drawn program.

    Args:
        tier: see ``cases``.
        stage: see ``cases``.
        barred: features to exclude from programs of operators; see ``exported_programs``.

    >>> attempts("toy", "flat").is_empty
    False
    """
    return _imported(tier, directly=stage == "tree", barred=barred).map(
        partial(_moved, tier=tier, stage=stage)
    )


@cache
def _imported(
    tier: Tier, *, directly: bool, barred: frozenset[str] = frozenset()
) -> st.SearchStrategy[Case]:
    # Cases before any pass.
    if tier == "toy":
        return st.builds(Case, programs("tree" if directly else "flat"), VARIANTS)
    if tier == "modules":
        return st.builds(_case_of_modules, module_trees(), VARIANTS)
    return st.builds(
        lambda made, seed: Case(import_ep(made.ep), seed, made.calls),
        exported_programs(barred),
        VARIANTS,
    )


def _case_of_modules(tree: ModuleTree, seed: int) -> Case:
    try:
        ep = tree.export()
    except Exception:  # noqa: BLE001  the exporter refuses some with any exception
        reject()
    return Case(import_ep(ep), seed, [pytree.tree_leaves(call) for call in tree.calls])


def _moved(case: Case, *, tier: Tier, stage: Stage) -> Case | None:
    # The case at a stage; None if a pass refuses the program.
    try:
        return evolve(case, program=at_stage(case.program, tier, stage))
    except UnsupportedProgram:
        return None


def at_stage(program: Program, tier: Tier, stage: Stage) -> Program:
    """Return an imported flat program at a stage.

    Args:
        program: as imported.
        tier: see ``cases``.
        stage: see ``cases``.

    >>> from purefx.ir import Graph
    >>> at_stage(Program.of({"": Graph((), (), ())}), "aten", "flat").order
    ('',)
    """
    if tier == "toy" and stage == "tokens":
        program = with_tokens(program)
    elif tier != "toy" and stage != "tokens":
        program = remove_effect_tokens(program)
    for step in PASSES.get(stage, ()):
        program = step(program)
    return program


@cache
def drawn_cases(tier: Tier, stage: Stage, examples: int, number: int = 0) -> tuple[Case, ...]:
    """Return cases, always the same ones.

    Drawing a program takes longer than checking a law, so all stages of a tier share the drawn programs.

    Args:
        tier: see ``cases``.
        stage: see ``cases``.
        examples: their number; fewer if hypothesis finds no more or a pass refuses some.
        number: selects the draw.

    >>> drawn_cases("toy", "flat", 3) is drawn_cases("toy", "flat", 3)
    True
    """
    made = (
        _moved(case, tier=tier, stage=stage)
        for case in _drawn(tier, examples, number, directly=stage == "tree")
    )
    return tuple(case for case in made if case is not None)


@cache
def _drawn(tier: Tier, examples: int, number: int, *, directly: bool) -> tuple[Case, ...]:
    return tuple(examples_of(_imported(tier, directly=directly), examples, number))


def forget() -> None:
    """Forget all drawn cases, to save memory in long searches.

    >>> forget()
    """
    drawn_cases.cache_clear()
    _drawn.cache_clear()


# -- draws -----------------------------------------------------------------------------------------------------------------------


Drawn = TypeVar("Drawn")

RUN = 12
"""The number of examples in one run of hypothesis."""

APART = 100_003
"""The distance between the seeds of the runs of one number; numbers are small."""


def draw(
    strategy: SearchStrategy[Drawn],
    use: Callable[[Drawn], None],
    count: int,
    number: int,
    *phases: Phase,
    longest: int = RUN,
) -> None:
    """Call a function with examples of a strategy, always the same ones, in several runs of hypothesis.

    Args:
        strategy: of the examples.
        use: the function.
        count: the total number of examples; fewer if hypothesis finds no more.
        number: selects the draw: the seed of the first run.
        phases: of hypothesis.
        longest: the number of draws of one run.

    >>> draw(st.just(1), print, 2, 0, Phase.generate)
    1
    """
    for start in range(0, count, longest):
        options = settings(
            max_examples=min(longest, count - start), phases=phases, suppress_health_check=NO_CHECKS,
            derandomize=False, database=None, deadline=None, report_multiple_bugs=False, print_blob=False,
        )  # fmt: skip
        with same_everywhere():
            # hypothesis looks at the parameters of the function, and `use` may be built in.
            check = options(given(strategy)(lambda drawn: use(drawn)))  # noqa: PLW0108
            seed(number + start // longest * APART)(check)()


def examples_of(
    strategy: SearchStrategy[Drawn], count: int, number: int, *, longest: int = RUN
) -> list[Drawn]:
    """Return examples of a strategy, always the same ones.

    Args:
        strategy: of the examples.
        count: their number; fewer if hypothesis finds no more.
        number: selects the draw.
        longest: the number of draws of one run of hypothesis.

    >>> from hypothesis import strategies as st
    >>> examples_of(st.just(1), 3, 0)
    [1]
    >>> examples_of(st.integers(), 40, 0) == examples_of(st.integers(), 40, 0)
    True
    """
    found: list[Drawn] = []
    draw(strategy, found.append, count, number, Phase.generate, longest=longest)
    return found


@contextmanager
def same_everywhere() -> Generator[None]:
    """Draw the same from one seed, independently of loaded modules.

    Hypothesis collects the literals of the user's modules and draws them too, so a literal of a script would change the programs.

    >>> with same_everywhere():
    ...     providers.HypothesisProvider._local_constants.integers
    set()
    """
    module: Any = providers
    cache = type(module.CONSTANTS_CACHE)(1024)
    with (
        patch.object(module.HypothesisProvider, "_local_constants", module.Constants()),
        patch.object(module, "CONSTANTS_CACHE", cache),
    ):
        yield
