"""Compare programs up to the order of random draws; call graph modules.

A pass may reorder two draws, but not merge them.  So a program runs a second time with each draw seeded separately, and the
draws are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from attrs import evolve, frozen

from ...ir.arguments import bodies_in
from ...ir.effects.resolved import node_effects
from ...ir.graph import Call, Graph, Node, Op
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.torch_private import pytree, resolve_operator, schema_of, storage_key
from ..evaluate import Meaning, contents_of, evaluate
from ..oracles import groups, value_differences
from ..purity import seeded
from ..toy import TensorMachine

__all__ = ["Draws", "asserted", "called", "drawn_alone", "is_random", "shared_memory", "without_idle_draws"]

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


@frozen
class Draws:
    """The meaning of a program with each draw seeded separately, and the number of draws in all calls."""

    meaning: Meaning
    count: int


def is_random(program: Program) -> bool:
    """Return whether a program draws random numbers.

    >>> is_random(Program.of({"": Graph((), (), ())}))
    False
    """
    return any(type(node.do) is Op and node.do.effects.random for _, node in program.nodes())


def drawn_alone(program: Program, calls: Sequence[Sequence[Any]]) -> Draws:
    """Run a program with each draw seeded separately.

    Args:
        program: a program of real operators at any stage, on the CPU.
        calls: the leaves of the user inputs, for each call.

    >>> drawn_alone(Program.of({"": Graph((), (), ())}), [()]).count
    0
    """
    count = 0

    def draw(target: Callable[..., Any], args: Any, kwargs: Any) -> Any:
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
        return Draws(evaluate(program, calls, machine), count)


def _seeded(number: int, target: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    with seeded(number):
        return target(*args, **kwargs)


def _with_functions(nodes: Sequence[Node], function: Callable[[Callable[..., Any], Any, Any], Any]) -> TensorMachine:
    # A machine that replaces the operators of some nodes by a function.
    def replacement(target: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: function(target, args, kwargs)

    machine = TensorMachine()
    known = {do.name: replacement(do.target) for node in nodes if type(do := node.do) is Op and do.target is not None}
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

    def observe(target: Callable[..., Any], args: Any, kwargs: Any) -> Any:
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


@frozen
class Called:
    """The outcome of one call of a graph module."""

    outputs: tuple[Any, ...]
    """Contents of tensors; type and text of anything else."""
    memory: Mapping[str, int]
    """The number of the memory of each tensor among inputs, outputs and state."""


def called(module: torch.fx.GraphModule, leaves: Sequence[Any]) -> Called:
    """Call a graph module without changing the module or the leaves, and without printing.

    Args:
        module: a module that takes leaves and returns a tuple of leaves.
        leaves: the inputs.

    >>> made = called(torch.fx.symbolic_trace(lambda x: (x, x + 1)), [torch.ones(1)])
    >>> made.outputs, shared_memory(made, made)
    ((float32[1] (1.0), float32[1] (2.0)), ['input 0 = output 0'])
    """
    copies = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    with _silent(module), _restored(module), seeded(0), torch.no_grad():
        outputs = module(*copies)
        outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
        tensors: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
        tensors |= dict(module.named_buffers(remove_duplicate=False))
        tensors |= {f"input {number}": leaf for number, leaf in enumerate(copies)}
        tensors |= {f"output {number}": leaf for number, leaf in enumerate(outputs)}
        strided = {name: one for name, one in tensors.items() if isinstance(one, torch.Tensor) and one.layout is torch.strided}
        contents = [contents_of(one) if isinstance(one, torch.Tensor) else (type(one).__name__, repr(one)) for one in outputs]
        return Called(tuple(contents), {name: storage_key(one) for name, one in strided.items() if one.numel()})


def shared_memory(one: Called, other: Called) -> list[str]:
    """Return the groups of tensors that share memory in one call, among the tensors of both calls."""
    return groups({name: one.memory[name] for name in sorted(one.memory.keys() & other.memory.keys())})


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
