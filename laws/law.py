"""``Law``: one English sentence about transformations, and its check; ``GENERIC`` are those that hold for all.

One idea: a check is an oracle.  It is given a function from programs to programs and a case, and returns what is wrong
as text, nothing when the law holds; so users check their own functions with it, on their own programs.  Programs
are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from ..ir.digest import digest
from ..ir.program import Program
from ..ir.verify import verify
from .evaluate import Meaning, meaning_differences
from .purity import changes_in_program
from .toy import toy_meaning
from .variants import canonical, module_calls, renamed, reordered

__all__ = ["GENERIC", "Case", "Law", "Transform"]

Transform = Callable[[Program], Program]


@frozen
class Case:
    """What a law is checked on.

    >>> from purefx.ir import Graph
    >>> Case(Program.of({"": Graph((), (), ())})).seed
    0
    """

    program: Program
    seed: int = 0
    """Chooses the variants of the program that a law compares it with."""
    meaning: Callable[[Program], Meaning] = toy_meaning
    """Runs the program; for one of real operators, a function that asks ``tensor_meaning``."""


@frozen
class Law:
    """A sentence about a transformation, and how to find out whether it holds.

    >>> from purefx.ir import Graph
    >>> GENERIC[0].check(lambda program: program, Case(Program.of({"": Graph((), (), ())})))
    []
    """

    name: str
    statement: str
    check: Callable[[Transform, Case], list[str]]
    """Says what is wrong on a case; an empty list when the law holds."""


def _valid(transform: Transform, case: Case) -> list[str]:
    return [str(violation) for violation in verify(transform(case.program))]


def _meaning(transform: Transform, case: Case) -> list[str]:
    given, expected = case.meaning(transform(case.program)), case.meaning(case.program)
    return meaning_differences(given, expected, what=("outputs", "inputs", "state"))


def _effects(transform: Transform, case: Case) -> list[str]:
    given, expected = case.meaning(transform(case.program)), case.meaning(case.program)
    return meaning_differences(given, expected, what=("effects",))


def _pure(transform: Transform, case: Case) -> list[str]:
    program = case.program
    fields = (program.graphs, program.signature, program.state, program.trail)
    found = changes_in_program(program, lambda: transform(program))
    now = (program.graphs, program.signature, program.state, program.trail)
    return found + ["a field was replaced" for before, after in zip(fields, now, strict=True) if before is not after]


def _idempotent(transform: Transform, case: Case) -> list[str]:
    once = transform(case.program)
    twice = transform(once)
    return [] if twice is once else [f"the second time it gives another {_compared(twice, once)} object:\n{twice}"]


def _same_object(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    changed = result is not case.program
    return ["nothing differs, but the result is another object"] if changed and result == case.program else []


def _equivariant(transform: Transform, case: Case) -> list[str]:
    result, other = transform(case.program), transform(renamed(case.program, seed=case.seed))
    if digest(other) != digest(renamed(result, seed=case.seed)):
        return [f"with other names the digest of the result differs:\n{other}"]
    same = canonical(other) == canonical(result)
    return [] if same else [f"with other names the result differs in more than names:\n{other}"]


def _order(transform: Transform, case: Case) -> list[str]:
    other = reordered(case.program, seed=case.seed)
    result, expected = transform(other), case.meaning(case.program)
    found = meaning_differences(case.meaning(result), expected)
    mine, theirs = module_calls(result), module_calls(transform(case.program))
    found += [f"the module call {path}@{call} is on one side only" for path, call in sorted(mine ^ theirs)]
    return [f"{line}\n(reordered before)\n{other}" for line in found]


def _frame(transform: Transform, case: Case) -> list[str]:
    before, after = case.program.graphs, transform(case.program).graphs
    return [
        f"the graph {name!r} is equal, but another object"
        for name in sorted(set(before) & set(after))
        if before[name] is not after[name] and before[name] == after[name]
    ]


def _deterministic(transform: Transform, case: Case) -> list[str]:
    first, second = str(transform(case.program)), str(transform(case.program))
    return [] if first == second else [f"two runs differ; the second gives\n{second}"]


def _compared(left: Program, right: Program) -> str:
    return "equal" if left == right else "different"


GENERIC: tuple[Law, ...] = (
    Law("valid", "the result is valid", _valid),
    Law("meaning", "the meaning is kept", _meaning),
    Law("effects", "the order of conflicting effects is kept", _effects),
    Law("pure", "the input program is unchanged", _pure),
    Law("idempotent", "doing it twice is doing it once", _idempotent),
    Law("no-op", "nothing to do gives the same object", _same_object),
    Law("equivariant", "it commutes with renaming", _equivariant),
    Law("order", "a legal reordering of the program changes neither module calls nor meaning", _order),
    Law("frame", "untouched graphs stay the same objects", _frame),
    Law("deterministic", "two runs give the same text", _deterministic),
)
"""What holds for every transformation."""
