"""``RULE_LAWS``: the laws of every transformation, and two more: results share memory as before, fake values are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import evolve

from ...ir.program import Program
from ...ir.torch_private import storage_key
from ...ir.verify import verify
from ..asking import name_of
from ..evaluate import Meaning, evaluate, meaning_differences
from ..law import FUEL, GENERIC, Case, Law, Transform, law
from ..provenance import made_of_all, provenance
from ..purity import seeded
from ..toy import TensorMachine
from ..values import said_values

__all__ = ["BY_RESULT", "RULE_LAWS", "for_rule", "on_state_of_both", "remembering"]


class _MemoryMachine(TensorMachine):
    """Shows the number of the memory of a tensor in place of its contents."""

    def __init__(self) -> None:
        super().__init__()
        self.met: dict[int, int] = {}
        self.kept: list[torch.Tensor] = []

    def save(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def write(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy contents into a tensor."""
        target.copy_(saved.clone())

    def shown(self, saved: Any) -> Any:
        """Return the number of the memory of a tensor."""
        if not isinstance(saved, torch.Tensor):
            return super().shown(saved)
        self.kept.append(saved)  # freed memory could be reused
        return self.met.setdefault(storage_key(saved), len(self.met))


def memory_of(program: Program, calls: Sequence[Sequence[Any]]) -> Meaning:
    """Return which results, inputs and state of a program share memory: numbers of memories in place of contents.

    Args:
        program: a program of real operators at any stage, on the CPU.
        calls: the leaves of the user inputs, for each call.

    >>> from purefx.ir.importing import import_ep
    >>> program = import_ep(torch.export.export(torch.nn.Flatten(0), (torch.ones(2, 2),)))
    >>> found = memory_of(program, [(torch.ones(2, 2),)])
    >>> found.outputs == found.inputs
    True
    """
    with seeded(0), torch.no_grad():
        return evaluate(program, calls, _MemoryMachine())


@law("results share memory with one another, with inputs and with state where they did")
def memory(transform: Transform, case: Case) -> list[str]:
    """List the results that share other memory than before."""
    result = transform(case.program)
    given, expected = (memory_of(program, case.calls) for program in (result, case.program))
    alike = ("state",) if result.state.order == case.program.state.order else ()
    found = meaning_differences(given, expected, what=("outputs", "inputs", *alike))
    return [f"memory of {line} (equal numbers are shared memory)" for line in found]


@law("the fake values are those that the operators compute")
def inferred(transform: Transform, case: Case) -> list[str]:
    """List the values of the result that are not those that their operators compute."""
    if verify(case.program, infer=True):
        return []
    return [str(violation) for violation in verify(transform(case.program), infer=True)]


_GENERIC: Mapping[str, Law] = {each.name: each for each in GENERIC}

BY_RESULT: tuple[Law, ...] = (
    _GENERIC["valid"], _GENERIC["meaning"], memory, _GENERIC["effects"], _GENERIC["idempotent"], inferred, said_values,
    _GENERIC["no-op"], _GENERIC["frame"], _GENERIC["state"], _GENERIC["text"], provenance, made_of_all,
)  # fmt: skip
"""Laws about the result of one application, and of one more on that."""

RULE_LAWS: tuple[Law, ...] = (*BY_RESULT, *[each for each in GENERIC if each not in BY_RESULT], *FUEL)
"""The laws of every rule: those of every transformation, shared memory as before, right fake values."""


def remembering(transform: Transform) -> Transform:
    """Return a function that applies a transformation once to each program.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> once = remembering(lambda program: program.evolve())
    >>> once(program) is once(program)
    True
    """
    known: dict[int, tuple[Program, Program]] = {}

    def once(program: Program) -> Program:
        if id(program) not in known:
            known[id(program)] = (program, transform(program))
        return known[id(program)][1]

    once.__name__ = name_of(transform)
    return once


def for_rule(laws: Sequence[Law], *, once: bool, changes_state: bool) -> tuple[Law, ...]:
    """Return the laws that apply to a rule.

    Args:
        laws: the laws to choose from.
        once: whether the rule does not match its own results in one call, but does in the next.
        changes_state: whether the rule adds or drops state.

    >>> [each.name for each in RULE_LAWS if each not in for_rule(RULE_LAWS, once=True, changes_state=True)]
    ['idempotent', 'state', 'written results', 'unfinished']
    """
    without = {*(("idempotent", "unfinished") if once else ()), *(("state", "written results") if changes_state else ())}
    return tuple([each for each in laws if each.name not in without])


def on_state_of_both(case: Case, transform: Transform) -> Case:
    """Return a case that compares only the state that a rule neither adds nor drops."""
    kept: list[frozenset[str]] = []

    def meaning(program: Program, **options: Any) -> Meaning:
        if not kept:
            kept.append(frozenset(case.program.state) & frozenset(transform(case.program).state))
        found = case.meaning(program, **options)
        return evolve(found, state=tuple([(name, value) for name, value in found.state if name in kept[0]]))

    return evolve(case, meaning=meaning)
