"""Rules in the branches of an operator: what they give has to be of one type, whichever branch runs.

A rule that changes the type of a value changes it in each of them, or in none.  Whether it may elsewhere is for the user to know.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.errors import RuleError
from ...ir.graph import place_of
from ...ir.inference import branches_of, disagreement_of_branches
from ...ir.program import Program
from .hits import Hit, Hits

__all__ = ["check_branches"]


def check_branches(before: Program, after: Program, hits: Mapping[str, Hits]) -> None:
    """Check that branches in which rules matched still give the same.

    Args:
        before: the program before the rules.
        after: the program after them, with its values.
        hits: what matched in each graph.

    Raises:
        RuleError: they do not.
    """
    for name in after.order:
        for node in after.graphs[name].callers:
            taken = [(each, hit) for body in branches_of(node) for each in _below(after, body) for hit in _found(hits, each)]
            difference = disagreement_of_branches(node, after.graphs) if taken else None
            if difference is None or _was_there(before, name, node.name):
                continue
            where = f"the body {name!r}" if name else "the root"
            shown = [f"{hit.rule} at {place_of(hit.root)} in the body {each!r}" for each, hit in taken]
            raise RuleError(
                f"{'; '.join(shown[:3])}: what stands there instead is of another type or size. Of {place_of(node)} in {where}\n"
                f"{difference}. Write a replacement that gives what the pattern gave (`.to(x.dtype)`), or a rule that\n"
                "matches in each of the branches."
            )


def _found(hits: Mapping[str, Hits], name: str) -> list[Hit]:
    return hits[name].found if name in hits else []


def _below(program: Program, body: str) -> list[str]:
    # A body and all that it calls.
    found, todo = dict[str, None](), [body]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = None
            todo += list(program.graphs[name].callees)
    return [*found]


def _was_there(before: Program, name: str, node: str) -> bool:
    there = before.graphs[name].by_name.get(node) if name in before.graphs else None
    return there is not None and disagreement_of_branches(there, before.graphs) is not None
