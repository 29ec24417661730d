"""``minimize``: reduce a program on which a fault occurs to the smallest one found on which it still occurs.

Each reduction proposes candidates to the search; ``PASSES`` is their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from attrs import evolve, field, frozen

from ...ir.arguments import Body, Items, Ref
from ...ir.graph import Call, Frame, Get, Graph, Input, Node, Op
from ...ir.own_operators import is_boundary
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.signature import InputSpec, StateInput, StateMutation, UserInput
from ...ir.torch_private import device_of
from ...ir.validation import a_function, a_program
from ...ir.verify import check
from ..effect_tokens import remove_effect_tokens
from ..inline import inline, inlined
from ..partition import join
from ..simplify import eliminate_dead_code
from .cutting import (
    claiming_less,
    shrink_sizes,
    simplify_literals,
    type_of,
    use_usual_types,
    with_interface,
    without,
    without_unused,
)
from .search import Search, TimeIsUp

Item = TypeVar("Item")


def drop_nodes(search: Search) -> None:
    """Drop nodes of the root, many at once first; reads of state are dropped when unused."""
    drop(
        search,
        lambda program: [node.name for node in program.main.nodes if type(node.do) is not Get],
        without,
        "drop",
    )


def drop_outputs(search: Search) -> None:
    """Return fewer values."""
    drop(
        search,
        lambda program: range(len(program.signature.outputs)),
        _without_outputs,
        "no longer return",
    )


def drop(
    search: Search,
    items: Callable[[Program], Sequence[Item]],
    change: Callable[[Program, Sequence[Item]], Program | None],
    step: str,
) -> None:
    """Drop as many items of a program as possible: the last first, in ever smaller chunks.

    Args:
        search: the reduction.
        items: returns the items of a program.
        change: returns the program without some items.
        step: the verb for the list of steps.
    """
    size = max(1, len(items(search.program)) // 2)
    while True:
        end, before = len(items(search.program)), search.program
        while end > 0:
            there = items(search.program)
            end = min(end, len(there))
            gone = there[max(0, end - size) : end]
            named = ", ".join(map(str, gone)) if len(gone) <= SHOWN else f"{len(gone):,} of them"
            search.offer(f"{step} {named}", lambda program, gone=gone: change(program, gone))
            end -= size
        if size > 1:
            size //= 2
        elif search.program is before:
            return


SHOWN = 3
"""How many items a step names."""


def _without_outputs(program: Program, gone: Sequence[int]) -> Program:
    main, specs = program.main, program.signature
    numbers = [number for number in range(len(specs.outputs)) if number not in gone]
    root = evolve(main, output=tuple([main.output[number] for number in numbers]))
    return without_unused(
        with_interface(program, root, specs.inputs, [specs.outputs[number] for number in numbers])
    )


def read_less(search: Search) -> None:
    """Replace tensors of the state by inputs."""
    drop(search, _slots, _with_inputs, "pass as an input")


def _slots(program: Program) -> list[str]:
    slots = [*program.state_inputs.values(), *program.main.reads.values()]
    return list(dict.fromkeys(slots))


def _with_inputs(program: Program, slots: Sequence[str]) -> Program | None:
    kinds = {
        slot: kind for slot in slots if (kind := type_of(program.state[slot].value)) is not None
    }
    written = any(
        type(spec) is StateMutation and spec.slot in kinds for spec in program.signature.outputs
    )
    if written or len(kinds) < len(set(slots)):
        return None
    edit, pairs, names = Rewriter(program.main), list[tuple[Input, InputSpec]](), dict[str, str]()
    for formal, spec in program.inputs:
        if type(spec) is StateInput and spec.slot in kinds:
            names[spec.slot] = formal.name
            spec = UserInput(kinds[spec.slot], formal.name)
        pairs.append((formal, spec))
    for node in program.main.nodes:
        if type(node.do) is not Get or node.do.slot not in kinds:
            continue
        if (name := names.setdefault(node.do.slot, node.name)) != node.name:
            edit.drop(node.name, Ref(name))
            continue
        edit.erase(node.name)
        pairs.append((Input(name, node.meta), UserInput(kinds[node.do.slot], name)))
    main = edit.graph(inputs=tuple([formal for formal, _ in pairs]))
    return without_unused(
        with_interface(program, main, [spec for _, spec in pairs], program.signature.outputs)
    )


def describe_less(search: Search) -> None:
    """Drop metadata, which is seldom part of a fault: pytrees, guards, modules, module calls, tokens."""
    for step, change in DESCRIPTIONS.items():
        search.offer(step, lambda program, change=change: claiming_less(change(program)))


def _without_modules(program: Program) -> Program:
    graphs = {
        name: graph.with_nodes(
            [node.evolve(stack=()) for node in graph.nodes if not is_boundary(node)]
        )
        for name, graph in ((name, program.graphs[name]) for name in program.order)
    }
    return program.evolve(graphs=pmap(graphs), modules=(), call_signatures=pmap())


DESCRIPTIONS: Mapping[str, Callable[[Program], Program]] = {
    "order effects without tokens": remove_effect_tokens,
    "take arguments and return results one by one": lambda program: with_interface(
        program, program.main, program.signature.inputs, program.signature.outputs
    ),
    "drop the modules": _without_modules,
    "drop dead code and state": lambda program: eliminate_dead_code(program, state=True),
    "drop unused inputs and state": without_unused,
}


def open_bodies(search: Search) -> None:
    """Inline module calls, and replace operators by one of their bodies."""
    if "split" in search.program.facts:
        search.offer("join the parts", lambda program: claiming_less(join(program)), larger=True)
    if any(search.program.graphs[name].called for name in search.program.order):
        search.offer(
            "inline all calls", lambda program: claiming_less(inline(program)), larger=True
        )
    for node in search.program.main.callers:
        for body in dict.fromkeys(node.bodies):
            step = f"replace {node.name} by {body}"
            search.offer(
                step,
                lambda program, at=node, body=body: _opened_operator(program, at, body),
                larger=True,
            )


def _opened_operator(program: Program, node: Node, body: str) -> Program | None:
    operands = (
        _operands(node, len(program.graphs[body].inputs))
        if program.main.by_name.get(node.name) is node
        else None
    )
    if operands is None:
        return None
    edit = Rewriter(program.main)
    edit.put(
        edit.position[node.name],
        node.evolve(do=Call(Frame("body"), body), args=operands, kwargs=(), stack=()),
    )
    called = program.with_main(edit.graph())
    main = inlined(called, called.main, into=frozenset([body]).__contains__)
    nodes = [
        each.evolve(stack=tuple([frame for frame in each.stack if frame.path != "body"]))
        for each in main.nodes
    ]
    return claiming_less(program.with_main(main.with_nodes(nodes)).pruned())


def _operands(node: Node, count: int) -> tuple[Any, ...] | None:
    # The operands of the body: a list of that length at the end of the arguments, or the last arguments.
    args = [arg for arg in node.args if not isinstance(arg, Body)]
    if args and type(args[-1]) in (tuple, Items) and len(args[-1]) == count:
        return tuple(args[-1])
    return tuple(args[len(args) - count :]) if len(args) >= count else None


def bypass_nodes(search: Search) -> None:
    """Replace results of nodes by an operand, or by another value of the same type, in all bodies."""
    for name in search.program.order:

        def items(program: Program, name: str = name) -> Sequence[str]:
            graph = program.graphs.get(name)
            return (
                [node.name for node in graph.nodes if type(node.do) is Op]
                if graph is not None
                else []
            )

        def change(program: Program, gone: Sequence[str], name: str = name) -> Program | None:
            graph = _bypassed(program.graphs[name], frozenset(gone))
            return (
                claiming_less(without_unused(program.with_graphs({name: graph})))
                if graph is not None
                else None
            )

        drop(search, items, change, "bypass")


def _bypassed(graph: Graph, gone: frozenset[str]) -> Graph | None:
    edit, used = Rewriter(graph), {*graph.users, *graph.output_refs()}
    known: dict[str, str] = {formal.name: formal.name for formal in graph.inputs}
    for node in graph.nodes:
        known[node.name] = node.name
        if node.name not in gone:
            continue
        mine = _facts(graph, node.name)
        there = [known[name] for name in (*node.refs(), *reversed(known)) if name != node.name]
        other = next(
            (name for name in there if name not in gone and _facts(graph, name) == mine), None
        )
        if other is not None:
            known[node.name] = other
            edit.drop(node.name, Ref(other))
        elif node.name in used:
            return None
        else:
            edit.erase(node.name)
    return edit.graph()


def _facts(graph: Graph, name: str) -> object:
    value = graph.metas[name].get("val")
    if isinstance(value, torch.Tensor):
        return (value.dtype, str(tuple(value.shape)), str(device_of(value)))
    return None if value is None else (type(value), str(value))


PASSES = (
    drop_nodes,
    describe_less,
    drop_nodes,
    drop_outputs,
    open_bodies,
    bypass_nodes,
    read_less,
    use_usual_types,
    shrink_sizes,
    simplify_literals,
)
"""The reductions, repeated in this order until none finds a smaller program.  Those that drop most come first, because tests of
large programs are slow; nodes are dropped again after metadata that may have kept them."""


@frozen
class Minimized:
    """The minimized program, and statistics of the search.

    >>> from purefx.ir import Graph
    >>> print(str(Minimized(Program.of({"": Graph((), ())}), 3, 0.1, ("drop y",))).rstrip())
    program {
      graph @""() {
        return ()
      }
    }
    """

    program: Program
    """A valid program on which the fault occurs."""
    tried: int = field(eq=False)
    """How many programs were tested with ``is_wrong``."""
    seconds: float = field(eq=False)
    """The duration."""
    steps: tuple[str, ...]
    """The reductions, in order."""

    def __str__(self) -> str:
        return self.program.text()


def minimize(
    program: Program, is_wrong: Callable[[Program], bool], *, seconds: float = 60.0
) -> Minimized:
    """Minimize a program on which a fault occurs, so that it still occurs.

    Before::

        graph ""(ids, ...)         a Llama: 2,000 nodes in 300 modules; a rewrite is wrong for one of them

    After::

        graph ""(linear_118)       silu = aten.silu.default(linear_118);  return (silu,)

    Nodes and module calls are replaced by inputs of the same types, many at once.  Outputs and state are dropped, calls and
    branches inlined, results of nodes replaced by operands; then sizes, dtypes and literals get simpler.  A candidate is tested
    if it is valid and smaller than the best program so far.  Candidates compute something else, so ``is_wrong`` has to decide for
    any program whether it is wrong, on arguments that it makes for it (``px.laws.example_args``).

    Laws: the result is valid, wrong, never larger, and the same for each run; minimizing it again does not change it.

    Args:
        program: any valid program, at any stage.
        is_wrong: whether a program is wrong, such as
            ``lambda program: meaning(rewrite(program)) != meaning(program)``.  If it raises, the program counts as not wrong: if
            the exception is the fault, catch it and return True.  Its result must not depend on earlier calls.
        seconds: the time limit, after which the smallest program so far is returned.  A running test is not interrupted.

    Returns:
        The smallest program found.  Its signature has no pytrees, so ``px.lower(found.program)`` takes and returns the values one
        by one.

    Raises:
        InvalidProgram: the program breaks invariants.
        ArgumentError: ``program`` is not a Program, or ``is_wrong`` is not a function.
        MinimizeError: ``is_wrong`` returns False for the program itself, or raises.

    >>> import torch, purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
    >>> program = px.import_ep(torch.export.export(model, (torch.ones(1, 2),)))
    >>> found = px.minimize(program, lambda program: "aten.relu.default" in program.text())
    >>> print(found.program.main)
    graph @""(linear) {
      relu = aten.relu.default(linear)
      return ()
    }
    """
    a_program(program, "minimize", is_wrong=is_wrong)
    a_function(
        is_wrong, "is_wrong of minimize", "a function of a program that returns whether it is wrong"
    )
    search = Search(check(program), is_wrong, seconds=seconds)
    search.begin()
    before = None
    try:
        while search.program is not before:
            before = search.program
            for step in PASSES:
                step(search)
    except TimeIsUp:
        search.steps.append("the time was up")
    return Minimized(search.best, search.tried, search.seconds, tuple(search.steps))
