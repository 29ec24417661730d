"""Rules about operators: what an operator is said to do is what it does.

One idea: every distinct ``Op`` object is looked at once, however many nodes share it, and its effects are derived again
from its target.  Operators without a target (toy ones) are taken at their word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve, fields

from ..effects.declared import ANYTHING, Effects
from ..effects.registered import effects_of, is_foreign, lacking, registered_effects
from ..node import Op
from ..torch_private import OpOverload
from .rule import Finding
from .survey import Survey

__all__ = ["check_effects", "check_operator_names", "check_targets"]


def check_targets(survey: Survey) -> Iterator[Finding]:
    """Find operators without a target that bear the name of one that is registered: they look like it, and cannot run."""
    from ..text.operators import resolve  # here, because a text is read of programs that this folder checks

    for op, graph, index in survey.ops.values():
        # Toy programs thread tokens and take bodies by the names of torch's, and are evaluated without it.
        if op.target is None and type(op.name) is str and not op.effects.through_bodies and resolve(op.name) is not None:
            text = f"it is named {op.name!r}, which is registered, and has no target to run"
            yield Finding(text, graph, index, survey.graphs[graph].nodes[index].name)


def check_effects(survey: Survey) -> Iterator[Finding]:
    """Find operators whose effects are not those of their target; ``ordered`` may be added to them.

    Of an operator of another library, and of a function of which nothing is known, more may be said (``declare``), and nothing
    that contradicts its schema.
    """
    for op, graph, index in survey.ops.values():
        target: Any = op.target
        if target is None or not callable(target):
            continue
        real = effects_of(target)
        if op.effects is real or op.effects == real:
            continue
        # remove_effect_tokens writes the order that a token stood for on the operator.
        if op.effects.ordered and not real.ordered and evolve(op.effects, ordered=False) == real:
            continue
        known = registered_effects(target)
        unknown = evolve(known, through_bodies=False) == ANYTHING  # a higher-order one does what its bodies do all the same
        if unknown and op.effects.through_bodies >= known.through_bodies:
            continue
        if is_foreign(target) and not known.unknown and not lacking(op.effects, known):
            continue
        text = f"{op.name} is said to have {_difference(op.effects, real)}"
        yield Finding(text, graph, index, survey.graphs[graph].nodes[index].name)


def _difference(said: Effects, real: Effects) -> str:
    parts = [
        f"{field.name}={getattr(said, field.name)!r} (it has {getattr(real, field.name)!r})"
        for field in fields(Effects)
        if getattr(said, field.name) != getattr(real, field.name)
    ]
    return ", ".join(parts)


def check_operator_names(survey: Survey) -> Iterator[Finding]:
    """Find operators that do not bear the name of their target, and one name for two targets: names decide equality."""
    bearers: dict[str, Op] = {}
    for op, graph, index in survey.ops.values():
        target: Any = op.target
        if target is None:
            continue
        node = survey.graphs[graph].nodes[index].name
        if isinstance(target, OpOverload) and op.name != str(target):
            yield Finding(f"it is named {op.name!r} and runs {target}", graph, index, node)
        other = bearers.setdefault(op.name, op).target
        if other is not target and other != target:
            yield Finding(f"two different functions are named {op.name!r}", graph, index, node)
