"""``still_sound``: whether a program is valid because it was before an edit, and nothing that a rule looks at has changed.

It is asked of edits of a few graphs.  What those hold is looked at as in any program; of what the rules ask of the rest (who
calls whom with what, what the reads come to, what goes through calls) it is enough that the edited graphs ask and answer the
same as before.  It never says what is wrong: where it cannot say that all is right, all rules are asked of the whole program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from ..arguments import Ref, same_arg
from ..calls.call_graph import calls_alike
from ..facts import Edit
from ..graph import Get, Graph
from ..own_operators import CALLS, GIVES, TAKES
from ..signature import StateInput
from ..tensors import value_in
from .calls import check_arity, check_bodies, instances_of
from .contract import THREADING
from .flow import Followed, check_projections, check_results, followed, stays
from .operators import bearers, check_effects, check_operands, check_operator_names, check_targets
from .survey import Census, PartialSurvey, Survey

__all__ = ["Sound", "sound", "still_sound"]

WITHIN = (
    check_arity, check_projections, check_bodies, check_operands, check_results, check_targets, check_effects,
    check_operator_names,
)  # fmt: skip
"""Checks that look at one graph, and at what the graphs take and give that it calls."""

KEPT = ("state", "signature", "modules", "call_signatures", "constraints")

ELSEWHERE = frozenset({TAKES.name, GIVES.name, THREADING, *CALLS})
"""Operators about which rules ask more than one graph."""


@frozen
class Sound:
    """What the rules found in a program without a violation, and need to know to judge an edit of it."""

    bearers: Mapping[str, Any]
    """The function that each name of an operator stands for; names that no node has any more may be among them."""
    followed: Followed | None
    readers: frozenset[str]
    """The graphs that read modules of the state."""


def sound(survey: Survey) -> Sound:
    """Return what is kept of a survey of a valid program.

    >>> from purefx.ir import Graph, Program
    >>> sound(Survey(Program.of({"": Graph((), (), ())}))).readers
    frozenset()
    """
    return Sound(bearers(survey), followed(survey), frozenset(instances_of(survey).modules))


def still_sound(known: Sound, edit: Edit) -> Sound | None:
    """Return what is known of a program after an edit; None where it need not be valid.

    Args:
        known: of the program before it, which was valid.
        edit: what was changed.

    >>> from purefx.ir import Graph, Input, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> still_sound(sound(Survey(program)), Edit(program, program.with_main(Graph((Input("x"),), (), ())), ("",)))
    """
    try:
        return _still_sound(known, edit)
    except Exception:  # noqa: BLE001  garbage, of which the rules say what it is
        return None


def _still_sound(known: Sound, edit: Edit) -> Sound | None:
    before, after = edit.before, edit.after
    facts = after.facts is before.facts or (type(after.facts) is frozenset and after.facts <= before.facts)
    if not facts or not edit.keeps(*KEPT) or known.followed is None:
        return None
    if any(type(after.graphs[name]) is not Graph for name in edit.changed):
        return None
    survey = PartialSurvey(after, edit.changed)
    if survey.faults or any(op.name in ELSEWHERE for op, _, _ in survey.ops.values()):
        return None
    for name in edit.changed:
        old, census = before.graphs[name], survey.censuses[name]
        if not (_calls_the_same(old, census.graph) and _reads_less(old, census, known, after) and _stands_in_less(old, census)):
            return None
        if not (_faces(old, census) and stays(survey, census, known.followed)):
            return None
    if any(True for check in WITHIN for _ in check(survey)):
        return None
    return _with_names(known, survey)


def _with_names(known: Sound, survey: Survey) -> Sound | None:
    # One name is one function in the whole program.
    new = bearers(survey)
    for name, target in new.items():
        other = known.bearers.get(name, target)
        if other is not target and other != target:
            return None
    more = new.keys() - known.bearers.keys()
    return known if not more else Sound({**known.bearers, **new}, known.followed, known.readers)


def _calls_the_same(old: Graph, new: Graph) -> bool:
    if any(getattr(do, "name", "") in ELSEWHERE for do in old.distinct):
        return False
    return calls_alike(old, new)


def _reads_less(old: Graph, census: Census, known: Sound, program: Any) -> bool:
    # Every read is one that it had, said to be the same value: what it comes to in each call is what it came to before.
    if census.name in known.readers:
        return False
    if census.is_root and any(
        type(spec) is StateInput and spec.slot in program.state.modules for spec in program.signature.inputs
    ):
        return False
    had = {(node.do.slot, id(value_in(node.meta))) for node in old.nodes if type(node.do) is Get} if census.gets else ()
    return all((do.slot, id(value_in(node.meta))) in had for _, node, do in census.gets)


def _stands_in_less(old: Graph, census: Census) -> bool:
    had = {node.stack for node in old.nodes} if census.stacks else ()
    return all(stack in had for _, stack in census.stacks)


def _faces(old: Graph, census: Census) -> bool:
    # What its callers see: how many values it takes, and which it gives; of the root the signature says more.
    new, root = census.graph, census.is_root
    if len(new.inputs) != len(old.inputs) or type(new.output) is not type(old.output):
        return False
    mine, theirs = [(graph.output if isinstance(graph.output, tuple) else (graph.output,)) for graph in (new, old)]
    if list(map(type, mine)) != list(map(type, theirs)):
        return False
    if not root:
        return True
    if any(value_in(a.meta) is not value_in(b.meta) for a, b in zip(new.inputs, old.inputs, strict=True)):
        return False
    return all(
        value_in(new.metas[a.name]) is value_in(old.metas[b.name]) if type(a) is Ref else same_arg(a, b)
        for a, b in zip(mine, theirs, strict=True)
    )
