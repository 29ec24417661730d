"""Rules about arguments: only immutable kinds, keywords that are unique strings.

One idea: a value that its holder can change is no value, so raw lists, dicts, tensors and modules are refused wherever
they hide.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..arguments import Body
from .kinds import depth_fault, is_argument, leaves, short
from .rule import Finding
from .survey import Survey

__all__ = ["check_keywords", "check_kinds"]


def check_kinds(survey: Survey) -> Iterator[Finding]:
    """Find arguments of kinds that no argument can have, and bodies among what a graph gives back."""
    for census in survey.suspects:
        for index, node in survey.nodes_of(census):
            for value in (*node.args, *(value for _, value in node.kwargs)):
                if (fault := depth_fault(value)) is not None:
                    yield Finding(f"among its arguments is {short(value)}: {fault}", census.name, index, node.name)
                for leaf in leaves(value):
                    if not is_argument(leaf):
                        yield Finding(f"among its arguments is {short(leaf)}", census.name, index, node.name)
        if (fault := depth_fault(census.graph.output)) is not None:
            yield Finding(f"what the graph gives back: {fault}", census.name, len(survey.nodes_of(census)), "output")
        for leaf in leaves(census.graph.output):
            if type(leaf) is Body or not is_argument(leaf):
                end = len(survey.nodes_of(census))
                yield Finding(f"among what the graph gives back is {short(leaf)}", census.name, end, "output")


def check_keywords(survey: Survey) -> Iterator[Finding]:
    """Find keywords that are no strings or that come twice."""
    for census in survey.suspects:
        for index, node in survey.nodes_of(census):
            seen: set[str] = set()
            for key, _ in node.kwargs:
                if type(key) is not str:
                    yield Finding(f"it has the keyword {short(key)}, not a string", census.name, index, node.name)
                elif key in seen:
                    yield Finding(f"it has the keyword {key!r} twice", census.name, index, node.name)
                else:
                    seen.add(key)
