"""``first_difference``: find the first value in which two supposedly equal programs differ.

Both run on the same arguments, node by node, as flat programs, so a tree and its flat program have the same values.  Values are
matched by name, results by position, state by name.  All values of the first run are kept: this is for debugging.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, evolve, field, frozen

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
        lines += [f"  later values of b that a does not have: {', '.join(self.new)}"] if self.new else []
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
    leaves = [_leaves(program, which, args, dict(kwargs or {})) for program, which in ((one, "a"), (other, "b"))]
    kept: dict[_Key, Any] = {}
    first = _run(one, [leaves[0]] * calls, seed, kept.__setitem__)
    comparing = _Comparing(kept, Tolerance(rtol, atol))
    try:
        second = _run(other, [leaves[1]] * calls, seed, comparing.compare)
    except Exception as error:  # noqa: BLE001  the first program ran, so the exception is the difference
        text = f"after it, b raises {type(error).__name__}: {error}"
        return _located(comparing.found or comparing.difference(comparing.before, text), one.main, other.main)
    at_the_end = _at_the_end(first, second, comparing)
    return at_the_end and (_located(comparing.found, one.main, other.main) if comparing.found else at_the_end)


def _flat(given: Any, which: str) -> Program:
    match given:
        case Program():
            program = given
        case torch.export.ExportedProgram():
            program = import_ep(given)
        case torch.fx.GraphModule():
            program = import_fx(given)
        case _:
            advice = "pass a Program, an ExportedProgram or a GraphModule; px.capture(module, args) imports a module"
            raise ArgumentError(f"{which} is {kind_of(given)}, not a program: {advice}")
    return inline(expand(remove_effect_tokens(program)))


def _leaves(program: Program, which: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    try:
        return list(CallPlan(program).bound(args, kwargs))
    except InputError as error:
        raise InputError(f"args do not fit {which}: {error}") from error


_Key = tuple[int, str, str]
"""The call, the node, and the value that it computes or writes."""


def _run(program: Program, calls: Sequence[Sequence[Any]], seed: int, seen: Callable[[_Key, Any], None]) -> Meaning:
    effects = dict(zip([node.name for node in program.main.nodes], node_effects(program, program.main), strict=True))
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
                seen((count, part.name, name), pytree.tree_map(_comparable, values.get(name)))

    with seeded(seed), torch.no_grad():
        return evaluate(program, calls, TensorMachine(), seen=look)


def _comparable(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return Contents(leaf.detach().clone())
    # Each run has a copy of an object; if it only equals itself, compare its contents with the state at the end.
    alone = isinstance(leaf, torch.ScriptObject) or type(leaf).__eq__ is object.__eq__
    return type(leaf) if alone else leaf


@define
class _Comparing:
    """Compares the values of the second program with those of the first, until one differs."""

    kept: dict[_Key, Any]
    tolerance: Tolerance
    found: Difference | None = None
    before: str = ""
    call: int = 0
    new: list[str] = field(factory=list)

    def compare(self, key: _Key, value: Any) -> None:
        """Compare a value with its counterpart."""
        if self.found is not None:
            return
        self.call, node, name = key
        if key not in self.kept:
            self.new += [name] if node == name else []
            return
        text = self.differences(value, self.kept[key])
        if not text:
            self.before, self.new = node, []
        elif all(call != self.call or self.differences(value, known) for (call, _, _), known in self.kept.items()):
            # No value of the call is equal, so more than names were swapped.
            self.found = self.difference(node, text if node == name else f"it writes {name}: {text}")

    def differences(self, given: Any, expected: Any) -> str:
        """Return the first difference of two values, in words."""
        found = differences(given, expected, "", self.tolerance)
        return found[0].removeprefix(": ") if found else ""

    def difference(self, name: str, how: str, call: int | None = None) -> Difference:
        """Return a difference here."""
        return Difference(name, name, self.call if call is None else call, how, before=self.before, new=tuple(self.new[:NEW]))


def _located(found: Difference, one: Graph, other: Graph) -> Difference:
    mine, theirs = (graph.by_name.get(found.name) for graph in (one, other))
    nodes = [node for node in (theirs, mine) if node is not None]
    line = next((line for node in nodes if (line := source_line(node.meta))), "") or ""
    texts = ["" if node is None else print_node(node) for node in (mine, theirs)]
    return evolve(found, where=place_of(nodes[0]) if nodes else found.where, a=texts[0], b=texts[1], line=line)


def _at_the_end(first: Meaning, second: Meaning, comparing: _Comparing) -> Difference | None:
    results = (("output", second.outputs, first.outputs), ("input", second.inputs, first.inputs))
    pairs = [(call, what, *pair) for what, *both in results for call, pair in enumerate(zip(*both, strict=True))]
    known = dict(first.state)
    pairs += [(len(first.outputs) - 1, f"the state {name}", one, known[name]) for name, one in second.state if name in known]
    for call, what, given, expected in pairs:
        for text in differences(given, expected, what, comparing.tolerance):
            name, _, how = text.partition(": ")
            return comparing.difference(name, how, call)
    return None
