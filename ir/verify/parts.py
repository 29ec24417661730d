"""The rule about parts: they are modules of the root, which it alone calls, and everything else lies below them.

One idea: what is in the table of a split program is what a part of it may be run with alone, so nothing is left outside.
Calls that are inlined at the moment are missing; that is no violation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..node import Call
from ..parts import is_part
from ..paths import FROM_ROOT
from .rule import Finding
from .survey import Survey

__all__ = ["check_parts"]


def check_parts(survey: Survey) -> Iterator[Finding]:
    """Find parts that are called twice or from elsewhere, and modules and state that are in no part of a split program."""
    names = {module.path for module in survey.modules if is_part(module)}
    if not names:
        return
    for name in sorted(names, key=repr):
        if type(name) is not str or not name or "." in name:
            yield Finding(f"the part {name!r} is no module of the root", node="program.modules")
    for module in survey.modules:
        if module.path and type(module.path) is str and module.path.partition(".")[0] not in names:
            yield Finding(f"the program is split, and the module {module.path!r} is in no part", node="program.modules")
    for slot in survey.slots:
        if type(slot) is str and slot.partition(".")[0] not in names:
            yield Finding(f"the program is split, and the state {slot!r} is in no part", node="program.state")
    yield from _calls(survey, names)


def _calls(survey: Survey, names: set[str]) -> Iterator[Finding]:
    called: dict[str, str] = {}
    for census in survey.censuses.values():
        for index, node in census.calls:
            path = node.do.instance.path if type(node.do) is Call else ""
            if census.name != survey.root:
                if path.startswith(FROM_ROOT) and path[1:] in names:
                    yield Finding(f"it calls the part {path[1:]!r}, which the root alone may", census.name, index, node.name)
            elif path in called and called[path] != node.name:  # a node that stands there twice is told as that
                yield Finding(f"it calls the part {path!r} for the second time", census.name, index, node.name)
            elif path in names:
                called[path] = node.name
