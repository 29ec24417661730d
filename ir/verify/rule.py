"""``Rule`` and ``Finding``: an invariant as a value, and what its check says.

One idea: a rule is data (name, statement, advice, check), so that the table of rules is the specification and tests can
walk it.  A check only says what and where; the lines around it and the source are added by ``verifier.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attrs import field, frozen

__all__ = ["INPUTS", "Check", "Finding", "Rule"]

INPUTS = -1
"""The position of the inputs of a graph; its output stands at ``len(graph.nodes)``."""


@frozen
class Finding:
    """What a check found: a message and a place.

    >>> Finding("the name 'y' is taken already", graph="enc", at=3, node="y").at
    3
    """

    message: str
    graph: str | None = None
    at: int | None = None
    """The number of the node in its graph, or ``INPUTS``, or the number of nodes for the output; None for the graph itself."""
    node: str | None = None
    cause: str | None = None
    """What findings have in common that one mistake makes, whatever their messages say; by default the message itself."""


Check = Callable[[Any], Iterable[Finding]]
"""From a ``Survey`` of a program to what is wrong; what a survey is made of does not know the rules."""


@frozen
class Rule:
    """An invariant that every valid program has.

    >>> Rule("no-nodes", "nothing is done", lambda survey: [], advice="remove them").name
    'no-nodes'
    """

    name: str
    statement: str
    """The invariant in one sentence."""
    check: Check = field(repr=False)
    advice: str = field(default="", kw_only=True)
    """What to do about a violation."""
