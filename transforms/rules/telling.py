"""What an error of a user's function says beside its own words: which rule it is of, and where that was looked for.

The error stays what it is; notes are added to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.errors import InvalidProgram
from ...ir.graph import place_of
from .amounts import note_sizes
from .hits import Hits
from .patterns import holds
from .place import Match

__all__ = ["conditions_hold", "note_place", "note_rules"]


def note_place(error: Exception, rule: str, place: Match) -> None:
    """Say in which rule an error was raised, and at which match.

    Args:
        error: of a condition or a replacement.
        rule: its name.
        place: the match that they were called with.
    """
    where = f" in the body {place.graph!r}" if place.graph else ""
    error.add_note(f"in rule {rule}, at {place.place}{where}")
    note_sizes(error)


def conditions_hold(rule: Any, place: Match) -> bool:
    """Return whether the conditions of a rule hold at a match; their errors say where that is."""
    try:
        return holds(rule.conditions, place)
    except Exception as error:
        note_place(error, rule.name, place)
        raise


def note_rules(error: InvalidProgram, hits: Mapping[str, Hits]) -> None:
    """Say which rules wrote the nodes that an error finds fault with, or what stands before them.

    Args:
        error: about the program after the rules.
        hits: what matched in each graph.
    """
    for violation in error.violations:
        found = hits.get(violation.graph or "")
        if found is None or not found.found:
            continue
        hit = found.made.get(violation.node or "")
        if hit is not None:
            error.add_note(f"rule {hit.rule} wrote node {violation.node}, in the place of {place_of(hit.root)}")
        else:
            last = found.found[-1]
            error.add_note(f"after rule {last.rule}, at last at {place_of(last.root)}")
