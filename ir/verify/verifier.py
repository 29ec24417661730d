"""``verify`` and ``check``: all broken invariants of a program at once.

One idea: one survey of the program, then every rule of the table; findings become violations with the lines around
them only when there are any.  A program is never changed and never run, and garbage in it is told, not raised.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from ..collector import collector_paused
from ..errors import InvalidProgram, Violation
from ..node import Frame
from ..program import Program
from .lines import Lines, source_of
from .rule import Finding, Rule
from .rules import DEEP, RULES
from .survey import Survey

__all__ = ["check", "trust", "verify"]

OF_THE_STATE = frozenset({"state-order", "state-values", "state-ties", "state-memory"})
"""Rules that look at the state alone: asked once for each ``State``, which transformations share."""

ALSO = 3
"""How many places beyond the first are named where one mistake is seen in many."""


def verify(program: Program, *, infer: bool = False) -> tuple[Violation, ...]:
    """Find everything that is wrong with a program.

    Args:
        program: any program at any stage; its fields may hold garbage.
        infer: run every operator again on fake values, and compare with what the meta of its node says; an operator that
            refuses its arguments is a violation, with its own words.  Left out are operators that have no fake kernel or
            need the contents of tensors, and those whose arguments have no fake values.  Costs many times as much as all
            the other rules.

    Returns:
        All violations in program order: those of the program itself, then graph by graph from the root and node by node;
        () for a valid program.  What one rule says of several places in the same words, and a fact that does not hold, is
        one violation: the first place, with the number of places in ``count``.

    Raises:
        TypeError: ``program`` is no Program.

    >>> from purefx.ir import Graph, Node, Op, Program, Ref
    >>> program = Program.of({"": Graph((), (Node("y", Op("toy.neg"), (Ref("x"),)),))})
    >>> [str(violation).splitlines()[0] for violation in verify(program)]
    ["defined-values: it uses 'x', which its graph does not define"]
    """
    if not isinstance(program, Program):
        raise TypeError(f"verify takes a purefx Program, not a {type(program).__name__}; start with import_ep(ep)")
    with collector_paused():
        return judge(Survey(program), rules=(*RULES, *DEEP) if infer else RULES)


def check(program: Program) -> Program:
    """Return the program itself if it is valid.

    Args:
        program: any program at any stage.

    Returns:
        The same object.

    Raises:
        InvalidProgram: it breaks invariants; ``violations`` has all of them.
        TypeError: ``program`` is no Program.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> check(program) is program
    True
    """
    if isinstance(program, Program) and program.checked:
        return program
    violations = verify(program)
    if violations:
        raise InvalidProgram(violations)
    return trust(program)


def trust(program: Program) -> Program:
    """Return the program itself, remembered as valid without being looked at.

    For results of functions that are proven to keep programs valid, on programs that were checked.

    >>> from purefx.ir import Graph, Program
    >>> trust(Program.of({"": Graph((), (), ())})).checked
    True
    """
    object.__setattr__(program, "checked", True)  # a memo of what the value determines, like a cached property
    return program


def judge(survey: Survey, *, rules: tuple[Rule, ...] = RULES) -> tuple[Violation, ...]:
    """Return the violations of a surveyed program."""
    found: list[tuple[tuple[int, int, int], Rule, Finding]] = []
    rank = {name: number for number, name in enumerate(survey.censuses)}
    known = survey.state.checked
    for number, rule in enumerate(rules):
        if known and rule.name in OF_THE_STATE:
            continue
        for finding in _apply(rule, survey):
            place = -1 if finding.graph is None else rank.get(finding.graph, len(rank))
            found.append(((place, -2 if finding.at is None else finding.at, number), rule, finding))
    for name, error in survey.puzzles.items():
        if all(finding.graph != name for _, _, finding in found):
            found.append(((rank[name], -2, 0), RULES[0], Finding(f"it can not be read: {type(error).__name__}: {error}", name)))
    if not any(rule.name in OF_THE_STATE for _, rule, _ in found):
        object.__setattr__(survey.state, "checked", True)  # a memo, like that of `trust`
    if not found:
        return ()
    found.sort(key=lambda entry: entry[0])
    lines = Lines(survey.graphs)
    return tuple([_violation(rule, findings, survey, lines) for rule, findings in _by_cause(found)])


def _by_cause(found: list[tuple[tuple[int, int, int], Rule, Finding]]) -> list[tuple[Rule, list[Finding]]]:
    # One mistake is told once, where it is met first: what is said of a thousand nodes in the same words has one cause.
    causes: dict[tuple[str, str], tuple[Rule, list[Finding]]] = {}
    for _, rule, finding in found:
        cause = finding.message if finding.cause is None else finding.cause
        causes.setdefault((rule.name, cause), (rule, []))[1].append(finding)
    return list(causes.values())


def _apply(rule: Rule, survey: Survey) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(rule.check(survey))
    except Exception as error:  # noqa: BLE001  garbage that no rule foresees (an object whose == raises) is told, not raised
        findings.append(Finding(f"it can not be checked: {type(error).__name__}: {error}"))
    return findings


def _violation(rule: Rule, findings: list[Finding], survey: Survey, lines: Lines) -> Violation:
    first, *others = [_placed(rule, finding, survey) for finding in findings[: 1 + ALSO]]
    name, at = findings[0].graph, findings[0].at
    if name is not None and at is not None:
        source = source_of(getattr(_node(survey, name, at), "meta", None))
        first = evolve(first, context=lines.around(name, at), source=source)
    return evolve(first, count=len(findings), also=tuple([other.where for other in others])) if others else first


def _placed(rule: Rule, finding: Finding, survey: Survey) -> Violation:
    name, at = finding.graph, finding.at
    path = name or ""
    if name is not None and at is not None:
        stack: Any = getattr(_node(survey, name, at), "stack", ())
        if type(stack) is tuple and stack and type(stack[-1]) is Frame:
            path = f"{name} / {stack[-1].path}" if name else str(stack[-1].path)
    return Violation(rule.name, finding.message, name, finding.node, path, advice=rule.advice)


def _node(survey: Survey, name: str, at: int) -> object:
    graph = survey.graphs.get(name)
    nodes: Any = graph.nodes if graph is not None else ()
    return nodes[at] if type(nodes) is tuple and 0 <= at < len(nodes) else None
