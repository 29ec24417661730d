"""``Law``: a property of transformations and its check; ``GENERIC`` are the laws of all transformations.

A check is an oracle: it accepts a function from programs to programs and a case, and returns the violations as text.  Users
can check their own functions on their own programs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import evolve, field, frozen

from ..ir.analysis.diff import diff
from ..ir.analysis.digest import digest
from ..ir.calls.call_graph import module_calls
from ..ir.graph import Graph
from ..ir.program import Module, Program
from ..ir.state import State, slot_values
from ..ir.text import parse
from ..ir.verify import verify
from ..transforms import Fuel, Transformation
from .evaluate import EXACT, FACTS, Meaning, Tolerance, meaning_differences, written_state
from .oracles import (
    fact_differences,
    groups,
    memory_differences,
    named_differences,
    tensor_gradients,
)
from .purity import as_imported, changes_in_process, changes_in_program, on_threads, outcome
from .toy import tensor_meaning, toy_meaning
from .variants import canonical, renamed, reordered

Transform = Callable[[Program], Program]


@frozen(repr=False)
class Case:
    r"""A program to check a law on; it prints as the text of the program.

    >>> from purefx.ir import Graph
    >>> str(Case(Program.of({"": Graph((), (), ())}))).splitlines()[:2]
    ['Case(seed=0) of', 'program {']
    """

    program: Program
    seed: int = 0
    """The seed of the variants that a law compares the program with."""
    calls: Sequence[Sequence[Any]] = ()
    """The leaves of the user inputs of each call; empty for a program of toy operators, which gets numbers."""
    tolerance: Tolerance = EXACT
    """The tolerance for floating point numbers; gradients always have a small one."""
    common_state: bool = False
    """Whether only the state of both programs is compared, in any order."""
    _known: dict[Any, Any] = field(factory=dict, init=False, eq=False)

    def meaning(self, program: Program, **options: Any) -> Meaning:
        """Return the meaning of a program, with the options of ``tensor_meaning``."""
        if not self.calls:
            return toy_meaning(program, **options)
        return (
            tensor_meaning(program, self.calls, **options)
            if options
            else self.computed(tensor_meaning, program)
        )

    def computed(
        self, function: Callable[[Program, Sequence[Sequence[Any]]], Any], program: Program
    ) -> Any:
        """Return a function of a program of real operators and the calls; all laws share that of the program of the case.

        Raises:
            ValueError: the program has toy operators.
        """
        if not self.calls:
            raise ValueError("this law needs programs of real operators: tier='aten' or 'modules'")
        if program is not self.program:
            return function(program, self.calls)
        if function not in self._known:
            self._known[function] = function(program, self.calls)
        return self._known[function]

    def differences(self, given: Meaning, expected: Meaning, *what: str) -> list[str]:
        """Return the differences of two meanings beyond the tolerance, in some facts or all."""
        if self.common_state:
            mine, theirs = dict(given.state), dict(expected.state)
            both = sorted(mine.keys() & theirs.keys())
            given = evolve(given, state=tuple([(name, mine[name]) for name in both]))
            expected = evolve(expected, state=tuple([(name, theirs[name]) for name in both]))
        return meaning_differences(given, expected, what=what or FACTS, tolerance=self.tolerance)

    def changes(self, result: Program, *what: str, **options: Any) -> list[str]:
        """Return the differences of the meanings of a result and of the program, with the options of ``meaning``."""
        mine, theirs = (self.meaning(one, **options) for one in (result, self.program))
        return self.differences(mine, theirs, *what)

    def __repr__(self) -> str:
        return f"Case(seed={self.seed}) of\n{str(self.program).rstrip()}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  hypothesis shows draws with it
        printer.text("..." if cycle else repr(self))


@frozen
class Law:
    """A property of transformations, and its check.

    >>> from purefx.ir import Graph
    >>> GENERIC[0].check(lambda program: program, Case(Program.of({"": Graph((), (), ())})))
    []
    """

    name: str
    statement: str
    check: Callable[[Transform, Case], list[str]]
    """Returns the violations on a case; an empty list if the law holds."""


def law(
    statement: str, *, name: str = ""
) -> Callable[[Callable[[Transform, Case], list[str]]], Law]:
    """Return a decorator that makes a check a law with its name, underscores as blanks.

    Args:
        statement: the property as a sentence.
        name: the name of the law, if it is not an identifier.

    >>> @law("no graph has a node")
    ... def no_nodes(transform: Transform, case: Case) -> list[str]:
    ...     return [node.name for _, node in transform(case.program).nodes()]
    >>> no_nodes.name, no_nodes.statement
    ('no nodes', 'no graph has a node')
    """
    return lambda check: Law(name or check.__name__.strip("_").replace("_", " "), statement, check)


def _faults(program: Program, case: Case) -> list[str]:
    # The violations of a result, or else its differences in meaning.
    found = [str(violation) for violation in verify(program)]
    return found or case.changes(program)


@law("the result is valid")
def _valid(transform: Transform, case: Case) -> list[str]:
    return [str(violation) for violation in verify(transform(case.program))]


VALUES = ("outputs", "inputs", "state")
"""The facts of a meaning without the order of its effects."""


@law("the meaning is kept")
def _meaning(transform: Transform, case: Case) -> list[str]:
    return case.changes(transform(case.program), *VALUES)


@law("a caller that writes into the results of a call finds the same in later calls")
def _written_results(transform: Transform, case: Case) -> list[str]:
    known = written_state(case.program)
    return case.changes(transform(case.program), *VALUES, leaves_alone=known)


@law("the order of conflicting effects is kept")
def _effects(transform: Transform, case: Case) -> list[str]:
    return case.changes(transform(case.program), "effects")


@law("the input program is unchanged")
def _pure(transform: Transform, case: Case) -> list[str]:
    return changes_in_program(case.program, lambda: transform(case.program))


@law("doing it twice is doing it once")
def _idempotent(transform: Transform, case: Case) -> list[str]:
    once = transform(case.program)
    twice = transform(once)
    if twice is once:
        return []
    return [
        f"the second time it returns another {'equal' if twice == once else 'different'} object:\n{twice}"
    ]


@law("nothing to do gives the same object", name="no-op")
def _no_op(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    changed = result is not case.program
    return (
        ["nothing differs, but the result is another object"]
        if changed and result == case.program
        else []
    )


@law("it commutes with renaming")
def _equivariant(transform: Transform, case: Case) -> list[str]:
    result, other = transform(case.program), transform(renamed(case.program, seed=case.seed))
    if digest(other) != digest(renamed(result, seed=case.seed)):
        return [f"with other names the digest of the result differs:\n{other}"]
    same = canonical(other) == canonical(result)
    return [] if same else [f"with other names the result differs in more than names:\n{other}"]


@law(
    "if the nodes of the program are reordered as their effects allow, the result has the same "
    "module calls and the same meaning"
)
def _order(transform: Transform, case: Case) -> list[str]:
    other = reordered(case.program, seed=case.seed)
    result = transform(other)
    found = case.changes(result)
    mine, theirs = set(module_calls(result)), set(module_calls(transform(case.program)))
    calls = sorted([(frame.path, frame.call) for frame in mine ^ theirs])
    found += [f"the module call {path}@{call} is on one side only" for path, call in calls]
    return [f"{line}\n(reordered before)\n{other}" for line in found]


def made_anew(before: Program, after: Program) -> list[str]:
    """List the graphs that were rebuilt without any change, meta included.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> made_anew(program, program), made_anew(program, Program.of({"": Graph((), (), ())}))
    ([], ["the graph '' is equal, but another object"])
    """
    return [
        f"the graph {name!a} is equal, but another object"
        for name in sorted(set(before.graphs) & set(after.graphs))
        if before.graphs[name] is not after.graphs[name]
        and _is_same(before.graphs[name], after.graphs[name])
    ]


def differs(result: Program, program: Program) -> bool:
    """Return whether two programs differ, or differ in meta.

    Args:
        result: the result of a transformation.
        program: its argument.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> differs(program.evolve(), program)
    False
    """
    return result != program or any(
        not _is_same(result.graphs[name], graph) for name, graph in program.graphs.items()
    )


def _is_same(one: Graph, other: Graph) -> bool:
    return one is other or (one == other and _identities(one) == _identities(other))


def _identities(graph: Graph) -> list[dict[str, int]]:
    # Comparing fake values themselves would install guards.
    return [
        {key: id(value) for key, value in item.meta.items()}
        for item in (*graph.inputs, *graph.nodes)
    ]


@law("untouched graphs stay the same objects")
def _frame(transform: Transform, case: Case) -> list[str]:
    return made_anew(case.program, transform(case.program))


@law("two runs give the same text")
def _deterministic(transform: Transform, case: Case) -> list[str]:
    first, second = transform(case.program).text(), transform(case.program).text()
    return [] if first == second else [f"two runs differ; the second returns\n{second}"]


@law(
    "eight threads at once give the same result, and none accepts an invalid program that one refuses"
)
def _threads(transform: Transform, case: Case) -> list[str]:
    expected = transform(case.program)
    valid = _different_on_threads(transform, as_imported(case.program), expected)
    if valid:
        return valid
    program = as_imported(invalid(case.program))
    expected_of_invalid = outcome(transform, as_imported(program))
    found = _different_on_threads(transform, program, expected_of_invalid)
    if program.checked:
        found.append("it marks an invalid program as valid")
    return [f"of an invalid program: {line}" for line in found]


def _different_on_threads(
    transform: Transform, program: Program, expected: Program | Exception
) -> list[str]:
    # The first difference of the results on threads; exceptions are compared by type, because messages may contain addresses.
    for result in on_threads(transform, program):
        if isinstance(result, Exception):
            if type(result) is not type(expected):
                return [f"on a thread it raises {type(result).__name__}: {result}"]
        elif isinstance(expected, Exception):
            return [f"on a thread it raises no {type(expected).__name__}, but returns\n{result}"]
        elif result != expected or result.facts != expected.facts:
            return [f"on a thread the result differs:\n{diff(expected, result)}"]
    return []


def invalid(program: Program) -> Program:
    """Return a copy that breaks a rule of ``verify`` which no transformation relies on.

    >>> from purefx.ir import Graph
    >>> [violation.rule for violation in verify(invalid(Program.of({"": Graph((), (), ())})))]
    ['module-paths']
    """
    orphan = Module("purefx_without.parent", "toy.Orphan")
    return program.evolve(modules=(*program.modules, orphan))


@law("nothing is printed, warned or changed in the process")
def _silent(transform: Transform, case: Case) -> list[str]:
    return changes_in_process(lambda: transform(case.program))


@law("the state keeps its names, kinds, ties and tensors")
def _state(transform: Transform, case: Case) -> list[str]:
    before, after = case.program.state, transform(case.program).state
    if before is after:
        return []
    return fact_differences(_state_facts(after), _state_facts(before))


def _state_facts(state: State) -> dict[str, list[str]]:
    return {
        "the names of the state": list(state.order),
        "kinds": [
            f"{name} {slot.kind.value} {'persistent' if slot.persistent else ''}"
            for name, slot in state.pairs
        ],
        "ties": groups({name: slot.cell for name, slot in state.pairs}),
        "shared memory": groups({name: slot.storage for name, slot in state.pairs}),
        "tensors": [f"{name} {id(slot.value)}" for name, slot in state.pairs],
    }


@law("the text of the result parses back to it")
def _text(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    text = result.text()
    # The parser needs the classes of named tuples, and a type may contain values without a text.
    specs = [
        line for line in text.splitlines() if line.lstrip().startswith(("in_spec", "out_spec"))
    ]
    if any('"(' in line or "opaque(" in line for line in specs if 'custom "' in line):
        return []
    again = parse(
        text,
        state=slot_values(result.state),
        allow=result.foreign_operators,
    )
    differs = diff(result, again)
    return [f"the parsed text of the result differs:\n{differs}"] if differs else []


@law("the gradients of parameters and inputs are kept")
def _gradients(transform: Transform, case: Case) -> list[str]:
    try:
        expected = case.computed(tensor_gradients, case.program)
    except RuntimeError:
        return []  # autograd refuses the program itself
    given = case.computed(tensor_gradients, transform(case.program))
    tolerance = Tolerance(
        max(GRADIENT_TOLERANCE, case.tolerance.rtol), max(GRADIENT_TOLERANCE, case.tolerance.atol)
    )
    return named_differences(given, expected, "gradient of", tolerance)


@law("results share memory with each other, with inputs and with state as before")
def memory(transform: Transform, case: Case) -> list[str]:
    """List the results whose shared memory changed."""
    result = transform(case.program)
    return [] if result is case.program else memory_differences(result, case.program, case.calls)


GRADIENT_TOLERANCE = 1e-5
"""Autograd sums the parts of a gradient in the order of the operators, which is not part of the meaning of a program; everything
else is compared bit by bit."""


GENERIC: tuple[Law, ...] = (
    _valid, _meaning, _effects, _pure, _idempotent, _no_op, _equivariant, _order, _frame, _deterministic,
    _threads, _silent, _state, _text, _written_results,
)  # fmt: skip
"""The laws of every transformation.  ``tests/laws/test_hash_seed.py`` compares texts from processes with different hash seeds."""

GRADIENTS = _gradients
"""A further law for values that are tensors; integers have no gradients."""


# -- fuel ------------------------------------------------------------------------------------------------------------------------


def _stoppable(transform: Transform) -> Transformation:
    if not isinstance(transform, Transformation) or not transform.takes_fuel:
        raise TypeError("the laws of fuel need a Transformation whose function has a keyword fuel")
    return transform


def _count(transform: Transformation, program: Program) -> int:
    fuel = Fuel(sys.maxsize)
    transform.spend(program, fuel, **dict(transform.options))
    return fuel.burnt


def _stopped(transform: Transformation, case: Case) -> Iterator[tuple[int, Program]]:
    # The results after one rewrite, some, and all but one.
    count = _count(transform, case.program)
    for limit in sorted({1, 1 + case.seed % (count - 1), count - 1}) if count > 1 else ():
        yield limit, transform(case.program, fuel=limit)


@law("stopped after any rewrite, the result is valid and means the same")
def any_fuel(transform: Transform, case: Case) -> list[str]:
    """List the faults of results with too little fuel."""
    found: list[str] = []
    for limit, result in _stopped(_stoppable(transform), case):
        found += [f"with fuel {limit}: {line}\n{result.text()}" for line in _faults(result, case)]
    return found


@law("fuel for all rewrites is as good as no limit, and one less is not")
def enough_fuel(transform: Transform, case: Case) -> list[str]:
    """Compare the results with just enough fuel, one less, and no limit."""
    stoppable, program = _stoppable(transform), case.program
    count = _count(stoppable, program)
    given, expected = stoppable(program, fuel=count), stoppable(program)
    if given != expected or given.facts != expected.facts:
        return [f"with fuel for all of its {count} rewrites the result differs:\n{given}"]
    one_less = stoppable(program, fuel=count - 1) if count else None
    return [f"the last of {count} rewrites changes nothing"] if one_less == expected else []


@law("without fuel the result is the same object")
def no_fuel(transform: Transform, case: Case) -> list[str]:
    """Apply the transformation without fuel."""
    result = _stoppable(transform)(case.program, fuel=0)
    return (
        [] if result is case.program else [f"without fuel it changes the program:\n{result.text()}"]
    )


@law("stopped early it claims no fact that it establishes, and can be finished later")
def unfinished(transform: Transform, case: Case) -> list[str]:
    """List the claims of unfinished results, and the faults of finished ones."""
    stoppable, found = _stoppable(transform), list[str]()
    for limit, part in _stopped(stoppable, case):
        claimed = sorted((part.facts - case.program.facts) & stoppable.establishes)
        found += [f"with fuel {limit} it claims to be {fact!r}" for fact in claimed]
        whole = stoppable(part)
        found += [f"finished after fuel {limit}: {line}\n{whole}" for line in _faults(whole, case)]
    return found


FUEL: tuple[Law, ...] = (any_fuel, enough_fuel, no_fuel, unfinished)
"""The laws of every transformation with fuel."""
