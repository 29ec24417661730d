"""``Judge``: a pass over fx graphs as a function from programs to programs; ``laws_of``: the laws for its results.

If a pass raises, no law is tested, and the first exception is kept with its program.  A pass may rename, reorder and rebuild all
graphs; the laws are about a graph that runs, computes the same, and keeps the claims of the contract.
"""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.fx
from attrs import define, evolve, field

from ...ir.analysis.digest import digest
from ...ir.errors import FxPassError, InvalidProgram, PurefxError, UnsupportedProgram
from ...ir.importing import import_ep
from ...ir.program import Program
from ...ir.torch_private import FakeTensor, OpOverload, new_guards, schema_of
from ...ir.verify import check
from ...lowering.fx import FxPass, exported, paths_of, same_graph, snapshot, to_fx, with_result
from ...transforms import inline, remove_effect_tokens
from ..evaluate import Meaning, meaning_differences
from ..example_args import example_args
from ..law import Case, Law, Transform
from .contract import Contract
from .runs import asserted, called, drawn_alone, is_random, shared_memory, without_idle_draws

__all__ = ["Judge", "Outcome", "laws_of"]

KEPT = 3
"""The number of cached outcomes: all laws test one program before the next."""


@define(eq=False)
class Outcome:
    """The outcome of a pass on one program."""

    program: Program
    result: Program | None = None
    """None if the pass raised, or its result is not a program."""
    module: torch.fx.GraphModule | None = None
    raised: Exception | None = None
    refused: Exception | None = None
    """The reason why the result cannot be judged."""
    wrong: list[str] = field(factory=list)
    """Faults of the graph itself."""


@define(eq=False)
class Judge:
    """Calls a pass once for each program, and keeps the outcome.

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> judge = Judge(FxPass.of(lambda module: None))
    >>> judge(program) is program, judge.outcome(program).wrong
    (True, [])
    """

    called: FxPass
    raised: Counter[str] = field(factory=Counter)
    """Exceptions of the pass, by type."""
    refused: Counter[str] = field(factory=Counter)
    """Results that cannot be judged, by type of the reason."""
    first_raised: str = ""
    """The traceback of its first exception, and the program."""
    _known: list[Outcome] = field(factory=list)

    @property
    def name(self) -> str:
        """The name of the pass."""
        return self.called.name

    def __call__(self, program: Program) -> Program:
        """Return the result of the pass.

        Raises:
            UnsupportedProgram: the pass raised, or its result cannot be represented.
        """
        outcome = self.outcome(program)
        error = outcome.raised or outcome.refused
        if error is not None:
            raise UnsupportedProgram(f"{self.name} raised {type(error).__name__}: {error}") from error
        return program if outcome.result is None else outcome.result

    def outcome(self, program: Program) -> Outcome:
        """Return the outcome for a program; the pass is called once for each."""
        known = next((one for one in self._known if one.program is program), None)
        if known is None:
            known = self.fresh(program)
            self._known = [known, *self._known[: KEPT - 1]]
            for error, counts in ((known.raised, self.raised), (known.refused, self.refused)):
                counts.update([type(error).__name__] if error else [])
            if known.raised is not None:
                self.first_raised = self.first_raised or _traceback(known.raised, program)
        return known

    def fresh(self, program: Program) -> Outcome:
        """Call the pass, and return the outcome."""
        outcome = Outcome(program)
        env = _sizes_of(program)
        with warnings.catch_warnings(), new_guards(env) if env is not None else nullcontext[list[str]]([]) as guards:
            warnings.simplefilter("ignore")  # a pass may warn
            try:
                self._run(outcome)
            except FxPassError as error:
                outcome.wrong.append(str(error))
            except Exception as error:  # noqa: BLE001  a pass may raise anything
                outcome.raised = error
        if guards and not (outcome.raised or outcome.refused):  # a compiler would check them before each call
            outcome.refused = UnsupportedProgram(f"it holds only for sizes with {' and '.join(guards)}")
        return outcome

    def _run(self, outcome: Outcome) -> None:
        program = outcome.program
        if self.called.over == "exported_program":
            result = self.called.on_export(exported(program))
            try:
                outcome.result = remove_effect_tokens(check(import_ep(result)))
            except InvalidProgram as error:
                outcome.wrong.append(str(error))
            return
        module = to_fx(program)
        before, tensors = snapshot(module), paths_of(module)
        made = outcome.module = self.called.on_module(module)
        if made is module and same_graph(before, snapshot(module)):
            outcome.result = program
        elif not (wrong := _lint(made)):
            self._import(outcome, made, tensors)
        else:
            outcome.wrong += wrong

    def _import(self, outcome: Outcome, made: torch.fx.GraphModule, tensors: Any) -> None:
        try:
            outcome.result = with_result(outcome.program, made, self.name, tensors=tensors)
        except FxPassError:
            raise
        except PurefxError as error:
            outcome.refused = error
            if isinstance(error, InvalidProgram):  # if it runs nevertheless, it cannot be judged
                try:
                    called(made, example_args(outcome.program))
                except Exception as raised:  # noqa: BLE001  graphs may raise anything
                    outcome.refused = None
                    outcome.wrong += [f"called, it raises {type(raised).__name__}: {raised}", str(error)]


OURS = tuple([str(Path(__file__).parents[2] / folder) for folder in ("laws", "lowering")])


def _traceback(error: Exception, program: Program) -> str:
    # Without our frames.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(OURS)]
    return f"{''.join(traceback.format_list(frames))}{type(error).__name__}: {error}\non the program\n{program.text()}"


def _sizes_of(program: Program) -> Any:
    # Drawn programs share the symbols of their sizes, so a guard on one would apply to all.
    values = [formal.meta.get("val") for formal in program.main.inputs]
    return next((value.fake_mode.shape_env for value in values if isinstance(value, FakeTensor)), None)


def _lint(module: torch.fx.GraphModule) -> list[str]:
    found: list[str] = []
    for path, inner in module.named_modules():
        if isinstance(inner, torch.fx.GraphModule):
            try:
                inner.graph.lint()
            except Exception as error:  # noqa: BLE001  lint may raise anything
                found.append(f"lint of {path or 'the graph'}: {type(error).__name__}: {error}")
            # `lint` accepts nodes after the output, which do not run.
            nodes = list(inner.graph.nodes)
            behind = nodes[[node.op for node in nodes].index("output") + 1 :] if nodes else []
            late = [node.name for node in behind if _acts(node)]  # the others are dead code
            if late:
                found.append(f"{path or 'the graph'} has {', '.join(late)} after its output, where nothing runs")
    return found


def _acts(node: torch.fx.Node) -> bool:
    target: Any = node.target
    return node.is_impure() or (isinstance(target, OpOverload) and schema_of(target).is_mutable)


# -- laws ------------------------------------------------------------------------------------------------------------------------

Check = Callable[[Transform, Case], list[str]]


def laws_of(judge: Judge, contract: Contract) -> tuple[Law, ...]:
    """Return the laws for a pass, the most basic first.

    Args:
        judge: calls the pass.
        contract: the claims of the pass.

    >>> from .contract import ANYTHING
    >>> [law.name for law in laws_of(Judge(FxPass.of(lambda module: None)), ANYTHING)]
    ['graph', 'meaning', 'effects', 'aliasing', 'values', 'deterministic', 'again']
    """
    candidates: list[tuple[str, str, Check, bool]] = [
        ("graph", "the result is a graph that runs, with the same inputs and outputs", _graph(judge), True),
        ("meaning", "outputs, mutated inputs and state are those of the program, in every call", _meaning, True),
        ("effects", "prints and assertions stay, in order", _effects(contract), True),
        ("aliasing", "outputs share memory with inputs, state and one another as before", _aliasing, contract.aliasing),
        ("values", 'meta["val"] of a node, if it has one, is the value that runs', _values, contract.values),
        ("deterministic", "equal programs have equal results", _deterministic(judge), True),
        ("again", "applied to its own result, the pass keeps the meaning too", _again(judge, contract), True),
    ]
    return tuple([Law(name, statement, check) for name, statement, check, wanted in candidates if wanted])


def _graph(judge: Judge) -> Check:
    return lambda _, case: judge.outcome(case.program).wrong


def _meaning(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    if result is case.program:
        return []
    found = _compared(case.meaning(result), case.meaning(case.program), case)
    if not found or not is_random(case.program):
        return found
    mine, theirs = without_idle_draws(result), without_idle_draws(case.program)
    if not _compared(case.meaning(mine), case.meaning(theirs), case):
        return []  # only unused draws are gone
    actual, expected = drawn_alone(mine, case.calls), drawn_alone(theirs, case.calls)
    found = _compared(actual.meaning, expected.meaning, case)
    if not found and actual.count != expected.count:
        return [f"{actual.count} of the used random numbers are drawn independently, instead of {expected.count}"]
    return found


def _compared(actual: Meaning, expected: Meaning, case: Case) -> list[str]:
    # A pass may reorder the state of a module, and add some.
    both = dict(actual.state).keys() & dict(expected.state).keys()
    states = (tuple(sorted([(name, value) for name, value in one.state if name in both])) for one in (actual, expected))
    mine, theirs = (evolve(one, state=state) for one, state in zip((actual, expected), states, strict=True))
    return meaning_differences(mine, theirs, what=("outputs", "inputs", "state"), tolerance=case.tolerance)


def _effects(contract: Contract) -> Check:
    def check(transform: Transform, case: Case) -> list[str]:
        result = transform(case.program)
        found = meaning_differences(case.meaning(result), case.meaning(case.program), what=("effects",))
        return found or (_assertions(result, case) if contract.assertions and result is not case.program else [])

    return check


def _assertions(result: Program, case: Case) -> list[str]:
    # Additional and repeated assertions are allowed.
    expected = asserted(case.program, case.calls)
    actual = [one for one in asserted(result, case.calls) if one in expected] if expected else []
    if lost := [one for one in expected if one not in actual]:
        return [f"it no longer asserts {one}" for one in lost]
    return [] if actual == list(expected) else [f"it asserts {', '.join(actual)}, instead of {', '.join(expected)}"]


def _aliasing(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    if result is case.program or not case.calls:
        return []
    one, other = (called(to_fx(inline(program)), case.calls[0]) for program in (case.program, result))
    before, after = shared_memory(one, other), shared_memory(other, one)
    gone, new = [each for each in before if each not in after], [each for each in after if each not in before]
    return [f"no longer the same memory: {each}" for each in gone] + [f"now the same memory: {each}" for each in new]


def _values(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    if result is case.program or case.false_values is None or case.false_values(case.program):
        return []
    return case.false_values(result)


def _deterministic(judge: Judge) -> Check:
    def check(transform: Transform, case: Case) -> list[str]:
        first, second = transform(case.program), judge.fresh(case.program).result
        same = second is None or digest(first) == digest(second)
        return [] if same else [f"called again with an equal module, it returns a different result:\n{second}"]

    return check


def _again(judge: Judge, contract: Contract) -> Check:
    def check(transform: Transform, case: Case) -> list[str]:
        once = transform(case.program)
        if once is case.program or contract.broken_by(flat := inline(once)) or _meaning(transform, case):
            return []
        outcome = judge.fresh(flat)
        return outcome.wrong if outcome.result is None else _meaning(lambda _: outcome.result or once, case)

    return check
