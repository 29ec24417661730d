"""Rules about names: one name, one value, defined before it is used.

One idea: a graph is read from top to bottom once; what a reference means is never a question of luck.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..arguments import Ref
from .kinds import leaves
from .rule import INPUTS, Finding
from .screen import Census
from .survey import Survey

__all__ = ["check_defined", "check_earlier", "check_unique"]


def check_unique(survey: Survey) -> Iterator[Finding]:
    """Find names that a second input or node of a graph takes."""
    for census in survey.suspects:
        taken: dict[str, str] = {}
        for number, formal in enumerate(survey.inputs_of(census)):
            if formal.name in taken:
                text = f"the name {formal.name!r} is taken already by {taken[formal.name]}"
                yield Finding(text, census.name, INPUTS, formal.name)
            taken.setdefault(formal.name, f"input {number}")
        for index, node in survey.nodes_of(census):
            if node.name in taken:
                yield Finding(f"the name {node.name!r} is taken already by {taken[node.name]}", census.name, index, node.name)
            taken.setdefault(node.name, f"node {index}")


def check_defined(survey: Survey) -> Iterator[Finding]:
    """Find references to values that their graph does not define at all."""
    for census in survey.suspects:
        if type(census.graph.nodes) is not tuple:
            continue  # which values there are is not known
        defined = _definitions(survey, census)
        for name, index, user in _uses(survey, census):
            if name not in defined:
                yield Finding(f"it uses {name!r}, which its graph does not define", census.name, index, user)


def check_earlier(survey: Survey) -> Iterator[Finding]:
    """Find references to values that their graph defines at or after the use."""
    for census in survey.suspects:
        defined = _definitions(survey, census)
        for name, index, user in _uses(survey, census):
            if defined.get(name, INPUTS) == index:
                yield Finding(f"it uses {name!r}, its own result", census.name, index, user)
            elif defined.get(name, INPUTS) > index:
                yield Finding(f"it uses {name!r}, which is defined {defined[name] - index} nodes later", census.name, index, user)


def _definitions(survey: Survey, census: Census) -> dict[str, int]:
    # Malformed nodes count too: their users are not to blame.
    defined: dict[str, int] = {formal.name: INPUTS for formal in survey.inputs_of(census)}
    nodes: Any = census.graph.nodes
    for index, node in enumerate(nodes if type(nodes) is tuple else ()):
        name = getattr(node, "name", None)
        if type(name) is str:
            defined.setdefault(name, index)
    return defined


def _uses(survey: Survey, census: Census) -> Iterator[tuple[str, int, str | None]]:
    for index, node in survey.nodes_of(census):
        for part in (node.args, *(value for _, value in node.kwargs)):
            for leaf in leaves(part):
                if type(leaf) is Ref and type(leaf.name) is str:
                    yield leaf.name, index, node.name
    nodes: Any = census.graph.nodes
    for leaf in leaves(census.graph.output):
        if type(leaf) is Ref and type(leaf.name) is str:
            yield leaf.name, len(nodes) if type(nodes) is tuple else 0, "output"
