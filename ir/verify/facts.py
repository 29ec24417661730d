"""Rules about facts: only known ones, and each that can be looked up does hold.

One idea: a fact is a claim of a transformation; a pipeline is ordered by it, so a false one would let a transformation
run on what it can not treat.  A false claim is one mistake, however many nodes are not what it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..node import Call
from ..signature import InputMutation, StateInput, StateMutation, Token
from .kinds import short
from .rule import Finding
from .signature import specs_of
from .survey import Survey

__all__ = ["check_facts", "check_known_facts"]


THREADING = "higher_order.with_effects"


def check_known_facts(survey: Survey) -> Iterator[Finding]:
    """Find facts that are no words: a user's transformation may establish any, but it must be text."""
    facts: Any = survey.program.facts
    for fact in sorted(facts, key=repr) if type(facts) is frozenset else ():
        if type(fact) is not str or not fact:
            yield Finding(f"{short(fact)} is no fact: facts are words", node="facts")


def check_facts(survey: Survey) -> Iterator[Finding]:
    """Find facts that are claimed and do not hold."""
    facts: Any = survey.program.facts
    if type(facts) is not frozenset:
        return
    if "flat" in facts:
        yield from _calls(survey)
    if "state as inputs" in facts:
        yield from _reads(survey)
    if "outlined" in facts:
        yield from _stacks(survey)
    if "state sunk" in facts:
        yield from _specs(survey, "inputs", (StateInput,), "state sunk")
    if "mutations in place" in facts:
        yield from _specs(survey, "outputs", (StateMutation, InputMutation), "mutations in place")
    if "token free" in facts:
        yield from _specs(survey, "inputs", (Token,), "token free")
        yield from _specs(survey, "outputs", (Token,), "token free")
        yield from _threads(survey)


def _specs(survey: Survey, what: str, kinds: tuple[type, ...], fact: str) -> Iterator[Finding]:
    for number, spec in enumerate(specs_of(getattr(survey.signature, what))):
        if type(spec) in kinds:
            text = f"the program is said to be {fact!r}, but this is a {type(spec).__name__}"
            yield Finding(text, node=f"signature.{what}[{number}]", cause=fact)


def _calls(survey: Survey) -> Iterator[Finding]:
    for census in survey.censuses.values():
        for index, node in census.calls:
            yield Finding("the program is said to be 'flat', but this is a call", census.name, index, node.name, "flat")


def _reads(survey: Survey) -> Iterator[Finding]:
    census = survey.censuses.get(survey.root)
    for index, node in census.gets if census is not None else ():
        text = "the program is said to have its 'state as inputs', but this reads state"
        yield Finding(text, survey.root, index, node.name, "state as inputs")


def _stacks(survey: Survey) -> Iterator[Finding]:
    # Bodies of operators are not outlined: their nodes keep the stacks that the exporter gave them.
    outlined = {survey.root}
    for census in survey.censuses.values():
        outlined.update(node.do.graph for _, node in census.calls if type(node.do) is Call)
        if census.name not in outlined:
            continue
        for index, stack in census.stacks:
            text = f"the program is said to be 'outlined', but this is still inside {stack[-1]}"
            yield Finding(text, census.name, index, census.graph.nodes[index].name, "outlined")


def _threads(survey: Survey) -> Iterator[Finding]:
    for op, graph, index in survey.ops.values():
        if op.name == THREADING:
            node = survey.graphs[graph].nodes[index].name
            yield Finding("the program is said to be 'token free', but this threads a token", graph, index, node, "token free")
