"""Laws of rules beside those of every transformation: results share the memory that they shared, values are what they say.

``RULE_LAWS`` are those that are asked of a rule; the ones that look only at what a rule makes of a program share one application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve

from ...ir.program import Program
from ...ir.torch_private import storage_key
from ...ir.verify import verify
from ..evaluate import Meaning, evaluate, meaning_differences
from ..fuel import FUEL
from ..law import GENERIC, Case, Law, Transform, law
from ..provenance import made_of_all, provenance
from ..purity import seeded
from ..toy import TensorMachine
from ..values import said_values

__all__ = ["BY_RESULT", "LAYOUT", "RULE_LAWS", "for_rule", "on_meaning", "on_state_of_both", "remembering"]


class _MemoryMachine(TensorMachine):
    """Shows of a tensor which memory it has, as a number, and not what is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.met: dict[int, int] = {}
        self.kept: list[torch.Tensor] = []

    def save(self, value: Any) -> Any:
        """Return the value itself: it is looked at where it is."""
        return value

    def write(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy contents into a tensor."""
        target.copy_(saved.clone())

    def shown(self, saved: Any) -> Any:
        """Return the number of the memory of a tensor."""
        if not isinstance(saved, torch.Tensor):
            return super().shown(saved)
        self.kept.append(saved)  # memory that was given back could be that of another
        return self.met.setdefault(storage_key(saved), len(self.met))


def memory_of(program: Program, calls: Sequence[Sequence[Any]]) -> Meaning:
    """Return which results, inputs and state of a program share memory: in the place of contents stands the number of a memory.

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
    """Say which results share other memory than before."""
    result = transform(case.program)
    given, expected = (memory_of(program, case.calls) for program in (result, case.program))
    alike = ("state",) if result.state.order == case.program.state.order else ()
    found = meaning_differences(given, expected, what=("outputs", "inputs", *alike))
    return [f"memory of {line} (equal numbers are shared memory)" for line in found]


@law("what is said of the values is what the operators compute")
def inferred(transform: Transform, case: Case) -> list[str]:
    """Say which values of the result are not what their operators compute."""
    if verify(case.program, infer=True):
        return []
    return [str(violation) for violation in verify(transform(case.program), infer=True)]


class _LayoutMachine(TensorMachine):
    """Shows of a tensor how it lies in memory."""

    def save(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def write(self, target: torch.Tensor, saved: torch.Tensor) -> None:
        """Copy contents into a tensor."""
        target.copy_(saved.clone())

    def shown(self, saved: Any) -> Any:
        """Return sizes and strides, those of sizes above 1."""
        if not isinstance(saved, torch.Tensor):
            return super().shown(saved)
        strides = [stride for stride, size in zip(saved.stride(), saved.shape, strict=True) if size > 1 and saved.numel()]
        return (tuple(saved.shape), tuple(strides))


@law("results lie in memory with the strides that they had")
def layout(transform: Transform, case: Case) -> list[str]:
    """Say which results have other strides."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        programs = (transform(case.program), case.program)
        given, expected = (evaluate(program, case.calls, _LayoutMachine()) for program in programs)
    return meaning_differences(given, expected, what=("outputs",))


LAYOUT: Law = layout
"""Asked where it is wanted: torch promises the strides of few operators, and only ``view`` minds them."""

_GENERIC: Mapping[str, Law] = {each.name: each for each in GENERIC}

BY_RESULT: tuple[Law, ...] = (
    _GENERIC["valid"], _GENERIC["meaning"], memory, _GENERIC["effects"], _GENERIC["idempotent"], inferred, said_values,
    _GENERIC["no-op"], _GENERIC["frame"], _GENERIC["state"], _GENERIC["text"], layout, provenance,
    made_of_all,
)  # fmt: skip
"""Laws that look at the result of one application, and of one more on that."""

RULE_LAWS: tuple[Law, ...] = (
    *[each for each in BY_RESULT if each is not layout],
    *[each for each in GENERIC if each not in BY_RESULT],
    *FUEL,
)
"""What holds for every rule: what holds for every transformation, that memory is shared as before, and that values are right."""


def remembering(transform: Transform, name: str) -> Transform:
    """Return a function that does the same, and does it once for each program.

    Args:
        transform: the function from programs to programs.
        name: what messages call it.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> once = remembering(lambda program: program.evolve(), "copied")
    >>> once(program) is once(program), once.__name__
    (True, 'copied')
    """
    known: dict[int, tuple[Program, Program]] = {}

    def once(program: Program) -> Program:
        if id(program) not in known:
            known[id(program)] = (program, transform(program))
        return known[id(program)][1]

    once.__name__ = name
    return once


def for_rule(laws: Sequence[Law], *, once: bool, changes_state: bool) -> tuple[Law, ...]:
    """Return the laws that a rule can keep.

    Args:
        laws: what should hold.
        once: whether the rule leaves alone what it made itself, and does it again when it is applied again.
        changes_state: whether it brings state or drops some.

    >>> [each.name for each in RULE_LAWS if each not in for_rule(RULE_LAWS, once=True, changes_state=True)]
    ['idempotent', 'state', 'written results', 'unfinished']
    """
    without = {*(("idempotent", "unfinished") if once else ()), *(("state", "written results") if changes_state else ())}
    return tuple([each for each in laws if each.name not in without])


def on_state_of_both(case: Case, transform: Transform) -> Case:
    """Return a case in which only the state counts that a rule neither brings nor drops."""
    kept: list[frozenset[str]] = []

    def meaning(program: Program, **options: Any) -> Meaning:
        if not kept:
            kept.append(frozenset(case.program.state) & frozenset(transform(case.program).state))
        found = case.meaning(program, **options)
        return evolve(found, state=tuple([(name, value) for name, value in found.state if name in kept[0]]))

    return evolve(case, meaning=meaning)


def on_meaning(case: Case) -> Case:
    """Return a case that runs each program once, for the laws that ask what it means."""
    known: dict[int, tuple[Program, Meaning]] = {}

    def meaning(program: Program, **options: Any) -> Meaning:
        if options:
            return case.meaning(program, **options)
        if id(program) not in known:
            known[id(program)] = (program, case.meaning(program))
        return known[id(program)][1]

    remembered: Callable[..., Meaning] = meaning
    return evolve(case, meaning=remembered)
