"""What should hold for a pass over fx graphs, asked of the programs that it makes.

The laws of transformations hold for those that somebody made of values; a pass may rename, reorder and make all graphs anew.
What is asked here is what its user relies on: a graph that runs, computes the same, and does what it claims.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from ...ir.analysis.digest import digest
from ...ir.program import Program
from ...lowering.fx import to_fx
from ...transforms import inline
from ..evaluate import Meaning, differences, meaning_differences
from ..law import Case, Law, Transform
from .contract import Contract
from .judge import Judge
from .runs import asserted, called, drawn_alone, is_random, shared_memory, without_idle_draws

__all__ = ["laws_of"]

Check = Callable[[Transform, Case], list[str]]


def laws_of(judge: Judge, contract: Contract) -> tuple[Law, ...]:
    """Return the laws that a pass is asked, the plainest first.

    Args:
        judge: calls the pass; the laws are about what it gives.
        contract: what the pass claims.

    >>> from ...lowering.fx import FxPass
    >>> from .contract import ANYTHING
    >>> [law.name for law in laws_of(Judge(FxPass.of(lambda module: None)), ANYTHING)]
    ['graph', 'meaning', 'effects', 'aliasing', 'values', 'runs', 'deterministic', 'again']
    """
    on_modules = judge.called.over != "exported_program"
    asked: list[tuple[str, str, Check, bool]] = [
        ("graph", "what it gives is a graph that runs, with the same inputs and outputs", _graph(judge), True),
        ("meaning", "outputs, mutated inputs and state are those of the program, in every call", _meaning, True),
        ("effects", "what is printed and asserted stays, in order", _effects(contract), True),
        ("aliasing", "outputs share memory with inputs, state and one another as before", _aliasing, contract.aliasing),
        ("values", 'where a node has meta["val"], that is what runs', _values, contract.values),
        ("runs", "called as it is, the module does what its graph says", _runs(judge), on_modules),
        ("deterministic", "from equal programs it makes equal ones", _deterministic(judge), True),
        ("again", "applied to its own result, it keeps the meaning as well", _again(judge, contract), True),
    ]
    return tuple([Law(name, statement, check) for name, statement, check, wanted in asked if wanted])


def _graph(judge: Judge) -> Check:
    return lambda _, case: judge.outcome(case.program).wrong


def _meaning(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    if result is case.program:
        return []
    told = _compared(case.meaning(result), case.meaning(case.program), case)
    if not told or not is_random(case.program):
        return told
    mine, theirs = without_idle_draws(result), without_idle_draws(case.program)
    if not _compared(case.meaning(mine), case.meaning(theirs), case):
        return []  # only numbers that nothing uses are no longer drawn
    given, expected = drawn_alone(mine, case.calls), drawn_alone(theirs, case.calls)
    told = _compared(given.meaning, expected.meaning, case)
    if not told and given.count != expected.count:
        return [f"of the random numbers that are used, {given.count} are drawn independently, where {expected.count} were"]
    return told


FACTS = ("outputs", "inputs", "state")


def _compared(given: Meaning, expected: Meaning, case: Case) -> list[str]:
    # In which order a module has its tensors is no part of what it computes, and a pass may bring new ones.
    both = dict(given.state).keys() & dict(expected.state).keys()
    states = (tuple(sorted([(name, value) for name, value in one.state if name in both])) for one in (given, expected))
    mine, theirs = (evolve(one, state=state) for one, state in zip((given, expected), states, strict=True))
    return meaning_differences(mine, theirs, what=FACTS, tolerance=case.tolerance)


def _effects(contract: Contract) -> Check:
    def check(transform: Transform, case: Case) -> list[str]:
        result = transform(case.program)
        found = meaning_differences(case.meaning(result), case.meaning(case.program), what=("effects",))
        return found or (_assertions(result, case) if contract.assertions and result is not case.program else [])

    return check


def _assertions(result: Program, case: Case) -> list[str]:
    # More may be asserted than before, and the same again.
    expected = asserted(case.program, case.calls)
    given = [told for told in asserted(result, case.calls) if told in expected] if expected else []
    lost = [told for told in expected if told not in given]
    if lost:
        return [f"it no longer asserts {told}" for told in lost]
    return [] if given == list(expected) else [f"it asserts {', '.join(given)}, where it was {', '.join(expected)}"]


def _aliasing(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    if result is case.program or not case.calls:
        return []
    one, other = (called(to_fx(inline(program)), case.calls[0]) for program in (case.program, result))
    before, after = shared_memory(one, other), shared_memory(other, one)
    gone, new = [one for one in before if one not in after], [one for one in after if one not in before]
    return [f"no longer the same memory: {one}" for one in gone] + [f"now the same memory: {one}" for one in new]


def _values(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    if result is case.program or case.false_values is None or case.false_values(case.program):
        return []  # it says something wrong already
    return case.false_values(result)


def _runs(judge: Judge) -> Check:
    def check(transform: Transform, case: Case) -> list[str]:
        outcome = judge.outcome(case.program)
        if outcome.module is None or outcome.result in (None, case.program) or not case.calls:
            return []
        given = called(outcome.module, case.calls[0]).outputs
        return differences(given, case.meaning(transform(case.program)).outputs[0], "called, its outputs", case.tolerance)

    return check


def _deterministic(judge: Judge) -> Check:
    def check(transform: Transform, case: Case) -> list[str]:
        first, second = transform(case.program), judge.fresh(case.program).result
        if second is None or digest(first) == digest(second):
            return []
        return [f"called again with an equal module, it gives another:\n{second}"]

    return check


def _again(judge: Judge, contract: Contract) -> Check:
    def check(transform: Transform, case: Case) -> list[str]:
        once = transform(case.program)
        if once is case.program or contract.broken_by(flat := inline(once)) or _meaning(transform, case):
            return []
        outcome = judge.fresh(flat)
        if outcome.result is None:
            return outcome.wrong
        return _meaning(lambda _: outcome.result or once, case)

    return check
