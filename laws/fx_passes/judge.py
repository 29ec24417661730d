"""``Judge``: a pass over fx graphs as a function from programs to programs, with the laws for its results.

If a pass raises, no law is tested, and the first exception is kept with its program.  A pass may rename, reorder and rebuild all
graphs; the laws are about a graph that runs, computes the same, and keeps the claims of the contract.  A pass may reorder two
random draws, but not merge them: so a program runs a second time with each draw seeded separately, and the draws are counted.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import dropwhile
from typing import Any

import torch
import torch.fx
from attrs import Factory, define, evolve

from ...ir.analysis.digest import digest
from ...ir.arguments import bodies_in
from ...ir.errors import FxPassError, InvalidProgram, PurefxError, UnsupportedProgram
from ...ir.graph import Node, Op
from ...ir.program import Program
from ...ir.torch_private import FakeTensor, new_guards, pytree, schema_of
from ...lowering.fx import FxPass, Over, from_fx_pass
from ...lowering.lower import executable
from ...transforms import eliminate_dead_code, inline, remove_effect_tokens
from ..evaluate import Meaning, evaluate
from ..law import VALUES, Case, Law, Transform
from ..oracles import memory_differences, value_differences
from ..purity import seeded
from ..toy import TensorMachine
from ..values import recorded_values
from .contract import Contract


@define(eq=False)
class Outcome:
    """The outcome of a pass on one program."""

    program: Program
    result: Program | None = None
    """None if the pass raised, or its result is not a program."""
    raised: Exception | None = None
    refused: Exception | None = None
    """The reason why the result cannot be judged."""
    wrong: list[str] = Factory(list)
    """Faults of the graph itself."""


@define(eq=False)
class Judge:
    """Calls a pass once for each program, and keeps the outcome.

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> judge = Judge(FxPass.of(lambda module: None), Contract(aliasing=False))
    >>> judge(program) is program, judge.outcome(program).wrong
    (True, [])
    >>> [law.name for law in judge.laws]
    ['graph', 'meaning', 'effects', 'values', 'deterministic', 'again']
    """

    called: FxPass
    contract: Contract
    raised: Counter[str] = Factory(Counter)
    """Exceptions of the pass, by type."""
    refused: Counter[str] = Factory(Counter)
    """Results that cannot be judged, by type of the reason."""
    first_raised: str = ""
    """The traceback of its first exception, and the program."""
    _last: Outcome | None = None
    """All laws test one program before the next."""

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
            raise UnsupportedProgram(
                f"{self.name} raised {type(error).__name__}: {error}"
            ) from error
        return program if outcome.result is None else outcome.result

    def outcome(self, program: Program) -> Outcome:
        """Return the outcome for a program; the pass is called once for each."""
        if self._last is None or self._last.program is not program:
            last = self._last = self.fresh(program)
            for error, counts in ((last.raised, self.raised), (last.refused, self.refused)):
                counts.update([type(error).__name__] if error else [])
            if last.raised is not None and not self.first_raised:
                frames = "".join(traceback.format_tb(last.raised.__traceback__)[2:])  # without ours
                error = f"{type(last.raised).__name__}: {last.raised}"
                self.first_raised = f"{frames}{error}\non the program\n{program.text()}"
        return self._last

    def fresh(self, program: Program) -> Outcome:
        """Call the pass, and return the outcome."""
        outcome = Outcome(program)
        exports = self.called.over == "exported_program"
        run = self.called.on_export if exports else self.called.on_module
        over: Over = "exported_program" if exports else "graph_module"
        watched = from_fx_pass(
            FxPass(partial(_watched, run, outcome), self.name, over, takes_fuel=False)
        )
        # Drawn programs share the symbols of their sizes, so a guard on one would apply to all.
        values = [formal.val for formal in program.main.inputs]
        env = next(
            (value.fake_mode.shape_env for value in values if isinstance(value, FakeTensor)), None
        )
        with (
            warnings.catch_warnings(),
            new_guards(env) if env is not None else nullcontext[list[str]]([]) as guards,
        ):
            warnings.simplefilter("ignore")  # a pass may warn
            try:
                outcome.result = remove_effect_tokens(watched(program))
            except (FxPassError, InvalidProgram) as error:
                outcome.wrong.append(str(error))
            except PurefxError as error:
                outcome.refused = None if outcome.raised else error
        if guards and not (
            outcome.raised or outcome.refused
        ):  # a compiler would check them before each call
            outcome.refused = UnsupportedProgram(
                f"it holds only for sizes with {' and '.join(guards)}"
            )
        return outcome

    @property
    def laws(self) -> tuple[Law, ...]:
        """The laws of the pass, the most basic first, without the claims that it does not make."""
        wanted = {"aliasing": self.contract.aliasing, "values": self.contract.values}
        laws = (
            Law(
                "graph",
                "the result is a graph that runs, with the same inputs and outputs",
                self._graph,
            ),
            Law(
                "meaning",
                "outputs, mutated inputs and state are those of the program, in every call",
                _meaning,
            ),
            Law("effects", "prints and assertions stay, in order", self._effects),
            Law(
                "aliasing",
                "outputs share memory with inputs, state and one another as before",
                _aliasing,
            ),
            Law(
                "values",
                'meta["val"] of a node, if it has one, is the value that runs',
                recorded_values.check,
            ),
            Law("deterministic", "equal programs have equal results", self._deterministic),
            Law("again", "applied to its own result, the pass keeps the meaning too", self._again),
        )
        return tuple([law for law in laws if wanted.get(law.name, True)])

    def _graph(self, _: Transform, case: Case) -> list[str]:
        return self.outcome(case.program).wrong

    def _effects(self, transform: Transform, case: Case) -> list[str]:
        result = transform(case.program)
        found = case.changes(result, "effects")
        if found or result is case.program or not self.contract.assertions:
            return found
        expected = asserted(case.program, case.calls)
        actual = [
            one for one in asserted(result, case.calls) if one in expected
        ]  # more assertions are allowed
        lost = [f"it no longer asserts {one}" for one in expected if one not in actual]
        moved = (
            [f"it asserts {', '.join(actual)}, instead of {', '.join(expected)}"]
            if actual != expected
            else []
        )
        return lost or moved

    def _deterministic(self, transform: Transform, case: Case) -> list[str]:
        first, second = transform(case.program), self.fresh(case.program).result
        same = second is None or digest(first) == digest(second)
        return (
            []
            if same
            else [f"called again with an equal module, it returns a different result:\n{second}"]
        )

    def _again(self, transform: Transform, case: Case) -> list[str]:
        once = transform(case.program)
        if (
            once is case.program
            or self.contract.broken_by(flat := inline(once))
            or _meaning(transform, case)
        ):
            return []
        outcome = self.fresh(flat)
        return (
            outcome.wrong
            if outcome.result is None
            else _meaning(lambda _: outcome.result or once, case)
        )


def _watched(run: Callable[..., Any], outcome: Outcome, given: Any) -> Any:
    try:
        made = run(given)
    except FxPassError:
        raise
    except Exception as error:
        outcome.raised = error
        raise UnsupportedProgram(f"the pass raised {type(error).__name__}") from error
    wrong = _lint(made) if isinstance(made, torch.fx.GraphModule) else []
    if wrong:
        raise FxPassError("\n".join(wrong))
    return made


def _lint(module: torch.fx.GraphModule) -> list[str]:
    found: list[str] = []
    for path, inner in module.named_modules():
        if isinstance(inner, torch.fx.GraphModule):
            try:
                inner.graph.lint()
            except Exception as error:  # noqa: BLE001  lint may raise anything
                found.append(f"lint of {path or 'the graph'}: {type(error).__name__}: {error}")
            # `lint` accepts nodes after the output, which do not run; the pure ones are dead code.
            behind = dropwhile(lambda node: node.op != "output", inner.graph.nodes)
            late = [node.name for node in behind if node.op != "output" and node.is_impure()]
            if late:
                found.append(
                    f"{path or 'the graph'} has {', '.join(late)} after its output, where nothing runs"
                )
    return found


# -- runs ------------------------------------------------------------------------------------------------------------------------


def _meaning(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    found = case.changes(result, *VALUES)
    if not found or not _draws(case.program):
        return found
    (mine, actual), (theirs, expected) = (
        drawn_alone(program, case.calls) for program in (result, case.program)
    )
    found = case.differences(mine, theirs, *VALUES)
    if not found and actual != expected:
        return [
            f"{actual} of the used random numbers are drawn independently, instead of {expected}"
        ]
    return found


def _aliasing(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    # An output with the new contents of state shares memory with it once the state is written in place.
    return (
        []
        if result is case.program
        else memory_differences(executable(result), executable(case.program), case.calls)
    )


def _draws(program: Program) -> list[Node]:
    return [
        node for _, node in program.nodes() if node.declared.random and not bodies_in(node.args)
    ]


def drawn_alone(program: Program, calls: Sequence[Sequence[Any]]) -> tuple[Meaning, int]:
    """Run a program with each draw seeded separately; return its meaning, and the number of used draws in all calls.

    Args:
        program: a program of real operators at any stage, on the CPU.
        calls: the leaves of the user inputs, for each call.

    >>> from purefx.ir import Graph
    >>> drawn_alone(Program.of({"": Graph((), (), ())}), [()])[1]
    0
    """
    count = 0

    def draw(target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        if schema_of(target).is_mutable:
            count += 1
        else:
            # `dropout(x, 0.0)` draws numbers, but its result does not depend on them.
            count += bool(
                value_differences(*[_seeded(number, target, args, kwargs) for number in range(2)])
            )
            # Ignore memory formats: numbers fill memory in its order.
            args, kwargs = pytree.tree_map_only(
                torch.Tensor, torch.Tensor.contiguous, (args, kwargs)
            )
        return _seeded(7, target, args, kwargs)

    def pure(node: Node) -> Node:
        do = node.do
        if type(do) is not Op or not do.effects.random:
            return node
        return node.evolve(
            do=evolve(do, effects=evolve(do.effects, random=False, random_unless=()))
        )

    machine = _machine(_draws(program), draw)
    # Unused draws are dead code once they count as pure.
    graphs = {
        name: graph.with_nodes(map(pure, graph.nodes)) for name, graph in program.graphs.items()
    }
    with torch.no_grad():
        return evaluate(eliminate_dead_code(program.with_graphs(graphs)), calls, machine), count


def _seeded(number: int, target: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    with seeded(number):
        return target(*args, **kwargs)


def _machine(nodes: Sequence[Node], function: Callable[..., Any]) -> TensorMachine:
    # A machine that replaces the operators of some nodes by a function of the operator and its arguments.
    machine = TensorMachine()
    known = {
        do.name: partial(function, do.target)
        for node in nodes
        if type(do := node.do) is Op and do.target is not None
    }
    machine.functions = {**known, **machine.functions}
    return machine


ASSERTION = re.compile(r"aten\._(functional_)?assert_\w+\.")
"""Operators that only raise if a condition is false."""


def asserted(program: Program, calls: Sequence[Sequence[Any]]) -> list[str]:
    """Return the assertions of a run in order, each once, without those that are constant.

    Args:
        program: a program of real operators at any stage, on the CPU.
        calls: the leaves of the user inputs, for each call.

    >>> from purefx.ir import Graph
    >>> asserted(Program.of({"": Graph((), (), ())}), [()])
    []
    """
    nodes = [node for _, node in program.nodes() if ASSERTION.match(node.op_name)]
    may_fail = [node for node in nodes if node.args[:1] != (True,)]
    observed: dict[str, None] = {}

    def observe(target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        observed[_statement(args, kwargs)] = None
        return target(*args, **kwargs)

    if may_fail:
        with seeded(0), torch.no_grad():
            evaluate(program, calls, _machine(nodes, observe))
    constant = {_statement(node.args, dict(node.kwargs)) for node in nodes if node not in may_fail}
    constant -= {_statement(node.args, dict(node.kwargs)) for node in may_fail}
    return [one for one in observed if one not in constant]


def _statement(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    # The text or the expected metadata; the pass may compute the condition differently.
    details = [
        arg
        for arg in (*args[1:], *kwargs.values())
        if isinstance(arg, str | torch.dtype | torch.device | list | tuple)
    ]
    return ", ".join(map(repr, details)) or "a condition"
