"""``Judge``: a pass over fx graphs as a function from programs to programs; ``laws_of``: the laws for its results.

If a pass raises, no law is tested, and the first exception is kept with its program.  A pass may rename, reorder and rebuild all
graphs; the laws are about a graph that runs, computes the same, and keeps the claims of the contract.  A pass may reorder two
random draws, but not merge them: so a program runs a second time with each draw seeded separately, and the draws are counted.
"""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.fx
from attrs import define, evolve, field

from ...ir.analysis.digest import digest
from ...ir.arguments import bodies_in
from ...ir.effects.resolved import node_effects
from ...ir.errors import FxPassError, InvalidProgram, PurefxError, UnsupportedProgram
from ...ir.graph import Call, Graph, Node, Op
from ...ir.importing import import_ep
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.torch_private import FakeTensor, OpOverload, new_guards, pytree, resolve_operator, schema_of, storage_key
from ...ir.verify import check
from ...lowering.fx import FxPass, exported, paths_of, same_graph, snapshot, to_fx, with_result
from ...transforms import inline, remove_effect_tokens
from ..evaluate import Meaning, evaluate, meaning_differences
from ..law import Case, Law, Transform
from ..oracles import groups, value_differences
from ..purity import seeded
from ..toy import TensorMachine
from ..values import example_args
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
            raise UnsupportedProgram(f"{self.name} raised {type(error).__name__}: {error}") from error
        return program if outcome.result is None else outcome.result

    def outcome(self, program: Program) -> Outcome:
        """Return the outcome for a program; the pass is called once for each."""
        if self._last is None or self._last.program is not program:
            last = self._last = self.fresh(program)
            for error, counts in ((last.raised, self.raised), (last.refused, self.refused)):
                counts.update([type(error).__name__] if error else [])
            if last.raised is not None:
                self.first_raised = self.first_raised or _traceback(last.raised, program)
        return self._last

    def fresh(self, program: Program) -> Outcome:
        """Call the pass, and return the outcome."""
        outcome = Outcome(program)
        # Drawn programs share the symbols of their sizes, so a guard on one would apply to all.
        values = [formal.meta.get("val") for formal in program.main.inputs]
        env = next((value.fake_mode.shape_env for value in values if isinstance(value, FakeTensor)), None)
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
        made = self.called.on_module(module)
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
        ("graph", "the result is a graph that runs, with the same inputs and outputs", partial(_graph, judge), True),
        ("meaning", "outputs, mutated inputs and state are those of the program, in every call", _meaning, True),
        ("effects", "prints and assertions stay, in order", partial(_effects, contract), True),
        ("aliasing", "outputs share memory with inputs, state and one another as before", _aliasing, contract.aliasing),
        ("values", 'meta["val"] of a node, if it has one, is the value that runs', _values, contract.values),
        ("deterministic", "equal programs have equal results", partial(_deterministic, judge), True),
        ("again", "applied to its own result, the pass keeps the meaning too", partial(_again, judge, contract), True),
    ]
    return tuple([Law(name, statement, check) for name, statement, check, wanted in candidates if wanted])


def _graph(judge: Judge, _: Transform, case: Case) -> list[str]:
    return judge.outcome(case.program).wrong


def _meaning(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    if result is case.program:
        return []
    found = _compared(case.meaning(result), case.meaning(case.program), case)
    if not found or not is_random(case.program):
        return found
    (mine, actual), (theirs, expected) = (drawn_alone(without_idle_draws(one), case.calls) for one in (result, case.program))
    found = _compared(mine, theirs, case)
    if not found and actual != expected:
        return [f"{actual} of the used random numbers are drawn independently, instead of {expected}"]
    return found


def _compared(actual: Meaning, expected: Meaning, case: Case) -> list[str]:
    # A pass may reorder the state of a module, and add some.
    both = dict(actual.state).keys() & dict(expected.state).keys()
    states = (tuple(sorted([(name, value) for name, value in one.state if name in both])) for one in (actual, expected))
    mine, theirs = (evolve(one, state=state) for one, state in zip((actual, expected), states, strict=True))
    return meaning_differences(mine, theirs, what=("outputs", "inputs", "state"), tolerance=case.tolerance)


def _effects(contract: Contract, transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    found = meaning_differences(case.meaning(result), case.meaning(case.program), what=("effects",))
    return found or (_assertions(result, case) if contract.assertions and result is not case.program else [])


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
    names = sorted(one.keys() & other.keys())
    before, after = (groups({name: each[name] for name in names}) for each in (one, other))
    gone, new = [each for each in before if each not in after], [each for each in after if each not in before]
    return [f"no longer the same memory: {each}" for each in gone] + [f"now the same memory: {each}" for each in new]


def _values(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    if result is case.program or case.false_values is None or case.false_values(case.program):
        return []
    return case.false_values(result)


def _deterministic(judge: Judge, transform: Transform, case: Case) -> list[str]:
    first, second = transform(case.program), judge.fresh(case.program).result
    same = second is None or digest(first) == digest(second)
    return [] if same else [f"called again with an equal module, it returns a different result:\n{second}"]


def _again(judge: Judge, contract: Contract, transform: Transform, case: Case) -> list[str]:
    once = transform(case.program)
    if once is case.program or contract.broken_by(flat := inline(once)) or _meaning(transform, case):
        return []
    outcome = judge.fresh(flat)
    return outcome.wrong if outcome.result is None else _meaning(lambda _: outcome.result or once, case)


# -- runs -----------------------------------------------------------------------------------------------------------------------


PRINT: Any = resolve_operator("aten", "_print", "default")

ASSERTIONS = frozenset(
    {
        "aten._assert_async.default",
        "aten._assert_async.msg",
        "aten._assert_scalar.default",
        "aten._assert_tensor_metadata.default",
        "aten._functional_assert_async.msg",
    }
)
"""Operators that only raise if a condition is false."""


def is_random(program: Program) -> bool:
    """Return whether a program draws random numbers.

    >>> is_random(Program.of({"": Graph((), (), ())}))
    False
    """
    return any(type(node.do) is Op and node.do.effects.random for _, node in program.nodes())


def drawn_alone(program: Program, calls: Sequence[Sequence[Any]]) -> tuple[Meaning, int]:
    """Run a program with each draw seeded separately; return its meaning, and the number of draws in all calls.

    Args:
        program: a program of real operators at any stage, on the CPU.
        calls: the leaves of the user inputs, for each call.

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
            count += bool(value_differences(*[_seeded(number, target, args, kwargs) for number in range(2)]))
            # Ignore memory formats: numbers fill memory in its order.
            args, kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, (args, kwargs))
        return _seeded(7, target, args, kwargs)

    nodes = [node for _, node in program.nodes() if type(node.do) is Op and node.do.effects.random and not bodies_in(node.args)]
    machine = _with_functions(nodes, draw)
    with torch.no_grad():
        return evaluate(program, calls, machine), count


def _seeded(number: int, target: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    with seeded(number):
        return target(*args, **kwargs)


def _with_functions(nodes: Sequence[Node], function: Callable[..., Any]) -> TensorMachine:
    # A machine that replaces the operators of some nodes by a function of the operator and its arguments.
    machine = TensorMachine()
    known = {do.name: partial(function, do.target) for node in nodes if type(do := node.do) is Op and do.target is not None}
    machine.functions = {**known, **machine.functions}
    return machine


def without_idle_draws(program: Program) -> Program:
    """Return a program without unused nodes, random draws included; the same object if there are none.

    Args:
        program: a program at any stage.

    >>> program = Program.of({"": Graph((), (), ())})
    >>> without_idle_draws(program) is program
    True
    """
    graphs: dict[str, Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        needed = set(graph.output_refs())
        kept: list[Any] = []
        for node, effects in zip(reversed(graph.nodes), reversed(node_effects(program, graph)), strict=True):
            acts = effects.writes or effects.writes_slots or effects.ordered or effects.domains or any(effects.scope)
            if acts or node.name in needed or type(node.do) is Call:
                needed.update(node.refs())
                kept.append(node)
        graphs[name] = graph if len(kept) == len(graph.nodes) else graph.with_nodes(tuple(kept[::-1]))
    same = all(graphs[name] is program.graphs[name] for name in graphs)
    return program if same else evolve(program, graphs=pmap(graphs))


def asserted(program: Program, calls: Sequence[Sequence[Any]]) -> tuple[str, ...]:
    """Return the assertions of a run in order, each once, without those that are constant.

    Args:
        program: a program of real operators at any stage, on the CPU.
        calls: the leaves of the user inputs, for each call.

    >>> asserted(Program.of({"": Graph((), (), ())}), [()])
    ()
    """
    nodes = [node for _, node in program.nodes() if type(node.do) is Op and node.do.name in ASSERTIONS]
    may_fail = [node for node in nodes if node.args[:1] != (True,)]
    observed: dict[str, None] = {}

    def observe(target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        observed[_statement(args, kwargs)] = None
        return target(*args, **kwargs)

    if may_fail:
        with seeded(0), torch.no_grad():
            evaluate(program, calls, _with_functions(nodes, observe))
    always = {_statement(node.args, dict(node.kwargs)) for node in nodes if node not in may_fail}
    always -= {_statement(node.args, dict(node.kwargs)) for node in may_fail}
    return tuple([statement for statement in observed if statement not in always])


def _statement(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    # The text or the expected metadata; the pass may compute the condition differently.
    details = [arg for arg in (*args[1:], *kwargs.values()) if isinstance(arg, str | torch.dtype | torch.device | list | tuple)]
    return ", ".join(map(repr, details)) or "a condition"


def called(module: torch.fx.GraphModule, leaves: Sequence[Any]) -> dict[str, int]:
    """Call a graph module without changing the module or the leaves, and without printing.

    Args:
        module: a module that takes leaves and returns a tuple of leaves.
        leaves: the inputs.

    Returns:
        The number of the memory of each tensor among inputs, outputs and state.

    >>> groups(called(torch.fx.symbolic_trace(lambda x: (x, x + 1)), [torch.ones(1)]))
    ['input 0 = output 0']
    """
    copies = [TensorMachine().given(leaf) for leaf in leaves]
    with _silent(module), _restored(module), seeded(0), torch.no_grad():
        outputs = module(*copies)
        outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
        tensors: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
        tensors |= dict(module.named_buffers(remove_duplicate=False))
        tensors |= {f"input {number}": leaf for number, leaf in enumerate(copies)}
        tensors |= {f"output {number}": leaf for number, leaf in enumerate(outputs)}
        strided = {name: one for name, one in tensors.items() if isinstance(one, torch.Tensor) and one.layout is torch.strided}
        return {name: storage_key(one) for name, one in strided.items() if one.numel()}


@contextmanager
def _silent(module: torch.fx.GraphModule) -> Generator[None]:
    # Call the module itself, because copying other classes may fail.
    graphs = [inner for inner in module.modules() if isinstance(inner, torch.fx.GraphModule)]
    nodes = [node for inner in graphs for node in inner.graph.find_nodes(op="call_function", target=PRINT)]
    for target in (_nothing, PRINT):
        for node in nodes:
            node.target = target
        for inner in graphs:
            inner.recompile()
        if target is _nothing:
            yield


@contextmanager
def _restored(module: torch.nn.Module) -> Generator[None]:
    memories = {storage_key(tensor): tensor.untyped_storage() for tensor in (*module.parameters(), *module.buffers())}
    contents = {key: memory.clone() for key, memory in memories.items()}
    yield
    for key, memory in memories.items():
        memory.copy_(contents[key])


def _nothing(s: str) -> None:
    """Replace the print operator."""
