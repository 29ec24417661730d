"""``first_difference``: find the first value in which two supposedly equal programs differ.

Both run on the same arguments, node by node, as flat programs, so a tree and its flat program have the same values.  Values are
matched by name, results by position, state by name.  All values of both runs are kept: this is for debugging.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import evolve, frozen

from ..ir.effects.resolved import node_effects
from ..ir.errors import ArgumentError, InputError
from ..ir.graph import Graph, place_of
from ..ir.importing import import_ep, import_fx
from ..ir.meta import source_line
from ..ir.program import Program
from ..ir.text import print_node
from ..ir.torch_private import outside_of_levels, pytree, without_levels
from ..ir.validation import call_arguments, kind_of
from ..lowering.calls.arguments import CallPlan
from ..transforms import expand, inline, remove_effect_tokens
from .evaluate import Contents, Meaning, Tolerance, differences, evaluate
from .purity import seeded
from .toy import TensorMachine

NEW = 5
"""The number of listed values without a counterpart."""


@frozen
class Difference:
    """The first value that differs, and its surroundings.

    >>> print(Difference("relu", "layers.0 / relu", 0, "1 of 2 numbers differ", a="relu = f(x)", b="relu = g(x)", before="y"))
    the first value that differs is layers.0 / relu, in call 0: 1 of 2 numbers differ
      a: relu = f(x)
      b: relu = g(x)
      the last value before it that agrees: y
    """

    name: str
    """The value in ``b``; an output, an input or a slot of the state if no value before them differs."""
    where: str
    """The module path and the name."""
    call: int
    """The number of the call, from 0."""
    how: str
    """The difference in words."""
    a: str = ""
    """The node that computes it in the first program."""
    b: str = ""
    """The node that computes it in the second."""
    line: str = ""
    """The line of the user's code."""
    before: str = ""
    """The last value that agrees."""
    new: tuple[str, ...] = ()
    """Later values of ``b`` that ``a`` does not have."""

    def __str__(self) -> str:
        lines = [f"the first value that differs is {self.where}, in call {self.call}: {self.how}"]
        lines += [f"  {which}: {text}" for which, text in (("a", self.a), ("b", self.b)) if text]
        lines += [f"  from {self.line}"] if self.line else []
        lines += [f"  the last value before it that agrees: {self.before}"] if self.before else []
        lines += (
            [f"  later values of b that a does not have: {', '.join(self.new)}"] if self.new else []
        )
        return "\n".join(lines)


def first_difference(
    a: Any,
    b: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    calls: int = 1,
    rtol: float = 0.0,
    atol: float = 0.0,
    seed: int = 0,
) -> Difference | None:
    """Return the first value in which two supposedly equal programs differ, or None.

    Args:
        a: the program before: a ``Program`` at any stage, an ``ExportedProgram`` or a ``torch.fx.GraphModule``.
        b: the program after.
        args: the positional arguments of the module.
        kwargs: keyword arguments.
        calls: the number of consecutive calls; state is kept between them.
        rtol: relative tolerance of floating point values; by default they are compared bit by bit.
        atol: absolute tolerance.
        seed: the seed of torch's generator for both.

    Returns:
        The difference, with both nodes and the user's line.  A written value is compared at the node that writes it.  If values
        have no counterpart, outputs, inputs and state are compared at the end.

    Raises:
        InputError: ``args`` do not fit a program.
        ArgumentError: ``a`` or ``b`` is not a program, or ``args`` is not a tuple.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), (torch.ones(2),)))
    >>> wrong = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.neg(x))(program)
    >>> found = first_difference(program, wrong, (torch.ones(2),))
    >>> found.name, found.how.rpartition(": ")[2]
    ('tanh', '2 of 2 numbers differ, by up to 1.5')
    >>> first_difference(program, px.transform(program), (torch.ones(2),)) is None
    True
    """
    call_arguments(args, kwargs, "first_difference")
    one, other = _flat(a, "a"), _flat(b, "b")
    leaves = [
        _leaves(program, which, args, dict(kwargs or {}))
        for program, which in ((one, "a"), (other, "b"))
    ]
    tolerance, expected, given = Tolerance(rtol, atol), dict[_Key, Any](), dict[_Key, Any]()
    first = _run(one, [leaves[0]] * calls, seed, expected)
    try:
        second = _run(other, [leaves[1]] * calls, seed, given)
    except Exception as error:  # noqa: BLE001  the first program ran, so the exception is the difference
        end = {"how": f"after it, b raises {type(error).__name__}: {error}"}
    else:
        end = _at_the_end(first, second, tolerance)
    if end is None:
        return None
    found = _compared(given, expected, tolerance)
    return _located(found if found.how else evolve(found, **end), one.main, other.main)


def _flat(given: Any, which: str) -> Program:
    if isinstance(given, torch.export.ExportedProgram):
        given = import_ep(given)
    elif isinstance(given, torch.fx.GraphModule):
        given = import_fx(given)
    if not isinstance(given, Program):
        advice = "pass a Program, an ExportedProgram or a GraphModule; px.capture(module, args) imports a module"
        raise ArgumentError(f"{which} is {kind_of(given)}, not a program: {advice}")
    return inline(expand(remove_effect_tokens(given)))


def _leaves(
    program: Program, which: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    try:
        return list(CallPlan(program).bound(args, kwargs))
    except InputError as error:
        raise InputError(f"args do not fit {which}: {error}") from error


_Key = tuple[int, str, str]
"""The call, the node, and the value that it computes or writes."""


def _run(
    program: Program, calls: Sequence[Sequence[Any]], seed: int, kept: dict[_Key, Any]
) -> Meaning:
    effects = dict(
        zip(
            [node.name for node in program.main.nodes],
            node_effects(program, program.main),
            strict=True,
        )
    )
    values: dict[str, Any] = {}
    count = 0

    def look(graph: str, part: Any, value: Any) -> None:
        nonlocal count
        if graph != program.root:
            return
        if part.name in values:
            values.clear()
            count += 1
        values[part.name] = pytree.tree_map_only(torch.Tensor, outside_of_levels, value)
        with without_levels():
            for name in (part.name, *(effects[part.name].writes if part.name in effects else ())):
                kept[count, part.name, name] = pytree.tree_map(_comparable, values.get(name))

    with seeded(seed), torch.no_grad():
        return evaluate(program, calls, TensorMachine(), seen=look)


def _comparable(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return Contents(leaf.detach().clone())
    # Each run has a copy of an object; if it only equals itself, compare its contents with the state at the end.
    alone = isinstance(leaf, torch.ScriptObject) or type(leaf).__eq__ is object.__eq__
    return type(leaf) if alone else leaf


def _compared(
    given: Mapping[_Key, Any], expected: Mapping[_Key, Any], tolerance: Tolerance
) -> Difference:
    # The first value that differs; without words if all values agree that have a counterpart.
    call, before, new = 0, "", list[str]()
    for key, value in given.items():
        call, node, name = key
        if key not in expected:
            new += [name] if node == name else []
        elif not (text := _difference(value, expected[key], tolerance)):
            before, new = node, []
        elif all(
            each[0] != call or _difference(value, known, tolerance)
            for each, known in expected.items()
        ):
            # No value of the call is equal, so more than names were swapped.
            how = text if node == name else f"it writes {name}: {text}"
            return Difference(node, node, call, how, before=before, new=tuple(new[:NEW]))
    return Difference(before, before, call, "", before=before, new=tuple(new[:NEW]))


def _difference(given: Any, expected: Any, tolerance: Tolerance) -> str:
    found = differences(given, expected, "", tolerance)
    return found[0].removeprefix(": ") if found else ""


def _located(found: Difference, one: Graph, other: Graph) -> Difference:
    mine, theirs = (graph.by_name.get(found.name) for graph in (one, other))
    nodes = [node for node in (theirs, mine) if node is not None]
    line = next((line for node in nodes if (line := source_line(node.meta))), "") or ""
    texts = ["" if node is None else print_node(node) for node in (mine, theirs)]
    return evolve(
        found, where=place_of(nodes[0]) if nodes else found.where, a=texts[0], b=texts[1], line=line
    )


def _at_the_end(first: Meaning, second: Meaning, tolerance: Tolerance) -> dict[str, Any] | None:
    results = (("output", second.outputs, first.outputs), ("input", second.inputs, first.inputs))
    pairs = [
        (call, what, *pair)
        for what, *both in results
        for call, pair in enumerate(zip(*both, strict=True))
    ]
    known = dict(first.state)
    pairs += [
        (len(first.outputs) - 1, f"the state {name}", one, known[name])
        for name, one in second.state
        if name in known
    ]
    for call, what, given, expected in pairs:
        for text in differences(given, expected, what, tolerance):
            name, _, how = text.partition(": ")
            return {"name": name, "where": name, "call": call, "how": how}
    return None
