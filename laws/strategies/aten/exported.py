"""``exported_programs``: a hypothesis strategy of exported programs of real operators, with inputs to call them with.

One idea: what is drawn is a recipe; what comes out is an ``ExportedProgram`` that torch's verifier took, and the inputs of
three calls.  Nothing here runs a program.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import hypothesis.strategies as st
from attrs import field, frozen
from torch.export import ExportedProgram

from .build import build
from .recipe import Recipe, recipes

__all__ = ["Exported", "exported_programs"]

CALLS = 3


@frozen(eq=False)
class Exported:
    """An exported program, and the leaves of its user inputs for several calls.

    >>> from hypothesis import find
    >>> len(find(exported_programs(), lambda exported: True).calls)
    3
    """

    ep: ExportedProgram = field(repr=False)
    calls: tuple[tuple[Any, ...], ...] = field(repr=False)
    """In each call other numbers, and other sizes where they are dynamic."""
    recipe: Recipe
    """What was drawn."""


@cache
def exported_programs() -> st.SearchStrategy[Exported]:
    """Return a strategy of exported programs, which shrink by dropping module calls.

    The program is new, but its tensors and fake values are shared: do not write to them.

    >>> from hypothesis import find
    >>> found = find(exported_programs(), lambda exported: exported.ep.state_dict)
    >>> list(found.ep.state_dict), found.ep.graph_signature.user_outputs
    (['n'], ('x',))
    """
    return recipes().map(_exported)


def _exported(recipe: Recipe) -> Exported:
    ep, users = build(recipe)
    return Exported(ep, tuple(users.call(number) for number in range(CALLS)), recipe)
