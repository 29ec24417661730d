"""``first_difference``: where two programs part that should compute the same, value by value.

Both run on the same arguments, one node after the other, as flat programs, so that a tree and the program it was outlined from
have the same values.  Values are matched by name, which rewrites keep, and results by position, inputs and state by what they
are.  What the first run gave is kept until the second is over: this is for debugging, and needs memory for all values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, frozen

from ..ir.effects.resolved import node_effects
from ..ir.errors import ArgumentError, InputError
from ..ir.graph import Graph, Node, place_of
from ..ir.importing import import_ep, import_fx
from ..ir.program import Program
from ..ir.taking import call_arguments, kind_of
from ..ir.text import print_node
from ..ir.torch_private import outside_of_levels, pytree, without_levels
from ..ir.verify.findings import source_of
from ..lowering.calls.arguments import CallPlan
from ..transforms import expand, inline, remove_effect_tokens
from .evaluate import Meaning, Tolerance, evaluate
from .oracles import value_differences
from .purity import seeded
from .toy import TensorMachine

__all__ = ["Difference", "first_difference"]

NEW = 5
"""How many values without a counterpart are named."""


@frozen
class Difference:
    """The first value that differs, and what is around it.

    >>> print(Difference("relu", "layers.0 / relu", 0, "values differ by up to 2", a="relu = f(x)", b="relu = g(x)", before="y"))
    the first value that differs is layers.0 / relu, in call 0: values differ by up to 2
      a: relu = f(x)
      b: relu = g(x)
      the last value before it that agrees: y
    """

    name: str
    """Of the value in ``b``; of an output, an input or a piece of state where those differ and no value before them does."""
    where: str
    """The module path and the name."""
    call: int
    """In which call, from 0."""
    told: str
    """How it differs."""
    a: str = ""
    """The node that makes it in the first program."""
    b: str = ""
    """The node that makes it in the second."""
    line: str = ""
    """The line of the user's that it came from."""
    before: str = ""
    """The last value that agrees."""
    new: tuple[str, ...] = ()
    """Values of ``b`` since then that ``a`` has not."""

    def __str__(self) -> str:
        lines = [f"the first value that differs is {self.where}, in call {self.call}: {self.told}"]
        lines += [f"  {which}: {text}" for which, text in (("a", self.a), ("b", self.b)) if text]
        lines += [f"  from {self.line}"] if self.line else []
        lines += [f"  the last value before it that agrees: {self.before}"] if self.before else []
        lines += [f"  values of b since then that a has not: {', '.join(self.new)}"] if self.new else []
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
    """Return the first value in which two programs differ that should compute the same; None where nothing differs.

    Args:
        a: the program before: a ``Program`` at any stage, an ``ExportedProgram`` or a ``torch.fx.GraphModule``.
        b: the program after.
        args: positional arguments, as the module takes them.
        kwargs: keyword arguments.
        calls: how often in a row both run; state goes from one call to the next.
        rtol: relative tolerance of floating values; by default they are compared bit by bit.
        atol: absolute tolerance.
        seed: of torch's generator, the same for both.

    Returns:
        The difference, with both nodes and the user's line; a value that a node writes is compared at that node.  Where values
        have no counterpart, outputs, inputs afterwards and state tell.

    Raises:
        InputError: ``args`` are not what a program takes.
        ArgumentError: ``a`` or ``b`` is no program, ``args`` no tuple.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), (torch.ones(2),)))
    >>> wrong = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.neg(x))(program)
    >>> found = first_difference(program, wrong, (torch.ones(2),))
    >>> found.name, found.told
    ('tanh', 'values differ by up to 1.5')
    >>> first_difference(program, px.transform(program), (torch.ones(2),)) is None
    True
    """
    call_arguments(args, kwargs, "first_difference")
    one, other = _flat(a, "a"), _flat(b, "b")
    leaves = [_leaves(program, which, args, dict(kwargs or {})) for program, which in ((one, "a"), (other, "b"))]
    kept = _Kept()
    first = _run(one, [leaves[0]] * calls, seed, kept.seen)
    looking = _Looking(kept, Tolerance(rtol, atol))
    try:
        second = _run(other, [leaves[1]] * calls, seed, looking.seen)
    except Exception as error:  # noqa: BLE001  the first one ran: what the second raises is the difference
        told = f"after it, b raises {type(error).__name__}: {error}"
        return _told(looking.found or Difference(looking.before, looking.before, looking.call, told), one.main, other.main)
    at_the_end = _at_the_end(first, second, looking)
    return at_the_end and (_told(looking.found, one.main, other.main) if looking.found else at_the_end)


def _flat(given: Any, which: str) -> Program:
    match given:
        case Program():
            program = given
        case torch.export.ExportedProgram():
            program = import_ep(given)
        case torch.fx.GraphModule():
            program = import_fx(given)
        case _:
            said = "give a Program, an ExportedProgram or a GraphModule; px.capture(module, args) makes a program of a module"
            raise ArgumentError(f"{which} is {kind_of(given)}, and no program: {said}")
    return inline(expand(remove_effect_tokens(program)))


def _leaves(program: Program, which: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    try:
        return list(CallPlan(program).bound(args, kwargs))
    except InputError as error:
        raise InputError(f"args are not those of {which}: {error}") from error


def _run(program: Program, calls: Sequence[Sequence[Any]], seed: int, seen: Callable[..., None]) -> Meaning:
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
        value = pytree.tree_map_only(torch.Tensor, outside_of_levels, value)
        values[part.name] = value
        with without_levels():
            seen(count, part.name, part.name, value)
            for written in effects[part.name].writes if part.name in effects else ():
                seen(count, part.name, written, values.get(written))

    with seeded(seed), torch.no_grad():
        return evaluate(program, calls, TensorMachine(), seen=look)


@define
class _Kept:
    """What the first program computed, by call, node and the value that the node makes or writes."""

    values: dict[tuple[int, str, str], Any] = field(factory=dict)

    def seen(self, call: int, node: str, name: str, value: Any) -> None:
        """Keep a value as it is now."""
        self.values[call, node, name] = _copied(value)

    def has(self, call: int, value: Any, tolerance: Tolerance) -> bool:
        """Return whether some value of a call is this one: names may have changed places."""
        return any(one == call and not _differences(value, known, tolerance) for (one, _, _), known in self.values.items())


def _copied(value: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else _comparable(leaf), value)


def _comparable(leaf: Any) -> Any:
    # Each run has a copy of an object, and one that only equals itself is compared by what it holds, with the state at the end.
    alone = isinstance(leaf, torch.ScriptObject) or type(leaf).__eq__ is object.__eq__
    return type(leaf) if alone else leaf


@define
class _Looking:
    """Compares what the second program computes, as it computes it, until something differs."""

    kept: _Kept
    tolerance: Tolerance
    found: Difference | None = None
    before: str = ""
    call: int = 0
    new: list[str] = field(factory=list)

    def seen(self, call: int, node: str, name: str, value: Any) -> None:
        """Compare a value with its counterpart."""
        if self.found is not None:
            return
        self.call = call
        if (call, node, name) not in self.kept.values:
            self.new += [name] if node == name else []
            return
        value = pytree.tree_map(_comparable, value)
        told = _differences(value, self.kept.values[call, node, name], self.tolerance)
        if not told:
            self.before, self.new = node, []
        elif not self.kept.has(call, value, self.tolerance):
            said = told if node == name else f"it writes {name}: {told}"
            self.found = Difference(node, node, call, said, before=self.before, new=tuple(self.new[:NEW]))


def _differences(given: Any, expected: Any, tolerance: Tolerance) -> str:
    found = value_differences(given, expected, rtol=tolerance.rtol, atol=tolerance.atol, where="")
    return found[0].removeprefix(": ") if found else ""


def _told(found: Difference, one: Graph, other: Graph) -> Difference:
    mine, theirs = (graph.by_name.get(found.name) for graph in (one, other))
    nodes = [node for node in (theirs, mine) if node is not None]
    line = next((line for node in nodes if (line := source_of(node.meta))), "") or ""
    where = place_of(nodes[0]) if nodes else found.where
    return Difference(
        found.name, where, found.call, found.told, _text(mine), _text(theirs), line, before=found.before, new=found.new
    )


def _text(node: Node | None) -> str:
    return "" if node is None else print_node(node)


def _at_the_end(first: Meaning, second: Meaning, looking: _Looking) -> Difference | None:
    for call, what, given, expected in _seen_outside(first, second):
        if given != expected and (told := _contents(given, expected, looking.tolerance)):
            return Difference(what, what, call, told, before=looking.before, new=tuple(looking.new[-NEW:]))
    return None


def _seen_outside(first: Meaning, second: Meaning) -> Iterator[tuple[int, str, Any, Any]]:
    for word, mine, theirs in (("output", second.outputs, first.outputs), ("input", second.inputs, first.inputs)):
        for call, (given, expected) in enumerate(zip(mine, theirs, strict=True)):
            if len(given) != len(expected):
                yield call, f"the number of {word}s", len(given), len(expected)
            for number, (one, other) in enumerate(zip(given, expected, strict=False)):
                yield call, f"{word} {number}", one, other
    last = len(first.outputs) - 1
    known = dict(first.state)
    for name, given in second.state:
        if name in known:
            yield last, f"the state {name}", given, known[name]


def _contents(given: Any, expected: Any, tolerance: Tolerance) -> str:
    tensors = [one.tensor() if hasattr(one, "tensor") else one for one in (given, expected)]
    return _differences(tensors[0], tensors[1], tolerance)
